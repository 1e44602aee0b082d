"""What each method does, asked as clients ask it; time is held."""

import asyncio
import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bolide.clock import SystemClock
from bolide.model.queue import QueueKey, QueueOffset
from bolide.protocol import sysflags
from bolide.protocol.bodies import ConsumerMember, ConsumeType, Heartbeat, Subscription
from bolide.protocol.bodies.consumers import DirectConsumption, RunningConsumer
from bolide.protocol.bodies.pop import GroupRequestMode, RequestMode
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.headers.callbacks import ConsumeDirectlyRequest, GetConsumerStateRequest
from bolide.protocol.headers.consume import PullMessageRequest
from bolide.protocol.headers.send import SendMessageRequest
from bolide.protocol.headers.topics import UpdateTopicRequest
from bolide.protocol.records import decode_records
from bolide.proxy import messages as m
from bolide.testing.loop import VirtualClock
from tests.proxy.peer import connected, framed
from tests.proxy.serving import (
    BROKER,
    ack,
    consumer_settings,
    message,
    producer_settings,
    read_received,
    receive,
    receive_request,
    resource,
    send,
    serving,
    tell_settings,
)
from tests.remoting.ends import Peer as Remoting
from tests.remoting.loops import both_loops, eventually, virtual_time

C = m.Code
COMMIT, ROLLBACK = m.TransactionResolution.COMMIT, m.TransactionResolution.ROLLBACK


@both_loops
@pytest.mark.feature("X08")
async def test_a_message_is_sent_received_with_all_it_had_and_done_when_acknowledged(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        sent = message("Normal", b"body", tag="TagA", keys=["k1", "k2"], properties={"colour": "red"})
        answer = await send(peer, sent)
        (entry,) = answer.entries
        assert (answer.status.code, entry.status.code, entry.message_id) == (C.OK, C.OK, "id-626f6479")
        received = await receive(peer, "Normal", "G")
        (got,) = received.messages
        system = got.system_properties
        assert (got.topic.name, got.body, dict(got.user_properties)) == ("Normal", b"body", {"colour": "red"})
        assert (system.tag, list(system.keys), system.message_id) == ("TagA", ["k1", "k2"], "id-626f6479")
        assert (system.message_type, system.body_encoding, system.delivery_attempt) == (1, 1, 1)
        assert system.body_digest.checksum == "841A2D689AD86BD1611447453C22C6FC"
        assert (await ack(peer, "Normal", "G", got)).status.code == C.OK


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@both_loops
async def test_sends_that_come_together_are_stored_in_their_order_and_each_hears_its_place(
    tmp_path: Path, flush: str
) -> None:
    settings = {"flushDiskType": flush}
    async with serving(tmp_path, SystemClock(), settings) as served, connected(served.port) as peer:
        bodies = [b"m%d" % number for number in range(40)]
        asked = [m.SendMessageRequest(messages=[message("Fifo", body, message_group="g")]) for body in bodies]
        later = message("Delay", b"later")
        later.system_properties.delivery_timestamp.seconds = SystemClock().now_ms() // 1000 + 60
        asked[20] = m.SendMessageRequest(messages=[later])
        calls = [peer.open("SendMessage", each) for each in asked]
        await peer.until(lambda: all(each.is_over for each in calls))
        entries = [each.messages(m.SendMessageResponse)[0].entries[0] for each in calls]
        assert {entry.status.code for entry in entries} == {C.OK}
        assert [entry.offset for entry in entries[:20] + entries[21:]] == list(range(39))
        assert entries[20].recall_handle
        assert entries[7].transaction_id.startswith("id-6d37@7@")
        served.add_group("G", is_ordered=True)
        assert (await receive(peer, "Fifo", "G")).bodies == (bodies[:20] + bodies[21:])[:32]


@virtual_time
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_acknowledgements_that_come_together_are_each_answered_and_stored_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: str
) -> None:
    """One of them names a message twice, one a message that is not there; where answers wait for the disk, all do."""
    async with (
        serving(tmp_path, VirtualClock(), {"flushDiskType": flush}) as served,
        connected(served.port) as peer,
    ):
        for number in range(6):
            await send(peer, message("Normal", b"%d" % number))
        received: list[m.Message] = []
        while len(received) < 6:
            received += (await receive(peer, "Normal", "G")).messages
        handles = [each.system_properties.receipt_handle for each in received]
        tokens = handles[0].split(" ")
        handles += [handles[0], " ".join([*tokens[:7], "1000", *tokens[8:]]), "nonsense"]
        sizes: list[int] = []
        append = served.broker.state.store.append

        def counted(drafts: Sequence[Any]) -> Any:
            sizes.append(len(drafts))
            return append(drafts)

        monkeypatch.setattr(served.broker.state.store, "append", counted)
        group, topic = resource("G"), resource("Normal")
        entries = [m.AckMessageEntry(receipt_handle=handle) for handle in handles]
        asked = [m.AckMessageRequest(group=group, topic=topic, entries=[entry]) for entry in entries]
        calls = [peer.open("AckMessage", each) for each in asked]
        await peer.until(lambda: all(each.is_over for each in calls))
        codes = [each.messages(m.AckMessageResponse)[0].status.code for each in calls]
        assert codes == [C.OK] * 7 + [C.INVALID_RECEIPT_HANDLE] * 2
        assert (sum(sizes), len(sizes) < 6) == (6, flush == "ASYNC_FLUSH")
        await asyncio.sleep(40)  # virtual: longer than they were hidden
        assert (await receive(peer, "Normal", "G")).bodies == []


