"""A message is done when the code that got it went on from it: loops that fail, are left, cancelled and begun again."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from itertools import islice

import pytest

import bolide
from bolide import aio
from bolide.testing import Cluster, cluster
from tests.client.scenes import OLDEST, client_clock, committed, numbers, send_all, stage
from tests.remoting.loops import both_loops, eventually, virtual_time

WAIT_S = 60.0
QUICK_RETRIES = {"messageDelayLevel": " ".join(["1s"] * 18)}


@pytest.fixture(scope="module")
def rocket() -> Iterator[Cluster]:
    with cluster(settings=QUICK_RETRIES) as running:
        yield running


def fill(rocket: Cluster, topic: str, count: int, queue_count: int = 1) -> None:
    rocket.create_topic(topic, queue_count)
    with bolide.Producer(f"{topic}-pg", rocket.namesrv) as producer:
        for body in numbers(0, count):
            producer.send(topic, body)


def consumer_of(rocket: Cluster, topic: str, *, ordered: bool = False) -> bolide.Consumer:
    oldest = bolide.StartFrom.oldest()
    return bolide.Consumer(f"{topic}-cg", topic, rocket.namesrv, start_from=oldest, ordered=ordered)


def settled(rocket: Cluster, topic: str) -> int:
    with bolide.Admin(rocket.namesrv) as admin:
        rows = admin.group_progress(f"{topic}-cg")
        return sum(row.consumer_offset for row in rows if row.queue.topic == topic)


@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])
def test_a_loop_that_failed_and_is_begun_again_gets_its_message_again(rocket: Cluster, ordered: bool) -> None:
    topic = f"Again-{ordered}"
    fill(rocket, topic, 5)
    seen: list[tuple[bytes, int]] = []
    with consumer_of(rocket, topic, ordered=ordered) as consumer:
        while len(seen) < 6:
            try:
                for message in consumer:
                    seen.append((message.body, message.attempt))
                    if seen[-1] == (b"2", 1):
                        raise ValueError("not this one")
                    if len(seen) == 6:
                        break
            except ValueError:
                pass
    firsts = [(body, 1) for body in numbers(0, 5)]
    again = (b"2", 2)
    assert seen == ([*firsts[:3], again, *firsts[3:]] if ordered else [*firsts, again])
    assert settled(rocket, topic) == 5


def test_a_block_that_ends_after_its_loop_failed_leaves_the_message_to_the_next(rocket: Cluster) -> None:
    fill(rocket, "Swallowed", 3)
    with consumer_of(rocket, "Swallowed") as consumer:
        try:
            for message in consumer:
                if message.body == b"1":
                    raise ValueError("not this one")
        except ValueError:
            pass
    assert settled(rocket, "Swallowed") == 1


def test_a_loop_left_by_break_or_return_is_done_with_its_message(rocket: Cluster) -> None:
    fill(rocket, "Left", 4)
    with consumer_of(rocket, "Left") as consumer:

        def one() -> bytes:
            for message in consumer:
                return message.body
            return b""

        assert one() == b"0"
        for message in consumer:
            assert message.body == b"1"
            break
        for number, message in enumerate(consumer, 2):
            assert message.body == b"%d" % number
            if number == 3:
                break
    assert settled(rocket, "Left") == 4


def test_a_message_is_not_done_when_a_loop_over_what_it_holds_failed(rocket: Cluster) -> None:
    fill(rocket, "Inner", 3)

    def parts(body: bytes) -> Iterator[int]:
        yield from body
        if body == b"1":
            raise ValueError("a part that cannot be read")

    with consumer_of(rocket, "Inner") as consumer:
        try:
            for message in consumer:
                for part in parts(message.body):
                    assert part
        except ValueError:
            pass
    assert settled(rocket, "Inner") == 1


def test_what_a_slice_or_a_thrown_away_generator_was_given_last_is_not_done(rocket: Cluster) -> None:
    fill(rocket, "Wrapped", 4)

    def bodies(consumer: bolide.Consumer) -> Iterator[bytes]:
        for message in consumer:
            yield message.body

    with consumer_of(rocket, "Wrapped") as consumer:
        for message in islice(consumer, 2):
            assert message.body in (b"0", b"1")
        consumer.commit()
        assert settled(rocket, "Wrapped") == 1
        try:
            for body in bodies(consumer):
                assert body == b"2"
                raise ValueError("not this one")
        except ValueError:
            pass
    assert settled(rocket, "Wrapped") == 2  # the slice's last went back to the broker, to come again


def test_a_kept_iterator_that_is_looped_over_again_gets_its_message_again(rocket: Cluster) -> None:
    fill(rocket, "Kept", 2)
    with consumer_of(rocket, "Kept") as consumer:
        messages = iter(consumer)
        try:
            for _ in messages:
                raise ValueError("not this one")
        except ValueError:
            pass
        seen = [(message.body, message.attempt) for message in islice(messages, 2)]
    assert seen == [(b"1", 1), (b"0", 2)]


def test_a_loop_inside_a_loop_takes_nothing_from_it(rocket: Cluster) -> None:
    fill(rocket, "Nested", 3)
    with consumer_of(rocket, "Nested") as consumer:
        for outer in consumer:
            assert outer.body == b"0"
            for inner in consumer:
                assert inner.body == b"1"
                break
            consumer.commit()
            assert settled(rocket, "Nested") == 0  # the outer one is being worked on
            break
    assert settled(rocket, "Nested") == 2


def test_next_by_hand_acknowledges_nothing_until_it_is_said(rocket: Cluster) -> None:
    fill(rocket, "ByHand", 4)
    with consumer_of(rocket, "ByHand") as consumer:
        assert [next(consumer).body for _ in range(3)] == numbers(0, 3)
    assert settled(rocket, "ByHand") == 0
    with consumer_of(rocket, "ByHand") as consumer:
        next(consumer)
        next(consumer)
        consumer.commit()
    assert settled(rocket, "ByHand") == 2


def test_commit_adds_nothing_for_those_who_acknowledge_one_by_one(rocket: Cluster) -> None:
    fill(rocket, "OneByOne", 4)
    with consumer_of(rocket, "OneByOne") as consumer:
        next(consumer).ack()
        next(consumer)
        consumer.commit()
        next(consumer)
        consumer.commit()
    assert settled(rocket, "OneByOne") == 1


def test_next_and_receive_share_what_was_taken_ahead(rocket: Cluster) -> None:
    fill(rocket, "Shared", 1)
    with bolide.Producer("shared-pg", rocket.namesrv) as producer:
        producer.send_batch([bolide.Message("Shared", body) for body in numbers(1, 1001)])
    with consumer_of(rocket, "Shared") as consumer:
        bodies = [next(consumer).body]
        while len(bodies) < 1001 and (messages := consumer.receive(100, timeout_s=WAIT_S)):
            bodies += [message.body for message in messages]
            consumer.commit()
    assert bodies == numbers(0, 1001)


@pytest.mark.parametrize("count", [20_000])
def test_receive_and_commit_bring_everything_once(rocket: Cluster, count: int) -> None:
    rocket.create_topic("Many", 4)
    with bolide.Producer("many-pg", rocket.namesrv) as producer:
        for start in range(0, count, 500):
            producer.send_batch([bolide.Message("Many", body) for body in numbers(start, start + 500)])
    bodies: list[bytes] = []
    with consumer_of(rocket, "Many") as consumer:
        while len(bodies) < count and (messages := consumer.receive(100, timeout_s=WAIT_S)):
            bodies += [message.body for message in messages]
            consumer.commit()
    assert sorted(bodies) == sorted(numbers(0, count))
    assert settled(rocket, "Many") == count


def test_commit_leaves_a_message_that_was_refused_refused(rocket: Cluster) -> None:
    fill(rocket, "Refused", 2)
    with consumer_of(rocket, "Refused") as consumer:
        messages = consumer.receive(1, timeout_s=WAIT_S) + consumer.receive(1, timeout_s=WAIT_S)
        messages[0].nack()
        consumer.commit()
        (again,) = consumer.receive(1, timeout_s=WAIT_S)
        assert (again.body, again.attempt) == (b"0", 2)
        consumer.commit()


# The same with asyncio


@virtual_time
async def test_in_asyncio_a_loop_that_failed_and_is_begun_again_gets_its_message_again() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await send_all(producer, "T", numbers(0, 5))
        seen: list[tuple[bytes, int]] = []
        async with aio.Consumer("g", "T", rocket.namesrv, start_from=OLDEST, clock=client_clock()) as consumer:
            while len(seen) < 6:
                try:
                    async for message in consumer:
                        seen.append((message.body, message.attempt))
                        if seen[-1] == (b"2", 1):
                            raise ValueError("not this one")
                        if len(seen) == 6:
                            break
                except ValueError:
                    pass
        assert seen == [(b"0", 1), (b"1", 1), (b"2", 1), (b"3", 1), (b"4", 1), (b"2", 2)]
        assert await committed(rocket.namesrv, "g") == 5


@virtual_time
async def test_work_that_took_too_long_or_was_cancelled_is_not_done() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await send_all(producer, "T", numbers(0, 4))
        seen: list[tuple[bytes, int]] = []

        async def consume(consumer: aio.Consumer) -> None:
            async for message in consumer:
                seen.append((message.body, message.attempt))
                if message.attempt == 1 and message.body in (b"1", b"2"):
                    limit_s = 1 if message.body == b"1" else 1000
                    await asyncio.wait_for(asyncio.Event().wait(), limit_s)
                if len(seen) == 6:
                    return

        async with aio.Consumer("g", "T", rocket.namesrv, start_from=OLDEST, clock=client_clock()) as consumer:
            with pytest.raises(TimeoutError):
                await consume(consumer)
            task = asyncio.create_task(consume(consumer), name="consume")
            await eventually(lambda: len(seen) == 3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await consume(consumer)
        assert seen[:4] == [(body, 1) for body in numbers(0, 4)]
        assert sorted(seen[4:]) == [(b"1", 2), (b"2", 2)]


@both_loops
async def test_in_asyncio_a_message_is_not_done_when_a_loop_over_what_it_holds_failed() -> None:
    async def parts(body: bytes) -> AsyncIterator[int]:
        for part in body:
            yield part
        if body == b"1":
            raise ValueError("a part that cannot be read")

    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await send_all(producer, "T", numbers(0, 3))
        async with aio.Consumer("g", "T", rocket.namesrv, start_from=OLDEST) as consumer:
            try:
                async for message in consumer:
                    async for part in parts(message.body):
                        assert part
            except ValueError:
                pass
        assert await committed(rocket.namesrv, "g") == 1


@both_loops
async def test_in_asyncio_a_closed_generator_leaves_its_message_undone_and_break_does_not() -> None:
    async def bodies(consumer: aio.Consumer) -> AsyncIterator[bytes]:
        async for message in consumer:
            yield message.body

    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await send_all(producer, "T", numbers(0, 3))
        async with aio.Consumer("g", "T", rocket.namesrv, start_from=OLDEST) as consumer:
            async for message in consumer:
                if message.body == b"1":
                    break
            wrapped = bodies(consumer)
            assert await anext(wrapped) == b"2"
            await wrapped.aclose()  # type: ignore[attr-defined]
        assert await committed(rocket.namesrv, "g") == 2


@both_loops
async def test_in_asyncio_what_was_taken_by_hand_is_done_when_it_is_said() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await send_all(producer, "T", numbers(0, 100))
        async with aio.Consumer("g", "T", rocket.namesrv, start_from=OLDEST) as consumer:
            bodies = [(await anext(consumer)).body]
            bodies += [message.body for message in await consumer.receive(9, 10)]
            assert bodies == numbers(0, 10)
            await consumer.commit()
            assert await committed(rocket.namesrv, "g") == 10
            assert [message.body for message in await consumer.receive(10, 10)] == numbers(10, 20)
        assert await committed(rocket.namesrv, "g") == 10


# Standing still, and not started


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "stands still" in record.message]


@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])
def test_a_member_that_waits_for_its_own_verdicts_says_so_once(ordered: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    @virtual_time
    async def play() -> None:
        rules = aio.PullRules(held_count_max=40)
        options = {"start_from": OLDEST, "pull": rules, "ordered": ordered, "clock": client_clock()}
        async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
            await producer.send_batch([aio.Message("T", body) for body in numbers(0, 100)])
            async with aio.Consumer("g", "T", rocket.namesrv, **options) as consumer:
                out: list[aio.Received] = []
                for _ in range(40):
                    out += await consumer.receive(100, 1)
                (said,) = warnings_of(caplog)
                assert f"{len(out)} messages were given out and have no verdict" in said
                assert "ack()" in said
                assert "commit()" in said
                await consumer.commit()
                assert await consumer.receive(100, 1)
        assert len(warnings_of(caplog)) == 1

    play()


@virtual_time
async def test_a_member_that_has_nothing_to_do_or_works_slowly_does_not_complain(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rules = aio.PullRules(held_count_max=10, batch_count=5)
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await send_all(producer, "T", numbers(0, 30))
        clock = client_clock()
        async with aio.Consumer("g", "T", rocket.namesrv, start_from=OLDEST, pull=rules, clock=clock) as consumer:
            for _ in range(3):
                assert await consumer.receive(32, 5)
                await asyncio.sleep(100)  # virtual: the work
                await consumer.commit()
            while await consumer.receive(32, 5):
                await consumer.commit()
            assert await consumer.receive(32, 100) == []
    assert warnings_of(caplog) == []


NOT_OPEN = r"is not open: use it inside its `with` block, or call start\(\)"


def test_what_was_not_started_says_so_wherever_it_is_used() -> None:
    namesrv = "127.0.0.1:9"
    consumer = bolide.Consumer("g", "T", namesrv)
    queue = bolide.MessageQueue("T", "b", 0)
    puller = bolide.PullConsumer("g", namesrv)
    producer = bolide.TransactionProducer("pg", namesrv, checker=lambda message: bolide.Outcome.COMMIT)
    for use in (
        lambda: iter(consumer),
        lambda: next(consumer),
        lambda: consumer.receive(1, timeout_s=1),
        consumer.commit,
        consumer.pause,
        consumer.resume,
        lambda: consumer.seek(queue, 0),
        lambda: puller.queues("T"),
        lambda: puller.pull(queue, 0),
        lambda: puller.commit(queue, 0),
        lambda: producer.transaction("T", b"x").__enter__(),
        lambda: producer.send("T", b"x"),
        lambda: producer.submit("T", b"x").result(5),
        lambda: producer.send_oneway("T", b"x"),
        lambda: producer.request("T", b"x"),
        lambda: producer.send_batch([bolide.Message("T", b"x")]),
        lambda: producer.queues("T"),
    ):
        with pytest.raises(bolide.BolideError, match=NOT_OPEN):
            use()


@both_loops
async def test_in_asyncio_what_was_not_started_says_so_too() -> None:
    namesrv = "127.0.0.1:9"
    consumer = aio.Consumer("g", "T", namesrv)
    puller = aio.PullConsumer("g", namesrv)
    producer = aio.TransactionProducer("pg", namesrv, checker=lambda message: aio.Outcome.COMMIT)
    with pytest.raises(bolide.BolideError, match=NOT_OPEN):
        aiter(consumer)
    with pytest.raises(bolide.BolideError, match=NOT_OPEN):
        consumer.pause()
    for use in (
        consumer.__anext__,
        lambda: consumer.receive(1, 1),
        consumer.commit,
        lambda: puller.queues("T"),
        lambda: producer.transaction("T", b"x").start(),
        lambda: producer.submit("T", b"x"),
        lambda: producer.request("T", b"x"),
        lambda: producer.send_oneway("T", b"x"),
    ):
        with pytest.raises(bolide.BolideError, match=NOT_OPEN):
            await use()
