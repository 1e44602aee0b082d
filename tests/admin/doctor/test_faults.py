"""Faults built in real clusters, several in each, and the doctor's findings of them; the healthy one has none."""

import asyncio
import json
import os
import resource
import shutil
import socket
import threading
from collections import namedtuple
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide import aio
from bolide.admin.doctor.checks import examine
from bolide.admin.doctor.facts import Facts
from bolide.admin.doctor.findings import Finding, Severity
from bolide.admin.doctor.gather import Doctor, machine_of
from bolide.broker.admin.status import Status
from bolide.broker.later.delay import Delays
from bolide.broker.later.timers import Timers
from bolide.client.config import Credentials
from bolide.clock import SystemClock
from bolide.protocol.bodies import ConsumerMember, GroupConfig, Heartbeat, Subscription
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.store.disk import Disk
from bolide.testing import AsyncCluster, cluster

LIMIT_S = 30.0
POLL_INTERVAL_S = 0.02
DAY_MS = 86_400_000
CLOSED = "127.0.0.1:1"  # nobody listens there
Usage = namedtuple("Usage", "total used free")


class ShiftedClock(SystemClock):
    """The machine's, and so many milliseconds."""

    shift_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.shift_ms


class Hands:
    """Requests of no client of ours, each connection by a number."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._clients: dict[int, Client] = {}
        self._groups: set[tuple[str, str]] = set()

    async def tell(self, address: str, code: int, fields: dict[str, Any], body: bytes = b"", by: int = 0) -> None:
        if by not in self._clients:
            self._clients[by] = await self._stack.enter_async_context(Client(ConnectConfig(), SystemClock()))
        texts = {name: str(value) for name, value in fields.items()}
        answer = await self._clients[by].request(address, Command(code, fields=texts, body=body), LIMIT_S)
        assert answer.code == 0, answer.remark

    async def beat(self, address: str, client_id: str, group: str, topic: str, tags: str = "*", by: int = 0) -> None:
        subscribed = [Subscription(topic=topic, sub_string=tags, tags_set=[] if tags == "*" else [tags])]
        member = ConsumerMember(group_name=group, subscription_data_set=subscribed)
        body = Heartbeat(client_id=client_id, consumer_data_set=[member]).encode()
        await self.tell(address, RequestCode.HEART_BEAT, {}, body, by)

    async def claim(self, namesrv: str, name: str, address: str, broker_id: int = 0, by: int = 0) -> None:
        """Register a broker that may or may not be there; it is known for as long as the connection lasts."""
        table = {"topicConfigTable": {}, "dataVersion": {"counter": 1, "timestamp": 1}}
        body = json.dumps({"topicConfigSerializeWrapper": table, "filterServerList": []}).encode()
        fields = {"brokerName": name, "brokerAddr": address, "clusterName": "DefaultCluster", "brokerId": broker_id}
        await self.tell(namesrv, RequestCode.REGISTER_BROKER, {**fields, "haServerAddr": CLOSED}, body, by)

    async def make(self, address: str, topic: str, read: int = 4, write: int = 4, permission: int = 6) -> None:
        fields = {"topic": topic, "defaultTopic": "TBW102", "perm": permission, "topicFilterType": "SINGLE_TAG"}
        fields |= {"readQueueNums": read, "writeQueueNums": write, "topicSysFlag": 0, "order": "false"}
        await self.tell(address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)

    async def commit(self, address: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        if (address, group) not in self._groups:
            self._groups.add((address, group))
            body = GroupConfig(group_name=group).encode()
            await self.tell(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
        await self.tell(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)


@asynccontextmanager
async def scene(**options: Any) -> AsyncIterator[tuple[AsyncCluster, Hands]]:
    async with AsyncExitStack() as stack, cluster(**options) as here:
        yield here, Hands(stack)


async def findings(here: AsyncCluster, **options: Any) -> list[Finding]:
    return examine(await Doctor(here.namesrv, **{"between_s": 0, **options}).gather())


def seen(found: Iterable[Finding], number: str) -> str:
    return "\n".join(finding.seen for finding in found if finding.number == number)


def test_topics_groups_and_name_servers_with_faults() -> None:
    """D01, D04, D05, D09, D10, D11, D12, D19, N03, N05."""

    async def run() -> list[Finding]:
        async with scene(brokers=2, namesrvs=2, settings={"autoCreateTopicEnable": "true"}) as (here, hands):
            one, other = (broker.address for broker in here.brokers)
            first, second = (node.address for node in here.namesrvs)
            await hands.make(one, "Lonely")
            for address in (one, other):
                await hands.make(address, "Narrow", read=1)
                await hands.make(address, "Shut", permission=4)
                await hands.make(address, "Crowded", read=1, write=1)
                await hands.commit(address, "crowd", "Crowded", 0, 0)
            for number in range(3):
                await hands.beat(one, f"member-{number}", "crowd", "Crowded", by=10 + number)
            for number in range(2):
                await hands.beat(one, "same@1", "twins", "Crowded", by=20 + number)
                await hands.beat(one, f"torn-{number}", "torn", "Crowded", tags=f"t{number}", by=30 + number)
            await here.create_topic("Dying", 1)
            await bury(here, "dead-cg", "Dying")
            for namesrv in (first, second):
                await hands.claim(namesrv, "gone", CLOSED, by=40)
            await hands.claim(second, "broker-0", other, by=41)
            await hands.claim(first, "known-to-one", CLOSED, by=42)
            return await findings(here)

    found = asyncio.run(run())
    assert "gone (0) is registered at 127.0.0.1:1" in seen(found, "D01")
    assert "group torn: " in seen(found, "D04")
    assert seen(found, "D05") == "group twins: 2 members call themselves same@1"
    assert "group dead-cg has 1 dead letter, new ones" in seen(found, "D09")
    assert "topic Lonely is on broker-0 and not on broker-1" in seen(found, "D10")
    assert "known-to-one" in seen(found, "D11")
    assert "broker broker-0 (0) is at" in seen(found, "D12")
    assert "Narrow on broker-1: 4 queues to write, 1 to read" in seen(found, "D19")
    assert "topic Shut on broker-0 takes no messages" in seen(found, "D19")
    assert "group crowd has 3 members for 2 queues" in seen(found, "D19")
    assert seen(found, "N03")
    assert "broker-0, broker-1: no topic for traces" in seen(found, "N05")


async def bury(here: AsyncCluster, group: str, topic: str) -> None:
    async with (
        aio.Producer("burying", here.namesrv) as producer,
        aio.Consumer(group, topic, here.namesrv, start_from=aio.StartFrom.oldest()) as consumer,
    ):
        await producer.send(topic, b"x")
        (await consumer.receive(1))[0].dead_letter("no use")


def test_two_brokers_that_take_each_others_place_at_one_name_server_are_found() -> None:
    """D12: one name server knows one of them at a time, so it is asked again."""

    async def run() -> list[Finding]:
        async with scene(brokers=2) as (here, hands):
            one, other = (broker.address for broker in here.brokers)

            async def flap() -> None:
                while True:
                    for number, address in enumerate((other, one)):
                        await hands.claim(here.namesrv, "broker-0", address, by=number)

            async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
                flapping = group.create_task(flap())
                found: list[Finding] = []
                while not seen(found, "D12"):
                    found = await findings(here)
                flapping.cancel()
            return found

    assert "broker broker-0 (0) is at" in seen(asyncio.run(run()), "D12")


def test_a_master_that_moved_and_is_gone_from_where_it_was_is_no_twin() -> None:
    """D12 is silent: of two places only one answers."""

    async def run() -> list[Finding]:
        async with scene() as (here, hands):
            await hands.claim(here.namesrv, "moved", CLOSED)
            doctor = Doctor(here.namesrv, between_s=0)
            facts, moving = await asyncio.gather(
                doctor.gather(), hands.claim(here.namesrv, "moved", here.brokers[0].address, by=1)
            )
            assert moving is None
            return examine(facts)

    assert not seen(asyncio.run(run()), "D12")


def test_progress_that_stands_still_lost_messages_late_levels_idle_groups_and_a_slow_full_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D03, D06, D07, D15, D16, N02: a cluster that began fifteen days ago."""
    clock = ShiftedClock()
    clock.shift_ms = -16 * DAY_MS
    hours = ";".join(f"{hour:02}" for hour in range(24))
    settings = {"traceTopicEnable": "true", "timerWheelEnable": "false", "fileReservedTime": 24, "deleteWhen": hours}
    settings |= {"cleanResourceInterval": 100, "flushDiskType": "SYNC_FLUSH"}

    async def run() -> list[Finding]:
        async with scene(settings=settings, clock=clock) as (here, hands):
            address = here.brokers[0].address
            async with aio.Producer("pg", here.namesrv) as producer:
                await here.create_topic("Orders", 2)
                await here.create_topic("Lost", 1)
                await here.create_topic("Late", 1)
                await hands.commit(address, "old-cg", "Orders", 0, 1)
                for _ in range(7):  # some files of the log
                    await producer.send("Lost", os.urandom(3 << 20))
                queues = await producer.queues("Orders")
                for queue in queues:
                    for _ in range(3):
                        await producer.send("Orders", b"old", queue=queue)
                await hands.commit(address, "lost-cg", "Lost", 0, 1)
                monkeypatch.setattr(Delays, "_deliver_some", lambda self, level: 1000)
                await producer.send("Late", b"x", delay_level=1)
                clock.shift_ms = 0
                with slow_disk():
                    await producer.send("Late", b"slow")
                for queue in queues:
                    for _ in range(60):
                        await producer.send_oneway("Orders", b"new", queue=queue)
                await hands.beat(address, "member", "stuck-cg", "Orders")
                for file in sorted((here.brokers[0].directory / "store" / "commitlog").iterdir())[:2]:
                    os.utime(file, (0, 0))  # as old as they would be
                await until_lost(here)
                monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100 << 30, 100 << 30, 0))

                async def go_on() -> None:
                    for offset in range(1, 60):
                        await hands.commit(address, "stuck-cg", "Orders", 0, offset)
                        await asyncio.sleep(POLL_INTERVAL_S)

                await hands.commit(address, "stuck-cg", "Orders", 0, 1)
                await hands.commit(address, "stuck-cg", "Orders", 1, 1)
                async with asyncio.TaskGroup() as group:
                    going = group.create_task(go_on())
                    found = await findings(here, between_s=0.3, clock=clock)
                    going.cancel()
                return found

    found = asyncio.run(run())
    assert "messages took over 200 ms to store" in seen(found, "D03")
    assert "queue 1 of Orders on broker-0 stands at 1" in seen(found, "D06")
    assert "queue 0 of Orders" not in seen(found, "D06")
    assert "is 100% full, the limit is 100%" in seen(found, "D07")
    assert "group lost-cg: queue 0 of Lost on broker-0 was read to 1, and begins at" in seen(found, "D15")
    assert "delivers delayed messages" in seen(found, "D16")
    assert "has no timer" in seen(found, "D16")
    assert "old-cg has no members, and what it read last is 16 days old" in seen(found, "N02")