@virtual_time
async def test_a_message_that_is_not_acknowledged_comes_again_and_counts_its_attempts(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        await send(peer, message("Normal"))
        for attempt in (1, 2, 3):
            received = await _receive_patiently(peer, "Normal", "G")
            assert received.system_properties.delivery_attempt == attempt
            assert received.topic.name == "Normal"


async def _receive_patiently(peer, topic, group, **given) -> m.Message:
    for _ in range(30):
        received = await receive(peer, topic, group, **given)
        if received.messages:
            return received.messages[0]
        assert received.status.code == C.MESSAGE_NOT_FOUND
    raise AssertionError("nothing came")


@virtual_time
async def test_a_waiting_receive_costs_no_task_and_is_woken_by_a_message(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        before = len(asyncio.all_tasks())
        waiting = [peer.open("ReceiveMessage", receive_request("Normal", "G")) for _ in range(50)]
        await eventually(lambda: served.broker.pop.parked.count == 50)
        assert len(asyncio.all_tasks()) == before
        await send(peer, message("Normal", b"wake"))
        await peer.until(lambda: any(each.is_over for each in waiting))
        (woken,) = [each for each in waiting if each.is_over]
        assert read_received(woken.messages(m.ReceiveMessageResponse)).bodies == [b"wake"]
        assert served.broker.pop.parked.count == 49


@both_loops
async def test_a_receive_that_was_reset_takes_no_message(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        number = peer.begin("ReceiveMessage")
        peer.send(number, framed(receive_request("Normal", "G")))
        await eventually(lambda: served.broker.pop.parked.count == 1)
        peer.frames.reset_stream(number)
        peer.flush()
        await eventually(lambda: served.broker.pop.parked.count == 0)
        await send(peer, message("Normal", b"for others"))
        assert (await receive(peer, "Normal", "G")).bodies == [b"for others"]


@virtual_time
async def test_receives_of_a_closed_connection_are_dropped(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served:
        async with connected(served.port) as peer:
            peer.open("ReceiveMessage", receive_request("Normal", "G"))
            await eventually(lambda: served.broker.pop.parked.count == 1)
        await eventually(lambda: served.broker.pop.parked.count == 0)


@virtual_time
async def test_an_empty_receive_ends_by_itself_with_no_message_found(tmp_path: Path) -> None:
    async with serving(tmp_path, clock := VirtualClock()) as served, connected(served.port) as peer:
        began_s = clock.monotonic_s()
        received = await receive(peer, "Normal", "G", long_polling_timeout={"seconds": 20})
        assert (received.status.code, received.messages) == (C.MESSAGE_NOT_FOUND, [])
        assert 19 < clock.monotonic_s() - began_s <= 20.1


@virtual_time
async def test_a_receive_ends_before_the_deadline_of_its_client(tmp_path: Path) -> None:
    async with serving(tmp_path, clock := VirtualClock()) as served, connected(served.port) as peer:
        began_s = clock.monotonic_s()
        request = receive_request("Normal", "G", long_polling_timeout={"seconds": 20})
        answers = await peer.stream("ReceiveMessage", request, m.ReceiveMessageResponse, grpc_timeout="8S")
        assert read_received(answers).status.code == C.MESSAGE_NOT_FOUND
        assert clock.monotonic_s() - began_s < 8
        answers = await peer.stream("ReceiveMessage", request, m.ReceiveMessageResponse, grpc_timeout="2S")
        assert read_received(answers).status.code == C.ILLEGAL_POLLING_TIME


@virtual_time
async def test_a_new_message_type_needs_a_topic_of_that_type(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        refused = await send(peer, message("Normal", message_group="g"))
        assert refused.status.code == C.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        assert "bolide topic create NAME --type FIFO" in refused.status.message
        assert (await send(peer, message("Fifo"))).status.code == C.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        assert (await send(peer, message("Fifo", message_group="g"))).status.code == C.OK
        served.add_topic("Any", "MIXED")
        assert (await send(peer, message("Any", message_group="g"))).status.code == C.OK
        served.add_topic("Copied", "PRIORITY")  # no broker of ours makes one
        assert (await send(peer, message("Copied", priority=3))).status.code == C.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        assert (await send(peer, message("Copied"))).status.code == C.OK


@virtual_time
async def test_an_everyday_message_that_the_kernel_reads_is_stored_and_answered_like_any_other(tmp_path: Path) -> None:
    told: dict[str, Any] = {
        "tag": "red",
        "keys": ["a", "b"],
        "born_host": "here",
        "born_timestamp": {"seconds": 1_700_000_000},
    }
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        served.add_topic("One", queues=1)
        served.add_group("G")
        everyday = await send(peer, message("One", **told))
        another = await send(peer, message("One", properties={"own": "x"}, **told))
        assert (everyday.status.code, [each.offset for each in (*everyday.entries, *another.entries)]) == (C.OK, [0, 1])
        assert everyday.entries[0].transaction_id.split("@")[:2] == [everyday.entries[0].message_id, "0"]
        answers = await peer.stream("ReceiveMessage", receive_request("One", "G"), m.ReceiveMessageResponse)
        first, second = read_received(answers).messages
        assert dict(second.user_properties) == {"own": "x"}
        second.user_properties.clear()
        for each in (first, second):
            for name in ("receipt_handle", "queue_offset", "store_timestamp"):
                each.system_properties.ClearField(name)
        assert first == second
        refused = [await send(peer, message(name, **told)) for name in ("Fifo", "Missing", "rmq_sys_x")]
        assert [each.status.code for each in refused] == [
            C.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            C.TOPIC_NOT_FOUND,
            C.ILLEGAL_TOPIC,
        ]


@virtual_time
async def test_types_are_not_compared_when_the_setting_says_so(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, VirtualClock(), enableTopicMessageTypeCheck="false") as served,
        connected(served.port) as peer,
    ):
        assert (await send(peer, message("Normal", message_group="g"))).status.code == C.OK


@virtual_time
async def test_a_message_group_always_goes_to_the_queue_that_apache_would_choose(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        for group in ("order-1", "order-2", "g"):
            for number in range(3):
                await send(peer, message("Fifo", f"{group}.{number}".encode(), message_group=group))
        read = served.broker.state.store.max_offset
        assert [read(QueueKey("Fifo", queue)) for queue in range(4)] == [0, 3, 3, 3]


@virtual_time
async def test_an_ordered_group_gets_nothing_more_of_a_queue_while_a_message_of_it_is_out(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        served.add_topic("One", "FIFO", queues=1)
        served.add_group("O", is_ordered=True)
        for number in range(3):
            await send(peer, message("One", b"%d" % number, message_group="g"))
        (first,) = (await receive(peer, "One", "O", queue_id=0, batch_size=1, attempt_id="a")).messages
        assert (await receive(peer, "One", "O", queue_id=0, attempt_id="b")).messages == []
        (again,) = (await receive(peer, "One", "O", queue_id=0, batch_size=1, attempt_id="a")).messages
        assert first.body == again.body == b"0"
        assert (await ack(peer, "One", "O", again)).status.code == C.OK
        assert (await receive(peer, "One", "O", queue_id=0, attempt_id="c")).bodies == [b"1", b"2"]


@virtual_time
async def test_a_delayed_message_comes_at_its_time_unless_it_is_recalled(tmp_path: Path) -> None:
    async with serving(tmp_path, clock := VirtualClock()) as served, connected(served.port) as peer:
        due = {"seconds": clock.now_ms() // 1000 + 30}
        kept = await send(peer, message("Delay", b"kept", delivery_timestamp=due))
        taken = await send(peer, message("Delay", b"taken", delivery_timestamp=due))
        assert kept.entries[0].recall_handle
        request = m.RecallMessageRequest(topic=resource("Delay"), recall_handle=taken.entries[0].recall_handle)
        recalled = await peer.call("RecallMessage", request, m.RecallMessageResponse)
        assert (recalled.status.code, recalled.message_id) == (C.OK, taken.entries[0].message_id)
        assert (await receive(peer, "Delay", "G")).messages == []
        got = await _receive_patiently(peer, "Delay", "G")
        assert got.body == b"kept"
        assert clock.now_ms() >= due["seconds"] * 1000
        assert (await receive(peer, "Delay", "G", long_polling_timeout={"seconds": 20})).messages == []


async def _end(peer, topic: str, transaction_id: str, resolution: m.TransactionResolution) -> m.Status:
    request = m.EndTransactionRequest(
        topic=resource(topic), message_id="x", transaction_id=transaction_id, resolution=resolution
    )
    return (await peer.call("EndTransaction", request, m.EndTransactionResponse)).status


@virtual_time
async def test_a_transaction_is_seen_when_it_is_committed_and_never_when_it_is_rolled_back(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        half = m.MessageType.TRANSACTION
        first = await send(peer, message("Transaction", b"yes", message_type=half))
        second = await send(peer, message("Transaction", b"no", message_type=half))
        assert (await receive(peer, "Transaction", "G")).messages == []
        assert (await _end(peer, "Transaction", first.entries[0].transaction_id, COMMIT)).code == C.OK
        assert (await _end(peer, "Transaction", second.entries[0].transaction_id, ROLLBACK)).code == C.OK
        assert (await receive(peer, "Transaction", "G")).bodies == [b"yes"]
        assert (await _end(peer, "Transaction", "nonsense", COMMIT)).code == C.INVALID_TRANSACTION_ID


@virtual_time
async def test_another_producer_is_asked_about_a_transaction_whose_producer_died(tmp_path: Path) -> None:
    settings = {"transactionCheckInterval": "1000", "transactionTimeOut": "1000"}
    async with serving(tmp_path, VirtualClock(), settings) as served, connected(served.port) as alive:
        async with connected(served.port) as dead:
            sent = await send(dead, message("Transaction", b"orphan", message_type=m.MessageType.TRANSACTION))
        talk = await tell_settings(alive, producer_settings("Transaction"))
        asked = (await talk.hear(2)).recover_orphaned_transaction_command
        assert (asked.message.body, asked.message.topic.name) == (b"orphan", "Transaction")
        assert asked.message.system_properties.message_id == sent.entries[0].message_id
        assert (await _end(alive, "Transaction", asked.transaction_id, COMMIT)).code == C.OK
        assert (await receive(alive, "Transaction", "G")).bodies == [b"orphan"]


@virtual_time
async def test_a_message_that_failed_too_often_is_a_dead_letter_that_tells_its_origin(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        served.add_group("Few", retries=1)
        await send(peer, message("Normal", b"bad"))
        for _ in range(2):
            assert (await _receive_patiently(peer, "Normal", "Few", invisible_duration={"seconds": 10})).body == b"bad"
        for _ in range(10):
            assert (await receive(peer, "Normal", "Few")).messages == []
        dead = await _receive_patiently(peer, "%DLQ%Few", "Other")
        assert dead.body == b"bad"
        assert dead.system_properties.dead_letter_queue.topic == "Normal"


@virtual_time
async def test_a_client_forwards_a_message_to_the_dead_letters(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        await send(peer, message("Normal", b"bad"))
        (got,) = (await receive(peer, "Normal", "G")).messages
        request = m.ForwardMessageToDeadLetterQueueRequest(
            group=resource("G"), topic=resource("Normal"), receipt_handle=got.system_properties.receipt_handle
        )
        kind = m.ForwardMessageToDeadLetterQueueResponse
        assert (await peer.call("ForwardMessageToDeadLetterQueue", request, kind)).status.code == C.OK
        assert (await _receive_patiently(peer, "%DLQ%G", "Other")).body == b"bad"
        assert (await receive(peer, "Normal", "G", long_polling_timeout={"seconds": 20})).messages == []


@virtual_time
async def test_a_message_is_hidden_for_as_long_as_it_was_changed_to_and_only_its_new_handle_counts(tmp_path) -> None:
    async with serving(tmp_path, clock := VirtualClock()) as served, connected(served.port) as peer:
        await send(peer, message("Normal"))
        (got,) = (await receive(peer, "Normal", "G", invisible_duration={"seconds": 10})).messages
        request = m.ChangeInvisibleDurationRequest(
            group=resource("G"),
            topic=resource("Normal"),
            receipt_handle=got.system_properties.receipt_handle,
            invisible_duration={"seconds": 60},
        )
        changed = await peer.call("ChangeInvisibleDuration", request, m.ChangeInvisibleDurationResponse)
        assert changed.status.code == C.OK
        assert changed.receipt_handle != got.system_properties.receipt_handle
        began_ms = clock.now_ms()
        again = await _receive_patiently(peer, "Normal", "G")
        assert 59_000 < clock.now_ms() - began_ms < 75_000
        assert (await ack(peer, "Normal", "G", got)).status.code == C.INVALID_RECEIPT_HANDLE
        assert (await ack(peer, "Normal", "G", again)).status.code == C.OK


@virtual_time
async def test_messages_of_a_push_consumer_stay_hidden_until_it_is_done_and_come_soon_when_it_is_gone(tmp_path) -> None:
    async with (
        serving(tmp_path, clock := VirtualClock(), defaultInvisibleTimeMills="20000") as served,
        connected(served.port, "other") as other,
    ):
        async with connected(served.port, "pushing") as peer:
            await tell_settings(peer, consumer_settings("G", "Normal"))
            await send(peer, message("Normal"))
            (got,) = (await receive(peer, "Normal", "G", auto_renew=True)).messages
            for _ in range(2):
                assert (await receive(other, "Normal", "G", long_polling_timeout={"seconds": 20})).messages == []
                await peer.call("Heartbeat", m.HeartbeatRequest(group=resource("G")), m.HeartbeatResponse)
            assert (await ack(peer, "Normal", "G", got)).status.code == C.OK  # by the first handle
            await send(peer, message("Normal", b"second"))
            assert (await receive(peer, "Normal", "G", auto_renew=True)).bodies == [b"second"]
            left_ms = clock.now_ms()
            goodbye = m.NotifyClientTerminationRequest(group=resource("G"))
            await peer.call("NotifyClientTermination", goodbye, m.NotifyClientTerminationResponse)
        assert (await _receive_patiently(other, "Normal", "G")).body == b"second"
        assert clock.now_ms() - left_ms < 10_000


@virtual_time
async def test_only_messages_with_the_tag_or_for_the_expression_come(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        for tag, price in (("Aa", "5"), ("BB", "15"), ("C", "25")):  # the first two have one hash
            await send(peer, message("Normal", tag.encode(), tag=tag, properties={"price": price}))
        assert (await receive(peer, "Normal", "Tags", expression="Aa || C")).bodies in ([b"Aa", b"C"], [b"C", b"Aa"])
        by_price = await receive(peer, "Normal", "Sql", expression="price > 10", filter_type=m.FilterType.SQL)
        assert sorted(by_price.bodies) == [b"BB", b"C"]


@virtual_time
async def test_routes_have_every_queue_at_the_address_that_was_asked(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        endpoints = m.Endpoints(
            scheme=m.AddressScheme.DOMAIN_NAME, addresses=[m.Address(host="proxy.example", port=1234)]
        )
        request = m.QueryRouteRequest(topic=resource("Fifo"), endpoints=endpoints)
        answer = await peer.call("QueryRoute", request, m.QueryRouteResponse)
        assert answer.status.code == C.OK
        assert [queue.id for queue in answer.message_queues] == [0, 1, 2, 3]
        for queue in answer.message_queues:
            assert (queue.broker.name, queue.broker.id, queue.permission) == (BROKER, 0, m.Permission.READ_WRITE)
            assert queue.broker.endpoints == endpoints
            assert list(queue.accept_message_types) == [m.MessageType.FIFO]
        missing = m.QueryRouteRequest(topic=resource("Missing"), endpoints=endpoints)
        refused = (await peer.call("QueryRoute", missing, m.QueryRouteResponse)).status
        assert refused.code == C.TOPIC_NOT_FOUND
        assert "bolide topic create Missing" in refused.message


@virtual_time
async def test_assignments_are_any_queue_of_a_broker_and_each_queue_for_an_ordered_group(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        served.add_group("O", is_ordered=True)
        found = {}
        for group in ("G", "O"):
            request = m.QueryAssignmentRequest(topic=resource("Normal"), group=resource(group))
            answer = await peer.call("QueryAssignment", request, m.QueryAssignmentResponse)
            found[group] = [each.message_queue.id for each in answer.assignments]
        assert found == {"G": [-1], "O": [0, 1, 2, 3]}


@virtual_time
async def test_settings_are_answered_with_what_clients_depend_on(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        talk = await tell_settings(peer, producer_settings("Normal"))
        told = (await talk.hear(1)).settings
        assert told.backoff_policy.HasField("exponential_backoff")
        assert (told.backoff_policy.max_attempts, told.publishing.max_body_size) == (3, 4 << 20)
        assert (told.publishing.validate_message_type, told.metric.on) == (True, False)
        assert [topic.name for topic in told.publishing.topics] == ["Normal"]
        served.add_group("O", is_ordered=True, retries=2)
        talk = await tell_settings(peer, consumer_settings("O", "Normal"))
        told = (await talk.hear(1)).settings
        assert (told.subscription.fifo, told.subscription.receive_batch_size) == (True, 32)
        assert (told.backoff_policy.max_attempts, told.subscription.long_polling_timeout.seconds) == (3, 20)
        assert [span.seconds for span in told.backoff_policy.customized_backoff.next][:4] == [1, 5, 10, 30]


@virtual_time
async def test_a_client_is_a_member_of_its_group_as_long_as_it_is_there(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port, "one") as peer:
        heartbeat, kind = m.HeartbeatRequest(group=resource("G")), m.HeartbeatResponse
        assert (await peer.call("Heartbeat", heartbeat, kind)).status.code == C.UNRECOGNIZED_CLIENT_TYPE
        await tell_settings(peer, consumer_settings("G", "Normal", expression="TagA"))
        assert (await peer.call("Heartbeat", heartbeat, kind)).status.code == C.OK
        group = served.broker.state.members.consumers("G")
        assert group is not None
        (member,) = group.channels.values()
        assert (member.client_id, group.subscriptions["Normal"].sub_string) == ("one", "TagA")
        goodbye = m.NotifyClientTerminationRequest(group=resource("G"))
        await peer.call("NotifyClientTermination", goodbye, m.NotifyClientTerminationResponse)
        assert served.broker.state.members.consumers("G") is None


@virtual_time
async def test_a_silent_client_is_dropped(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, VirtualClock(), channelExpiredTimeout="15000") as served,
        connected(served.port) as peer,
    ):
        await tell_settings(peer, consumer_settings("G", "Normal"))
        assert served.broker.state.members.consumers("G") is not None
        await eventually(lambda: served.broker.state.members.consumers("G") is None, limit_s=40)
        assert len(served.proxy.clients) == 0


@virtual_time
async def test_a_lite_consumer_hears_that_there_are_no_lite_topics(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        asked = m.SyncLiteSubscriptionRequest(topic=resource("Normal"), group=resource("G"), lite_topic_set=["l"])
        answer = await peer.call("SyncLiteSubscription", asked, m.SyncLiteSubscriptionResponse)
        assert (answer.status.code, "no lite topics" in answer.status.message) == (C.NOT_IMPLEMENTED, True)
        settings = consumer_settings("G", "Normal")
        settings.client_type = m.ClientType.LITE_PUSH_CONSUMER
        stream = peer.open("Telemetry", m.TelemetryCommand(settings=settings))
        await peer.until(lambda: stream.is_over)
        assert (stream.status, "no lite topics" in stream.headers["grpc-message"]) == (3, True)
        assert served.broker.state.members.consumers("G") is None


REFUSED: list[tuple[dict[str, Any], m.Code]] = [
    ({"body": b""}, C.MESSAGE_BODY_EMPTY),
    ({"body": b"x" * 2000}, C.MESSAGE_BODY_TOO_LARGE),
    ({"tag": " "}, C.ILLEGAL_MESSAGE_TAG),
    ({"tag": "a|b"}, C.ILLEGAL_MESSAGE_TAG),
    ({"keys": [""]}, C.ILLEGAL_MESSAGE_KEY),
    ({"message_id": ""}, C.ILLEGAL_MESSAGE_ID),
    ({"message_group": "g" * 64}, C.ILLEGAL_MESSAGE_GROUP),
    ({"properties": {"UNIQ_KEY": "x"}}, C.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ({"properties": {f"n{i}": "v" for i in range(129)}}, C.MESSAGE_PROPERTIES_TOO_LARGE),
    ({"properties": {"n": "v" * (16 << 10)}}, C.MESSAGE_PROPERTIES_TOO_LARGE),
    ({"delivery_timestamp": {"seconds": 9_999_999_999}}, C.ILLEGAL_DELIVERY_TIME),
    ({"lite_topic": "l"}, C.ILLEGAL_LITE_TOPIC),
    ({"priority": 3}, C.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ({"topic": "rmq_sys_x"}, C.ILLEGAL_TOPIC),
    ({"topic": "a b"}, C.ILLEGAL_TOPIC),
    ({"topic": "Missing"}, C.TOPIC_NOT_FOUND),
]


@virtual_time
async def test_what_cannot_be_sent_is_refused_with_its_own_code(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock(), maxMessageSize="1000") as served, connected(served.port) as peer:
        for given, code in REFUSED:
            answer = await send(peer, message(**{"topic": "Normal", **given}))
            assert answer.status.code == code, (given, answer)


@virtual_time
async def test_a_call_without_a_client_id_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        peer.client_id = ""
        assert (await send(peer, message("Normal"))).status.code == C.CLIENT_ID_REQUIRED


@virtual_time
async def test_several_messages_of_one_request_have_an_entry_each(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        answer = await send(peer, *(message("Normal", b"%d" % number) for number in range(5)))
        assert [entry.status.code for entry in answer.entries] == [C.OK] * 5
        assert sorted((await receive(peer, "Normal", "G")).bodies) == [b"0", b"1", b"2", b"3", b"4"]
        mixed = await send(peer, message("Normal"), message("Fifo", message_group="g"))
        assert mixed.status.code == C.MESSAGE_CORRUPTED


@virtual_time
async def test_a_compressed_body_is_stored_unpacked_so_that_every_client_can_read_it(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        packed = message("Normal", gzip.compress(b"z" * 5000), body_encoding=m.Encoding.GZIP)
        assert (await send(peer, packed)).status.code == C.OK
        (got,) = (await receive(peer, "Normal", "G")).messages
        assert (got.body, got.system_properties.body_encoding) == (b"z" * 5000, m.Encoding.IDENTITY)
        broken = message("Normal", b"no gzip", body_encoding=m.Encoding.GZIP)
        assert (await send(peer, broken)).status.code == C.MESSAGE_CORRUPTED


@virtual_time
async def test_queues_can_be_pulled_and_offsets_kept(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        served.add_topic("One", queues=1)
        for number in range(3):
            await send(peer, message("One", b"%d" % number))
        queue = m.MessageQueue(topic=resource("One"), id=0, broker=m.Broker(name=BROKER))
        request = m.PullMessageRequest(group=resource("G"), message_queue=queue, offset=1, batch_size=10)
        answers = await peer.stream("PullMessage", request, m.PullMessageResponse)
        assert [answer.message.body for answer in answers[1:-1]] == [b"1", b"2"]
        assert (answers[0].status.code, answers[-1].next_offset) == (C.OK, 3)
        get = m.GetOffsetRequest(group=resource("G"), message_queue=queue)
        assert (await peer.call("GetOffset", get, m.GetOffsetResponse)).status.code == C.OFFSET_NOT_FOUND
        update = m.UpdateOffsetRequest(group=resource("G"), message_queue=queue, offset=2)
        assert (await peer.call("UpdateOffset", update, m.UpdateOffsetResponse)).status.code == C.OK
        assert (await peer.call("GetOffset", get, m.GetOffsetResponse)).offset == 2
        for policy, offset in ((m.QueryOffsetPolicy.BEGINNING, 0), (m.QueryOffsetPolicy.END, 3)):
            asked = m.QueryOffsetRequest(message_queue=queue, query_offset_policy=policy)
            assert (await peer.call("QueryOffset", asked, m.QueryOffsetResponse)).offset == offset


@virtual_time
@pytest.mark.feature("X30")
async def test_the_type_of_a_topic_is_set_as_rocketmqs_tools_do(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        tool = await Remoting.connect(served.broker_port)

        async def make(topic: str, attributes: str) -> Command:
            header = UpdateTopicRequest(
                topic=topic,
                default_topic="TBW102",
                read_queue_count=1,
                write_queue_count=1,
                permission=6,
                filter_type="SINGLE_TAG",
                is_ordered=False,
                attributes=attributes,
            )
            return await tool.ask(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, opaque=1, fields=header.encode()))

        assert (await make("Ordered", "+message.type=FIFO")).code == 0
        route = m.QueryRouteRequest(topic=resource("Ordered"))
        (queue,) = (await peer.call("QueryRoute", route, m.QueryRouteResponse)).message_queues
        assert list(queue.accept_message_types) == [m.MessageType.FIFO]
        refused = await make("Any", "+message.type=MIXED")
        assert (refused.code, "enableMixedMessageType" in (refused.remark or "")) == (29, True)
        assert (await make("Odd", "+message.type=ODD")).code == 29
        tool.leave()


async def pull_all(remoting: Remoting, group: str, topic: str) -> list[bytes]:
    """What a member of the remoting protocol reads of all queues by itself."""
    bodies: list[bytes] = []
    for queue_id in range(4):
        pull = PullMessageRequest(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            queue_offset=QueueOffset(0),
            message_count_max=32,
            sys_flag=4,
            commit_offset=QueueOffset(0),
            suspend_timeout_ms=0,
            subscription="*",
            subscription_version=0,
        )
        answer = await remoting.ask(Command(RequestCode.PULL_MESSAGE, opaque=9, fields=pull.encode()))
        bodies += [each.body for each in decode_records(answer.body)] if answer.code == 0 else []
    return bodies


@virtual_time
async def test_a_group_with_members_that_pull_and_that_pop_loses_nothing_and_is_told_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        served.add_group("G")
        remoting, pulling = [await Remoting.connect(served.broker_port) for _ in range(2)]  # the first hears notices
        told = ConsumerMember(
            group_name="G",
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            subscription_data_set=[Subscription(topic="Normal", sub_string="*")],
        )
        heartbeat = Heartbeat(client_id="puller", consumer_data_set=[told]).encode()
        await remoting.ask(Command(RequestCode.HEART_BEAT, opaque=1, body=heartbeat))
        await tell_settings(peer, consumer_settings("G", "Normal"))
        (warned,) = [record.getMessage() for record in caplog.records if "members that pull" in record.getMessage()]
        assert all(part in warned for part in ("group=G", "(puller)", "setConsumeMode -m POP"))
        for number in range(8):
            await send(peer, message("Normal", b"%d" % number))
        popped: set[bytes] = set()
        while len(popped) < 8:
            popped |= set((await receive(peer, "Normal", "G")).bodies)
        assert set(await pull_all(pulling, "G", "Normal")) == popped  # it reads its queues by itself
        mode = GroupRequestMode(topic="Normal", consumer_group="G", mode=RequestMode.POP)
        served.broker.pop.modes.set(mode)
        caplog.clear()
        await tell_settings(peer, consumer_settings("G", "Normal"))
        assert not [record for record in caplog.records if "members that pull" in record.getMessage()]
        remoting.leave()
        pulling.leave()


@virtual_time
async def test_messages_cross_between_the_protocols(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        served.add_topic("One", queues=1)
        other = await Remoting.connect(served.broker_port)
        header = SendMessageRequest(
            producer_group="P",
            topic="One",
            default_topic="TBW102",
            default_topic_queue_count=4,
            queue_id=0,
            sys_flag=sysflags.COMPRESSED,
            born_ms=1,
            flag=0,
            properties="TAGS\x01TagA\x02",
        )
        packed = zlib.compress(b"from remoting" * 100)
        sent = Command(RequestCode.SEND_MESSAGE, opaque=1, fields=header.encode(), body=packed)
        assert (await other.ask(sent)).code == 0
        (got,) = (await receive(peer, "One", "G")).messages
        assert (got.body, got.system_properties.tag) == (b"from remoting" * 100, "TagA")
        await ack(peer, "One", "G", got)
        await send(peer, message("One", b"from grpc", tag="TagB", properties={"n": "1"}))
        pull = PullMessageRequest(
            consumer_group="G",
            topic="One",
            queue_id=0,
            queue_offset=QueueOffset(1),
            message_count_max=32,
            sys_flag=4,
            commit_offset=QueueOffset(0),
            suspend_timeout_ms=0,
            subscription="*",
            subscription_version=0,
        )
        answer = await other.ask(Command(RequestCode.PULL_MESSAGE, opaque=2, fields=pull.encode()))
        (record,) = decode_records(answer.body)
        assert (record.body, record.tags, record.properties["n"]) == (b"from grpc", "TagB", "1")
        other.leave()


@virtual_time
async def test_many_ids_of_one_address_push_out_their_own_oldest(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, VirtualClock(), bolideGrpcClientsMax="5") as served,
        connected(served.port) as peer,
    ):
        for number in range(12):
            peer.client_id = f"id-{number}"
            assert (await send(peer, message("Normal"))).status.code == C.OK
        assert len(served.proxy.clients) == 5
        assert served.proxy.clients.find("id-11") is not None


@virtual_time
async def test_a_client_that_brokers_have_dropped_is_known_to_them_again_with_its_next_call(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        await tell_settings(peer, consumer_settings("G", "Normal"))
        members = served.broker.state.members
        group = members.consumers("G")
        assert group is not None
        for session in list(group.channels):
            session.close("silent")
        assert members.consumers("G") is None
        await peer.call("Heartbeat", m.HeartbeatRequest(group=resource("G")), m.HeartbeatResponse)
        assert members.consumers("G") is not None


@virtual_time
async def test_a_consumer_is_asked_for_its_threads_and_to_take_one_message(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port, "asked") as peer:
        talk = await tell_settings(peer, consumer_settings("G", "Normal"))
        tool = await Remoting.connect(served.broker_port)
        threads = GetConsumerStateRequest(consumer_group="G", client_id="asked", is_stack_wanted=True)
        asking = asyncio.ensure_future(
            tool.ask(Command(RequestCode.GET_CONSUMER_RUNNING_INFO, opaque=1, fields=threads.encode()))
        )
        nonce = (await talk.hear(2)).print_thread_stack_trace_command.nonce
        trace = m.ThreadStackTrace(nonce=nonce, thread_stack_trace="main: waiting")
        talk.say(m.TelemetryCommand(thread_stack_trace=trace))
        assert RunningConsumer.decode((await asking).body).jstack == "main: waiting"
        sent = await send(peer, message("Normal", b"try me"))
        (queue,) = [each for each in range(4) if served.broker.state.store.max_offset(QueueKey("Normal", each))]
        record = next(served.broker.state.store.walk(QueueKey("Normal", queue), 0)).views[0]
        message_id = decode_records(bytes(record))[0].offset_id
        one = ConsumeDirectlyRequest(consumer_group="G", client_id="asked", message_id=message_id, topic="Normal")
        asking = asyncio.ensure_future(
            tool.ask(Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, opaque=2, fields=one.encode()))
        )
        told = (await talk.hear(3)).verify_message_command
        assert (told.message.body, told.message.system_properties.message_id) == (b"try me", sent.entries[0].message_id)
        result = m.VerifyMessageResult(nonce=told.nonce)
        failed = m.Status(code=C.FAILED_TO_CONSUME_MESSAGE)
        talk.say(m.TelemetryCommand(status=failed, verify_message_result=result))
        assert DirectConsumption.decode((await asking).body).consume_result == "CR_LATER"
        tool.leave()
