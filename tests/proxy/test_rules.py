"""Rules of the protocol one by one: what a client may ask, in which state, and which code it hears if it may not."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bolide.errors import ConfigError
from bolide.model.queue import QueueKey
from bolide.protocol.bodies.groups import GroupConfig, GrowingDelays, ListedDelays, RetryKind, RetryPolicy
from bolide.protocol.bodies.topics import TopicConfig
from bolide.proxy import messages as m
from bolide.proxy.config import read_config
from bolide.testing.loop import VirtualClock
from tests.proxy.peer import Peer, connected
from tests.proxy.serving import (
    BROKER,
    Serving,
    ack,
    consumer_settings,
    message,
    producer_settings,
    receive,
    resource,
    send,
    serving,
    tell_settings,
)
from tests.remoting.loops import virtual_time

C, P = m.Code, m.Permission


def queue(topic: str, queue_id: int = 0, broker: str = BROKER) -> m.MessageQueue:
    return m.MessageQueue(topic=resource(topic), id=queue_id, broker=m.Broker(name=broker))


def add_topic(served: Serving, name: str, perm: int, read: int = 1, write: int = 1) -> None:
    config = TopicConfig(topic_name=name, read_queue_nums=read, write_queue_nums=write, perm=perm)
    served.broker.state.topics.update(config)


# Settings


@virtual_time
async def test_a_consumer_is_told_with_its_first_settings_and_each_later_ones_whether_its_group_is_ordered(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        served.add_group("Ordered", is_ordered=True)
        served.add_group("Usual")
        for group, is_ordered in (("Ordered", True), ("Usual", False)):
            asked = consumer_settings(group, "Normal")
            asked.subscription.fifo = not is_ordered  # what a client believes does not count
            talk = await tell_settings(peer, asked)
            talk.say(m.TelemetryCommand(settings=asked))
            for count in (1, 2):
                told = (await talk.hear(count)).settings.subscription
                assert (told.HasField("fifo"), told.fifo) == (True, is_ordered)


@virtual_time
async def test_a_group_says_how_long_its_messages_wait_for_their_next_attempt(tmp_path: Path) -> None:
    policies = {
        "Usual": RetryPolicy(),
        "Listed": RetryPolicy(customized_retry_policy=ListedDelays(next=[2_000, 7_000])),
        "Growing": RetryPolicy(type=RetryKind.EXPONENTIAL),
        "Slow": RetryPolicy(
            type=RetryKind.EXPONENTIAL,
            exponential_retry_policy=GrowingDelays(initial=1_000, max=60_000, multiplier=3),
        ),
    }
    found: dict[str, Any] = {}
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        for name, policy in policies.items():
            served.broker.state.groups.update(GroupConfig(group_name=name, group_retry_policy=policy))
            talk = await tell_settings(peer, consumer_settings(name, "Normal"))
            told = (await talk.hear(1)).settings.backoff_policy
            assert told.max_attempts == 17
            if told.WhichOneof("strategy") == "customized_backoff":
                found[name] = [span.seconds for span in told.customized_backoff.next]
            else:
                growing = told.exponential_backoff
                found[name] = (growing.initial.seconds, growing.max.seconds, growing.multiplier)
    minutes = [60 * number for number in (*range(1, 11), 20, 30, 60, 120)]
    usual = [1, 5, 10, 30, *minutes]
    assert found == {"Usual": usual, "Listed": [2, 7], "Growing": (5, 7200, 2.0), "Slow": (1, 60, 3.0)}


@pytest.mark.parametrize(
    "settings",
    [
        m.Settings(client_type=m.ClientType.PRODUCER),
        producer_settings("a b"),
        producer_settings("rmq_sys_x"),
        consumer_settings("a b", "Normal"),
        consumer_settings("CID_RMQ_SYS_x", "Normal"),
        consumer_settings("G", "a b"),
        consumer_settings("G", "Normal", expression="||"),
    ],
    ids=["nothing", "topic", "system topic", "group", "system group", "subscribed topic", "expression"],
)
@virtual_time
async def test_settings_that_nobody_can_agree_to_end_the_stream(tmp_path: Path, settings: m.Settings) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        stream = peer.open("Telemetry", m.TelemetryCommand(settings=settings))
        await peer.until(lambda: stream.is_over)
        assert stream.status == 3
        assert stream.messages(m.TelemetryCommand) == []


# Routes


@virtual_time
async def test_queues_are_numbered_over_those_to_read_those_to_write_and_those_for_both(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        for name, given in {
            "MoreToRead": (6, 3, 1),
            "MoreToWrite": (6, 1, 3),
            "ToRead": (4, 2, 2),
            "ToWrite": (2, 2, 2),
            "Shut": (0, 1, 1),
        }.items():
            add_topic(served, name, *given)
        found = {}
        for name in ("MoreToRead", "MoreToWrite", "ToRead", "ToWrite", "Shut"):
            answer = await peer.call("QueryRoute", m.QueryRouteRequest(topic=resource(name)), m.QueryRouteResponse)
            assert [each.id for each in answer.message_queues] == list(range(len(answer.message_queues)))
            assert all(list(each.accept_message_types) == [m.MessageType.NORMAL] for each in answer.message_queues)
            found[name] = [each.permission for each in answer.message_queues]
        assert found == {
            "MoreToRead": [P.READ, P.READ, P.READ_WRITE],
            "MoreToWrite": [P.WRITE, P.WRITE, P.READ_WRITE],
            "ToRead": [P.READ, P.READ],
            "ToWrite": [P.WRITE, P.WRITE],
            "Shut": [P.NONE],
        }


@virtual_time
async def test_a_topic_without_a_queue_to_read_or_to_write_is_told_as_forbidden(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        add_topic(served, "ToRead", 4)
        add_topic(served, "ToWrite", 2)
        assert (await send(peer, message("ToRead"))).status.code == C.FORBIDDEN
        assert (await send(peer, message("ToRead", properties={"not": "everyday"}))).status.code == C.FORBIDDEN
        asked = m.QueryAssignmentRequest(topic=resource("ToWrite"), group=resource("G"))
        assert (await peer.call("QueryAssignment", asked, m.QueryAssignmentResponse)).status.code == C.FORBIDDEN


# Messages


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"tag": "a\x01b"}, C.ILLEGAL_MESSAGE_TAG),
        ({"keys": ["a\nb"]}, C.ILLEGAL_MESSAGE_KEY),
        ({"keys": ["good", " "]}, C.ILLEGAL_MESSAGE_KEY),
        ({"message_id": " "}, C.ILLEGAL_MESSAGE_ID),
        ({"message_group": " "}, C.ILLEGAL_MESSAGE_GROUP),
        ({"message_group": "a\x02b"}, C.ILLEGAL_MESSAGE_GROUP),
        ({"properties": {"a\x01": "v"}}, C.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"properties": {"a": "\x02"}}, C.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"tag": "t" * 8_000, "keys": ["k" * 9_000]}, C.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"topic": "t" * 128}, C.ILLEGAL_TOPIC),
        ({"orphaned_transaction_recovery_duration": {"seconds": 3_601}}, C.BAD_REQUEST),
        ({"message_type": m.MessageType.TRANSACTION}, C.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"message_group": "g"}, C.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"topic": "Fifo"}, C.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"topic": "Fifo", "message_type": m.MessageType.FIFO}, C.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"message_type": m.MessageType.DELAY}, C.OK),  # the type follows from what it has, not from what it says
        ({"topic": "Fifo", "message_group": "g" * 63}, C.OK),
        ({"topic": "Transaction", "message_type": m.MessageType.TRANSACTION}, C.OK),
        ({"properties": {"__SHARDINGKEY": "g"}}, C.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"properties": {"TRACE_CONTEXT": "c", "__transactionId__": "t"}}, C.OK),
    ],
    ids=str,
)
@virtual_time
async def test_what_a_message_may_have_and_which_type_it_is_then(
    tmp_path: Path, given: dict[str, Any], code: m.Code
) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        answer = await send(peer, message(**{"topic": "Normal", **given}))
        assert answer.status.code == code
        assert [entry.status.code for entry in answer.entries] == ([C.OK] if code == C.OK else [])


@virtual_time
async def test_a_request_without_a_message_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        assert (await send(peer)).status.code == C.MESSAGE_CORRUPTED


@virtual_time
async def test_a_message_that_was_due_in_the_past_comes_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path, clock := VirtualClock()) as served, connected(served.port) as peer:
        past = {"seconds": clock.now_ms() // 1000 - 100}
        assert (await send(peer, message("Delay", b"late", delivery_timestamp=past))).status.code == C.OK
        assert (await receive(peer, "Delay", "G")).bodies == [b"late"]


@virtual_time
async def test_a_message_waits_for_the_first_longer_level_where_brokers_have_no_timer(tmp_path: Path) -> None:
    brokers, proxys = {"timerWheelEnable": "false"}, {"useDelayLevel": "true"}
    async with serving(tmp_path, clock := VirtualClock(), brokers, **proxys) as served, connected(served.port) as peer:
        begin_s = clock.now_ms() // 1000
        for wait_s, level in ((-5, 1), (3, 2), (5, 3), (29, 4), (7_300, 18)):
            due = {"seconds": begin_s + wait_s}
            assert (await send(peer, message("Delay", delivery_timestamp=due))).status.code == C.OK
            assert served.broker.state.store.max_offset(QueueKey("SCHEDULE_TOPIC_XXXX", level - 1)) == 1


def test_the_levels_are_checked_at_the_start() -> None:
    with pytest.raises(ConfigError, match="messageDelayLevel"):
        read_config({"useDelayLevel": "true", "messageDelayLevel": "soon"})


@virtual_time
async def test_a_handle_of_nothing_or_a_topic_without_delays_recalls_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        for topic, code in (("Normal", C.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE), ("Delay", C.INTERNAL_SERVER_ERROR)):
            asked = m.RecallMessageRequest(topic=resource(topic), recall_handle="nonsense")
            assert (await peer.call("RecallMessage", asked, m.RecallMessageResponse)).status.code == code


# What is out


@virtual_time
async def test_a_handle_whose_time_is_over_or_whose_broker_is_not_here_is_told_as_an_old_one(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        await send(peer, message("Normal"))
        (got,) = (await receive(peer, "Normal", "G", invisible_duration={"seconds": 10})).messages
        handle = got.system_properties.receipt_handle
        elsewhere = message("Normal", receipt_handle=handle.replace(BROKER, "broker-elsewhere"))
        assert (await ack(peer, "Normal", "G", elsewhere)).status.code == C.INVALID_RECEIPT_HANDLE
        await asyncio.sleep(11)  # virtual
        assert (await ack(peer, "Normal", "G", got)).status.code == C.INVALID_RECEIPT_HANDLE
        change = m.ChangeInvisibleDurationRequest(
            group=resource("G"), topic=resource("Normal"), receipt_handle=handle, invisible_duration={"seconds": 30}
        )
        changed = await peer.call("ChangeInvisibleDuration", change, m.ChangeInvisibleDurationResponse)
        assert changed.status.code == C.INVALID_RECEIPT_HANDLE


@virtual_time
async def test_a_handle_that_does_not_say_where_its_message_lies_buries_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        await send(peer, message("Normal"))
        (got,) = (await receive(peer, "Normal", "G")).messages
        handle = got.system_properties.receipt_handle.rpartition(" ")[0]
        asked = m.ForwardMessageToDeadLetterQueueRequest(
            group=resource("G"), topic=resource("Normal"), receipt_handle=handle
        )
        kind = m.ForwardMessageToDeadLetterQueueResponse
        answer = await peer.call("ForwardMessageToDeadLetterQueue", asked, kind)
        assert answer.status.code == C.INVALID_RECEIPT_HANDLE


@virtual_time
async def test_attempts_of_an_ordered_group_are_counted_at_their_own_queue(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        served.add_topic("One", "FIFO", queues=1)
        served.add_group("O", is_ordered=True)
        await send(peer, message("One", b"first", message_group="g"))
        for attempt in (1, 2, 3):
            got: list[m.Message] = []
            while not got:
                wait = {"long_polling_timeout": {"seconds": 20}, "invisible_duration": {"seconds": 10}}
                got = (await receive(peer, "One", "O", attempt_id=f"{attempt}", **wait)).messages
            assert (got[0].body, got[0].system_properties.delivery_attempt) == (b"first", attempt)
            assert got[0].topic.name == "One"
        assert served.broker.state.topics.find("%RETRY%O_One") is None


# Queues that a client walks by itself


async def pulled(peer: Peer, offset: int, **given: Any) -> m.Code:
    request = m.PullMessageRequest(group=resource("G"), message_queue=queue("One"), offset=offset, **given)
    (answer, *_) = await peer.stream("PullMessage", request, m.PullMessageResponse)
    return answer.status.code


@virtual_time
async def test_an_offset_outside_of_its_queue_is_told_as_such(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        served.add_topic("One", queues=1)
        await send(peer, message("One"))
        assert served.broker.state.store.max_offset(QueueKey("One", 0)) == 1
        for offset, code in ((-1, C.ILLEGAL_OFFSET), (0, C.OK), (1, C.MESSAGE_NOT_FOUND), (2, C.ILLEGAL_OFFSET)):
            assert await pulled(peer, offset) == code
        update = m.UpdateOffsetRequest(group=resource("G"), message_queue=queue("One"), offset=-1)
        assert (await peer.call("UpdateOffset", update, m.UpdateOffsetResponse)).status.code == C.ILLEGAL_OFFSET


@virtual_time
async def test_a_queue_is_asked_where_it_was_at_a_time(tmp_path: Path) -> None:
    async with serving(tmp_path, clock := VirtualClock()) as served, connected(served.port) as peer:
        served.add_topic("One", queues=1)
        times_s = []
        for number in range(3):
            times_s.append(clock.now_ms() // 1000)
            await send(peer, message("One", b"%d" % number))
            await asyncio.sleep(10)  # virtual
        for second, offset in ((times_s[0] - 100, 0), (times_s[1] - 5, 1), (times_s[2] - 5, 2)):
            asked = m.QueryOffsetRequest(
                message_queue=queue("One"),
                query_offset_policy=m.QueryOffsetPolicy.TIMESTAMP,
                timestamp={"seconds": second},
            )
            assert (await peer.call("QueryOffset", asked, m.QueryOffsetResponse)).offset == offset


@virtual_time
async def test_a_broker_that_is_not_here_is_no_place_to_ask(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        asked = m.QueryOffsetRequest(message_queue=queue("Normal", broker="elsewhere"))
        assert (await peer.call("QueryOffset", asked, m.QueryOffsetResponse)).status.code == C.BAD_REQUEST
