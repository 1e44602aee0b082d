"""Half messages and how their transactions end: what is stored, what is visible, what is refused."""

import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from bolide import kernel
from bolide.broker.hotpath import HotPath
from bolide.broker.role import RoleKind, RoleState
from bolide.errors import Refusal
from bolide.kernel import plain_left
from bolide.metrics.page import pieces
from bolide.model.queue import QueueKey
from bolide.protocol.command import FRAME_SIZE_MAX, Command
from bolide.protocol.properties import parse_properties
from bolide.store.record import Draft, decode
from bolide.testing import run
from tests.broker.metering import PROM, Scraped
from tests.broker.reads import answered
from tests.broker.senders import message
from tests.broker.transacting import COMMIT, GROUP, ROLLBACK, UNKNOWN, Producer, Sent, Transacting, transacting
from tests.kernel.twins import compiled


def scenario(root: Path, check: Callable[[Transacting], Awaitable[None]], **settings: str) -> None:
    async def play() -> None:
        async with transacting(root, **settings) as rig:
            await check(rig)

    run(play())


@pytest.mark.feature("F154", "F292")
def test_a_half_message_waits_in_the_half_topic_and_no_consumer_sees_it(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        sent = await rig.prepare(KEYS="k-1", TAGS="TagA")
        assert rig.messages() == []
        (half,) = rig.halves
        assert (half.body, half.flag, half.sys_flag) == (b"pay", 7, 0)
        assert (half.queue_offset, half.physical_offset) == (sent.queue_offset, sent.physical_offset)
        assert half.properties == {
            "TRAN_MSG": "true",
            "PGROUP": GROUP,
            "UNIQ_KEY": sent.unique_id,
            "KEYS": "k-1",
            "TAGS": "TagA",
            "__transactionId__": sent.unique_id,
            "REAL_TOPIC": "Orders",
            "REAL_QID": "2",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "C1",
        }

    scenario(tmp_path, check)


def without_place(properties: Mapping[str, str]) -> dict[str, str]:
    """As RocketMQ 5.5 stores a committed message; 4.9 left the two in."""
    return {name: value for name, value in properties.items() if name not in ("REAL_TOPIC", "REAL_QID")}


@pytest.mark.feature("F292", "F294", "F190")
@pytest.mark.parametrize("oneway", [False, True])
def test_a_commit_stores_the_message_where_it_belongs_with_the_offset_of_its_half(tmp_path: Path, oneway: bool) -> None:
    async def check(rig: Transacting) -> None:
        sent = await rig.prepare(KEYS="k-1", TAGS="TagA")
        rig.end(sent, COMMIT, oneway=oneway)
        rig.transactions.outcomes.finish()
        (half,), (got,) = rig.halves, rig.messages()
        assert (got.body, got.flag, got.sys_flag, got.queue_offset) == (b"pay", 7, 8, 0)
        assert got.prepared_transaction_offset == sent.physical_offset
        assert got.properties == without_place(half.properties)
        assert (got.born_at, got.born_host, got.reconsume_times) == (half.born_at, half.born_host, 0)
        assert got.queue.topic == "Orders"

    scenario(tmp_path, check)


@pytest.mark.feature("F294", "F295")
def test_a_rollback_stores_nothing_but_that_the_half_is_done(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        sent = await rig.prepare()
        assert rig.end(sent, ROLLBACK).code == 0
        await rig.transactions.save()
        assert rig.messages() == []
        assert rig.operations == [b"0,"]

    scenario(tmp_path, check)


@pytest.mark.feature("F296")
def test_decided_halves_are_noted_together_each_with_a_comma(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        halves = [await rig.prepare() for _ in range(26)]
        for at in (17, 18, 25):
            rig.end(halves[at], COMMIT, oneway=True)
        rig.transactions.outcomes.finish()
        assert rig.operations == []
        await rig.pass_time(3.1)
        assert rig.operations == [b"17,18,25,"]
        (record,) = rig.messages("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)
        assert (record.tags, record.sys_flag) == ("d", 0)
        rig.end(halves[3], ROLLBACK)
        await rig.pass_time(3.1)
        assert rig.operations == [b"17,18,25,", b"3,"]

    scenario(tmp_path, check)


def test_a_long_list_is_written_when_it_is_durable_and_cut_as_java_cuts_it(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        *halves, last = [await rig.prepare() for _ in range(13)]
        for half in halves:
            rig.end(half, ROLLBACK)
        assert rig.operations == []
        await rig.room.store.durable()
        rig.end(last, ROLLBACK)
        assert rig.operations == [b"0,1,2,3,4,5,", b"6,7,8,9,10,"]
        await rig.transactions.save()
        assert rig.operations[2:] == [b"11,12,"]

    scenario(tmp_path, check, transactionOpMsgMaxSize="11")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"producer_group": "another"}, "of producer group 'transfers', not of 'another'"),
        ({"half_queue_offset": 5}, "has queue offset 0, not 5"),
        ({"physical_offset": 3}, "no half message at 3"),
        ({"physical_offset": 1 << 40}, "it expired, or the offset is wrong"),
    ],
)
def test_an_end_that_does_not_fit_its_half_message_is_refused(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    async def check(rig: Transacting) -> None:
        sent = await rig.prepare()
        with pytest.raises(Refusal, match=why) as refused:
            rig.end(sent, COMMIT, **changes)
        assert refused.value.code == 1
        rig.end(sent, COMMIT, oneway=True, **changes)
        rig.transactions.outcomes.finish()
        assert rig.messages() == []

    scenario(tmp_path, check)


@pytest.mark.usefixtures("fast_path")
def test_ends_of_nothing_are_one_line_in_the_log_and_forge_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(rig: Transacting) -> None:
        sent = await rig.prepare()
        group = "evil forged " + "x" * 9999
        places = [1 << 40 | place for place in range(50)]
        ends = [rig.end_command(sent, COMMIT, oneway=True, physical_offset=at, producer_group=group) for at in places]
        stream = b"".join(end.encode() for end in ends)
        bounds, _, _ = kernel.cut_frames(stream, len(stream), FRAME_SIZE_MAX)
        assert rig.transactions.outcomes.collect(memoryview(stream), bounds) == []
        rig.transactions.outcomes.finish()

    scenario(tmp_path, check)
    (said,) = [record.getMessage() for record in caplog.records if "not ended" in record.getMessage()]
    assert "count=50" in said
    assert "\n" not in said
    assert len(said) < 1000


def test_a_message_that_is_no_half_message_cannot_be_committed(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        rig.room.answer(message(properties="PGROUP\x01transfers\x02REAL_TOPIC\x01Orders\x02REAL_QID\x010\x02"))
        with pytest.raises(Refusal, match="no half message at 0"):
            rig.end(Sent(0, 0, "u"), COMMIT)

    scenario(tmp_path, check)


@pytest.mark.parametrize("oneway", [False, True])
def test_a_record_in_the_body_of_a_message_is_no_half_message_whatever_it_says(tmp_path: Path, oneway: bool) -> None:
    async def check(rig: Transacting) -> None:
        inside = rig.room.store.commitlog.end + 88  # where the body of the next message begins
        text = b"PGROUP\x01transfers\x02REAL_TOPIC\x01Orders\x02REAL_QID\x012\x02"
        forged = ("RMQ_SYS_TRANS_HALF_TOPIC", 0, b"pay", text, 0, 0, 0, bytes(8), 0, 0)
        numbers = {("RMQ_SYS_TRANS_HALF_TOPIC", 0): 10**15}
        record, *_ = kernel.encode_records([forged], inside, 0, bytes(8), numbers, (), 4096)
        rig.room.answer(message(record))
        assert rig.room.store.record_at(inside) is not None
        half = Sent(10**15, inside, "u")  # as many marks would be a petabyte
        with nullcontext() if oneway else pytest.raises(Refusal, match="no half message"):
            rig.end(half, COMMIT, oneway=oneway)
        rig.transactions.outcomes.finish()
        assert rig.messages() == []

    scenario(tmp_path, check)


@pytest.mark.parametrize("topic", ["../../elsewhere", "..", "a/b"])
def test_a_message_taken_up_again_cannot_name_a_place_outside_of_the_store(tmp_path: Path, topic: str) -> None:
    async def check(rig: Transacting) -> None:
        own = f"PGROUP\x01transfers\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02"
        answer = await rig.room.sent(message(properties=own))
        with pytest.raises(Refusal, match="is no half message"):
            rig.ask(Command(323, fields={"topic": "Orders", "msgId": answer.fields["msgId"]}))
        draft = Draft(topic, 0, b"x", b"", 0, 0, 0, bytes(8))
        with pytest.raises(Refusal, match="cannot be stored"):
            rig.room.store.append([draft])

    scenario(tmp_path, check)


@pytest.mark.parametrize("how", [UNKNOWN, 4, 99])
def test_an_unknown_state_changes_nothing(tmp_path: Path, how: int) -> None:
    async def check(rig: Transacting) -> None:
        sent = await rig.prepare()
        before = rig.room.store.commitlog.end
        assert rig.end(sent, how).code == 0
        await rig.transactions.save()
        assert rig.room.store.commitlog.end == before
        assert rig.end(sent, COMMIT).code == 0
        assert len(rig.messages()) == 1

    scenario(tmp_path, check)


def test_an_end_after_the_time_the_message_asked_for_is_left_to_the_asking(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        late, asked, short = [
            await rig.prepare(CHECK_IMMUNITY_TIME_IN_SECONDS=seconds) for seconds in ("10", "10", "1")
        ]
        await rig.pass_time(5.9)
        rig.end(short, COMMIT)  # less than transactionTimeOut is not possible
        await rig.pass_time(4.2)
        with pytest.raises(Refusal, match="had 10000 ms of its own and ends after 10100") as refused:
            rig.end(late, COMMIT)
        assert refused.value.code == 604
        assert rig.end(asked, COMMIT, is_from_check=True).code == 0
        assert len(rig.messages()) == 2

    scenario(tmp_path, check)


def test_a_slave_ends_no_transactions(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        sent = await rig.prepare()
        role = rig.room.state.role
        role.become(RoleState(RoleKind.SLAVE, 1))
        with pytest.raises(Refusal) as refused:
            rig.end(sent, COMMIT)
        assert refused.value.code == 11
        role.become(RoleState())

    scenario(tmp_path, check)


def test_an_end_that_comes_twice_is_carried_out_once(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        sent, other = await rig.prepare(), await rig.prepare()
        for _ in range(3):
            rig.end(sent, COMMIT, oneway=True)
        rig.transactions.outcomes.finish()
        assert rig.end(sent, COMMIT).code == 0
        assert len(rig.messages()) == 1
        with pytest.raises(Refusal, match="was committed before"):
            rig.end(sent, ROLLBACK)
        rig.end(other, ROLLBACK)
        with pytest.raises(Refusal, match="was rolled back before"):
            rig.end(other, COMMIT)
        await rig.transactions.save()
        assert rig.operations == [b"0,1,"]

    scenario(tmp_path, check)


def test_a_delay_of_a_half_message_begins_with_its_commit(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        sent = await rig.prepare(DELAY="3")
        assert rig.end(sent, COMMIT).code == 0
        assert rig.messages() == []
        (waiting,) = rig.messages("SCHEDULE_TOPIC_XXXX", 2)
        assert (waiting.sys_flag, waiting.prepared_transaction_offset) == (8, sent.physical_offset)
        assert (waiting.properties["REAL_TOPIC"], waiting.properties["REAL_QID"]) == ("Orders", "2")

    scenario(tmp_path, check)


def test_an_old_client_s_retry_of_a_committed_message_is_no_half_message(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        text = "TRAN_MSG\x01true\x02DELAY\x013\x02UNIQ_KEY\x01u\x02"
        answer = await rig.room.sent(message(topic="%RETRY%g", reconsume_times=1, properties=text))
        assert answer.code == 0
        assert rig.halves == []
        assert len(rig.messages("SCHEDULE_TOPIC_XXXX", 2)) == 1

    scenario(tmp_path, check)


def test_a_new_topic_of_a_half_message_is_kept_before_the_answer(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        properties = "TRAN_MSG\x01true\x02PGROUP\x01transfers\x02UNIQ_KEY\x01u\x02"
        answer = await rig.room.sent(message(topic="New", sys_flag=4, properties=properties))
        assert answer.code == 0
        assert '"New"' in (tmp_path / "config" / "topics.json").read_text("utf-8")

    scenario(tmp_path, check)


def test_in_a_sealed_log_a_commit_is_sealed_anew(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        rig.end(await rig.prepare(), COMMIT, oneway=True)
        rig.transactions.outcomes.finish()
        (half,), (got,) = rig.halves, rig.messages()
        seal = "__CRC32#"
        assert got.properties[seal] != half.properties[seal]
        assert {**got.properties, seal: ""} == {**without_place(half.properties), seal: ""}

    scenario(tmp_path, check, enabledAppendPropCRC="true")


def test_many_ends_of_one_turn_are_one_write(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        halves = [await rig.prepare(queue_id=i % 4) for i in range(20)]
        before = rig.room.store.commitlog.end
        for half in halves:
            rig.end(half, COMMIT, oneway=True)
        assert rig.room.store.commitlog.end == before
        await rig.pass_time(0)
        await rig.pass_time(0)
        assert [len(rig.messages(queue_id=i)) for i in range(4)] == [5] * 4

    scenario(tmp_path, check)


def hot_path(rig: Transacting) -> HotPath:
    room, ends = rig.room, rig.transactions.outcomes
    return HotPath(room.state, room.intake, room.open_topics, transactions=ends)


def half_message(unique_id: str) -> bytes:
    text = f"UNIQ_KEY\x01{unique_id}\x02TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02"
    return message(b"committed", sys_flag=4, queue_id=2, properties=text).encode()


@pytest.mark.usefixtures("fast_path")
@pytest.mark.parametrize("own", [{}, {"properties": "UNIQ_KEY\x01u\x02CLUSTER\x01to be rewritten\x02"}])
def test_a_send_behind_an_end_in_its_read_is_stored_behind_what_that_commits(
    tmp_path: Path, own: dict[str, Any]
) -> None:
    async def check(rig: Transacting) -> None:
        hot, peer = hot_path(rig), Producer()
        answered(hot, peer, half_message("7F0000010002"))
        end = rig.end_command(Sent(0, rig.halves[0].physical_offset, "7F0000010002"), COMMIT, oneway=True)
        later = message(b"later", queue_id=2, **own)
        _, left = answered(hot, peer, end.encode() + later.encode())
        assert bool(left) == bool(own)
        if left:  # it is served by itself
            await rig.room.sent(later)
        assert [each.body for each in rig.messages()] == [b"committed", b"later"]

    scenario(tmp_path, check)


@pytest.mark.usefixtures("fast_path")
def test_half_messages_are_answered_before_the_ends_that_came_with_them_are_carried_out(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        hot, peer = hot_path(rig), Producer()
        answered(hot, peer, half_message("7F0000010002"))
        end = rig.end_command(Sent(0, rig.halves[0].physical_offset, "7F0000010002"), COMMIT, oneway=True)
        answers, left = answered(hot, peer, end.encode() + half_message("7F0000010003"))
        assert (len(rig.halves), rig.messages(), left) == (2, [], [])
        assert b'"queueOffset":"1"' in answers
        await rig.pass_time(0)
        await rig.pass_time(0)
        assert [each.body for each in rig.messages()] == [b"committed"]

    scenario(tmp_path, check)


def test_one_that_was_given_up_is_taken_up_again_by_its_id(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        await rig.prepare(TRANSACTION_CHECK_TIMES="15")
        await rig.transactions.checks.check()
        (given_up,) = rig.given_up
        assert rig.ask(Command(323, fields={"msgId": given_up.offset_id})).code == 0
        assert [half.properties["TRANSACTION_CHECK_TIMES"] for half in rig.halves] == ["15", "0"]
        for bad in ("", "no id", "0A00000500002A9F0000000000000001"):
            with pytest.raises(Refusal, match="no message here with the id"):
                rig.ask(Command(323, fields={"msgId": bad}))
        rig.room.answer(message())
        (plain,) = rig.messages(queue_id=0)
        with pytest.raises(Refusal, match="is no half message"):
            rig.ask(Command(323, fields={"msgId": plain.offset_id}))

    scenario(tmp_path, check)


@pytest.mark.parametrize("oneway", [False, True])
def test_what_is_stored_of_a_commit_is_to_the_byte_what_its_half_has_but_for_the_place(
    tmp_path: Path, oneway: bool
) -> None:
    async def check(rig: Transacting) -> None:
        sent = await rig.prepare("käse".encode() * 100, Straße="Ulm 🌍")
        rig.end(sent, COMMIT, oneway=oneway)
        rig.transactions.outcomes.finish()
        store = rig.room.store
        half = bytes(store.read(QueueKey("RMQ_SYS_TRANS_HALF_TOPIC", 0), 0, 1).views[0])
        got = bytes(store.read(QueueKey("Orders", 2), 0, 1).views[0])
        text = half[half.index(b"TRAN_MSG") :].replace(b"REAL_TOPIC\x01Orders\x02REAL_QID\x012\x02", b"")
        assert got.endswith(text)
        assert b"REAL_" in half
        assert b"REAL_" not in got
        assert parse_properties(text.decode())["Straße"] == "Ulm 🌍"
        assert decode(memoryview(got)).body == decode(memoryview(half)).body

    scenario(tmp_path, check)


@pytest.mark.parametrize("seed", range(3))
def test_ends_taken_at_once_leave_the_bytes_of_ends_carried_out_one_by_one(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiled is None:
        pytest.skip("the compiled kernel was not built; run make build")

    async def bytes_left_by(root: Path, module: Any) -> tuple[bytes, dict[Any, bytes], int]:
        monkeypatch.setattr(kernel, "encode_outcomes", module.encode_outcomes)
        dice = random.Random(seed)
        wrongs: list[dict[str, Any]] = [{}, {}, {}, {"producer_group": "others"}, {"half_queue_offset": 10_000}]
        async with transacting(root) as rig:
            for _ in range(6):
                halves = [await rig.prepare(dice.randbytes(20), queue_id=dice.randrange(4)) for _ in range(8)]
                for half in dice.choices(halves, k=12):  # some twice, some never
                    rig.end(half, dice.choice([COMMIT, ROLLBACK]), oneway=True, **dice.choice(wrongs))
                await rig.pass_time(0.1)
            store = rig.room.store
            queues = {key: bytes(queue.read(0, 1000) or b"") for key, queue in store.dispatch.queues.items()}
            log = bytes(store.commitlog.view(0, store.commitlog.end) or b"")
            return log, queues, rig.room.stats.put_total.count

    fast, general = (run(bytes_left_by(tmp_path / each.__name__, each)) for each in (compiled, plain_left))
    assert fast == general
    assert fast[2] > 60


def test_ends_without_an_answer_are_each_counted_once_as_done_or_as_refused(tmp_path: Path) -> None:
    async def check(rig: Transacting) -> None:
        meter = rig.room.state.meter
        assert meter is not None
        done, nonsense = await rig.prepare(), await rig.prepare()
        rig.end(done, COMMIT, oneway=True)
        rig.end(nonsense, COMMIT, oneway=True, physical_offset=nonsense.physical_offset + 1)
        rig.transactions.outcomes.finish()
        page = Scraped("".join(pieces(meter.requests.families(), {"node_id": "a"}, 100)))
        ends, counted = {"request_code": "end_transaction"}, "rocketmq_rpc_latency_milliseconds_count"
        assert page.value(counted, response_code="success", result="oneway", **ends) == 1
        assert page.value("bolide_refused_requests_total", **ends) == 1
        assert page.value(counted, **ends) == 2
        assert meter.commits == {"Orders": 1}

    scenario(tmp_path, check, **PROM)
