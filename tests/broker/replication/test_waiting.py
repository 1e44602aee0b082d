"""Answers that wait for replicas: many at once, with a slave that is slow, and with a disk that is late too."""

import asyncio
import struct
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

import pytest

from bolide.model.queue import QueueKey
from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import Command
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.remoting.session import Session
from tests.broker.metering import PROM, scrape
from tests.broker.replication.replicas import Group, Life, group
from tests.remoting.loops import eventually, virtual_time
from tests.store.given import draft

WAITERS = 64
BODY = b"m" * (1 << 20)
LIMIT_S = 60


class HandSlave:
    """A slave of the plain stream that reports what it is told to, when it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.got_to = 0

    @classmethod
    async def connect(cls, master: Life) -> "HandSlave":
        slave = cls(*await asyncio.open_connection("127.0.0.1", master.broker.replication.port))
        slave.report(master.store.log_end)
        await eventually(lambda: bool(master.broker.replication.acks.ends), LIMIT_S)
        return slave

    def report(self, end: int) -> None:
        self._writer.write(struct.pack(">q", end))

    async def read_forever(self) -> None:
        while True:
            offset, size = struct.unpack(">qi", await self._reader.readexactly(12))
            await self._reader.readexactly(size)
            self.got_to = offset + size

    def leave(self) -> None:
        self._writer.close()


async def send_all(brokers: Group, master: Life, clients: list[Client]) -> dict[int, tuple[int, float]]:
    """Many senders at once: by the place of the message in its queue, the code and when it came."""
    told: dict[int, tuple[int, float]] = {}

    async def send(client: Client) -> None:
        fields = {"a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "h": "0", "j": "0"}
        fields |= {"g": str(brokers.clock.now_ms()), "i": ""}
        answer = await client.request(master.address, Command(310, fields=fields, body=BODY), LIMIT_S)
        told[int(answer.fields["queueOffset"])] = answer.code, brokers.clock.monotonic_s()

    async with asyncio.TaskGroup() as senders:
        for number in range(WAITERS):
            senders.create_task(send(clients[number % len(clients)]), name=f"sender.{number}")
    return told


@pytest.mark.feature("F197")
@virtual_time
async def test_of_many_who_wait_for_a_slow_slave_nobody_hears_too_late_who_was_acknowledged(tmp_path: Path) -> None:
    settings = {"mappedFileSizeCommitLog": str(16 << 20), "waitTimeMillsInSendQueue": "60000"}
    async with group(tmp_path) as brokers, AsyncExitStack() as stack, asyncio.TaskGroup() as reading:
        master = await brokers.master(brokerRole="SYNC_MASTER", **settings)
        slave = await HandSlave.connect(master)
        reader = reading.create_task(slave.read_forever(), name="slave")
        clients = [await stack.enter_async_context(Client(ConnectConfig(), brokers.clock)) for _ in range(16)]
        queue = ("T", 0)

        async def report_slowly() -> None:
            """A third within a second, two thirds just in time, the rest too late."""
            await eventually(lambda: master.store.next_offset(_key(queue)) == WAITERS, LIMIT_S)
            began_s = brokers.clock.monotonic_s()
            entries = master.store.find_queue(queue)
            assert entries is not None
            for at_s, count in ((0.5, 20), (1.5, 40), (4.0, WAITERS)):
                await asyncio.sleep(began_s + at_s - brokers.clock.monotonic_s())  # virtual
                place, size, _ = entries.entry(count - 1)
                slave.report(place + size)

        reading.create_task(report_slowly(), name="reports")
        told = await send_all(brokers, master, clients)
        codes = [told[number][0] for number in range(WAITERS)]
        assert codes == [0] * 40 + [ResponseCode.FLUSH_SLAVE_TIMEOUT] * (WAITERS - 40)
        assert master.store.max_offset(_key(queue)) == WAITERS, "all are stored"
        reader.cancel()
        slave.leave()


def _key(queue: tuple[str, int]) -> QueueKey:

    return QueueKey(*queue)


@virtual_time
async def test_where_disk_and_replica_are_late_the_replica_is_named(tmp_path: Path) -> None:
    settings = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "1000", "slaveTimeout": "2000"}
    async with group(tmp_path) as brokers:
        master = await brokers.master(brokerRole="SYNC_MASTER", **settings)
        slave = await HandSlave.connect(master)
        stuck = asyncio.Event()
        flush = master.store.flush_in_thread

        async def flush_late() -> None:
            await stuck.wait()
            await flush()

        master.store.flush_in_thread = flush_late  # type: ignore[method-assign]
        began_s = brokers.clock.monotonic_s()
        answer = await brokers.send(master, b"x")
        assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert 1.99 < brokers.clock.monotonic_s() - began_s < 2.2, "both have their own time"
        stuck.set()
        slave.leave()


@virtual_time
async def test_the_masters_page_says_how_many_bytes_a_slave_has_not_reported(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        master = await brokers.master(**PROM)
        name = "bolide_replica_behind_bytes"
        assert (await scrape(master.broker)).value(name) is None
        slave = await HandSlave.connect(master)
        reported = master.store.log_end
        assert (await scrape(master.broker)).value(name) == 0
        for number in range(3):
            await brokers.send(master, b"%d" % number)
        assert (await scrape(master.broker)).value(name) == master.store.log_end - reported > 0
        slave.report(master.store.log_end)
        (leading,) = master.broker.replication.slaves
        await eventually(lambda: master.broker.replication.slaves[0].lag_size == 0, LIMIT_S)
        assert (await scrape(master.broker)).value(name, replica=leading.address) == 0
        slave.leave()
        await eventually(lambda: not master.broker.replication.slaves, LIMIT_S)
        assert (await scrape(master.broker)).value(name) is None


class HeldSession:
    """What a session does for answers that wait."""

    def __init__(self) -> None:
        self.held_count = 0
        self.pushed: list[bytes] = []

    def hold(self, count: int) -> None:
        self.held_count += count

    def release(self, count: int) -> None:
        self.held_count -= count

    def push(self, frames: bytes) -> None:
        self.pushed.append(frames)


@virtual_time
async def test_answers_of_one_turn_wait_as_one_and_each_session_has_its_own(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        master = await brokers.master(brokerRole="SYNC_MASTER")
        slave = await HandSlave.connect(master)
        acks, waits = master.broker.replication.acks, list[int]()
        wait = acks.wait

        def counted(end: int) -> asyncio.Future[None]:
            waits.append(end)
            return wait(end)

        acks.wait = counted  # type: ignore[method-assign]
        master.broker.intake.append_own([draft(b"x")])
        sessions = [HeldSession() for _ in range(5)]
        answered = [(cast(Session, session), b"answer %d" % i, i + 1) for i, session in enumerate(sessions)]
        master.broker.intake.push_when_safe(answered)
        assert waits == [master.store.log_end]
        assert [session.held_count for session in sessions] == [1, 2, 3, 4, 5]
        slave.report(master.store.log_end - 1)
        await asyncio.sleep(1)  # virtual
        assert not any(session.pushed for session in sessions), "the slave has not all of it"
        slave.report(master.store.log_end)
        await eventually(lambda: not any(session.held_count for session in sessions), LIMIT_S)
        assert [session.pushed for session in sessions] == [[b"answer %d" % i] for i in range(5)]
        slave.leave()
