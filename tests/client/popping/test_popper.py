"""Messages that are taken for a while: how many are out, what becomes of them, and what a member that dies held."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bolide import aio
from bolide.client.popping.popped import Popped, PopRequests
from bolide.client.popping.popper import Popper
from bolide.errors import ClientError
from bolide.testing import AsyncCluster
from tests.client.scenes import client_clock, numbers, send_all, stage
from tests.remoting.loops import both_loops, eventually, virtual_time


@asynccontextmanager
async def popping(rocket: AsyncCluster, **options: Any) -> AsyncIterator[tuple[Popper, list[Popped]]]:
    found: list[Popped] = []
    async with Popper("workers", found.append, rocket.namesrv, clock=client_clock(), **options) as popper:
        popper.subscribe("T")
        yield popper, found


def bodies(found: list[Popped]) -> Counter[bytes]:
    return Counter(popped.message.body for popped in found)


@asynccontextmanager
async def filled(count: int, **options: Any) -> AsyncIterator[AsyncCluster]:
    async with stage(**options) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await send_all(producer, "T", numbers(0, count))
        yield rocket


@both_loops
async def test_every_message_comes_once_to_one_of_the_members() -> None:
    async with filled(100) as rocket, popping(rocket) as (one, first), popping(rocket) as (other, second):
        await eventually(lambda: len(first) + len(second) == 100)
        assert bodies(first) + bodies(second) == Counter(numbers(0, 100))
        for popper, found in ((one, first), (other, second)):
            for popped in found:
                await popper.ack(popped)


@virtual_time
async def test_no_more_is_out_than_the_limit_says_and_a_verdict_makes_room() -> None:
    async with filled(20, queue_count=4) as rocket, popping(rocket, limit=3) as (popper, found):
        await eventually(lambda: len(found) == 3)
        await asyncio.sleep(30)  # virtual
        assert len(found) == 3
        await popper.ack(found[1])
        await eventually(lambda: len(found) == 4)
        popper.limit = 6
        await eventually(lambda: len(found) == 7)


@virtual_time
async def test_a_topic_that_gave_all_that_was_asked_for_is_asked_for_more_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: Counter[str] = Counter()
    for name in ("wait", "pop"):
        monkeypatch.setattr(PopRequests, name, counted(asked, name, getattr(PopRequests, name)))
    async with filled(120, queue_count=4) as rocket, popping(rocket, limit=6) as (popper, found):
        done: list[Popped] = []
        while len(done) < 120:
            await eventually(lambda: len(found) > len(done))
            done.append(found[len(done)])
            await popper.ack(done[-1])
        assert bodies(found) == Counter(numbers(0, 120))
        assert asked["pop"] >= 20
        assert asked["wait"] <= 3


def counted(counts: Counter[str], name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The same method, whose calls are counted."""

    def call(*given: Any) -> Any:
        counts[name] += 1
        return method(*given)

    return call


@virtual_time
async def test_who_leaves_a_topic_and_comes_back_gets_what_it_released_soon() -> None:
    clock = client_clock()
    async with filled(1) as rocket, popping(rocket) as (popper, found):
        await eventually(lambda: len(found) == 1)
        await asyncio.sleep(1)  # virtual: the next word is asked for
        await popper.unsubscribe("T")
        await popper.release(found[0])
        popper.subscribe("T")
        begun_s = clock.monotonic_s()
        await eventually(lambda: len(found) == 2)
        assert clock.monotonic_s() - begun_s < 5


@virtual_time
async def test_what_is_held_stays_hidden_for_as_long_as_its_holder_lives_and_then_comes_to_others() -> None:
    async with filled(5) as rocket:
        held: list[Popped] = []
        # Closed at the end only: until it stops renewing it lives, as far as a broker can tell.
        dying = Popper("workers", held.append, rocket.namesrv, invisible_s=10, clock=client_clock())
        await dying.start()
        dying.subscribe("T")
        await eventually(lambda: len(held) == 5)
        async with popping(rocket) as (_, second):
            await asyncio.sleep(120)  # virtual
            assert second == []
            assert dying._renewing is not None
            dying._renewing.cancel()
            await dying.unsubscribe("T")
            await eventually(lambda: bodies(second) == Counter(numbers(0, 5)), 60)
            assert {popped.delivery_count for popped in second} == {2}
        await dying.close()


