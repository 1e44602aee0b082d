"""Failed messages: again after the delays of RocketMQ's plan, then among the dead letters; also many in one call."""

import asyncio
from collections import Counter
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from bolide import aio
from bolide.client.consuming.handlers import Handler, listening
from bolide.client.consuming.send_back import delay_level
from bolide.client.sending.durations import delay_s_of
from bolide.errors import ClientError
from bolide.protocol.bodies.groups import GroupConfig, ListedDelays, RetryPolicy
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.testing import AsyncCluster
from tests.client.scenes import OLDEST, client_clock, collecting, numbers, send_all, stage
from tests.remoting.loops import eventually, virtual_time

# A plan of the same 18 levels, which takes less time: tests/broker/sending/test_send_back.py has what each stands for.
LEVELS = "1s 1s 2s 4s 3s " + "1s " * 13
PLAN_S = [2, 4, 3, *[1] * 13]


def handler_of(function: Any, **options: Any) -> Handler:
    return Handler(function=function, group="g", topics={"T": "*"}, start_from=OLDEST, **{"concurrency": 4, **options})


async def dead_letters(rocket: AsyncCluster, group: str = "g") -> list[Any]:
    async with aio.Admin(rocket.namesrv, clock=client_clock()) as admin:
        return [letter async for letter in admin.dead_letters(group)]


def now_s() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.feature("F243", "F251", "F253")
@virtual_time
async def test_what_always_fails_is_retried_16_times_by_the_plan_and_then_lies_with_the_dead() -> None:
    settings = {"messageDelayLevel": LEVELS.strip()}
    async with stage(settings=settings) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        calls: list[tuple[float, int, str]] = []

        async def work(message: aio.Received) -> None:
            calls.append((now_s(), message.attempt, message.topic))
            raise ValueError("not today")

        receipt = await producer.send("T", b"x", tags="A", keys="k")
        async with listening(rocket.namesrv, [handler_of(work)], clock=client_clock()):
            await eventually(lambda: len(calls) == 17, sum(PLAN_S) + 120)
            await asyncio.sleep(10)  # virtual: it does not come an 18th time
        assert [attempt for _, attempt, _ in calls] == list(range(1, 18))
        assert {topic for _, _, topic in calls} == {"T"}  # T-9: the retry topic stays behind the scenes
        pauses_s = [later[0] - earlier[0] for earlier, later in pairwise(calls)]
        for pause_s, planned_s in zip(pauses_s, PLAN_S, strict=True):
            assert planned_s <= round(pause_s, 3) < planned_s + 0.9
        (dead,) = await dead_letters(rocket)
        assert (dead.id, dead.origin_topic, dead.failure_count) == (receipt.msg_id, "T", 17)
        assert dead.reason == "ValueError: not today"
        assert (dead.message.body, dead.message.tags, dead.message.keys) == (b"x", "A", ["k"])


@pytest.mark.feature("F242", "F249")
@pytest.mark.parametrize(("has_timer", "comes_after_s"), [(True, 4), (False, 5)])
@virtual_time
async def test_a_refused_message_comes_again_after_the_delay_it_was_given_or_without_a_timer_the_next_level(
    has_timer: bool, comes_after_s: int
) -> None:
    settings = {"timerWheelEnable": str(has_timer).lower()}
    async with stage(settings=settings) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        seen: list[tuple[float, aio.Received]] = []

        def refuse_once(message: aio.Received) -> None:
            seen.append((now_s(), message))
            if message.attempt == 1:
                message.nack(delay=timedelta(seconds=4))

        async with collecting("g", "T", rocket.namesrv, act=refuse_once) as member:
            await producer.send("T", b"x")
            await eventually(lambda: len(member.taken) == 2, 30)
        (first_s, first), (again_s, again) = seen
        assert comes_after_s <= round(again_s - first_s, 3) < comes_after_s + 2
        assert (again.attempt, again.is_retry, again.topic, again.queue.topic) == (2, True, "T", "%RETRY%g")
        assert again.msg_id == first.msg_id
        assert again.offset_id != first.offset_id
        assert again.properties["ORIGIN_MESSAGE_ID"] == first.offset_id