def test_a_disk_that_will_be_full_soon_and_letters_that_are_old_many_or_unreadable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D07 by the pace of the log, D09: a cluster that began two days ago."""
    clock = ShiftedClock()
    clock.shift_ms = -2 * DAY_MS

    async def run() -> tuple[list[Finding], list[Finding]]:
        async with scene(settings={"traceTopicEnable": "true", "fileReservedTime": 240}, clock=clock) as (here, hands):
            address = here.brokers[0].address
            await here.create_topic("Orders", 1)
            for group in ("few", "many", "unread"):
                await hands.commit(address, group, "Orders", 0, 0)
                await hands.make(address, f"%DLQ%{group}", read=1, write=1)
            async with aio.Producer("pg", here.namesrv) as producer:
                for _ in range(4):
                    await producer.send("Orders", os.urandom(2 << 20))
                for group, count in {"few": 1, "many": 100, "unread": 1}.items():
                    await producer.send_batch([aio.Message(f"%DLQ%{group}", b"x")] * count)
            await hands.make(address, "%DLQ%unread", read=1, write=1, permission=2)
            monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100 << 20, 60 << 20, 8 << 20))
            before = await findings(here, clock=clock)
            clock.shift_ms = 0
            return before, await findings(here, clock=clock)

    before, found = asyncio.run(run())
    assert not seen(before, "D07"), "a log that is younger than an hour tells no pace"
    assert "is 60% full, the limit is 100%, and at the pace of its log full in " in seen(found, "D07")
    severities = {each.seen: each.severity for each in found if each.number == "D09"}
    assert severities == {
        "group few has 1 dead letter": Severity.NOTE,
        "group many has 100 dead letters": Severity.WARNING,
        "group unread has 1 dead letter": Severity.NOTE,
        "the dead letters of unread may not be read (perm 2)": Severity.NOTE,
    }


@contextmanager
def slow_disk() -> Iterator[None]:
    """Every sync takes 250 ms longer, in the threads that sync."""
    whole = Disk.sync

    def sync(self: Disk, fd: int) -> None:
        threading.Event().wait(0.25)  # nobody sets it
        whole(self, fd)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Disk, "sync", sync)
        yield


async def until_lost(here: AsyncCluster) -> None:
    """Wait for the cleaner to delete what is too old."""
    async with asyncio.timeout(LIMIT_S), aio.Admin(here.namesrv) as admin:
        while (await admin.topic_queues("Lost"))[0].min_offset < 2:  # noqa: ASYNC110 (the broker tells nobody)
            await asyncio.sleep(POLL_INTERVAL_S)


def test_timed_messages_that_are_late_and_a_clock_that_is_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """D16, D17; a late delay level is none where only the broker's clock is behind ours."""
    clock = ShiftedClock()

    async def stand_still(self: Timers) -> None:
        await asyncio.sleep(POLL_INTERVAL_S)

    async def run() -> tuple[list[Finding], list[Finding]]:
        async with scene(settings={"traceTopicEnable": "true"}, clock=clock) as (here, _):
            await here.create_topic("Later", 1)
            async with aio.Producer("pg", here.namesrv) as producer:
                await producer.send("Later", b"x", delay_level=18)
                await producer.send("Later", b"x", delay=45)
                before = await findings(here, clock=clock)
                monkeypatch.setattr(Timers, "deliver_due", stand_still)
                clock.shift_ms = 60_000
                apart = await findings(here)
                return [each for each in before if each.number in ("D16", "D17")], apart

    before, apart = asyncio.run(run())
    assert before == []
    assert "delivers timed messages" in seen(apart, "D16")
    assert "delivers delayed messages" not in seen(apart, "D16")
    assert "+60 s" in seen(apart, "D17") or "+59 s" in seen(apart, "D17")


