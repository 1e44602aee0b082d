"""The table of questions: complete, and what it asks for in the cases that RocketMQ leaves open."""

import pytest

from bolide.access.questions import BODY_SIZE_MAX, FOR_ADMINISTRATORS, OBJECTS_MAX, ROWS, needs_of
from bolide.errors import Refusal
from bolide.protocol.codes import RequestCode
from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.command import Command
from bolide.protocol.operations import KINDS
from bolide.protocol.staging import STAGE_TOPIC
from tests.access.walking import request_of


def test_every_code_that_is_served_has_a_row_or_is_for_administrators() -> None:
    served = {code for code in RequestCode if code in KINDS}
    assert served - ROWS.keys() == set()
    assert not ROWS.keys() & FOR_ADMINISTRATORS
    assert ROWS.keys() | FOR_ADMINISTRATORS <= set(RequestCode)


# The table once more, as the specification has it, by its numbers: for group g and topic T, and a record of topic Of.
ASKED = {
    "anyone": "46 105 106",
    "Topic:T:Pub": "10 310 320 324 325 370",
    "Topic:T:Get|Sub": "12",
    "Topic:T:Get|Pub|Sub": "29 30 31 32",
    "Topic:T:Get": "202 300 351 354",
    "Topic:T:Create": "17 18 513",
    "Topic:T:Delete": "215",
    "Topic:Of:Get": "33",
    "Topic:Of:Pub": "37",
    "Topic:rmq_sys_BOLIDE_STAGE:Pub": "27001",
    "Group:g:Sub Topic:T:Sub": "11 34 41 42 361 400 200050 200051 200052 200053 200054 200151",
    "Group:g:Sub Topic:Of:Sub": "36",
    "Group:g:Sub": "35 309",
    "Group:g:Get|Sub": "38",
    "Group:g:Get|Sub Topic:T:Get|Sub": "14",
    "Group:g:Sub|Update Topic:T:Sub|Update": "15",
    "Group:g:Create": "200 225",
    "Group:g:Update": "401",
    "Group:g:Delete": "207",
    "Group:g:Get": "203 307 343 352",
    "Group:g:Get Topic:T:Get": "208 223 303 308 321 345 200055",
    "Group:g:Update Topic:T:Update": "222 353",
    "Group:g:Update Group:g:Update Topic:T:Update": "314",
    "Cluster:C1:Get": "21 26 28 43 45 60 61 101 201 204 206 219 224 304 305 311 312 313 315 317 319 322 328 355 402 901"
    " 907 1004 1005 1006 1007 1010 1012 3004 3005 3009 3010",
    "Cluster:C1:Update": "25 100 102 103 104 205 216 217 301 306 316 318 327 329 902 903 904 905 906 908 1001 1002 1003"
    " 1008 1009 1011 1013 3001 3002 3003 3006 3007 3008",
}


def test_every_code_asks_for_what_the_specification_says_and_all_others_are_for_administrators() -> None:
    wanted = {int(code): needs for needs, codes in ASKED.items() for code in codes.split()}
    for code in RequestCode:
        needs = asked(code, "Of")
        told = "administrators" if needs is None else " ".join(needs) or "anyone"
        assert told == wanted.get(code, "administrators"), code.name


def asked(code: RequestCode, record_topic: str | None = None, **fields: str) -> list[str] | None:
    command = request_of(code)
    command.fields.update(fields)
    needs = needs_of(command, "C1", lambda place: record_topic)
    return None if needs is None else [f"{need}:{'|'.join(sorted(need.actions))}" for need in needs]


def test_a_record_is_protected_by_its_own_topic_whatever_the_header_says() -> None:
    assert asked(RequestCode.VIEW_MESSAGE_BY_ID, "Secret", topic="T") == ["Topic:Secret:Get"]
    assert asked(RequestCode.END_TRANSACTION, "Secret", topic="T") == ["Topic:Secret:Pub"]
    assert asked(RequestCode.CONSUMER_SEND_MSG_BACK, "Secret") == ["Group:g:Sub", "Topic:Secret:Sub"]
    msg_id = "7F0000010000277F0000000000000000"
    assert asked(RequestCode.CONSUME_MESSAGE_DIRECTLY, "Secret", msgId=msg_id) == ["Group:g:Sub", "Topic:Secret:Sub"]


