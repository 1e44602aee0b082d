"""Transactions of our client on our broker: what consumers see, who decides, and what happens when nobody does."""

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import bolide
from bolide import aio
from bolide.admin.admin import Admin
from bolide.errors import ClientError
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.remoting.session import Session
from bolide.testing import Cluster, cluster
from tests.client.scenes import client_clock, collecting, stage
from tests.remoting.loops import both_loops, eventually, virtual_time

QUICK = {"transactionCheckInterval": "100", "transactionTimeOut": "50"}


def never(message: aio.StoredMessage) -> aio.Outcome:
    raise AssertionError("nobody should ask")


def opened(namesrv: str, checker: Any = never, group: str = "transfers", **options: Any) -> aio.TransactionProducer:
    return aio.TransactionProducer(group, namesrv, checker=checker, clock=client_clock(), **options)


@pytest.mark.feature("F292", "F294", "F295")
@both_loops
async def test_what_is_committed_comes_and_what_is_rolled_back_does_not() -> None:
    async with (
        stage(queue_count=1) as rocket,
        opened(rocket.namesrv) as producer,
        collecting("g", "T", rocket.namesrv) as member,
    ):
        for number in range(2):  # the first the long way, the second the short one
            with pytest.raises(LookupError):
                async with producer.transaction("T", b"back %d" % number):
                    raise LookupError("no such account")
            async with producer.transaction("T", b"on %d" % number, tags="A", keys="k", properties={"own": "x"}) as one:
                assert member.bodies == [b"on 0"][:number]
            assert one.outcome is aio.Outcome.COMMIT
            await eventually(lambda n=number: len(member.taken) == n + 1)  # type: ignore[misc]
        await producer.send("T", b"plain")
        await eventually(lambda: len(member.taken) == 3)
        assert member.bodies == [b"on 0", b"on 1", b"plain"]
        last = member.taken[1]
        assert (last.tags, last.keys, last.properties["own"]) == ("A", ["k"], "x")
        assert last.msg_id == one.id == last.properties["__transactionId__"]


@pytest.mark.feature("F112")
@both_loops
async def test_a_half_message_is_marked_as_prepared_on_the_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage(queue_count=1) as rocket, opened(rocket.namesrv) as producer:
        seen: list[Command] = []
        real = producer.instance.client.request

        async def request(address: str, command: Command, timeout_s: float) -> Command:
            seen.append(command)
            return await real(address, command, timeout_s)

        monkeypatch.setattr(producer.instance.client, "request", request)
        async with producer.transaction("T", b"x" * 5000):  # long: compressed, which is a flag too
            pass
        (sent,) = [each for each in seen if each.code == RequestCode.SEND_MESSAGE_V2]
        assert int(sent.fields["f"]) & 4
        assert int(sent.fields["f"]) & 1
        assert "TRAN_MSG\x01true\x02PGROUP\x01transfers\x02" in sent.fields["i"]


@both_loops
async def test_a_transaction_is_decided_once_and_by_hand_if_one_likes() -> None:
    async with stage(queue_count=1) as rocket, opened(rocket.namesrv) as producer:
        async with producer.transaction("T", b"1") as one:
            await one.rollback()
            with pytest.raises(ClientError, match="was decided before: ROLLBACK"):
                await one.commit()
        async with producer.transaction("T", b"2") as two:
            await two.commit()
        three = producer.transaction("T", b"3")
        await three.start()
        await three.commit()
        await three.__aexit__(LookupError, LookupError(), None)
        async with collecting("g", "T", rocket.namesrv) as member:
            await eventually(lambda: len(member.taken) == 2)
        assert member.bodies == [b"2", b"3"]
        with pytest.raises(ClientError, match="has not begun"):
            await producer.transaction("T", b"4").commit()


