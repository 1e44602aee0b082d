"""Messages with a delay level: when they come, as what, and what a stop, a crash or a set clock leaves of them."""

import asyncio
import json
from pathlib import Path

import pytest

from bolide.broker.later.delay import count_due, parse, text_of
from bolide.broker.tables.offsets import quote_keys
from bolide.model.queue import QueueKey
from bolide.protocol.bodies import DataVersion
from bolide.protocol.properties import join_properties
from bolide.store.config import StoreConfig, delays_ms_of
from bolide.store.record import Draft
from bolide.testing import VirtualClock, run
from tests.broker.delaying import START_MS, delaying
from tests.broker.senders import message
from tests.store.given import query


async def pass_s(seconds: float) -> None:
    await asyncio.sleep(seconds)  # virtual


def is_saved(root: Path) -> bool:
    return bool(list(root.rglob("delayOffset.json")))


def lose(root: Path) -> None:
    for path in root.rglob("delayOffset.json*"):
        path.unlink()


def overwrite(root: Path, name: str, old: bytes, new: bytes) -> None:
    path = next(root.rglob(name))
    at = path.read_bytes().index(old)
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(new)


def rewrite_offsets(root: Path, table: dict[int, int]) -> None:
    next(root.rglob("delayOffset.json")).write_text(text_of(DataVersion(), table))


def saved_offsets(root: Path) -> dict[str, int]:
    text = next(root.rglob("delayOffset.json")).read_text()
    table: dict[str, int] = json.loads(quote_keys(text))["offsetTable"]
    return table


@pytest.mark.feature("F088", "F254")
@pytest.mark.parametrize(("level", "delay_s"), [(2, 5), (3, 10)])
def test_a_message_comes_when_its_level_says_and_not_before(tmp_path: Path, level: int, delay_s: int) -> None:
    async def scenario() -> None:
        async with delaying(tmp_path) as late:
            await late.send(level)
            await pass_s(delay_s - 0.01)
            assert late.come() == []
            await pass_s(0.02)
            assert late.bodies() == [b"later"]

    run(scenario())


@pytest.mark.feature("F255", "F191", "F257")
def test_every_level_has_its_delay_and_its_queue(tmp_path: Path) -> None:
    minute, hour = 60, 3600
    delays_s = [1, 5, 10, 30, *(minutes * minute for minutes in range(1, 11)), 20 * minute, 30 * minute, hour, 2 * hour]

    async def scenario() -> None:
        async with delaying(tmp_path) as late:
            for level in range(1, 19):
                await late.send(level, b"%d" % level)
            for level, delay_s in enumerate(delays_s, 1):
                waiting = late.sending.store.queue(QueueKey("SCHEDULE_TOPIC_XXXX", level - 1))
                assert waiting is not None
                assert waiting.next_offset == 1
                await pass_s(delay_s - (late.clock.now_ms() - START_MS) / 1000 + 0.001)
                assert late.bodies()[-1] == b"%d" % level
            assert len(late.bodies()) == 18
        assert saved_offsets(tmp_path) == {str(level): 1 for level in range(1, 19)}

    run(scenario())


@pytest.mark.feature("F083", "F262", "F263")
def test_what_comes_is_the_message_at_home_and_a_second_record(tmp_path: Path) -> None:
    """5.5.0 clears DELAY in a map after it has made the text that is stored: consumers see all three properties."""

    async def scenario() -> None:
        async with delaying(tmp_path) as late:
            properties = join_properties(
                {"UNIQ_KEY": "7F0000010001", "DELAY": "1", "TAGS": "TagA", "KEYS": "k1", "own": "x"}
            )
            command = message(b"body", properties=properties, reconsume_times=2, flag=9, queue_id=3)
            assert (await late.sending.sent(command)).code == 0
            (waiting,) = late.come("SCHEDULE_TOPIC_XXXX")
            await pass_s(1.001)
            (come,) = late.sending.messages("Orders", 3)
            assert (come.topic, come.queue_id, come.queue_offset) == ("Orders", 3, 0)
            assert (come.body, come.flag, come.reconsume_times) == (b"body", 9, 2)
            assert (come.born_at, come.born_host) == (waiting.born_at, waiting.born_host)
            assert come.physical_offset > waiting.physical_offset
            assert come.stored_at == START_MS + 1000
            assert come.properties == waiting.properties
            assert (come.properties["REAL_TOPIC"], come.properties["REAL_QID"], come.properties["DELAY"]) == (
                "Orders",
                "3",
                "1",
            )
            # Its tags are hashed again: the schedule queue has the time there.
            found = late.sending.store.read(QueueKey("Orders", 3), 0, 10, tag_hashes=frozenset([2598919]))
            assert len(found.views) == 1
            assert [each.body for each in query(late.sending.store, "Orders", "k1", 10, 0, START_MS + 9999)] == [
                b"body"
            ]

    run(scenario())