def test_retry_topics_belong_to_their_group() -> None:
    assert asked(RequestCode.SEND_MESSAGE_V2, b="%RETRY%g") == ["Group:g:Sub"]
    assert asked(RequestCode.PULL_MESSAGE, topic="%RETRY%other") == ["Group:g:Sub", "Group:other:Sub"]
    assert asked(RequestCode.DELETE_TOPIC_IN_BROKER, topic="%RETRY%g") == ["Group:g:Delete"]
    of_pops = "%RETRY%other+T"
    assert asked(RequestCode.PULL_MESSAGE, topic=of_pops) == ["Group:g:Sub", "Group:other:Sub"]


def test_every_group_that_a_header_names_is_asked_about() -> None:
    assert asked(Code.QUERY_CORRECTION_OFFSET, filterGroups="h,i") == [f"Group:{each}:Get" for each in "ghi"] + [
        "Topic:T:Get"
    ]
    assert asked(Code.CLONE_GROUP_OFFSET, destGroup="h") == ["Group:g:Update", "Group:h:Update", "Topic:T:Update"]


def test_a_request_that_names_nothing_is_for_administrators() -> None:
    assert asked(Code.QUERY_CONSUME_QUEUE, topic="T", consumerGroup="g") is not None
    for fields in ({}, {"topic": "T"}, {"consumerGroup": "g"}):
        assert needs_of(Command(Code.QUERY_CONSUME_QUEUE, fields=fields), "C1", lambda place: None) is None
    assert asked(Code.RESUME_CHECK_HALF_MESSAGE) is None
    for code in (Code.UPDATE_AND_CREATE_TOPIC_LIST, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST):
        assert needs_of(Command(code, body=b"{}"), "C1", lambda place: None) is None


@pytest.mark.parametrize(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "rmq_sys_wheel_timer",
        "rmq_sys_REVIVE_LOG_C1",
    ],
)
def test_topics_in_which_messages_of_others_wait_are_for_administrators(topic: str) -> None:
    codes = (RequestCode.PULL_MESSAGE, RequestCode.POP_MESSAGE, RequestCode.QUERY_MESSAGE, RequestCode.GET_MAX_OFFSET)
    assert [asked(code, topic=topic) for code in codes] == [None] * 4
    assert asked(RequestCode.SEND_MESSAGE_V2, b=topic) is None


def test_what_is_staged_needs_the_right_on_where_it_will_go() -> None:
    properties = "BOLIDE_TOPIC\x01Secret\x02"
    assert asked(RequestCode.SEND_MESSAGE_V2, b=STAGE_TOPIC, i=properties) == ["Topic:Secret:Pub"]
    assert asked(RequestCode.SEND_MESSAGE_V2, b=STAGE_TOPIC) is None
    assert asked(RequestCode.SEND_REPLY_MESSAGE_V2, b=STAGE_TOPIC, i=properties) == ["Topic:Secret:Pub"]


def test_each_message_of_a_batch_would_say_where_it_goes_so_batches_are_not_staged() -> None:
    own = "BOLIDE_TOPIC\x01Own\x02"
    assert asked(RequestCode.SEND_BATCH_MESSAGE, b=STAGE_TOPIC, i=own) is None
    assert asked(RequestCode.SEND_MESSAGE_V2, b=STAGE_TOPIC, i=own, m="true") is None


def test_a_reply_is_stored_in_the_topic_for_replies_or_is_a_send() -> None:
    assert asked(RequestCode.SEND_REPLY_MESSAGE_V2, b="C1_REPLY_TOPIC") == []
    assert asked(RequestCode.SEND_REPLY_MESSAGE_V2, b="T") == ["Topic:T:Pub"]


