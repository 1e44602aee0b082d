"""The records of the revive topic are those of RocketMQ 5.5.0; what it writes is read here.

The bodies below were printed by its own classes: `JSON.toJSONString` of a PopCheckPoint, an AckMsg and a BatchAckMsg.
"""

import pytest

from bolide.broker.pop.checkpoints import AckBody, CheckpointBody, CheckpointKey, read_ack, read_checkpoint
from bolide.broker.pop.lanes import Lane, origin_of, retry_topic_for
from bolide.model.host import Host
from bolide.model.message import StoredMessage
from bolide.model.queue import PhysicalOffset, QueueOffset
from bolide.protocol.bodies.body import read
from bolide.protocol.headers.poptext import TopicMark
from bolide.protocol.popped import mark_of, marked_topic
from bolide.testing import VirtualClock
from tests.broker.poppers import BROKER, REVIVE_TOPIC, Popper, popping
from tests.broker.pullers import GROUP, TOPIC
from tests.remoting.loops import virtual_time

POPPED_MS = 1_700_000_000_000
JAVA_CHECKPOINT = (
    b'{"bm":0,"bn":"broker-a","c":"CG","d":[0,1,4],"it":60000,"n":3,"pt":1700000000000,"q":1,'
    b'"reviveTime":1700000060000,"ro":0,"so":100,"sp":false,"t":"T1"}'
)
JAVA_REPEATED = (
    b'{"bm":0,"bn":"broker-a","c":"CG","d":[0,1,4],"it":60000,"n":3,"pt":1700000000000,"q":1,'
    b'"reviveTime":1700000060000,"ro":0,"rp":"1","so":100,"sp":true,"t":"T1"}'
)
JAVA_ACK = b'{"ao":101,"bn":"broker-a","c":"CG","pt":1700000000000,"q":1,"so":100,"t":"T1"}'
JAVA_BATCH_ACK = b'{"ao":-1,"aol":[100,104],"bn":"broker-a","c":"CG","pt":1700000000000,"q":1,"so":100,"t":"T1"}'
KEY = CheckpointKey(Lane("CG", "T1", 1), 100, POPPED_MS)


def record_of(body: bytes, tags: str) -> StoredMessage:
    host = Host("127.0.0.1", 10911)
    return StoredMessage(
        topic=REVIVE_TOPIC,
        body=body,
        queue_id=3,
        queue_offset=QueueOffset(17),
        physical_offset=PhysicalOffset(0),
        born_at=0,
        born_host=host,
        stored_at=0,
        store_host=host,
        properties={"TAGS": tags},
    )


@pytest.mark.parametrize(
    ("kind", "body"), [(CheckpointBody, JAVA_CHECKPOINT), (AckBody, JAVA_ACK), (AckBody, JAVA_BATCH_ACK)]
)
def test_what_java_writes_we_write(kind, body) -> None:
    assert read(kind, body).encode() == body


def test_a_checkpoint_of_java_is_read_with_its_place_in_the_topic() -> None:
    checkpoint = read_checkpoint(record_of(JAVA_CHECKPOINT, "ck"))
    assert checkpoint is not None
    assert checkpoint.key == KEY
    assert (checkpoint.offsets_left(), checkpoint.end_offset) == ([100, 101, 104], 105)
    assert (checkpoint.due_ms, checkpoint.revive_queue_id, checkpoint.revive_offset) == (POPPED_MS + 60_000, 3, 17)
    repeated = read_checkpoint(record_of(JAVA_REPEATED, "ck"))
    assert repeated is not None
    assert repeated.is_suspended


def test_a_checkpoint_without_distances_counts_from_its_start() -> None:
    checkpoint = read_checkpoint(record_of(b'{"c":"CG","it":1,"n":2,"pt":5,"q":0,"so":7,"t":"T1"}', "ck"))
    assert checkpoint is not None
    assert checkpoint.offsets_left() == [7, 8]


def test_a_checkpoint_of_nobody_is_passed_over() -> None:
    assert read_checkpoint(record_of(b'{"it":1,"n":2,"pt":5,"q":0,"so":7}', "ck")) is None


