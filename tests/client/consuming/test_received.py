"""A delivered message says what its record says, whether it was decoded at once or when somebody asked."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.client.consuming.pulling import decode_pulled
from bolide.client.consuming.received import Decide, Received
from bolide.client.consuming.subscriptions import subscription_of, tag_test
from bolide.client.serializers import JSON
from bolide.model.host import Host
from bolide.model.message import StoredMessage
from bolide.model.queue import MessageQueue, PhysicalOffset, QueueOffset
from bolide.protocol.records import MAGIC_V1, MAGIC_V2, decode_record, encode_record

SHOWN = (
    "topic",
    "body",
    "tags",
    "keys",
    "properties",
    "flag",
    "queue_offset",
    "msg_id",
    "offset_id",
    "born_at",
    "stored_at",
    "attempt",
    "is_retry",
)
TEXTS = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)


class Nowhere:
    queue = MessageQueue("T", "a", 0)
    is_dropped = False
    is_paused = False
    replier = None
    serializer = JSON

    @property
    def decide(self) -> Decide:
        raise AssertionError("nobody decides here")


def stored_of(**changes: Any) -> StoredMessage:
    host = Host("10.1.2.3", 10911)
    whole: dict[str, Any] = {
        "topic": "T",
        "body": b"body",
        "queue_id": 1,
        "queue_offset": QueueOffset(5),
        "physical_offset": PhysicalOffset(77),
        "born_at": 1_700_000_000_000,
        "born_host": host,
        "stored_at": 1_700_000_000_001,
        "store_host": host,
        "properties": {"TAGS": "A", "KEYS": "k1 k2", "UNIQ_KEY": "ID", "colour": "red"},
    }
    return StoredMessage(**whole | changes)


def shown(message: Received, names: tuple[str, ...] = SHOWN) -> dict[str, object]:
    return {name: getattr(message, name) for name in names}


@given(
    st.permutations(SHOWN),
    st.binary(max_size=40),
    st.dictionaries(TEXTS | st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "RETRY_TOPIC"]), TEXTS, max_size=5),
    st.sampled_from(["T", "%RETRY%group"]),
    st.integers(0, 2**62),
    st.integers(0, 20),
)
def test_what_is_read_late_is_what_would_have_been_read_at_once(
    names: list[str], body: bytes, properties: dict[str, str], topic: str, born_at: int, times: int
) -> None:
    record = encode_record(
        stored_of(body=body, properties=properties, topic=topic, born_at=born_at, reconsume_times=times)
    )
    (late,) = decode_pulled(record, Nowhere(), None)
    at_once = Received.of(decode_record(record), Nowhere())
    assert shown(late, tuple(names)) == shown(at_once)


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
def test_an_answer_with_one_odd_record_is_read_whole_and_in_order(magic: int) -> None:
    answer = b"".join(
        encode_record(stored_of(queue_offset=offset), magic if offset == 1 else MAGIC_V1) for offset in range(3)
    )
    messages = decode_pulled(answer, Nowhere(), None)
    assert [message.queue_offset for message in messages] == [0, 1, 2]
    assert {message.topic for message in messages} == {"T"}


def test_tags_that_share_a_hash_with_a_wanted_one_are_left_out() -> None:
    answer = b"".join(encode_record(stored_of(properties={"TAGS": tag})) for tag in ("Aa", "BB", "Aa"))
    is_wanted = tag_test(subscription_of("T", "Aa", 1))
    assert [message.tags for message in decode_pulled(answer, Nowhere(), is_wanted)] == ["Aa", "Aa"]


def test_a_record_whose_parts_do_not_fit_costs_itself_and_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    records = [encode_record(stored_of(body=b"x" * 100, queue_offset=offset)) for offset in range(3)]
    head = records[1][:80]
    answer = records[0] + head + bytes(len(records[1]) - len(head)) + records[2]  # an unreadable page reads as zeros
    messages = decode_pulled(answer, Nowhere(), None)
    assert [message.queue_offset for message in messages] == [0, 2]
    assert "message skipped" in caplog.text