@pytest.mark.feature("F293", "F297")
@virtual_time
async def test_what_nobody_decided_is_asked_about_after_half_a_minute() -> None:
    asked: list[tuple[float, aio.StoredMessage]] = []

    async def checker(message: aio.StoredMessage) -> aio.Outcome:
        asked.append((asyncio.get_running_loop().time(), message))
        return (aio.Outcome.UNKNOWN, aio.Outcome.COMMIT)[len(asked) - 1]

    async with stage(queue_count=1) as rocket, opened(rocket.namesrv, checker) as producer:
        async with producer.transaction("T", b"x" * 5000, keys="t-1") as one:
            await one.unknown()
        began_s = asyncio.get_running_loop().time()
        async with collecting("g", "T", rocket.namesrv) as member:
            await eventually(lambda: len(member.taken) == 1, 90)
        assert 20 < asked[0][0] - began_s <= 31
        assert 29 < asked[1][0] - asked[0][0] < 31
        message = asked[1][1]
        assert (message.topic, message.body, message.keys) == ("T", b"x" * 5000, ["t-1"])
        assert message.unique_id == one.id == member.taken[0].msg_id


@pytest.mark.feature("F298")
@both_loops
async def test_a_mate_answers_for_a_sender_that_was_killed() -> None:
    def committed(message: aio.StoredMessage) -> aio.Outcome:
        return aio.Outcome.COMMIT if message.keys == ["done"] else aio.Outcome.ROLLBACK

    async with stage(queue_count=1, settings=QUICK) as rocket, opened(rocket.namesrv, committed, topics=["T"]):
        async with opened(rocket.namesrv) as sender:
            for keys in ("done", "not done", "done"):
                await sender.transaction("T", keys.encode(), keys=keys).start()
            for session in list(sender.instance.client._lines.values()):
                assert session.session is not None
                session.session.abort("killed")
            sender._instance = None  # it is gone: it says no goodbye and answers nothing
        async with collecting("g", "T", rocket.namesrv) as member:
            await eventually(lambda: len(member.taken) == 2, 20)
        assert member.bodies == [b"done", b"done"]


@both_loops
async def test_a_checker_that_fails_or_says_nothing_leaves_it_open_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said: list[Any] = [LookupError("no database"), None, aio.Outcome.COMMIT]

    def checker(message: aio.StoredMessage) -> aio.Outcome:
        assert threading.current_thread().name.startswith("bolide.checker")
        answer = said.pop(0) if len(said) > 1 else said[0]  # the broker asks on until it has heard the last
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    with caplog.at_level(logging.ERROR, "bolide.client.transactions.checker"):
        async with stage(queue_count=1, settings=QUICK) as rocket, opened(rocket.namesrv, checker) as producer:
            async with producer.transaction("T", b"x") as one:
                await one.unknown()
            async with collecting("g", "T", rocket.namesrv) as member:
                await eventually(lambda: len(member.taken) == 1, 20)
    texts = [record.getMessage() for record in caplog.records]
    assert [text.partition(": ")[2] for text in texts] == [
        "the checker failed",
        "the checker returned None and no Outcome",
    ]


@both_loops
async def test_a_cancelled_block_leaves_the_decision_to_the_checker() -> None:
    async with stage(queue_count=1) as rocket, opened(rocket.namesrv) as producer:
        found: list[aio.Transaction] = []

        async def work() -> None:
            async with producer.transaction("T", b"x") as one:
                found.append(one)
                await asyncio.Event().wait()

        task = asyncio.get_running_loop().create_task(work())
        await eventually(lambda: bool(found))
        task.cancel()
        await asyncio.wait([task])
        assert found[0].outcome is aio.Outcome.UNKNOWN


@both_loops
async def test_a_message_with_a_delay_is_refused_before_anything_leaves() -> None:
    async with stage(queue_count=1) as rocket, opened(rocket.namesrv) as producer:
        with pytest.raises(ClientError, match="cannot be sent in a transaction"):
            await producer.transaction(aio.Message("T", b"x", delay_level=3)).start()


@both_loops
async def test_a_half_message_that_a_broker_refuses_raises_and_the_block_is_not_run() -> None:
    settings = {"rejectTransactionMessage": "true"}
    async with stage(queue_count=1, settings=settings) as rocket, opened(rocket.namesrv, retry_count=0) as producer:
        for _ in range(2):
            with pytest.raises(ClientError, match="takes no transactions") as refused:
                async with producer.transaction("T", b"x"):
                    pytest.fail("the block ran")
            assert refused.value.code == 16