def test_acknowledgements_of_java_name_their_checkpoint() -> None:
    assert read_ack(record_of(JAVA_ACK, "ack")) == (KEY, [101])
    assert read_ack(record_of(JAVA_BATCH_ACK, "bAck")) == (KEY, [100, 104])


@virtual_time
async def test_a_pop_and_its_acknowledgement_are_records_java_could_go_on_with(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"0", b"1", queue_id=2)
        popper = await Popper.connect(rig)
        first, second = await popper.pop(queue_id=2)
        await popper.ack(first)
        await popper.ack_many([second])
        checkpoint, ack, batch = rig.records(REVIVE_TOPIC, first.handle.revive_queue_id)
        assert [each.tags for each in (checkpoint, ack, batch)] == ["ck", "ack", "bAck"]
        popped_ms = first.handle.popped_ms
        assert checkpoint.unique_id == f"{TOPIC}@2@0@{GROUP}@{popped_ms}@{BROKER}@ck"
        assert ack.unique_id == f"{TOPIC}@2@0@{GROUP}@{popped_ms}@{BROKER}@ack"
        # Java's reader goes by these times, and its timer delivers a checkpoint a second before its acknowledgements.
        assert checkpoint.properties["TIMER_DELIVER_MS"] == str(popped_ms + 59_000)
        assert ack.properties["TIMER_DELIVER_MS"] == batch.properties["TIMER_DELIVER_MS"] == str(popped_ms + 60_000)
        assert checkpoint.body == (
            b'{"bm":0,"bn":"broker-a","c":"G","d":[0,1],"it":60000,"n":2,"pt":%d,"q":2,"reviveTime":%d,"ro":0,"so":0,'
            b'"sp":false,"t":"T"}' % (popped_ms, popped_ms + 60_000)
        )
        assert ack.body == b'{"ao":0,"bn":"broker-a","c":"G","pt":%d,"q":2,"so":0,"t":"T"}' % popped_ms
        assert batch.body == b'{"ao":-1,"aol":[1],"bn":"broker-a","c":"G","pt":%d,"q":2,"so":0,"t":"T"}' % popped_ms
        popper.peer.leave()


@virtual_time
async def test_pops_go_round_the_revive_queues(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(*[b"x"] * 16)
        popper = await Popper.connect(rig)
        queues = [(await popper.pop(message_count_max=1))[0].handle.revive_queue_id for _ in range(16)]
        assert sorted(queues) == sorted([*range(8), *range(8)])
        popper.peer.leave()


@virtual_time
async def test_a_record_that_cannot_be_read_does_not_stop_a_start(tmp_path, caplog) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        rig.put(b"x", queue_id=1)
        popper = await Popper.connect(rig)
        await popper.pop()
        huge = b'{"c":"G","t":"T","n":2000000000}'
        for body in (b"{", b"[]", b'{"pt":"when?"}', huge):
            rig.put(body, topic=REVIVE_TOPIC, queue_id=5, TAGS="ck")
        rig.put(b"?", topic=REVIVE_TOPIC, queue_id=5, TAGS="ack")
        popper.peer.leave()
        rig.is_killed = True
    async with popping(tmp_path, clock) as rig:
        assert rig.room.revivals.out_count == 1
    assert caplog.text.count("passed over") == 5


@pytest.mark.parametrize(
    ("topic", "mark"),
    [("T", TopicMark.NORMAL), ("%RETRY%G_T", TopicMark.RETRY_V1), ("%RETRY%G+T", TopicMark.RETRY_V2)],
)
def test_marks_and_topics_lead_to_each_other(topic, mark) -> None:
    assert (mark_of(topic), marked_topic("G", "T", mark), origin_of("G", topic)) == (mark, topic, "T")


def test_a_message_that_fails_again_stays_in_its_retry_topic() -> None:
    assert retry_topic_for("G", "T", is_v2=False) == "%RETRY%G_T"
    assert retry_topic_for("G", "T", is_v2=True) == "%RETRY%G+T"
    assert retry_topic_for("G", "%RETRY%G_T", is_v2=True) == "%RETRY%G_T"