@pytest.mark.parametrize(
    ("delay_s", "level"), [(None, 0), (0, 1), (0.5, 1), (1, 1), (1.1, 2), (10, 3), (7200, 18), (10**6, 18)]
)
def test_a_delay_becomes_the_first_level_that_is_not_shorter(delay_s: float | None, level: int) -> None:
    assert delay_level(delay_s) == level


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), timedelta(seconds=-1), True])
def test_a_delay_that_cannot_be_meant_is_refused_where_it_is_given(delay: float | timedelta) -> None:
    with pytest.raises(ClientError, match="delay"):
        delay_s_of(delay)


@pytest.mark.feature("X31")
@virtual_time
async def test_a_group_with_a_policy_is_retried_by_it_and_with_its_own_limit() -> None:
    async with (
        stage() as rocket,
        aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer,
        aio.Admin(rocket.namesrv, clock=client_clock()) as admin,
    ):
        policy = RetryPolicy(customized_retry_policy=ListedDelays(next=[1_000, 7_000]))
        await admin.set_group(GroupConfig(group_name="g", retry_max_times=3, group_retry_policy=policy))
        times_s: list[float] = []

        def refuse(message: aio.Received) -> None:
            times_s.append(now_s())
            message.nack(reason="no")

        async with collecting("g", "T", rocket.namesrv, act=refuse):
            await producer.send("T", b"x")
            await eventually(lambda: len(times_s) == 4, 60)
            await asyncio.sleep(10)  # virtual
        pauses_s = [later - earlier for earlier, later in pairwise(times_s)]
        assert [int(pause_s + 0.001) for pause_s in pauses_s] == [1, 7, 7]
        assert [(letter.failure_count, letter.reason) for letter in await dead_letters(rocket)] == [(4, "no")]


@pytest.mark.feature("F248")
@virtual_time
async def test_an_ordered_message_is_tried_here_and_after_its_retries_given_to_the_dead() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await send_all(producer, "T", numbers(0, 3))

        def refuse(message: aio.Received) -> None:
            if message.body == b"0":
                message.nack(reason="worse and worse")

        async with collecting("g", "T", rocket.namesrv, ordered=True, retry_count_max=2, act=refuse) as member:
            await eventually(lambda: b"2" in member.bodies, 30)
            assert member.bodies == [b"0", b"0", b"0", b"1", b"2"]
            assert [message.attempt for message in member.taken] == [3, 3, 3, 1, 1]  # one message, thrice
        (dead,) = await dead_letters(rocket)
        assert (dead.message.body, dead.reason) == (b"0", "worse and worse")


@pytest.mark.feature("F252")
@virtual_time
async def test_where_nobody_takes_it_back_it_is_tried_again_here_after_five_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stage() as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        times_s: list[float] = []

        def refuse(message: aio.Received) -> None:
            times_s.append(now_s())
            if len(times_s) < 3:
                message.nack()

        async with collecting("g", "T", rocket.namesrv, act=refuse) as member:
            ask = member.consumer.subscriber.instance.ask

            async def refusing(address: str, command: Command, timeout_s: float | None = None) -> Command:
                if command.code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2):
                    raise ClientError("the broker is not in the mood", 1)
                return await ask(address, command, timeout_s)

            monkeypatch.setattr(member.consumer.subscriber.instance, "ask", refusing)
            await producer.send("T", b"x")
            await eventually(lambda: len(times_s) == 3, 30)
            assert [message.attempt for message in member.taken] == [3, 3, 3]  # one message, thrice
        assert [round(later - earlier) for earlier, later in pairwise(times_s)] == [5, 5]