@virtual_time
async def test_a_half_message_whose_replicas_are_late_is_sent_again_and_the_first_is_rolled_back() -> None:
    late = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "slaveTimeout": 500}
    async with (
        stage(queue_count=1, settings=QUICK | late) as rocket,
        opened(rocket.namesrv, never, timeout_s=20) as producer,
        collecting("g", "T", rocket.namesrv) as member,
    ):
        transaction = producer.transaction("T", b"x")
        starting = asyncio.get_running_loop().create_task(transaction.start())
        await asyncio.sleep(0.2)  # virtual
        await producer.instance.ask(rocket.brokers[0].address, Command(25, body=b"inSyncReplicas=1"))
        await starting
        await transaction.commit()
        await eventually(lambda: member.bodies == [b"x"])
        await asyncio.sleep(60)  # virtual: the broker has asked about the first
        assert member.bodies == [b"x"]
        assert await open_halves(rocket.namesrv) == []


async def open_halves(namesrv: str) -> list[bytes]:
    """The bodies of those that wait for their end."""
    async with Admin(namesrv, clock=client_clock()) as admin:
        return [found.message.body async for found in admin.open_transactions()]


@both_loops
async def test_an_end_that_finds_no_connection_makes_one() -> None:
    async with stage(queue_count=1) as rocket, opened(rocket.namesrv) as producer:
        async with producer.transaction("T", b"x"):
            for line in list(producer.instance.client._lines.values()):
                if line.session is not None:
                    line.session.close("cut")
            await eventually(lambda: not any(line.session for line in producer.instance.client._lines.values()))
        async with collecting("g", "T", rocket.namesrv) as member:
            await eventually(lambda: len(member.taken) == 1)


@both_loops
async def test_many_transactions_at_once_end_each_for_itself() -> None:
    async with (
        stage(queue_count=4) as rocket,
        opened(rocket.namesrv) as producer,
        collecting("g", "T", rocket.namesrv) as member,
    ):

        async def one(number: int) -> None:
            async with producer.transaction("T", b"%d" % number, shard=str(number)) as transaction:
                if number % 3 == 0:
                    await transaction.rollback()

        await asyncio.gather(*(one(number) for number in range(300)))
        await eventually(lambda: len(member.taken) == 200)
        assert sorted(map(int, member.bodies)) == [number for number in range(300) if number % 3]


def test_the_blocking_face_does_the_same() -> None:
    with cluster(settings=QUICK) as rocket:
        rocket.create_topic("T", 1)
        checked: list[str] = []

        def checker(message: bolide.StoredMessage) -> bolide.Outcome:
            checked.extend(message.keys)
            # A broker may ask for one that is about to be decided, if we were slow: that is left as it is.
            return bolide.Outcome.COMMIT if message.keys else bolide.Outcome.UNKNOWN

        with bolide.TransactionProducer("transfers", rocket.namesrv, checker=checker) as producer:
            with producer.transaction("T", b"one") as one:
                assert one.outcome is None
            assert (str(one.outcome), one.id) == ("Outcome.COMMIT", one.receipt.msg_id)
            with pytest.raises(LookupError), producer.transaction("T", b"two"):
                raise LookupError
            with producer.transaction("T", b"three") as three:
                three.rollback()
            with producer.transaction("T", b"four") as four:
                four.commit()
            with producer.transaction("T", b"five", keys="t-5") as five:
                five.unknown()
            with pytest.raises(KeyboardInterrupt), producer.transaction("T", b"six", keys="t-6"):
                raise KeyboardInterrupt
            producer.send("T", b"plain")
            got = []
            oldest = bolide.StartFrom.oldest()
            with bolide.Consumer("g", "T", rocket.namesrv, start_from=oldest) as consumer:
                for message in consumer:
                    got.append(message.body)
                    if len(got) == 5:
                        break
        told = [body for body in got if body not in (b"five", b"six")]
        assert told == [b"one", b"four", b"plain"]
        assert [body for body in got if body not in told] == [b"five", b"six"], "when they are asked about is open"
        assert list(dict.fromkeys(checked)) == ["t-5", "t-6"]


@contextmanager
def blocking() -> Iterator[tuple[Cluster, bolide.TransactionProducer]]:
    """A blocking producer that has sent to T before, and so has a line at hand."""
    with cluster(settings=QUICK) as rocket:
        rocket.create_topic("T", 1)
        with bolide.TransactionProducer("transfers", rocket.namesrv, checker=never) as producer:
            producer.send("T", b"first")
            producer.send("T", b"second")
            yield rocket, producer


