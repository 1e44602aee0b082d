"""The kernel's encoder of popped messages against the path above it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.errors import ProtocolError
from bolide.kernel import plain_left
from bolide.model.host import Host
from bolide.model.message import StoredMessage
from bolide.protocol.records import encode_record
from bolide.proxy.checks import RESERVED_NAMES
from tests.kernel.grpc_received import HEADS, INVISIBLE_MS, TOPIC, as_above, as_told
from tests.kernel.twins import compiled
from tests.protocol.record_samples import HELLO

needs_compiled = pytest.mark.skipif(compiled is None, reason="no compiled kernel here")
PLAIN = replace(HELLO, topic=TOPIC, properties={"UNIQ_KEY": "01AB", "PGROUP": TOPIC, "BORN_TIMESTAMP": "1"})
NAMES = st.sampled_from(
    [
        *("TAGS", "KEYS", "__BORNHOST", "WAIT", "MSG_REGION", "TRACE_ON", "CLUSTER", "colour", "a", "UNIQ_KEY"),
        *("Colour", "__SHARDINGKEY", "TRACE_CONTEXT", "TIMER_DELIVER_MS", "POP_CK", "_SYS_MSG_PRIORITY_", "ä"),
    ]
)
VALUES = st.sampled_from(["red", "one  two", " ", "ä", "v" * 300, "1700000000000", "true"])


@st.composite
def popped(draw: st.DrawFn) -> StoredMessage:
    """Mostly plain ones, with whatever else one can have."""
    record = replace(
        PLAIN,
        body=draw(st.binary(max_size=300)),
        queue_id=draw(st.sampled_from([0, 2])),
        born_at=draw(st.sampled_from([0, 5, 1000, 1_700_000_000_123])),
        properties={**PLAIN.properties, **draw(st.dictionaries(NAMES, VALUES, max_size=3))},
    )
    odd = draw(st.sampled_from(["", "", "", "again", "topic", "host", "packed"]))
    if odd == "again":
        return replace(record, reconsume_times=1)
    if odd == "topic":
        return replace(record, topic="Others")
    if odd == "host":
        return replace(record, store_host=Host("::1", 9))
    return replace(record, sys_flag=1) if odd == "packed" else record


@needs_compiled
@given(st.lists(popped(), min_size=1, max_size=3), st.data())
def test_what_the_kernel_encodes_is_what_the_path_above_says(
    messages: list[StoredMessage], data: st.DataObject
) -> None:
    records = bytearray(b"".join(map(encode_record, messages)))
    for _ in range(data.draw(st.integers(0, 2))):
        records[data.draw(st.integers(0, len(records) - 1))] = data.draw(st.integers(0, 255))
    found = compiled.encode_received(bytes(records), TOPIC.encode(), HEADS, INVISIBLE_MS)
    if found is not None:
        assert as_told(found) == as_above(bytes(records))


@needs_compiled
def test_plain_messages_are_encoded_and_one_that_is_odd_leaves_all_to_the_path_above() -> None:
    labels = {"TAGS": "red", "KEYS": "one two", "colour": "green", "__BORNHOST": "here"}
    full = replace(PLAIN, queue_id=0, properties={**PLAIN.properties, **labels})
    records = encode_record(PLAIN) + encode_record(full)
    found = compiled.encode_received(records, TOPIC.encode(), HEADS, INVISIBLE_MS)
    assert as_told(found) == as_above(records)
    assert [tag for _, _, tag in found] == [None, "red"]
    for odd in (
        *(replace(PLAIN, reconsume_times=1), replace(PLAIN, queue_id=5), replace(PLAIN, properties={"TAGS": "red"})),
        *(replace(PLAIN, properties={**PLAIN.properties, name: "1"}) for name in ("__SHARDINGKEY", "POP_CK", "Any")),
    ):
        assert compiled.encode_received(records + encode_record(odd), TOPIC.encode(), HEADS, INVISIBLE_MS) is None
    assert compiled.encode_received(records[:-1], TOPIC.encode(), HEADS, INVISIBLE_MS) is None
    with pytest.raises(ProtocolError):
        as_above(records[:-1])


def test_no_name_of_rocketmqs_own_begins_with_a_small_letter() -> None:
    assert not [name for name in RESERVED_NAMES if name[0].islower()]


def test_the_plain_kernel_leaves_all_of_them() -> None:
    assert plain_left.encode_received(encode_record(PLAIN), TOPIC.encode(), HEADS, INVISIBLE_MS) is None