GUARDED = {
    "traceTopicEnable": "true",
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"root","secretKey":"root-secret"}',
}


def test_access_that_is_refused_is_told_with_the_key_and_plain_connections_are_noted() -> None:
    """D13, N04."""

    async def run() -> tuple[list[Finding], list[Finding], list[Finding]]:
        root = Credentials(access_key="root", secret_key="root-secret")
        nobody = Credentials(access_key="nobody", secret_key="nobody-secret")
        async with scene(settings=GUARDED) as (here, _):
            return (
                await findings(here),
                await findings(here, credentials=nobody),
                await findings(here, credentials=root),
            )

    unsigned, unknown, root = asyncio.run(run())
    assert "broker broker-0 at" in seen(unsigned, "D13")
    assert "nobody" in seen(unknown, "D13")
    assert not seen(root, "D13")
    assert "checks access and takes plain connections" in seen(root, "N04")


def test_brokers_of_different_versions_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """N01."""
    whole, told = Status._life, []

    def life(self: Status) -> dict[str, str]:
        told.append(self)
        first = told[0] is self
        return whole(self) | ({} if first else {"brokerVersionDesc": "V4_9_8"})

    monkeypatch.setattr(Status, "_life", life)

    async def run() -> list[Finding]:
        async with scene(brokers=2) as (here, _):
            return await findings(here)

    assert "V4_9_8" in seen(asyncio.run(run()), "N01")