def bodies_of(rocket: Cluster, count: int) -> list[bytes]:
    with bolide.Consumer("g", "T", rocket.namesrv, start_from=bolide.StartFrom.oldest()) as consumer:
        bodies = [next(consumer).body for _ in range(count)]
        consumer.commit()
        return bodies


def test_a_blocking_transaction_goes_past_the_loop_and_keeps_its_place_among_plain_sends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with blocking() as (rocket, producer):
        half_pipeline = producer._transactions.half_pipeline
        for owner, name in (
            (half_pipeline, "enqueue"),
            (half_pipeline.path, "send"),
            (producer._transactions, "tell_end"),
        ):
            monkeypatch.setattr(owner, name, None)
        for number in range(20):
            with producer.transaction("T", b"t %d" % number, tags="A", keys="k", properties={"own": "x"}) as one:
                assert one.receipt.is_ok
            with pytest.raises(LookupError), producer.transaction("T", b"back"):
                raise LookupError
            producer.send("T", b"s %d" % number)
        expected = [b"%s %d" % (kind, number) for number in range(20) for kind in (b"t", b"s")]
        assert bodies_of(rocket, 42) == [b"first", b"second", *expected]


def test_an_end_that_finds_its_connection_broken_is_told_by_the_loop() -> None:
    with blocking() as (rocket, producer):
        with producer.transaction("T", b"on"):
            for resting in producer._direct._pool._resting.values():
                for connection, _ in resting:
                    connection._socket.shutdown(socket.SHUT_WR)
        with producer.transaction("T", b"and on"):
            for resting in producer._direct._pool._resting.values():
                resting.pop()[0].close()
        assert sorted(bodies_of(rocket, 4)) == [b"and on", b"first", b"on", b"second"]


def test_an_end_that_goes_through_the_loop_is_written_before_its_block_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the same thread does next goes past the loop, and would overtake it."""
    with blocking() as (rocket, producer):
        written: list[bytes] = []
        push = Session.push

        def noted(session: Session, frames: bytes) -> None:
            written.append(frames)
            push(session, frames)

        monkeypatch.setattr(Session, "push", noted)
        with producer.transaction("T", b"on"):
            for resting in producer._direct._pool._resting.values():
                resting.pop()[0].close()
            producer._background.bound.loop.call_soon_threadsafe(threading.Event().wait, 0.05)  # the loop is busy
        assert len(written) == 1
        with producer.transaction("T", b"and on"):
            pass
        assert len(written) == 1, "this one told its end itself"
        assert bodies_of(rocket, 4) == [b"first", b"second", b"on", b"and on"]


def test_a_half_message_that_finds_its_connection_broken_is_sent_by_the_loop() -> None:
    with blocking() as (rocket, producer):
        for resting in producer._direct._pool._resting.values():
            for connection, _ in resting:
                connection._socket.shutdown(socket.SHUT_RDWR)
        with producer.transaction("T", b"on") as one:
            pass
        assert one.outcome is bolide.Outcome.COMMIT
        assert bodies_of(rocket, 3) == [b"first", b"second", b"on"]


def test_threads_share_a_blocking_producer_and_each_transaction_has_its_own_end() -> None:
    def work(start: int) -> None:
        for number in range(start, start + 20):
            with suppress(LookupError), producer.transaction("T", b"%d" % number):
                if number % 2:
                    raise LookupError

    with blocking() as (rocket, producer):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(0, 80, 20)))
        assert sorted(map(int, bodies_of(rocket, 42)[2:])) == list(range(0, 80, 2))


def test_a_blocking_transaction_decided_after_the_end_of_its_producer_is_left_to_the_brokers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with blocking() as (_, producer):
        one = producer.transaction("T", b"late")
        one.__enter__()
        with pytest.raises(ClientError, match="has begun before"), one:
            pass
        producer.close()
        one.commit()
        with pytest.raises(ClientError, match="was decided before: COMMIT"):
            one.rollback()
        for _ in range(3):
            producer._background.run(asyncio.sleep(0))
    assert "ends of transactions were not told" in caplog.text
