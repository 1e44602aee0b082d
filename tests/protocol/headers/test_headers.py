"""Headers as values: they survive the wire, and refuse what they cannot mean."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide import kernel
from bolide.errors import Refusal
from bolide.model.names import KINDS, Key, Text
from bolide.model.queue import PhysicalOffset, QueueOffset
from bolide.protocol import headers
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import BINARY_CODEC, FRAME_SIZE_MAX, JSON_CODEC, Command, read_commands
from bolide.protocol.headers import (
    BoundaryType,
    DeleteGroupRequest,
    GetAllTopicConfigRequest,
    GetMaxOffsetRequest,
    GetRouteRequest,
    Header,
    Int32,
    Int64,
    NotificationAnswer,
    PullMessageRequest,
    PutKvRequest,
    RefusedSendAnswer,
    RegisterBrokerRequest,
    ResetOffsetRequest,
    SearchOffsetRequest,
    SendMessageAnswer,
    SendMessageRequest,
    UpdateAclRequest,
    WireField,
    header_of,
)

HEADERS = sorted(
    {each for code in RequestCode for each in header_of(code)[:2] if each} | {RefusedSendAnswer},
    key=lambda each: each.__name__,
)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(st.characters(categories=("L", "N", "P", "S"), exclude_characters="/."), max_size=20)
VALUES: dict[Any, Any] = {
    **dict.fromkeys(KINDS, NAMES),
    Key: st.text(max_size=20),
    Text: st.text(max_size=20),
    bool: st.booleans(),
    Int32: INT32,
    Int64: INT64,
    QueueOffset: INT64,
    PhysicalOffset: INT64,
    BoundaryType: st.sampled_from(BoundaryType),
}
SEND_FIELDS = {
    "producerGroup": "orders",
    "topic": "T1",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "3",
    "sysFlag": "0",
    "bornTimestamp": "1700000000123",
    "flag": "7",
    "properties": "KEYS\x01k\x02",
    "reconsumeTimes": "2",
    "unitMode": "false",
    "batch": "true",
    "maxReconsumeTimes": "16",
    "bname": "broker-a",
}
SHORT_SEND_FIELDS = {
    "a": "orders",
    "b": "T1",
    "c": "TBW102",
    "d": "4",
    "e": "3",
    "f": "0",
    "g": "1700000000123",
    "h": "7",
    "i": "KEYS\x01k\x02",
    "j": "2",
    "k": "false",
    "m": "true",
    "l": "16",
    "n": "broker-a",
}


def all_values(header: type[Header]) -> st.SearchStrategy[Header]:
    """Headers of one class: each optional field sometimes None, or left to its default."""

    def values_of(field: WireField) -> st.SearchStrategy:
        default = header._defaults.get(field.name)
        return VALUES[field.kind] if field.is_required else VALUES[field.kind] | st.just(default)

    return st.builds(header, **{field.name: values_of(field) for field in header.wire_fields})


def over_the_wire(fields: dict[str, str], codec: int) -> dict[str, str]:
    frame = Command(RequestCode.PUT_KV_CONFIG, fields=fields, codec=codec).encode()
    bounds, _, _ = kernel.cut_frames(frame, len(frame), FRAME_SIZE_MAX)
    return read_commands(frame, bounds)[0].fields


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.__name__)
def test_every_header_survives_the_wire_in_both_spellings(header):
    @settings(max_examples=20)
    @given(all_values(header))
    def check(value):
        for short in (False, True):
            fields = value.encode(short)
            assert all(isinstance(text, str) for text in fields.values())
            assert header.decode(fields, short) == value

    check()


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.__name__)
def test_a_header_cannot_be_changed_and_holds_nothing_else(header):
    value = header.decode({key: "1" for field in header.wire_fields for key in field.keys})
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, header.wire_fields[0].name, None)
    assert not hasattr(value, "__dict__")


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.__name__)
def test_every_required_field_is_missed_by_name(header):
    complete = {key: "1" for field in header.wire_fields for key in field.keys}
    for field in header.wire_fields:
        fields = {key: text for key, text in complete.items() if key not in field.keys}
        if not field.is_required:
            assert header.decode(fields)
            continue
        with pytest.raises(Refusal) as refused:
            header.decode(fields)
        assert refused.value.code == ResponseCode.SYSTEM_ERROR
        assert f"{header.__name__}: required but missing: {field.keys[0]};" in refused.value.remark


def test_the_package_offers_every_header():
    assert {header.__name__ for header in HEADERS} <= set(headers.__all__)


def test_both_spellings_of_a_send_mean_the_same():
    long = SendMessageRequest.decode(SEND_FIELDS)
    short = SendMessageRequest.decode(SHORT_SEND_FIELDS, short=True)
    assert long == short
    assert long == SendMessageRequest(
        producer_group="orders",
        topic="T1",
        default_topic="TBW102",
        default_topic_queue_count=4,
        queue_id=3,
        sys_flag=0,
        born_ms=1700000000123,
        flag=7,
        properties="KEYS\x01k\x02",
        reconsume_times=2,
        is_unit_mode=False,
        is_batch=True,
        reconsume_times_max=16,
        addressed_broker="broker-a",
    )
    assert long.encode() == SEND_FIELDS
    assert long.encode(short=True) == SHORT_SEND_FIELDS


def test_a_missing_letter_is_named_by_its_word_too():
    with pytest.raises(Refusal, match=r"SendMessageRequest: required but missing: topic \(b\), .*; found: a$"):
        SendMessageRequest.decode({"a": "orders"}, short=True)


def test_entries_nobody_declared_are_ignored():
    extras = {"Signature": "s", "AccessKey": "a", "ReqT": "0", "oway": "false", "__ZONE_NAME": "z"}
    assert GetRouteRequest.decode({"topic": "T1", **extras}) == GetRouteRequest(topic="T1")


def test_hints_of_5x_clients_are_understood():
    hints = {"bname": "broker-a", "ns": "tenant", "nsd": "true", "lo": "false"}
    assert GetMaxOffsetRequest.decode({"topic": "T1", "queueId": "0", **hints}) == GetMaxOffsetRequest(
        topic="T1",
        queue_id=0,
        addressed_broker="broker-a",
        resource_namespace="tenant",
        is_namespaced=True,
        is_logical=False,
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("TRUE", True), ("True", True), ("false", False), ("1", False), ("yes", False), ("", False)],
)
def test_only_the_word_true_reads_as_true(text, value):
    assert NotificationAnswer.decode({"hasMsg": text}).has_message is value


@pytest.mark.parametrize(
    ("text", "value"), [("UPPER", "UPPER"), ("upper", "UPPER"), ("Lower", "LOWER"), ("x", "LOWER")]
)
def test_a_boundary_reads_in_any_case_and_is_lower_unless_it_says_upper(text, value):
    fields = {"topic": "T1", "queueId": "0", "timestamp": "5", "boundaryType": text}
    search = SearchOffsetRequest.decode(fields)
    assert search.boundary is BoundaryType(value)
    assert search.encode()["boundaryType"] == value


@pytest.mark.parametrize("text", ["-2147483648", "2147483647", "+7", "007", "-0"])
def test_numbers_of_32_bits_are_read(text):
    assert GetMaxOffsetRequest.decode({"topic": "T1", "queueId": text}).queue_id == int(text)


@pytest.mark.parametrize(
    "text", ["2147483648", "-2147483649", "", "-", "1.0", " 1", "1 ", "1\n", "1_0", "0x1", "٣", "null", "9" * 5000]
)
def test_what_is_no_number_of_32_bits_is_refused_by_name(text):
    with pytest.raises(Refusal) as refused:
        GetMaxOffsetRequest.decode({"topic": "T1", "queueId": text})
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert refused.value.remark == f"GetMaxOffsetRequest: queueId: {text[:60]!r} is not a whole number of 32 bits"


@pytest.mark.parametrize(
    ("number", "fits"), [(2**63 - 1, True), (-(2**63), True), (2**63, False), (-(2**63) - 1, False)]
)
def test_numbers_of_64_bits_have_their_limits(number, fits):
    fields = {"suggestWhichBrokerId": "0", "nextBeginOffset": str(number), "minOffset": "0", "maxOffset": "0"}
    if fits:
        assert headers.PullMessageAnswer.decode(fields).next_offset == number
    else:
        with pytest.raises(Refusal, match=r"nextBeginOffset: .* is not a whole number of 64 bits"):
            headers.PullMessageAnswer.decode(fields)


def test_a_number_too_large_for_its_field_is_never_written():
    with pytest.raises(AssertionError, match="does not fit 32 bits"):
        GetMaxOffsetRequest(topic="T1", queue_id=2**31).encode()


def test_a_refusal_repeats_little_of_what_a_stranger_sent():
    with pytest.raises(Refusal) as refused:
        GetMaxOffsetRequest.decode({"x" * 1_000_000: "", "y": "z" * 1_000_000})
    assert len(refused.value.remark) < 600


def test_fields_that_are_none_are_left_out():
    assert GetRouteRequest(topic="T1").encode() == {"topic": "T1"}


@pytest.mark.parametrize("key", ["cleanOffset", "removeOffset"])
def test_deleting_a_group_hears_both_words_for_its_offsets(key):
    assert DeleteGroupRequest.decode({"groupName": "g", key: "true"}).is_offset_removed
    assert not DeleteGroupRequest.decode({"groupName": "g", key: "false"}).is_offset_removed


def test_deleting_a_group_says_both_words_for_its_offsets():
    fields = DeleteGroupRequest(group="g", is_offset_removed=True).encode()
    assert fields == {"groupName": "g", "cleanOffset": "true", "removeOffset": "true"}


def test_absent_fields_read_as_java_reads_them():
    assert GetMaxOffsetRequest.decode({"topic": "T1", "queueId": "0"}).is_committed
    reset = ResetOffsetRequest.decode({"topic": "T1", "group": "g", "timestamp": "5", "isForce": "true"})
    assert (reset.queue_id, reset.offset) == (-1, -1)
    broker = {"brokerName": "b", "brokerAddr": "a", "clusterName": "c", "haServerAddr": "h", "brokerId": "0"}
    register = RegisterBrokerRequest.decode(broker)
    assert (register.body_crc32, register.is_compressed, register.heartbeat_timeout_ms) == (0, False, None)


def test_a_49_slave_asks_for_all_topics_without_any_header():
    assert GetAllTopicConfigRequest.decode({}).first is None


def test_a_send_answer_has_what_java_dereferences_without_a_look():
    answer = SendMessageAnswer(
        message_id="0A", queue_id=1, queue_offset=QueueOffset(9), region="DefaultRegion", is_traced=True
    )
    assert answer.encode() == {
        "msgId": "0A",
        "queueId": "1",
        "queueOffset": "9",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


def test_a_pull_of_the_cpp_client_needs_no_expression_type_and_may_have_an_empty_subscription():
    pull = PullMessageRequest.decode(
        {
            "consumerGroup": "g",
            "topic": "T1",
            "queueId": "0",
            "queueOffset": "5",
            "maxMsgNums": "32",
            "sysFlag": "2",
            "commitOffset": "0",
            "suspendTimeoutMillis": "15000",
            "subscription": "",
            "subVersion": "1",
            "Signature": "",
            "AccessKey": "",
            "OnsChannel": "",
        }
    )
    assert (pull.subscription, pull.expression_type, pull.answer_size_max) == ("", None, None)


def test_the_binary_codec_loses_empty_texts_and_json_keeps_them():
    """Java reads a zero length as null, so a binary sender cannot say the empty text: it misses what is required."""
    empty = PutKvRequest(namespace="n", key="k", value="").encode()
    assert PutKvRequest.decode(over_the_wire(empty, JSON_CODEC)).value == ""
    with pytest.raises(Refusal, match="missing: value"):
        PutKvRequest.decode(over_the_wire(empty, BINARY_CODEC))


def test_a_secret_is_not_printed_with_its_header():
    assert "hush" not in repr(UpdateAclRequest(access_key="a", secret_key="hush"))