@virtual_time
async def test_what_a_broker_took_back_is_settled_when_the_consumer_leaves_at_once() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await producer.send("T", b"x")
        consumer = aio.Consumer("g", "T", rocket.namesrv, start_from=OLDEST, clock=client_clock())
        async with consumer:
            (message,) = await consumer.receive(1)
            message.dead_letter("enough")
        async with collecting("g", "T", rocket.namesrv) as member:
            await producer.send("T", b"next")
            await eventually(lambda: bool(member.taken), 30)
            assert member.bodies == [b"next"]


# Several messages in one call


@pytest.mark.feature("F225", "F226")
@virtual_time
async def test_a_function_for_pages_gets_up_to_so_many_messages_of_one_queue_in_order() -> None:
    async with stage(queue_count=2) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        for queue in await producer.queues("T"):
            await send_all(producer, "T", numbers(0, 70), queue=queue)
        pages: list[list[aio.Received]] = []

        async def work(page: list[aio.Received]) -> None:
            pages.append(page)

        async with listening(rocket.namesrv, [handler_of(work, batch_max=10)], clock=client_clock()) as (subscriber,):
            await eventually(lambda: sum(map(len, pages)) == 140, 30)
            await eventually(lambda: sum(subscriber.progress("T").values()) == 140)
        assert max(map(len, pages)) == 10
        for page in pages:
            assert len({message.queue for message in page}) == 1
            offsets = [message.queue_offset for message in page]
            assert offsets == list(range(offsets[0], offsets[0] + len(page)))


@pytest.mark.feature("F233")
@virtual_time
async def test_what_lies_behind_the_index_a_page_returns_comes_again_and_nothing_else() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await producer.send_batch([aio.Message("T", body) for body in numbers(0, 6)])
        calls: Counter[bytes] = Counter()
        firsts: list[int] = []

        async def work(page: list[aio.Received]) -> int | None:
            calls.update(message.body for message in page)
            if page[0].attempt > 1:
                return None
            firsts.append(len(page))
            if page[-1].body == b"5":
                page[-1].dead_letter("its own verdict")
            return 2

        async with listening(rocket.namesrv, [handler_of(work, batch_max=6)], clock=client_clock()):
            await eventually(lambda: sum(calls.values()) == 8, 30)
        assert firsts == [6]
        assert calls == {b"0": 1, b"1": 1, b"2": 1, b"3": 2, b"4": 2, b"5": 1}
        assert [letter.message.body for letter in await dead_letters(rocket)] == [b"5"]


@pytest.mark.feature("F233", "F253")
@virtual_time
async def test_a_page_whose_function_raises_comes_again_whole() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await producer.send_batch([aio.Message("T", body) for body in numbers(0, 5)])
        calls: Counter[bytes] = Counter()

        def work(page: list[aio.Received]) -> None:  # an ordinary function, in a thread
            calls.update(message.body for message in page)
            if page[0].attempt == 1:
                raise ValueError("all of them")

        async with listening(rocket.namesrv, [handler_of(work, batch_max=5)], clock=client_clock()):
            await eventually(lambda: sum(calls.values()) == 10, 30)
        assert set(calls.values()) == {2}


@pytest.mark.feature("F226", "F280")
@virtual_time
async def test_pages_of_an_ordered_group_come_one_after_the_other_and_a_failed_one_again_in_order() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await send_all(producer, "T", numbers(0, 12))
        pages: list[list[int]] = []

        async def work(page: list[aio.Received]) -> None:
            pages.append([message.queue_offset for message in page])
            if len(pages) == 2:
                raise ValueError("this page again")

        handler = handler_of(work, batch_max=4, ordered=True)
        async with listening(rocket.namesrv, [handler], clock=client_clock()):
            await eventually(lambda: len(pages) == 4, 30)
        assert pages == [[0, 1, 2, 3], [4, 5, 6, 7], [4, 5, 6, 7], [8, 9, 10, 11]]


@pytest.mark.parametrize("batch_max", [0, -1, 5_000])
def test_a_page_size_that_makes_no_sense_is_refused_where_it_is_written(batch_max: int) -> None:
    with pytest.raises(ClientError, match="batch_max must be"):
        handler_of(print, batch_max=batch_max)