@virtual_time
async def test_what_is_acknowledged_never_comes_again() -> None:
    async with filled(10) as rocket:
        async with popping(rocket, invisible_s=10) as (popper, found):
            await eventually(lambda: len(found) == 10)
            await asyncio.sleep(25)  # virtual; so handles have changed
            await asyncio.gather(*map(popper.ack, found))
        async with popping(rocket, invisible_s=10) as (_, again):
            await asyncio.sleep(120)  # virtual
            assert again == []


@virtual_time
async def test_what_is_released_comes_again_and_so_does_all_that_was_out_at_the_end() -> None:
    async with filled(4) as rocket:
        async with popping(rocket) as (popper, found):
            await eventually(lambda: len(found) == 4)
            await popper.release(found[0])
            await eventually(lambda: len(found) == 5, 20)
            assert bodies(found)[found[0].message.body] == 2
        async with popping(rocket) as (_, again):
            await eventually(lambda: bodies(again) == Counter(numbers(0, 4)), 20)


@virtual_time
async def test_what_is_buried_is_a_dead_letter_of_the_group() -> None:
    async with filled(2) as rocket, popping(rocket) as (popper, found):
        await eventually(lambda: len(found) == 2)
        await popper.bury(found[0])
        await popper.ack(found[1])
        async with aio.Admin(rocket.namesrv, clock=client_clock()) as admin:
            (letter,) = [each async for each in admin.dead_letters("workers")]
        assert letter.message.body == found[0].message.body


@virtual_time
async def test_a_second_verdict_on_a_message_is_none() -> None:
    async with filled(1) as rocket, popping(rocket) as (popper, found):
        await eventually(lambda: len(found) == 1)
        await popper.ack(found[0])
        await popper.release(found[0])
        await asyncio.sleep(30)  # virtual
        assert len(found) == 1


@both_loops
async def test_a_broker_that_restarts_costs_no_message() -> None:
    async with filled(30) as rocket, popping(rocket, limit=5) as (popper, found):
        await eventually(lambda: len(found) == 5)
        await rocket.brokers[0].stop()
        verdicts = [asyncio.ensure_future(popper.ack(popped)) for popped in list(found)]
        await rocket.brokers[0].start()
        await asyncio.gather(*verdicts)
        while len(bodies(found)) < 30:
            await eventually(lambda: any(not popped.is_settled for popped in found))
            for popped in found:
                await popper.ack(popped)
        assert bodies(found) == Counter(numbers(0, 30))


@virtual_time
async def test_a_member_whose_clock_is_behind_the_brokers_gets_its_messages() -> None:
    async with filled(5) as rocket:
        await asyncio.sleep(40)  # virtual; a clock of this loop begins when it is made
        async with popping(rocket) as (_, found):
            await eventually(lambda: len(found) == 5, 60)


@both_loops
async def test_a_topic_that_comes_later_is_found() -> None:
    async with stage("Other") as rocket, popping(rocket) as (popper, found):
        await rocket.create_topic("T")
        async with aio.Producer("pg", rocket.namesrv) as producer:
            await producer.send("T", b"x")
        await eventually(lambda: len(found) == 1)
        await popper.ack(found[0])


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(ClientError, match="group"):
        Popper("no group.", print, "127.0.0.1:9")
    with pytest.raises(ClientError, match="at least a second"):
        Popper("workers", print, "127.0.0.1:9", invisible_s=0.1)
    with pytest.raises(ClientError, match="is not open"):
        Popper("workers", print, "127.0.0.1:9").subscribe("T")
