"""The kernel's reader of acknowledgements against the path above it, and the answer against protobuf."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.kernel import plain_left
from bolide.proxy import messages as m
from bolide.proxy.settling import encode_acked
from bolide.proxy.statuses import Denied, ok
from tests.kernel.grpc_acks import HANDLE, as_above, plain_ack
from tests.kernel.twins import compiled

TEXTS = st.text("abcXYZ019-_", max_size=12) | st.sampled_from(["a b", "ä", "\x01", " ", "x" * 300])
TOKENS = st.sampled_from(["0", "9", "10", "-1", "999999999999999999", "1000000000000000000", "a", "", "3 4", "ä"])
needs_compiled = pytest.mark.skipif(compiled is None, reason="no compiled kernel here")


@st.composite
def acks(draw: st.DrawFn) -> m.AckMessageRequest:
    """Mostly plain ones, with whatever else one can have."""
    tokens = HANDLE.split(" ")
    for number in draw(st.lists(st.integers(0, 8), max_size=1)):
        tokens[number] = draw(TOKENS)
    request = plain_ack(" ".join(tokens[: draw(st.sampled_from([9, 9, 9, 8, 3]))]))
    request.group.name = draw(st.just("readers") | TEXTS)
    request.topic.resource_namespace = draw(st.just("") | TEXTS)
    (entry,) = request.entries
    entry.message_id = draw(st.just("01AB") | TEXTS)
    rare = draw(st.sampled_from(["", "", "", "lite", "two", "none"]))
    if rare == "lite":
        entry.lite_topic = "lite"
    elif rare == "two":
        request.entries.add(message_id="02", receipt_handle=HANDLE)
    elif rare == "none":
        del request.entries[:]
    return request


@needs_compiled
@given(acks(), st.data())
def test_what_the_kernel_reads_is_what_the_path_above_understands(
    request: m.AckMessageRequest, data: st.DataObject
) -> None:
    content = bytearray(request.SerializeToString())
    for _ in range(data.draw(st.integers(0, 2))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    found = compiled.read_grpc_ack(bytes(content))
    if found is not None:
        assert found == as_above(m.AckMessageRequest.FromString(bytes(content)))


@needs_compiled
def test_a_plain_acknowledgement_is_read_and_an_odd_one_left() -> None:
    assert compiled.read_grpc_ack(plain_ack().SerializeToString()) == as_above(plain_ack())
    for odd in (HANDLE + " 1", HANDLE.replace("broker-a", ""), HANDLE.replace(" 0 ", " 3 "), "", "nothing"):
        content = plain_ack(odd).SerializeToString()
        assert compiled.read_grpc_ack(content) is None
        with pytest.raises((Denied, AssertionError)):
            assert as_above(plain_ack(odd)) is None


def test_the_plain_kernel_leaves_all_of_them() -> None:
    assert plain_left.read_grpc_ack(plain_ack().SerializeToString()) is None


@given(st.text("0123456789ABCDEF", min_size=1, max_size=200), st.text("0123 abc-", min_size=1, max_size=300))
def test_an_answer_is_encoded_as_protobuf_does(message_id: str, handle: str) -> None:
    entry = m.AckMessageResultEntry(message_id=message_id, receipt_handle=handle, status=ok())
    assert encode_acked(message_id, handle) == m.AckMessageResponse(status=ok(), entries=[entry]).SerializeToString()