def test_a_slave_that_is_away_and_one_that_is_behind_are_noted() -> None:
    """N06: one that is registered and copies nothing, then one that connected and takes nothing."""

    async def run() -> tuple[list[Finding], list[Finding]]:
        port = free_port()
        settings = {"traceTopicEnable": "true", "brokerRole": "ASYNC_MASTER", "haListenPort": port}
        async with scene(settings=settings) as (here, hands):
            await here.create_topic("Much", 1)
            async with aio.Producer("pg", here.namesrv) as producer:
                receipts = [await producer.send("Much", os.urandom(3 << 20)) for _ in range(7)]
            await hands.claim(here.namesrv, "broker-0", CLOSED, broker_id=1)
            away = await findings(here)
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(bytes.fromhex(receipts[1].offset_id[-16:]))  # it has the first, and no more
            await writer.drain()
            try:
                async with asyncio.timeout(LIMIT_S):
                    found: list[Finding] = []
                    while "MiB behind" not in seen(found, "N06"):
                        found = await findings(here)
            finally:
                writer.close()
            return away, found

    away, behind = asyncio.run(run())
    assert "broker broker-0: 1 slave registered, 0 copy from it" in seen(away, "N06")
    assert "of broker broker-0 is" in seen(behind, "N06")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def test_limits_of_the_machine_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D20, with this machine made worse than it is."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    slow, pages = os.fsync, os.sysconf

    def fsync(fd: int) -> None:
        threading.Event().wait(0.06)
        slow(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "sysconf", lambda name: 1000 if name == "SC_AVPHYS_PAGES" else pages(name))
    mounts = f"disk / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n"
    texts = {"/proc/mounts": mounts, "/proc/sys/vm/max_map_count": "1024\n"}
    whole = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda self, *rest: texts.get(str(self)) or whole(self, *rest))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, before[1]), before[1]))
    try:
        machine = machine_of(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    found = [finding for finding in examine(Facts(now_ms=0, machine=machine)) if finding.number == "D20"]
    words = ("may open 1024 files", "max_map_count is 1024", "MiB of memory are free", "took", "is on nfs4")
    assert len(found) == len(words)
    assert [word for word in words if not any(word in finding.seen for finding in found)] == []


def test_a_message_is_sent_to_each_master_where_that_is_asked_for() -> None:
    """D21 is silent; without `sends` nothing is left behind."""

    async def run() -> tuple[int, int, list[Finding]]:
        async with scene(brokers=2) as (here, _), aio.Admin(here.namesrv) as admin:
            await findings(here)
            before = await kept(admin)
            found = await findings(here, sends=True)
            return before, await kept(admin), found

    before, after, found = asyncio.run(run())
    assert (before, after) == (0, 2)
    assert not seen(found, "D21") or "ms for a message" in seen(found, "D21"), "a machine may be slow"


def test_a_broker_that_takes_no_message_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """D21: its disk is full."""
    monkeypatch.setattr(Disk, "used_percent", lambda self, path: 101)

    async def run() -> list[Finding]:
        async with scene(settings={"cleanResourceInterval": 100}) as (here, _), asyncio.timeout(LIMIT_S):
            found: list[Finding] = []
            while "did not take a message" not in seen(found, "D21"):
                found = await findings(here, sends=True)
            return found

    assert "broker broker-0 did not take a message" in seen(asyncio.run(run()), "D21")


async def kept(admin: aio.Admin) -> int:
    return sum(row.message_count for row in await admin.topic_queues("BenchmarkTest"))


def test_a_cluster_at_work_that_is_healthy_has_no_finding() -> None:
    """Delays, timers, transactions, a slave, members and letters that nobody gave up: silence."""

    async def run() -> list[Finding]:
        settings = {"traceTopicEnable": "true", "autoCreateTopicEnable": "false"}
        async with (
            scene(brokers=2, namesrvs=2, settings=settings) as (here, _),
            aio.Producer("pg", here.namesrv) as producer,
            aio.TransactionProducer("tg", here.namesrv, checker=lambda _: aio.Outcome.UNKNOWN) as banker,
        ):
            await here.create_topic("Orders", 2)
            await producer.send("Orders", b"x")
            await producer.send("Orders", b"x", delay_level=18)
            await producer.send("Orders", b"x", delay=3600)
            transaction = banker.transaction("Orders", b"half")
            await transaction.start()
            await transaction.unknown()
            async with (
                aio.Consumer("readers", "Orders", here.namesrv, start_from=aio.StartFrom.oldest()) as consumer,
                aio.Consumer("readers", "Orders", here.namesrv, instance_name="other"),
            ):
                found = await findings(here, sends=True, tries_defaults=True)
                del consumer
                return found

    found = asyncio.run(run())
    # How full and how busy the machine of the test is, is nobody's fault.
    assert [each for each in found if each.number not in ("D03", "D07", "D21")] == []
