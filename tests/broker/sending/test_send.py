"""Messages come in one request at a time: what is stored, what is answered, what is refused."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.role import RoleKind, RoleState
from bolide.model.message import Message, parse_offset_id
from bolide.protocol.batch import encode_batch
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import ResponseCode
from bolide.protocol.headers.send import SendMessageAnswer
from bolide.protocol.properties import join_properties
from bolide.testing import VirtualClock, run
from bolide.testing.disk import FaultyDisk
from tests.broker.senders import DURABLE, Sending, header, message, sending


def topic(name: str = "Orders", read: int = 4, write: int = 4, perm: int = 6, order: bool = False) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=read, write_queue_nums=write, perm=perm, order=order)


def scenario(root: Path, check: Any, **settings: Any) -> None:
    async def play() -> None:
        async with sending(root, **settings) as room:
            room.tables.topics.update(topic())
            await room.open_topics.keep("Orders")
            result = check(room)
            if result is not None:
                await result

    asyncio.run(play())


@pytest.mark.feature("F095", "F114", "F076")
@pytest.mark.parametrize("code", [10, 310])
def test_a_message_is_stored_as_it_came_and_its_place_is_answered(tmp_path: Path, code: int) -> None:
    def check(room: Sending) -> None:
        answers = [room.answer(message(body, code=code, queue_id=2)) for body in (b"first", b"second")]
        assert [answer.code for answer in answers] == [0, 0]
        told = [SendMessageAnswer.decode(answer.fields) for answer in answers]
        assert [(each.queue_id, each.queue_offset) for each in told] == [(2, 0), (2, 1)]
        assert [(each.region, each.is_traced, each.transaction_id) for each in told] == [
            ("DefaultRegion", True, "7F0000010001")
        ] * 2
        stored = room.messages("Orders", 2)
        assert [each.body for each in stored] == [b"first", b"second"]
        assert [each.offset_id for each in stored] == [each.message_id for each in told]
        assert (stored[0].flag, stored[0].born_at, str(stored[0].born_host)) == (
            7,
            1_700_000_000_000,
            "192.168.1.9:51234",
        )
        assert stored[0].properties == {
            "UNIQ_KEY": "7F0000010001",
            "TAGS": "TagA",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "C1",
        }
        assert room.stats.put_total.count == 2
        assert room.stats.put_total.size == room.store.commitlog.end

    scenario(tmp_path, check)


def test_a_message_without_a_unique_key_gets_one_and_hears_it(tmp_path: Path) -> None:
    def check(room: Sending) -> None:
        answers = [room.answer(message(properties=text)) for text in (None, "TAGS\x01a", "UNIQ_KEY\x01\x02")]
        stored = room.messages("Orders")
        ids = [each.unique_id for each in stored]
        assert ids == [answer.fields["transactionId"] for answer in answers]
        assert len(set(ids)) == 3
        assert all(len(each or "") == 32 for each in ids)
        assert stored[1].tags == "a"

    scenario(tmp_path, check)


def test_a_pop_handle_is_taken_off_and_our_own_values_win(tmp_path: Path) -> None:
    def check(room: Sending) -> None:
        sent = {"POP_CK": "0 1 2", "CLUSTER": "theirs", "TRACE_ON": "maybe", "UNIQ_KEY": "u", "own": "x"}
        room.answer(message(properties=join_properties(sent)))
        (stored,) = room.messages("Orders")
        assert stored.properties == {
            "UNIQ_KEY": "u",
            "own": "x",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "C1",
        }

    scenario(tmp_path, check)


def test_a_born_host_is_kept_in_the_length_of_its_kind(tmp_path: Path) -> None:
    def check(room: Sending) -> None:
        for peer in ("[2001:db8::1]:9", "2001:db8::1:9", "::ffff:10.0.0.9:9", "a unix socket"):
            assert room.answer(message(), peer=peer).code == 0
        assert [str(each.born_host) for each in room.messages("Orders")] == [
            "[2001:db8::1]:9",
            "[2001:db8::1]:9",
            "10.0.0.9:9",
            "0.0.0.0:0",
        ]

    scenario(tmp_path, check)


@pytest.mark.feature("F117")
@pytest.mark.parametrize("code", [310, 320])
def test_a_batch_becomes_messages_with_consecutive_offsets(tmp_path: Path, code: int) -> None:
    def check(room: Sending) -> None:
        room.answer(message(b"before", queue_id=1))
        parts = [Message("Orders", b"%d" % i, tags="T", properties={"UNIQ_KEY": f"u{i}"}, flag=i) for i in range(3)]
        batch = message(encode_batch(parts), code=code, queue_id=1, is_batch=True, properties="WAIT\x01true\x02")
        told = SendMessageAnswer.decode(room.answer(batch).fields)
        stored = room.messages("Orders", 1)[1:]
        assert [(each.body, each.flag, each.properties) for each in stored] == [
            (b"%d" % i, i, {"UNIQ_KEY": f"u{i}", "TAGS": "T"}) for i in range(3)
        ]
        assert [each.queue_offset for each in stored] == [1, 2, 3]
        assert told.message_id == ",".join(each.offset_id for each in stored)
        assert (told.queue_offset, told.transaction_id, told.batch_unique_id) == (1, None, None)
        assert room.stats.put_total.count == 4

    scenario(tmp_path, check)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "a body of 0 bytes"),
        (b"\0\0\0\x16", "only 4 bytes are left"),
        (encode_batch([Message("Orders", b"x")])[:-1] + b"\x01", "properties"),
        (encode_batch([Message("Orders", b"x", properties={"XIMER_DELAY_SEC": "5"})]).replace(b"XI", b"TI"), "a timed"),
        (b"x" * 4097, "it may have 1 to 4096"),
    ],
)
def test_a_batch_that_cannot_be_stored_whole_is_not_stored_at_all(tmp_path: Path, body: bytes, why: str) -> None:
    def check(room: Sending) -> None:
        answer = room.answer(message(body, code=320, is_batch=True))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert why in str(answer.remark) or "batch item" in str(answer.remark)
        assert room.store.commitlog.end == 0

    scenario(tmp_path, check)


@pytest.mark.parametrize(
    ("changes", "code", "why"),
    [
        ({"topic": "no/topic"}, 29, "holds '/' at character 2"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, 16, "the broker's own"),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, 16, "the broker's own"),
        ({"topic": "rmq_sys_REVIVE_LOG_DefaultCluster"}, 16, "the broker's own"),
        ({"topic": "New", "default_topic": "Absent"}, 17, "create it or check the spelling"),
        ({"topic": "ReadOnly"}, 16, "perm 4"),
        ({"queue_id": 4}, 29, "4 queues to read and 4 to write"),
        ({"topic": "Closed", "queue_id": -1}, 29, "0 to write"),
        ({"properties": "DELAY\x01soon\x02"}, 13, "a delay level of 'soon'"),
        ({"properties": "TIMER_DELIVER_MS\x011800000000000\x02"}, 1, "timerWheelEnable"),
        ({"properties": "INNER_NUM\x012\x02"}, 13, "INNER_NUM"),
        ({"sys_flag": 4}, 13, "half message"),
        ({"properties": "TRAN_MSG\x01true\x02", "is_batch": True}, 13, "half message"),
        ({"sys_flag": 0x80}, 13, "inner batch"),
        ({"properties": "a\x01" + "x" * 32767}, 13, "limit is 32767"),
        ({"properties": "a\x01\0\x02"}, 13, "zero byte"),
        ({"body": b"x" * 4097}, 13, "it may have 1 to 4096"),
        ({"body": b""}, 13, "a body of 0 bytes"),
        ({"topic": "%RETRY%g", "is_batch": True}, 13, "one by one"),
    ],
)
def test_what_may_not_be_stored_is_refused_with_its_code_and_the_reason(
    tmp_path: Path, changes: dict[str, Any], code: int, why: str
) -> None:
    def check(room: Sending) -> None:
        room.tables.topics.update(topic("ReadOnly", perm=4))
        room.tables.topics.update(topic("Closed", write=0))
        answer = room.answer(message(**changes))
        assert (answer.code, answer.opaque) == (code, 1)
        assert why in str(answer.remark)
        assert answer.fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert room.store.commitlog.end == 0

    scenario(tmp_path, check)


def test_a_header_without_its_fields_is_refused_and_says_which(tmp_path: Path) -> None:
    def check(room: Sending) -> None:
        command = message()
        del command.fields["g"]
        answer = room.answer(command)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "bornTimestamp (g)" in str(answer.remark)

    scenario(tmp_path, check)


def test_a_negative_queue_is_any_queue_that_is_written_to(tmp_path: Path) -> None:
    def check(room: Sending) -> None:
        room.tables.topics.update(topic(read=8, write=3))
        chosen = {int(room.answer(message(queue_id=-1)).fields["queueId"]) for _ in range(200)}
        assert chosen == {0, 1, 2}

    scenario(tmp_path, check)


def test_a_queue_that_is_only_read_still_takes_a_message_sent_to_it(tmp_path: Path) -> None:
    def check(room: Sending) -> None:
        room.tables.topics.update(topic(read=8, write=4))
        assert room.answer(message(queue_id=7)).code == 0

    scenario(tmp_path, check)


@pytest.mark.feature("F061", "F067")
def test_the_first_message_of_a_new_topic_is_answered_when_the_topic_would_survive(tmp_path: Path) -> None:
    async def check(room: Sending) -> None:
        gate = threading.Event()
        room.tables.file_thread.submit(gate.wait)
        first = asyncio.ensure_future(room.sent(message(b"first", topic="New", default_topic_queue_count=2)))
        second = asyncio.ensure_future(room.sent(message(b"second", topic="New")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not first.done()
        assert not second.done()
        assert [each.body for each in room.messages("New")] == [b"first", b"second"]
        assert b"New" not in room.open_topics.table
        gate.set()
        assert [(await sent).code for sent in (first, second)] == [0, 0]
        kept = json.loads((room.tables.settings.now.directory / "topics.json").read_text())["topicConfigTable"]["New"]
        assert (kept["readQueueNums"], kept["writeQueueNums"], kept["perm"]) == (2, 2, 6)
        assert room.open_topics.table[b"New"] == ("New", 2)
        assert room.answer(message(topic="New")).code == 0

    scenario(tmp_path, check)


def test_a_new_topic_whose_table_cannot_be_written_is_not_acknowledged(tmp_path: Path) -> None:
    async def check(room: Sending) -> None:
        await room.tables.table_writer.flush()
        directory = room.tables.settings.now.directory
        directory.rename(directory.with_name("gone"))
        directory.write_text("a file in its place")
        answer = await room.sent(message(topic="New"))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "its new topic 'New' is not" in str(answer.remark)
        assert "msgId" not in answer.fields
        directory.unlink()
        directory.with_name("gone").rename(directory)

    scenario(tmp_path, check)


@pytest.mark.feature("F062")
def test_without_automatic_creation_an_unknown_topic_is_refused(tmp_path: Path) -> None:
    def check(room: Sending) -> None:
        assert room.answer(message(topic="New")).code == ResponseCode.TOPIC_NOT_EXIST
        assert room.tables.topics.find("New") is None

    scenario(tmp_path, check, autoCreateTopicEnable="false")


def test_an_ordered_topic_is_closed_where_the_broker_may_not_be_written_to(tmp_path: Path) -> None:
    def check(room: Sending) -> None:
        room.tables.topics.update(topic("Ordered", order=True))
        assert room.answer(message(topic="Ordered")).code == ResponseCode.NO_PERMISSION
        assert room.answer(message()).code == 0

    scenario(tmp_path, check, brokerPermission="4")


def test_a_slave_sends_producers_to_its_master(tmp_path: Path) -> None:
    def check(room: Sending) -> None:
        room.state.role.become(RoleState(RoleKind.SLAVE, 1))
        answer = room.answer(message())
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert str(answer.remark).startswith("[REJECTREQUEST]")

    scenario(tmp_path, check)


def test_transactions_can_be_switched_off_by_name(tmp_path: Path) -> None:
    def check(room: Sending) -> None:
        assert room.answer(message(sys_flag=4)).code == ResponseCode.NO_PERMISSION

    scenario(tmp_path, check, rejectTransactionMessage="true")


def test_messages_are_taken_from_the_time_that_is_set(tmp_path: Path) -> None:
    def check(room: Sending) -> None:
        assert room.answer(message()).code == ResponseCode.SYSTEM_ERROR

    scenario(tmp_path, check, startAcceptSendRequestTimeStamp="9000000000000")


def test_a_message_that_waited_too_long_is_refused_as_java_does(tmp_path: Path) -> None:
    def check(room: Sending) -> None:
        late = room.answer(message(), waited_s=0.25)
        assert late.code == ResponseCode.SYSTEM_BUSY
        assert str(late.remark).startswith("[TIMEOUT_CLEAN_QUEUE]")
        assert room.answer(message(), waited_s=0.1).code == 0

    scenario(tmp_path, check)


def test_a_retry_beyond_the_limit_becomes_a_dead_letter_without_its_delay(tmp_path: Path) -> None:
    async def check(room: Sending) -> None:
        again = await room.sent(message(b"again", topic="%RETRY%g", reconsume_times=16))
        assert again.code == 0
        delayed = message(b"dead", topic="%RETRY%g", reconsume_times=17, properties="DELAY\x015\x02UNIQ_KEY\x01u\x02")
        assert (await room.sent(delayed)).code == 0
        own_limit = message(b"too", topic="%RETRY%g", reconsume_times=2, reconsume_times_max=1)
        assert (await room.sent(own_limit)).code == 0
        assert [each.body for each in room.messages("%RETRY%g")] == [b"again"]
        dead = room.messages("%DLQ%g")
        assert [each.body for each in dead] == [b"dead", b"too"]
        assert "DELAY" not in dead[0].properties
        assert room.tables.topics.table["%DLQ%g"].perm == 6

    scenario(tmp_path, check)


def test_a_retry_for_a_group_that_may_not_be_made_is_refused(tmp_path: Path) -> None:
    def check(room: Sending) -> None:
        answer = room.answer(message(topic="%RETRY%g"))
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    scenario(tmp_path, check, autoCreateSubscriptionGroup="false")


def test_a_full_disk_is_said_with_14_and_a_write_that_took_too_long_with_2(tmp_path: Path) -> None:
    def check(room: Sending) -> None:
        room.store.is_disk_full = True
        full = room.answer(message())
        assert (full.code, "the disk is full" in str(full.remark)) == (14, True)
        room.store.is_disk_full = False
        room.store._slow_until_s = room.clock.monotonic_s() + 100
        busy = room.answer(message())
        assert (busy.code, str(busy.remark)[:17]) == (2, "[PC_SYNCHRONIZED]")

    scenario(tmp_path, check)


@pytest.mark.feature("F087")
def test_under_synchronous_flush_the_answer_waits_for_the_disk_unless_told_not_to(tmp_path: Path) -> None:
    async def check(room: Sending) -> None:
        room.answer(message(properties="WAIT\x01false\x02"))
        flushed = room.store.progress.flushed
        assert flushed < room.store.progress.appended
        answer = await room.sent(message())
        assert answer.code == 0
        assert room.store.progress.flushed == room.store.progress.appended

    scenario(tmp_path, check, **DURABLE)


def test_a_flush_that_is_late_is_told_as_stored_and_a_failed_one_as_not(tmp_path: Path) -> None:
    disk = FaultyDisk()

    async def play() -> None:
        clock = VirtualClock()
        async with sending(tmp_path, clock=clock, disk=disk, flushDiskType="SYNC_FLUSH") as room:
            room.tables.topics.update(topic())
            await room.open_topics.keep("Orders")
            gate = threading.Event()
            room.store.worker.submit(gate.wait)
            begun = clock.monotonic_s()
            late = asyncio.ensure_future(room.sent(message()))
            asyncio.get_running_loop().call_later(6, gate.set)
            # A thread at work keeps virtual time from jumping, so its clock is moved by hand.
            while not late.done():
                await asyncio.sleep(0)
                asyncio.get_running_loop().advance(0.1)  # type: ignore[attr-defined]
            assert clock.monotonic_s() - begun >= 5
            answer = late.result()
            assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
            assert parse_offset_id(answer.fields["msgId"]) is not None
            gate.set()
            disk.broken_for = "commitlog"
            answer = await room.sent(message())
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "msgId" not in answer.fields
            disk.broken_for = None

    run(play())


@pytest.mark.feature("F097")
def test_a_one_way_message_is_stored_like_any_other(tmp_path: Path) -> None:
    def check(room: Sending) -> None:
        room.answer(message(b"quiet", oneway=True))
        assert [each.body for each in room.messages("Orders")] == [b"quiet"]

    scenario(tmp_path, check)


def test_a_changed_topic_changes_what_is_taken_without_a_question(tmp_path: Path) -> None:
    def check(room: Sending) -> None:
        table = room.open_topics.table
        assert table[b"Orders"] == ("Orders", 4)
        room.tables.topics.update(topic(read=2, write=9))
        assert table[b"Orders"] == ("Orders", 9)
        room.tables.topics.update(topic(perm=4))
        assert b"Orders" not in table
        room.tables.topics.update(topic())
        assert b"Orders" in table
        room.tables.topics.remove("Orders")
        assert b"Orders" not in table
        room.tables.topics.update(topic())
        assert b"Orders" not in table  # another one, which is not on disk yet
        assert {b"SCHEDULE_TOPIC_XXXX", b"SELF_TEST_TOPIC"}.isdisjoint(table)

    scenario(tmp_path, check)


def test_headers_of_these_tests_are_what_producers_send() -> None:
    assert header().encode(short=True).keys() == set("abcdefghikm")
