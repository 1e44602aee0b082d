"""Asking about transactions that nobody decided: when, whom, how often; and what a restart knows of them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.transactions.checks import CheckRules, Step, judge
from bolide.broker.transactions.ended import Ended
from bolide.broker.transactions.halves import HALVES
from bolide.broker.transactions.operations import read_offsets
from bolide.errors import Refusal
from bolide.model.queue import QueueKey
from bolide.protocol.properties import encode_properties
from bolide.store.read import Slices
from bolide.store.record import Draft
from bolide.testing import run
from tests.broker.transacting import COMMIT, GROUP, ROLLBACK, UNKNOWN, Producer, Sent, Transacting, transacting


def scenario(root: Path, check: Callable[[Transacting], Awaitable[None]], **settings: str) -> None:
    async def play() -> None:
        async with transacting(root, **settings) as rig:
            await check(rig)

    run(play())


def progress(rig: Transacting) -> tuple[int | None, int | None]:
    topics = ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC")
    half, op = (rig.offsets.get("CID_RMQ_SYS_TRANS", topic, 0) for topic in topics)
    return half, op


def half_count(rig: Transacting) -> int:
    return rig.room.store.max_offset(HALVES)


RULES = CheckRules(timeout_ms=6_000, check_count_max=15, keep_ms=72 * 3_600_000)


@pytest.mark.feature("F297")
@pytest.mark.parametrize(
    ("age_ms", "own", "step"),
    [
        (0, {}, Step.STOP),
        (6_000, {}, Step.STOP),
        (6_001, {}, Step.ASK),
        (-1, {}, Step.ASK),
        (6_001, {"TRANSACTION_CHECK_TIMES": "14"}, Step.ASK),
        (1_000, {"TRANSACTION_CHECK_TIMES": "15"}, Step.DISCARD),
        (6_001, {"TRANSACTION_CHECK_TIMES": "many"}, Step.ASK),
        (72 * 3_600_000 + 1, {}, Step.DISCARD),
        (30_000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}, Step.KEEP),
        (60_000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}, Step.KEEP),
        (60_001, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}, Step.ASK),
        (3_000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"}, Step.KEEP),
        (6_001, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "soon"}, Step.ASK),
    ],
)
def test_what_a_round_does_follows_from_age_and_checks(age_ms: int, own: dict[str, str], step: Step) -> None:
    now_ms = 1_700_000_000_000
    assert judge(now_ms - age_ms, now_ms - 1, own, now_ms, now_ms, RULES) is step


def test_what_was_stored_after_the_round_began_is_for_the_next_one() -> None:
    assert judge(0, 50, {}, 20_000, 50, RULES) is Step.STOP


@pytest.mark.feature("F293", "F297")
def test_an_undecided_transaction_is_asked_about_in_the_round_after_its_immunity_and_fifteen_times_at_most(
    tmp_path: Path,
) -> None:
    async def check(rig: Transacting) -> None:
        producer = rig.join(Producer())
        task = asyncio.get_running_loop().create_task(rig.transactions.run_forever())
        sent = await rig.prepare(TAGS="TagA")
        await rig.pass_time(29.5)
        for _ in range(15):
            assert producer.asked == []
            await rig.pass_time(30 if len(rig.halves) > 1 else 1)
            ((question, asked),) = producer.questions()
            rig.answer(question, UNKNOWN)
        assert (asked.topic, asked.queue_id, asked.body) == ("Orders", 2, b"pay")
        assert asked.properties["TRANSACTION_CHECK_TIMES"] == "15"
        assert (question.message_id, question.transaction_id) == (sent.unique_id, sent.unique_id)
        newest = rig.halves[-1]
        assert (question.half_queue_offset, question.physical_offset) == (15, newest.physical_offset)
        assert question.offset_message_id == newest.offset_id
        await rig.pass_time(31)
        assert producer.asked == []
        (given_up,) = rig.given_up
        assert (given_up.body, given_up.properties["REAL_TOPIC"]) == (b"pay", "Orders")
        assert progress(rig)[0] == len(rig.halves) == 16
        assert rig.messages() == []
        task.cancel()

    scenario(tmp_path, check)


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
def test_who_is_asked_decides_and_is_not_asked_again(tmp_path: Path, how: int) -> None:
    async def check(rig: Transacting) -> None:
        producer = rig.join(Producer())
        await rig.prepare()
        await rig.pass_time(7)
        await rig.transactions.checks.check()
        ((question, _),) = producer.questions()
        assert question.half_queue_offset == 1
        rig.answer(question, how)
        await rig.pass_time(30)
        await rig.transactions.checks.check()
        assert producer.asked == []
        assert len(rig.messages()) == (how == COMMIT)
        assert rig.operations == [b"1,"]
        assert progress(rig) == (2, 1)

    scenario(tmp_path, check)


class LateReplica:
    """A replica that is behind by some seconds; until it has a message, nobody sees that."""

    needs_replicas = True
    awaited: frozenset[int] = frozenset()

    def __init__(self, rig: Transacting, late_s: float) -> None:
        self._store = rig.room.state.store
        self._late_s = late_s
        self._store.confirm(self._store.log_end)

    def refusal(self) -> Refusal | None:
        return None

    def wait(self, end: int) -> "asyncio.Future[None]":
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()

        def acknowledge() -> None:
            self._store.confirm(end)
            waiter.set_result(None)

        loop.call_later(self._late_s, acknowledge)
        return waiter

    def wait_for_all(self, end: int) -> "asyncio.Future[None] | None":
        return None


def test_nobody_is_asked_about_a_copy_that_replicas_do_not_have_yet(tmp_path: Path) -> None:
    """An answer that does not find its copy counts for nothing, and after fifteen of them the message is given up."""

    async def check(rig: Transacting) -> None:
        producer = rig.join(Producer())
        await rig.prepare()
        await rig.pass_time(7)
        rig.room.state.safety.plug(LateReplica(rig, late_s=5.0))
        task = asyncio.get_running_loop().create_task(rig.transactions.checks.check())
        await rig.pass_time(4)
        assert producer.asked == []
        await task
        ((question, _),) = producer.questions()
        copy = Sent(question.half_queue_offset, question.physical_offset, question.message_id or "")
        rig.end(copy, ROLLBACK, oneway=True, is_from_check=True)
        await rig.pass_time(30)
        await rig.transactions.checks.check()
        assert producer.asked == []

    scenario(tmp_path, check)


@pytest.mark.feature("F298")
def test_when_the_sender_is_gone_another_of_its_group_is_asked(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        sender, mate = rig.join(Producer("10.0.0.1:1")), rig.join(Producer("10.0.0.2:1"))
        stranger = rig.join(Producer("10.0.0.3:1"), "another")
        await rig.prepare()
        sender.is_open = False
        await rig.pass_time(7)
        await rig.transactions.checks.check()
        assert (sender.asked, stranger.asked) == ([], [])
        ((question, _),) = mate.questions()
        rig.answer(question, COMMIT)
        assert len(rig.messages()) == 1

    scenario(tmp_path, check)


def test_questions_go_round_the_group_and_not_to_who_does_not_read(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        mates = [rig.join(Producer(f"10.0.0.{i}:1")) for i in range(3)]
        mates[1].is_writable = False
        for _ in range(6):
            await rig.prepare()
        await rig.pass_time(7)
        await rig.transactions.checks.check()
        assert [len(mate.asked) for mate in mates] == [3, 0, 3]

    scenario(tmp_path, check)


@pytest.mark.feature("F297", "F298")
def test_a_group_that_is_away_is_waited_for_with_no_copy_and_no_check_counted(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        await rig.prepare()
        for _ in range(120):
            await rig.pass_time(30)
            await rig.transactions.checks.check()
        assert (len(rig.halves), rig.given_up, progress(rig)[0]) == (1, [], 0)
        producer = rig.join(Producer())
        await rig.transactions.checks.check()
        ((question, asked),) = producer.questions()
        assert asked.properties["TRANSACTION_CHECK_TIMES"] == "1"
        rig.answer(question, COMMIT)
        await rig.transactions.checks.check()
        assert (len(rig.messages()), progress(rig)[0]) == (1, 2)

    scenario(tmp_path, check)


def test_who_waits_for_its_group_holds_up_no_other(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        producer = rig.join(Producer())
        for i in range(40):
            await rig.prepare(b"%d" % i, group="away" if i % 2 else GROUP)
        await rig.pass_time(7)
        await rig.transactions.checks.check()
        questions = producer.questions()
        assert [asked.body for _, asked in questions] == [b"%d" % i for i in range(0, 40, 2)]
        for question, _ in questions:
            rig.answer(question, COMMIT)
        await rig.pass_time(30)
        await rig.transactions.checks.check()
        assert (producer.asked, half_count(rig), progress(rig)[0]) == ([], 60, 1)

    scenario(tmp_path, check)


def test_one_that_waits_for_its_group_is_ended_by_who_knows_it_and_settled(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        sent = await rig.prepare()
        await rig.pass_time(7)
        await rig.transactions.checks.check()
        rig.end(sent, COMMIT)
        rig.end(sent, COMMIT)
        await rig.transactions.checks.check()
        assert (len(rig.messages()), progress(rig)[0]) == (1, 1)

    scenario(tmp_path, check)


def test_one_that_waits_for_its_group_is_given_up_when_it_is_too_old(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        await rig.prepare(b"old")
        await rig.pass_time(1800)
        await rig.prepare(b"younger")
        for _ in range(62):
            await rig.pass_time(30)
            await rig.transactions.checks.check()
        assert [each.body for each in rig.given_up] == [b"old"]
        assert (len(rig.halves), progress(rig)[0]) == (2, 1)

    scenario(tmp_path, check, fileReservedTime="1")


def test_a_round_reads_none_of_those_whose_group_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(rig: Transacting) -> None:
        for _ in range(100):
            await rig.prepare()
        await rig.pass_time(7)
        await rig.transactions.checks.check()
        store, starts = rig.room.store, list[int]()
        read = store.read

        def noting(key: QueueKey, offset: int, count_max: int) -> Slices:
            starts.append(offset)
            return read(key, offset, count_max)

        monkeypatch.setattr(store, "read", noting)
        await rig.transactions.checks.check()
        assert starts == []
        rig.join(Producer())
        await rig.transactions.checks.check()
        assert starts == [0, 32, 64, 96]

    scenario(tmp_path, check)


def test_one_that_waits_moves_uncounted_when_many_are_decided_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(rig: Transacting) -> None:
        monkeypatch.setattr("bolide.broker.transactions.checks.HELD_UP_MAX", 20)
        await rig.prepare(b"waits", group="away")
        await rig.pass_time(7)
        await rig.transactions.checks.check()
        for _ in range(30):
            rig.end(await rig.prepare(), COMMIT)
        for _ in range(4):
            await rig.transactions.checks.check()
            await rig.pass_time(30)
        first, *_, moved = rig.halves
        assert (half_count(rig), progress(rig)[0]) == (32, 31)
        assert moved.properties == {**first.properties, "TRAN_PREPARED_QUEUE_OFFSET": "0"}

    scenario(tmp_path, check)


def test_decided_ones_among_undecided_are_passed_over_and_a_young_one_ends_the_round(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        producer = rig.join(Producer())
        old = [await rig.prepare(b"%d" % i) for i in range(5)]
        for i in (0, 2, 3):
            rig.end(old[i], COMMIT)
        await rig.pass_time(7)
        await rig.prepare(b"young")
        await rig.transactions.checks.check()
        assert [asked.body for _, asked in producer.questions()] == [b"1", b"4"]
        assert progress(rig)[0] == 5

    scenario(tmp_path, check)


def test_who_asked_for_time_is_moved_and_asked_when_it_is_over_without_losing_a_check(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        producer = rig.join(Producer())
        await rig.prepare(b"slow", CHECK_IMMUNITY_TIME_IN_SECONDS="50")
        await rig.prepare(b"quick")
        await rig.pass_time(30)
        await rig.transactions.checks.check()
        assert [asked.body for _, asked in producer.questions()] == [b"quick"]
        await rig.pass_time(30)
        await rig.transactions.checks.check()
        asked = {message.body: message for _, message in producer.questions()}
        assert asked.keys() == {b"slow", b"quick"}
        own = asked[b"slow"]
        assert own.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
        assert own.properties["TRANSACTION_CHECK_TIMES"] == "1"

    scenario(tmp_path, check)


@pytest.mark.parametrize("own", [{}, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "600"}])
def test_a_sender_that_ends_late_ends_the_copy_too_and_nothing_comes_twice(tmp_path: Path, own: dict[str, Any]) -> None:
    async def check(rig: Transacting) -> None:
        producer = rig.join(Producer())
        sent = await rig.prepare(**own)
        for _ in range(2):
            await rig.pass_time(30)
            await rig.transactions.checks.check()
        questions = producer.questions()
        rig.end(sent, COMMIT)
        for question, _ in questions:
            rig.answer(question, COMMIT)
        await rig.pass_time(30)
        await rig.transactions.checks.check()
        rig.end(sent, COMMIT)
        assert producer.asked == []
        assert len(rig.messages()) == 1
        assert rig.operations == [b"2,"]

    scenario(tmp_path, check)


def test_one_that_was_given_up_may_still_be_committed_by_its_sender_once(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        sent = await rig.prepare(TRANSACTION_CHECK_TIMES="15")
        await rig.transactions.checks.check()
        assert len(rig.given_up) == 1
        rig.end(sent, COMMIT)
        rig.end(sent, COMMIT)
        assert len(rig.messages()) == 1

    scenario(tmp_path, check)


@pytest.mark.feature("F296", "F190")
def test_a_store_opened_again_in_the_middle_knows_what_was_decided(tmp_path: Path) -> None:
    async def first() -> None:
        async with transacting(tmp_path) as rig:
            halves = [await rig.prepare(b"%d" % i) for i in range(6)]
            for i in (0, 1, 3):
                rig.end(halves[i], COMMIT)
            rig.end(halves[4], ROLLBACK)

    async def second() -> None:
        async with transacting(tmp_path) as rig:
            rig.clock.set_wall(1_700_000_100_000)
            producer = rig.join(Producer())
            await rig.transactions.checks.check()
            questions = producer.questions()
            assert [asked.body for _, asked in questions] == [b"2", b"5"]
            assert progress(rig) == (6, 1)
            for question, _ in questions:
                rig.answer(question, COMMIT)
            assert [each.body for each in rig.messages()] == [b"0", b"1", b"3", b"2", b"5"]

    run(first())
    run(second())


def test_op_records_a_crash_has_lost_cost_a_question_and_nothing_else(tmp_path: Path) -> None:
    async def first() -> None:
        async with transacting(tmp_path) as rig:
            rig.end(await rig.prepare(b"done"), COMMIT)
            await rig.prepare(b"open")
            rig.is_killed = True

    async def second() -> None:
        async with transacting(tmp_path) as rig:
            rig.clock.set_wall(1_700_000_100_000)
            producer = rig.join(Producer())
            await rig.transactions.checks.check()
            assert [asked.body for _, asked in producer.questions()] == [b"done", b"open"]
            assert [each.body for each in rig.messages()] == [b"done"]

    run(first())
    run(second())


def test_without_the_offsets_file_both_queues_are_read_from_their_beginning(tmp_path: Path) -> None:
    async def first() -> None:
        async with transacting(tmp_path) as rig:
            for how in (COMMIT, ROLLBACK):
                rig.end(await rig.prepare(), how)
            await rig.prepare(b"open")
            await rig.pass_time(30)
            rig.join(Producer())
            await rig.transactions.checks.check()
            assert len(rig.halves) == 4

    async def second() -> None:
        async with transacting(tmp_path) as rig:
            rig.clock.set_wall(1_700_000_100_000)
            producer = rig.join(Producer())
            await rig.transactions.checks.check()
            assert [asked.body for _, asked in producer.questions()] == [b"open"]  # the copy, not its half

    run(first())
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (tmp_path / "config" / name).unlink(missing_ok=True)
    run(second())


def test_the_topic_of_those_given_up_is_known_after_a_crash_before_its_table_was_written(tmp_path: Path) -> None:
    async def first() -> None:
        async with transacting(tmp_path) as rig:
            await rig.prepare(TRANSACTION_CHECK_TIMES="15")
            await rig.transactions.checks.check()
            assert len(rig.given_up) == 1
            rig.room.tables.topics.remove("TRANS_CHECK_MAX_TIME_TOPIC")

    async def second() -> None:
        async with transacting(tmp_path) as rig:
            assert rig.room.tables.topics.find("TRANS_CHECK_MAX_TIME_TOPIC") is not None

    run(first())
    run(second())


def test_op_records_of_both_ages_are_read() -> None:
    assert read_offsets(b"17,18,25,") == [17, 18, 25]
    assert read_offsets(b"17") == [17]
    assert read_offsets(b"x,,9,-4," + b"7" * 5_000) == [9]


def test_one_whose_properties_have_no_room_for_a_count_is_asked_about_once_and_holds_up_no_other(
    tmp_path: Path,
) -> None:
    async def check(rig: Transacting) -> None:
        producer = rig.join(Producer())
        full = await rig.prepare(b"full")
        size = len(encode_properties(rig.halves[0].properties))
        full = await rig.prepare(b"full", own="x" * (32_767 - size - 5))
        other = await rig.prepare(b"other")
        await rig.pass_time(10)
        await rig.transactions.checks.check()
        asked = producer.questions()
        assert [half.body for _, half in asked][1:] == [b"full", b"other"]
        assert asked[1][0].half_queue_offset == full.queue_offset
        assert [each.body for each in rig.given_up] == [b"full"]
        for question, _ in asked:
            rig.answer(question, COMMIT)
            rig.answer(question, COMMIT)
        assert [each.body for each in rig.messages()] == [b"full", b"full", b"other"]
        await rig.pass_time(60)
        await rig.transactions.checks.check()
        assert producer.questions() == []
        assert other.queue_offset == 2

    scenario(tmp_path, check, maxMessageSize="65536", mappedFileSizeCommitLog="1048576")


def test_a_half_message_that_was_damaged_holds_up_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def check(rig: Transacting) -> None:
        producer = rig.join(Producer())
        damaged = await rig.prepare(b"damaged")
        await rig.prepare(b"whole")
        segment = rig.room.store.commitlog.segments.open(0)
        segment.write(b"D", damaged.physical_offset + 88)
        await rig.pass_time(10)
        await rig.transactions.checks.check()
        assert [half.body for _, half in producer.questions()] == [b"whole"]

    scenario(tmp_path, check)
    assert "passed over in broker.transactions, number 1: a half message" in caplog.text


def test_op_records_that_name_what_never_was_cost_nothing(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        await rig.prepare()
        body = b"0,999999999999999,%s," % (b"9" * 5_000)
        properties = encode_properties({"TAGS": "d"})
        rig.room.store.append([Draft("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, body, properties, 0, 0, 0, bytes(8))])
        await rig.transactions.load()
        assert rig.transactions.ended.how(0)
        assert rig.transactions.ended.next_undecided(0) == 1

    scenario(tmp_path, check, maxMessageSize="8192")


def test_a_round_over_many_decided_ones_reads_none_of_them() -> None:
    ended = Ended(1_000)
    for offset in range(1_000, 201_000):
        ended.mark(offset, COMMIT)
    assert ended.next_undecided(1_000) == 201_000
    ended.settle(200_999)
    assert ended.how(200_999) == COMMIT
    assert ended.how(150_000) == 1  # done with, one way or the other
    assert ended.how(999) is None
