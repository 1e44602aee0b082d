"""Messages by key and id, offsets by time, entries of a queue."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bolide import kernel
from bolide.broker.admin import queries as queries_module
from bolide.broker.admin.queries import Queries
from bolide.broker.state import BrokerState
from bolide.errors import Refusal
from bolide.protocol.bodies import QueueEntries
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers import OffsetAnswer, QueryMessageAnswer
from bolide.protocol.records import decode_records
from bolide.remoting import slow_work as slow_work_module
from bolide.remoting.owner import Request
from bolide.remoting.shared import Shared
from bolide.remoting.slow_work import PLACES_BY_CONNECTION_MAX, SlowWork, place_of
from bolide.store import index as index_module
from bolide.store.record import Draft
from bolide.store.store import Store
from tests.broker.open_tables import tables
from tests.broker.pullers import heartbeat_of, pulling
from tests.remoting.ends import Peer
from tests.remoting.loops import both_loops, virtual_time
from tests.store.given import BORN_HOST, START_MS, HeldClock, draft, opened, small

FOREVER = (1 << 63) - 1


def asked(code: int, **fields: Any) -> Command:
    return Command(code, opaque=1, fields={key: str(value) for key, value in fields.items()})


def by_key(key: str, topic: str = "T", count: int = 32, begin: int = 0, end: int = FOREVER, **more: str) -> Command:
    fields = {"topic": topic, "key": key, "maxNum": count, "beginTimestamp": begin, "endTimestamp": end}
    return asked(RequestCode.QUERY_MESSAGE, **fields, **more)


class Asking:
    """Questions to a store without a port between."""

    patch: pytest.MonkeyPatch

    def __init__(self, state: BrokerState, clock: Any) -> None:
        self.handlers = Queries(state).handlers()
        self.shared = Shared(slow_work=SlowWork(clock))
        self.origin = "127.0.0.1"  # it is its own session
        self.has_hung_up = False

    async def ask(self, command: Command) -> Command:
        reply = self.handlers[command.code](Request(command, cast(Any, self), 0.0))
        if isinstance(reply, Awaitable):
            reply = await reply
        assert reply is not None
        return reply


async def bodies(asking: Asking, command: Command) -> list[bytes]:
    answer = await asking.ask(command)
    assert answer.code == 0, answer.remark
    return [message.body for message in decode_records(answer.body, checks_crc=True)]


def with_store(test: Callable[[Store, Asking, HeldClock], Awaitable[None]]) -> Callable[..., None]:
    """Run a test with a store under a held clock, and somebody who asks."""

    @virtual_time
    async def run(tmp_path, monkeypatch) -> None:
        clock = HeldClock()
        async with tables(tmp_path) as kept:
            with opened(small(tmp_path, segment_size=1 << 20, queue_file_size=6000), clock) as store:
                asking = Asking(replace(kept.state(store), clock=clock), clock)
                asking.patch = monkeypatch
                await test(store, asking, clock)

    run.__name__ = test.__name__
    return run


@pytest.mark.feature("F128")
@with_store
async def test_a_key_finds_its_messages_and_no_others_in_the_order_of_the_log(
    store: Store, asking: Asking, clock: HeldClock
) -> None:
    store.append([draft(b"1", KEYS="order-1 user-7", UNIQ_KEY="AC10"), draft(b"2", KEYS="order-2 user-7")])
    store.append([draft(b"3", topic="Other", KEYS="user-7"), draft(b"4", KEYS="user-70")])
    assert await bodies(asking, by_key("order-1")) == [b"1"]
    assert await bodies(asking, by_key("user-7")) == [b"1", b"2"]
    assert await bodies(asking, by_key("user-7", topic="Other")) == [b"3"]
    assert await bodies(asking, by_key("AC10", _UNIQUE_KEY_QUERY="true")) == [b"1"]
    answer = await asking.ask(by_key("user-8"))
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert "user-8" in str(answer.remark)
    # How far the index is, is said in either case.
    told = QueryMessageAnswer.decode(answer.fields)
    assert (told.indexed_ms, told.indexed_physical_offset) == (START_MS, store.dispatch.index.physical_end)


@with_store
async def test_the_newest_are_found_first_and_time_bounds_the_search(
    store: Store, asking: Asking, clock: HeldClock
) -> None:
    for n in range(10):
        clock.ms = START_MS + n * 10_000
        store.append([draft(b"%d" % n, KEYS="k", UNIQ_KEY="u")])
    assert await bodies(asking, by_key("k", count=3)) == [b"7", b"8", b"9"]
    found = await bodies(asking, by_key("k", begin=START_MS + 20_000, end=START_MS + 40_000))
    assert found == [b"2", b"3", b"4"]
    for count in (0, -1):
        assert (await asking.ask(by_key("k", count=count))).code == ResponseCode.QUERY_NOT_FOUND
    # The unique key of a client that asks for one message may be that of many, resent ones.
    assert len(await bodies(asking, by_key("u", count=1, _UNIQUE_KEY_QUERY="true"))) == 10


@with_store
async def test_an_answer_stays_below_what_a_frame_may_hold(store: Store, asking: Asking, clock: HeldClock) -> None:
    for n in range(5):
        store.append([draft(b"%d" % n * 1000, KEYS="k")])
    asking.patch.setattr(queries_module, "ANSWER_SIZE_MAX", 2500)
    assert [body[:1] for body in await bodies(asking, by_key("k"))] == [b"3", b"4"]


@with_store
async def test_a_long_chain_lets_others_have_their_turn_and_ends_in_time(
    store: Store, asking: Asking, clock: HeldClock
) -> None:
    store.append([draft(b"first", KEYS="k1")])
    clock.ms += 60_000
    for _ in range(20):
        store.append([draft(b"x", KEYS=f"k{n}") for n in range(10)])
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    asking.patch.setattr(index_module, "_PAUSE_COUNT", 1)
    asking.patch.setattr(slow_work_module, "TURN_S", 0.0)
    async with asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(count_turns(), name="turns")
        await asyncio.sleep(0)
        before = turns
        # All but the first of the chain are too new, and the search has to look at them.
        assert await bodies(asking, by_key("k1", end=START_MS + 1)) == [b"first"]
        assert turns - before >= 20
        counting.cancel()
    asking.patch.setattr(queries_module, "QUERY_LIMIT_S", -1.0)
    assert (await asking.ask(by_key("k1", end=START_MS + 1))).code == ResponseCode.QUERY_NOT_FOUND


@with_store
async def test_a_search_survives_the_deletion_of_the_file_it_is_in(
    store: Store, asking: Asking, clock: HeldClock
) -> None:
    store.append([draft(b"x", KEYS="k")] * 200)
    walk = store.dispatch.index.walk("T", "k", 0, FOREVER)
    assert next(walk) is not None
    store.append([draft(b"x", KEYS="k")] * 200)  # a second file
    store.dispatch.index._remove(store.dispatch.index.files[0])
    assert list(walk) == []


@with_store
async def test_a_message_is_found_by_its_place_in_the_log(store: Store, asking: Asking, clock: HeldClock) -> None:
    first, second = store.append([draft(b"1"), draft(b"2")]).physical_offsets
    assert await bodies(asking, asked(33, offset=second)) == [b"2"]
    for nowhere in (first + 1, store.commitlog.end, -1, 1 << 40):
        answer = await _refused(asking, asked(33, offset=nowhere))
        assert answer == ResponseCode.SYSTEM_ERROR


async def _refused(asking: Asking, command: Command) -> int:
    with pytest.raises(Refusal) as refused:
        await asking.ask(command)
    return refused.value.code


@with_store
async def test_a_time_finds_the_later_of_two_messages_and_both_ends_of_equal_ones(
    store: Store, asking: Asking, clock: HeldClock
) -> None:
    for n, after_ms in enumerate((0, 100, 100, 100, 200)):
        clock.ms = START_MS + after_ms
        store.append([draft(b"%d" % n)])

    async def found(after_ms: int, **more: str) -> int:
        answer = await asking.ask(asked(29, topic="T", queueId=0, timestamp=START_MS + after_ms, **more))
        return OffsetAnswer.decode(answer.fields).offset

    assert [await found(ms) for ms in (-5, 0, 50, 100, 150, 200, 201)] == [0, 0, 1, 1, 4, 4, 5]
    assert [await found(ms, boundaryType="LOWER") for ms in (50, 100, 150)] == [1, 1, 4]
    assert [await found(ms, boundaryType="UPPER") for ms in (0, 100, 150, 201)] == [0, 3, 3, 4]
    answer = await asking.ask(asked(29, topic="Nobody", queueId=0, timestamp=START_MS))
    assert OffsetAnswer.decode(answer.fields).offset == 0


@with_store
async def test_a_queue_says_its_ends_and_its_oldest_time(store: Store, asking: Asking, clock: HeldClock) -> None:
    clock.ms = START_MS + 5
    store.append([draft(b"1"), draft(b"2"), draft(b"3", queue_id=1)])

    async def fields(code: int, topic: str = "T", queue_id: int = 0) -> dict[str, str]:
        return (await asking.ask(asked(code, topic=topic, queueId=queue_id))).fields

    assert await fields(30) == {"offset": "2"}
    assert await fields(31) == {"offset": "0"}
    assert await fields(32) == {"timestamp": str(START_MS + 5)}
    assert [await fields(code, "Nobody") for code in (30, 31)] == [{"offset": "0"}] * 2
    assert await fields(32, "Nobody") == {"timestamp": "-1"}
    store.dispatch.queues["T", 1].min_offset = 1  # all of it has expired
    assert await fields(32, queue_id=1) == {"timestamp": "-1"}
    assert await fields(31, queue_id=1) == {"offset": "1"}


@both_loops
async def test_entries_of_a_queue_are_shown_with_what_a_group_would_get(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.handlers._handlers.update(Queries(rig.state).handlers())
        for tag in "ABA":
            rig.put(b"x", TAGS=tag)
        peer = await Peer.connect(rig.port)
        await peer.ask(heartbeat_of("A"))

        async def shown(**more: Any) -> QueueEntries:
            answer = await peer.ask(asked(321, topic="T", queueId=0, **{"index": 0, "count": 10} | more))
            assert answer.code == 0
            return QueueEntries.decode(answer.body)

        entries = await shown(consumerGroup="G")
        assert [entry.eval for entry in entries.queue_data] == [True, False, True]
        assert [entry.tags_code for entry in entries.queue_data] == [65, 66, 65]
        assert (entries.min_queue_index, entries.max_queue_index) == (0, 3)
        assert entries.subscription_data is not None
        assert entries.subscription_data.sub_string == "A"
        sizes = [(entry.physic_offset, entry.physic_size) for entry in entries.queue_data]
        assert sizes[1][0] == sum(sizes[0])
        assert len((await shown(index=1, count=1)).queue_data) == 1
        assert (await shown(index=3)).queue_data == []
        assert (await shown(count=-1)).queue_data == []
        assert "Strangers" in str((await shown(consumerGroup="Strangers")).filter_data)
        missing = await peer.ask(asked(321, topic="T", queueId=3, index=0, count=1))
        assert missing.code == ResponseCode.SYSTEM_ERROR
        peer.leave()


@pytest.mark.feature("F128")
def test_a_key_among_a_million_is_found_within_ten_milliseconds(tmp_path) -> None:
    count = 1_000_000 if kernel.NAME == "compiled" else 30_000  # the plain kernel takes half a minute for a million
    config = small(
        tmp_path, segment_size=1 << 28, queue_file_size=6_000_000, index_slots=500_000, index_entries_max=2_000_000
    )

    async def ask_some(asking: Asking) -> list[float]:
        took_s = []
        for n in range(0, count, count // 50):
            began_s = time.process_time()
            answer = await asking.ask(by_key(f"k{n}"))
            took_s.append(time.process_time() - began_s)
            assert [message.body for message in decode_records(answer.body)] == [b"%d" % n]
        return took_s

    with opened(config) as store:
        for first in range(0, count, 10_000):
            store.append(
                [
                    Draft("T", 0, b"%d" % n, b"KEYS\x01k%d\x02" % n, 0, 0, START_MS, BORN_HOST)
                    for n in range(first, first + 10_000)
                ]
            )
        clock = HeldClock()
        took_s = asyncio.run(
            ask_some(Asking(cast(Any, SimpleNamespace(store=store, members=None, clock=clock)), clock))
        )
    assert sorted(took_s)[-5] < 0.010


@with_store
async def test_a_search_of_who_has_his_share_is_refused_before_a_task_is_made_for_it(
    store: Store, asking: Asking, clock: HeldClock
) -> None:
    with contextlib.ExitStack() as places:
        for _ in range(PLACES_BY_CONNECTION_MAX):
            places.enter_context(place_of(cast(Any, asking)))
        for command in (by_key("k"), asked(RequestCode.QUERY_CONSUME_QUEUE, topic="T", queueId=0, index=0, count=1)):
            with pytest.raises(Refusal) as refused:
                asking.handlers[command.code](Request(command, cast(Any, asking), 0.0))
            assert refused.value.code == ResponseCode.SYSTEM_BUSY