def test_every_entry_of_a_body_is_asked_about() -> None:
    ack = '{"c":"%s","t":"%s","r":"0","so":0,"q":0,"rq":0,"pt":1,"it":1,"b":"AQ=="}'
    lock = '{"consumerGroup":"g","mqSet":[{"topic":"T","brokerName":"b","queueId":0},{"topic":"U","queueId":1}]}'
    member = '{"groupName":"%s","subscriptionDataSet":[{"topic":"%s","subString":"*"}]}'
    acks = f'{{"acks":[{ack % ("g", "T")},{ack % ("h", "U")}]}}'
    made = '{"%sConfigList":[{"%s":"g"},{"%s":"h"}]}'
    for code, body, wanted in (
        (
            Code.BATCH_ACK_MESSAGE,
            acks,
            "Group:g Group:h Topic:T Topic:U",
        ),
        (Code.LOCK_BATCH_MQ, lock, "Group:g Topic:T Topic:U"),
        (Code.UNLOCK_BATCH_MQ, lock, "Group:g Topic:T Topic:U"),
        (
            Code.HEART_BEAT,
            f'{{"clientID":"c","consumerDataSet":[{member % ("g", "T")},{member % ("h", "U")}]}}',
            "Group:g Group:h Topic:T Topic:U",
        ),
        (Code.UPDATE_AND_CREATE_TOPIC_LIST, made % ("topic", "topicName", "topicName"), "Topic:g Topic:h"),
        (Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, made % ("group", "groupName", "groupName"), "Group:g Group:h"),
    ):
        needs = needs_of(Command(code, body=body.encode()), "C1", lambda place: None)
        assert sorted(map(str, needs or ())) == wanted.split(), code


def test_a_code_that_nobody_knows_is_for_administrators() -> None:
    assert needs_of(Command(31_999), "C1", lambda place: None) is None


@pytest.mark.parametrize("code", sorted(ROWS))
def test_a_field_that_a_row_reads_is_a_field_of_the_request(code: int) -> None:
    assert needs_of(request_of(RequestCode(code)), "C1", lambda place: "T") is not None or code in (321, 323)


def test_a_stranger_has_no_long_body_read_while_everybody_waits() -> None:
    member = "{'groupName':'g','subscriptionDataSet':[{'topic':'T','subString':'*'}]}"
    for body in (f"{{'consumerDataSet':[{','.join([member] * 1_000)}]}}".encode(), b" " * (BODY_SIZE_MAX + 1)):
        with pytest.raises(Refusal, match="a body of"):
            needs_of(Command(RequestCode.HEART_BEAT, body=body), "C1", lambda place: None)
    few = f"{{'consumerDataSet':[{','.join([member] * 50)}]}}".encode()
    assert len(needs_of(Command(RequestCode.HEART_BEAT, body=few), "C1", lambda place: None) or ()) == 2


@pytest.mark.parametrize(
    ("code", "before"),
    [
        (RequestCode.HEART_BEAT, '{"consumerDataSet":['),
        (RequestCode.HEART_BEAT, '{"consumerDataSet":[{"groupName":"g","subscriptionDataSet":['),
        (RequestCode.LOCK_BATCH_MQ, '{"consumerGroup":"g","mqSet":['),
        (RequestCode.BATCH_ACK_MESSAGE, '{"acks":['),
        (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, '{"topicConfigList":['),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, '{"groupConfigList":['),
    ],
)
def test_a_stranger_has_no_thousands_of_objects_made_while_everybody_waits(code: RequestCode, before: str) -> None:
    after = {"[": "]", "{": "}"}
    behind = "".join(after[each] for each in reversed(before) if each in after and not before.count("}"))
    body = (before + ",".join(["{}"] * (OBJECTS_MAX + 1)) + behind).encode()
    assert len(body) < BODY_SIZE_MAX
    with pytest.raises(Refusal, match=r"a body with \d+ objects"):
        needs_of(Command(code, body=body), "C1", lambda place: None)
