"""The packed texts of POP: what a broker builds a client reads, and nothing malformed passes for it."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.errors import Refusal
from bolide.model.queue import QueueOffset
from bolide.protocol.codes import ResponseCode
from bolide.protocol.headers.poptext import (
    OrderedItem,
    PopHandle,
    PoppedQueue,
    PoppedRange,
    TopicMark,
    build_handle,
    build_message_offsets,
    build_order_counts,
    build_start_offsets,
    parse_handle,
    parse_message_offsets,
    parse_order_counts,
    parse_popped,
    parse_start_offsets,
)

NORMAL_1 = PoppedQueue(TopicMark.NORMAL, 1)
RETRY_0 = PoppedQueue(TopicMark.RETRY_V1, 0)
HANDLE_TEXT = "100 1700000000000 60000 3 0 broker-a 1 104"
HANDLE = PopHandle(
    start_offset=QueueOffset(100),
    popped_ms=1700000000000,
    invisible_ms=60000,
    revive_queue_id=3,
    mark=TopicMark.NORMAL,
    broker_name="broker-a",
    queue_id=1,
    queue_offset=QueueOffset(104),
)

offsets = st.integers(0, 2**63 - 1).map(QueueOffset)
queue_ids = st.integers(0, 2**31 - 1)
marks = st.sampled_from(TopicMark)
queues = st.builds(PoppedQueue, marks, queue_ids)
counts = st.integers(0, 2**31 - 1)


def test_start_offsets_are_those_of_the_example():
    starts = {NORMAL_1: 100, RETRY_0: 7}
    assert build_start_offsets(starts) == "0 1 100;1 0 7"
    assert parse_start_offsets("0 1 100;1 0 7") == starts


def test_message_offsets_are_those_of_the_example():
    assert build_message_offsets({NORMAL_1: [100, 101, 104]}) == "0 1 100,101,104"
    assert parse_message_offsets("0 1 100,101,104") == {NORMAL_1: (100, 101, 104)}


def test_order_counts_are_those_of_the_example():
    expected = {OrderedItem(TopicMark.NORMAL, 1): 2, OrderedItem(TopicMark.NORMAL, 1, QueueOffset(104)): 1}
    assert build_order_counts(expected) == "0 1 2;0 qo1%104 1"
    assert parse_order_counts("0 1 2;0 qo1%104 1") == expected


def test_a_handle_has_eight_tokens_in_rocketmqs_order():
    assert build_handle(HANDLE) == HANDLE_TEXT
    assert parse_handle(HANDLE_TEXT) == HANDLE


def test_revive_queue_999_means_popped_in_order():
    assert not HANDLE.is_ordered
    assert parse_handle("100 1700000000000 60000 999 0 broker-a 1 104").is_ordered


@given(st.dictionaries(queues, offsets, max_size=5))
def test_start_offsets_survive(starts):
    assert parse_start_offsets(build_start_offsets(starts)) == starts


@given(st.dictionaries(queues, st.lists(offsets, min_size=1, max_size=5).map(tuple), max_size=5))
def test_message_offsets_survive(each):
    assert parse_message_offsets(build_message_offsets(each)) == each


@given(st.dictionaries(st.builds(OrderedItem, marks, queue_ids, st.none() | offsets), counts, max_size=5))
def test_order_counts_survive(each):
    assert parse_order_counts(build_order_counts(each)) == each


@given(
    st.builds(
        PopHandle,
        start_offset=offsets,
        popped_ms=offsets,
        invisible_ms=offsets,
        revive_queue_id=queue_ids,
        mark=marks,
        broker_name=st.text(st.characters(exclude_characters=" ")),
        queue_id=queue_ids,
        queue_offset=offsets,
    )
)
def test_handles_survive(handle):
    assert parse_handle(build_handle(handle)) == handle


@pytest.mark.parametrize("parse", [parse_start_offsets, parse_message_offsets, parse_order_counts])
@pytest.mark.parametrize(
    "text",
    ["0 1", "0 1 2 3", "0  1 2", "0 1 2;", ";0 1 2", "0 1 2;0 1", "3 1 2", "x 1 2", "0 y 2", "0 1 z", "0 1 2;0 1 5"],
)
def test_malformed_texts_are_refused(parse, text):
    with pytest.raises(Refusal) as refused:
        parse(text)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert repr(text) in refused.value.remark


@pytest.mark.parametrize("token", ["qo", "qo1", "qo%4", "qo1%", "qo1%4%4", "q1%4"])
def test_a_malformed_message_among_order_counts_is_refused(token):
    with pytest.raises(Refusal, match="orderCountInfo"):
        parse_order_counts(f"0 {token} 1")


@pytest.mark.parametrize("more", [" 4711", " 0 4711"])
def test_what_apaches_proxy_adds_to_a_handle_is_read_over(more):
    assert parse_handle(HANDLE_TEXT + more) == parse_handle(HANDLE_TEXT)


@pytest.mark.parametrize("count", [1, 7, 11])
def test_a_handle_of_another_count_of_tokens_is_refused(count):
    with pytest.raises(Refusal, match=f"{count} tokens, not 8"):
        parse_handle(" ".join([*HANDLE_TEXT.split(" "), "0", "0", "0"][:count]))


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4, 6, 7])
def test_a_handle_with_a_word_for_a_number_is_refused(at):
    tokens = HANDLE_TEXT.split(" ")
    tokens[at] = "word"
    with pytest.raises(Refusal, match=r"handle .*'word' is not a whole number"):
        parse_handle(" ".join(tokens))


def test_a_broker_name_with_a_space_never_gets_into_a_handle():
    with pytest.raises(AssertionError, match="would split the handle"):
        build_handle(dataclasses.replace(HANDLE, broker_name="broker a"))


def test_starts_and_offsets_of_one_answer_belong_together():
    popped = parse_popped("0 1 100;1 0 7", "1 0 7,8;0 1 100,101,104")
    assert popped == {NORMAL_1: PoppedRange(100, (100, 101, 104)), RETRY_0: PoppedRange(7, (7, 8))}


def test_a_start_without_its_offsets_is_refused():
    with pytest.raises(Refusal, match="msgOffsetInfo '0 1 100': no entry '1 0'"):
        parse_popped("0 1 100;1 0 7", "0 1 100")


def test_an_answer_without_texts_has_no_queues():
    assert parse_popped("", "") == {}
