"""The table of questions: complete, and what it asks for in the cases that RocketMQ leaves open."""

import pytest

from bolide.access.questions import BODY_SIZE_MAX, FOR_ADMINISTRATORS, OBJECTS_MAX, ROWS, needs_of
from bolide.errors import Refusal
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.operations import KINDS
from bolide.protocol.staging import STAGE_TOPIC
from tests.access.walking import request_of


def test_every_code_that_is_served_has_a_row_or_is_for_administrators() -> None:
    served = {code for code in RequestCode if code in KINDS}
    assert served - ROWS.keys() == set()
    assert not ROWS.keys() & FOR_ADMINISTRATORS
    assert ROWS.keys() | FOR_ADMINISTRATORS <= set(RequestCode)


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