@pytest.mark.feature("F264", "F258", "F256")
def test_progress_is_written_as_soon_as_there_is_any_and_nothing_comes_twice_after_a_stop(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        async with delaying(tmp_path, clock) as late:
            await late.send(1, b"a")
            await pass_s(0.9)
            assert not is_saved(tmp_path)
            await pass_s(0.6)
            await late.sending.tables.table_writer.flush()
            assert saved_offsets(tmp_path) == {"1": 1}
            await late.send(1, b"b")
            await late.send(2, b"c")
            await pass_s(1.5)
        assert saved_offsets(tmp_path) == {"1": 2}
        async with delaying(tmp_path, clock) as late:
            await pass_s(5)
            assert late.bodies() == [b"a", b"b", b"c"]

    run(scenario())


@pytest.mark.feature("F264")
def test_a_crash_repeats_what_came_since_the_last_save_and_loses_nothing(tmp_path: Path) -> None:
    async def killed(clock: VirtualClock) -> None:
        async with delaying(tmp_path, clock) as late:
            for number in range(20):
                await late.send(1, b"%d" % number)
                await pass_s(0.9)
            late.delays.save = nothing  # type: ignore[method-assign]
            raise RuntimeError("killed")

    async def nothing() -> None:
        pass

    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        with pytest.raises(ExceptionGroup):
            await killed(clock)
        async with delaying(tmp_path, clock) as late:
            await pass_s(5)
            bodies = late.bodies()
            assert {int(body) for body in bodies} == set(range(20))
            assert len(bodies) - 20 <= 10  # those of the last ten seconds

    run(scenario())


def test_a_lost_file_delivers_again_what_the_log_still_has(tmp_path: Path) -> None:
    """Gotcha 21."""

    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        async with delaying(tmp_path, clock) as late:
            await late.send(1, b"a")
            await pass_s(2)
        lose(tmp_path)
        async with delaying(tmp_path, clock) as late:
            await pass_s(1)
            assert late.bodies() == [b"a", b"a"]

    run(scenario())


@pytest.mark.feature("F260")
def test_an_offset_outside_its_queue_is_put_right_at_load(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        async with delaying(tmp_path, clock) as late:
            await late.send(1, b"a")
            await pass_s(2)
        rewrite_offsets(tmp_path, {1: 99, 2: 7})
        async with delaying(tmp_path, clock) as late:
            assert late.delays.table == {1: 1}  # level 2 has no queue, and will begin at 0
            await late.send(2, b"b")
            await late.send(1, b"c")
            await pass_s(6)
            assert late.bodies() == [b"a", b"c", b"b"]

    run(scenario())


@pytest.mark.feature("F259", "F261")
def test_levels_without_a_queue_do_no_harm_and_a_restart_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock(START_MS)
        async with delaying(tmp_path, clock) as late:
            assert await late.delays.deliver_due() is None
            await late.send(3, b"a")
            await pass_s(4)
        async with delaying(tmp_path, clock) as late:
            assert late.come() == []
            await pass_s(6.001)
            assert late.bodies() == [b"a"]

    run(scenario())


def test_with_nothing_waiting_nobody_wakes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with delaying(tmp_path) as late:
            calls: list[int] = []
            deliver_some = late.delays._deliver_some

            async def counted(level: int) -> int | None:
                calls.append(level)
                return await deliver_some(level)

            late.delays._deliver_some = counted  # type: ignore[method-assign]
            await pass_s(3600)
            assert len(calls) <= 18
            await late.send(3)
            await pass_s(11)
            assert len(calls) <= 18 * 15  # a look a second while something waits
            assert late.bodies() == [b"later"]

    run(scenario())


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
def test_a_clock_that_is_set_delays_and_loses_nothing(tmp_path: Path, step_ms: int) -> None:
    """Forward, what waits is due; back, it is due at once as well, for nobody knows how long it has waited."""

    async def scenario() -> None:
        async with delaying(tmp_path) as late:
            await late.send(3, b"before")
            await pass_s(2)
            late.clock.set_wall(late.clock.now_ms() + step_ms)
            await pass_s(1.1)
            assert late.bodies() == [b"before"]
            await late.send(2, b"after")
            await pass_s(6 + max(-step_ms // 1000, 0))
            assert late.bodies() == [b"before", b"after"]

    run(scenario())


@pytest.mark.parametrize("back_s", [0.05, 3_600, 86_400])
def test_what_is_sent_to_a_level_after_the_clock_was_set_back_comes_in_its_time(tmp_path: Path, back_s: float) -> None:
    """Store times stand still until the clock has come up with them, and so would be no measure."""

    async def scenario() -> None:
        async with delaying(tmp_path) as late:
            await late.send(1, b"before")
            await pass_s(2)
            late.clock.set_wall(late.clock.now_ms() - int(back_s * 1000))
            sent = [b"%d" % number for number in range(8)]
            for body in sent:
                await late.send(3, body)
                await pass_s(1)
            await pass_s(1.9)
            assert late.bodies() == [b"before"]
            await pass_s(4)
            assert late.bodies()[:3] == [b"before", *sent[:2]]
            assert len(late.bodies()) < 7, "each has its own time"
            await pass_s(20)
            assert late.bodies() == [b"before", *sent]
            late.clock.set_wall(late.clock.now_ms() + int(back_s * 1000) + 1_000)
            await late.send(3, b"caught up")
            await pass_s(9.9)
            assert late.bodies() == [b"before", *sent]
            await pass_s(0.2)
            assert late.bodies()[-1] == b"caught up"

    run(scenario())


def test_many_due_together_leave_in_order_and_the_loop_has_its_turns(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with delaying(tmp_path, mappedFileSizeCommitLog="4194304") as late:
            properties = b"DELAY\x011\x02REAL_TOPIC\x01Orders\x02REAL_QID\x010\x02"
            late.sending.store.append(
                [
                    Draft("SCHEDULE_TOPIC_XXXX", 0, b"%05d" % n, properties, 0, 0, START_MS, bytes(8))
                    for n in range(3000)
                ]
            )
            turns = 0
            await pass_s(0.999)
            while late.sending.store.max_offset(QueueKey("Orders", 0)) < 3000:
                turns += 1
                await pass_s(0 if turns > 1 else 0.001)
            assert turns >= 10
            assert late.bodies()[:32] == [b"%05d" % n for n in range(32)]

    run(scenario())


def test_a_damaged_record_is_passed_over_and_the_rest_comes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with delaying(tmp_path) as late:
            await late.send(1, b"good-1")
            await late.send(1, b"damaged-here")
            await late.send(1, b"good-2")
            overwrite(tmp_path, "commitlog/00000000000000000000", b"damaged-here", b"D")
            await pass_s(1.1)
            assert late.bodies() == [b"good-1", b"good-2"]

    run(scenario())


def test_a_store_that_refuses_is_asked_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with delaying(tmp_path) as late:
            await late.send(1, b"a")
            late.sending.store.is_disk_full = True
            await pass_s(3)
            assert late.come() == []
            late.sending.store.is_disk_full = False
            await pass_s(1.1)
            assert late.bodies() == [b"a"]

    run(scenario())


@pytest.mark.parametrize("sealed", ["false", "true"])
def test_records_with_a_checksum_of_all_of_them_come_too(tmp_path: Path, sealed: str) -> None:
    async def scenario() -> None:
        async with delaying(tmp_path, enabledAppendPropCRC=sealed) as late:
            await late.send(1, b"a", own="x")
            await pass_s(1.1)
            (come,) = late.come()
            assert come.properties["own"] == "x"
            assert ("__CRC32#" in come.properties) == (sealed == "true")

    run(scenario())


def test_a_due_time_is_a_time_and_no_hash(tmp_path: Path) -> None:
    """Gotcha 20: an entry of a schedule queue holds the time in place of the tag's hash."""

    async def scenario() -> None:
        async with delaying(tmp_path) as late:
            await late.send(5, TAGS="TagA")
            queue = late.sending.store.queue(QueueKey("SCHEDULE_TOPIC_XXXX", 4))
            assert queue is not None
            assert queue.entry(0)[2] == START_MS + 60_000

    run(scenario())


@pytest.mark.parametrize(
    ("dues_ms", "due_count", "wait_ms"),
    [([], 0, 0), ([100], 1, 0), ([101], 0, 1), ([50, 100, 150], 2, 50), ([1200, 90], 2, 0), ([1100], 0, 1000)],
)
def test_what_is_due_is_counted_from_the_front(dues_ms: list[int], due_count: int, wait_ms: int) -> None:
    entries = b"".join(bytes(12) + due_ms.to_bytes(8, "big") for due_ms in dues_ms)
    assert count_due(memoryview(entries), 100, 1000) == (due_count, wait_ms)


def test_the_file_is_written_as_java_does_and_read_from_either_version() -> None:
    text = text_of(DataVersion(counter=3, timestamp=1726737940123), {2: 20, 1: 10})
    assert text == (
        '{\n\t"dataVersion":{\n\t\t"counter":3,\n\t\t"stateVersion":0,\n\t\t"timestamp":1726737940123\n\t},\n'
        '\t"offsetTable":{1:10,2:20\n\t}\n}'
    )
    assert parse(text).offset_table == {1: 10, 2: 20}
    assert parse('{"offsetTable":{1:10,3:7}}').offset_table == {1: 10, 3: 7}
    assert text_of(DataVersion(), {}).endswith('"offsetTable":{}\n}')


def test_the_levels_of_the_configuration_count() -> None:
    assert delays_ms_of(StoreConfig().delay_levels)[2] == 10_000
