"""Assignments: which queues a member reads and how, set by 401 and asked by 400."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.broker.members.assignments import shared
from bolide.clock import SystemClock
from bolide.model.allocation import STRATEGIES
from bolide.model.queue import MessageQueue
from bolide.protocol.bodies import ConsumerMember, ConsumeType, Heartbeat, MessageModel
from bolide.protocol.bodies.pop import AssignmentAnswer, AssignmentRequest, GroupRequestMode, RequestMode
from bolide.protocol.bodies.routes import QueueRoute, TopicRoute
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.remoting.listen_config import ListenConfig
from bolide.remoting.owner import Reply, Request
from bolide.remoting.server import listen
from bolide.testing import VirtualClock
from tests.broker.poppers import BROKER, Rig, popping
from tests.broker.pullers import GROUP, TOPIC
from tests.remoting.ends import Peer, Table
from tests.remoting.loops import both_loops, virtual_time

# Printed by RocketMQ 5.5.0's MessageRequestModeManager, as it writes its file.
JAVA_FILE = """{
\t"messageRequestModeMap":{
\t\t"T":{
\t\t\t"G":{
\t\t\t\t"consumerGroup":"G",
\t\t\t\t"mode":"POP",
\t\t\t\t"popShareQueueNum":8,
\t\t\t\t"topic":"T"
\t\t\t},
\t\t\t"H":{
\t\t\t\t"consumerGroup":"H",
\t\t\t\t"mode":"PULL",
\t\t\t\t"popShareQueueNum":0,
\t\t\t\t"topic":"T"
\t\t\t}
\t\t}
\t}
}"""


async def member(rig: Rig, client_id: str) -> Peer:
    """A consumer of group G that has said so."""
    peer = await Peer.connect(rig.port)
    told = ConsumerMember(
        group_name=GROUP, consume_type=ConsumeType.CONSUME_PASSIVELY, message_model=MessageModel.CLUSTERING
    )
    body = Heartbeat(client_id=client_id, consumer_data_set=[told]).encode()
    assert (await peer.ask(Command(RequestCode.HEART_BEAT, opaque=9, body=body))).code == 0
    return peer


async def ask(
    peer: Peer,
    client_id: str,
    topic: str = TOPIC,
    strategy: str | None = "AVG",
    model: MessageModel = MessageModel.CLUSTERING,
) -> list[tuple[str, int, str]] | None:
    body = AssignmentRequest(
        client_id=client_id, consumer_group=GROUP, message_model=model, strategy_name=strategy, topic=topic
    ).encode()
    answer = await peer.ask(Command(RequestCode.QUERY_ASSIGNMENT, opaque=1, body=body))
    assert answer.code == 0
    found = AssignmentAnswer.decode(answer.body).message_queue_assignments
    if found is None:
        return None
    return [(each.message_queue.broker_name, each.message_queue.queue_id, each.mode.value) for each in found]


async def set_mode(
    peer: Peer, mode: RequestMode = RequestMode.POP, share_count: int = 0, topic: str = TOPIC
) -> Command:
    body = GroupRequestMode(consumer_group=GROUP, mode=mode, pop_share_queue_num=share_count, topic=topic).encode()
    return await peer.ask(Command(RequestCode.SET_MESSAGE_REQUEST_MODE, opaque=2, body=body))


@pytest.mark.feature("X24")
@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("AVG", [[0, 1], [2, 3]]),
        (None, [[0, 1], [2, 3]]),
        ("AVG_BY_CIRCLE", [[0, 2], [1, 3]]),
    ],
)
@virtual_time
async def test_pulled_queues_are_shared_out_by_the_strategy_members_name(tmp_path, strategy, expected) -> None:
    async with popping(tmp_path, VirtualClock()) as rig:
        peers = [await member(rig, name) for name in ("c1", "c2")]
        found = [await ask(peer, name, strategy=strategy) for peer, name in zip(peers, ("c1", "c2"), strict=True)]
        assert found == [[(BROKER, queue_id, "PULL") for queue_id in own] for own in expected]
        for peer in peers:
            peer.leave()


@virtual_time
async def test_consistent_hashing_leaves_no_queue_out_and_gives_none_twice(tmp_path) -> None:
    async with popping(tmp_path, VirtualClock(), queue_count=16) as rig:
        peers = {name: await member(rig, name) for name in ("c1", "c2", "c3")}
        found = [await ask(peer, name, strategy="CONSISTENT_HASH") or [] for name, peer in peers.items()]
        assert sorted(queue_id for own in found for _, queue_id, _ in own) == list(range(16))
        for peer in peers.values():
            peer.leave()


@pytest.mark.feature("X24")
@virtual_time
async def test_popped_queues_are_any_queue_for_everybody(tmp_path) -> None:
    async with popping(tmp_path, VirtualClock()) as rig:
        peers = [await member(rig, name) for name in ("c1", "c2", "c3")]
        assert (await set_mode(peers[0])).code == 0
        for peer, name in zip(peers, ("c1", "c2", "c3"), strict=True):
            assert await ask(peer, name) == [(BROKER, -1, "POP")]
        assert (await set_mode(peers[0], share_count=1)).code == 0
        found = [await ask(peer, name) for peer, name in zip(peers, ("c1", "c2", "c3"), strict=True)]
        assert found == [[(BROKER, queue_id, "POP") for queue_id in own] for own in ([0, 1, 2], [2, 3], [3, 0, 1])]
        assert (await set_mode(peers[0], RequestMode.PULL)).code == 0
        assert await ask(peers[0], "c1") == [(BROKER, 0, "PULL"), (BROKER, 1, "PULL")]
        for peer in peers:
            peer.leave()


@virtual_time
async def test_the_brokers_own_setting_counts_where_nothing_is_set_and_never_for_retry_topics(tmp_path) -> None:
    async with popping(tmp_path, VirtualClock(), defaultMessageRequestMode="POP") as rig:
        peer = await member(rig, "c1")
        assert await ask(peer, "c1") == [(BROKER, -1, "POP")]
        assert await ask(peer, "c1", topic=f"%RETRY%{GROUP}") == [(BROKER, 0, "PULL")]
        assert (await set_mode(peer, topic=f"%RETRY%{GROUP}")).code == ResponseCode.NO_PERMISSION
        peer.leave()


@virtual_time
async def test_broadcasting_members_read_everything(tmp_path) -> None:
    async with popping(tmp_path, VirtualClock()) as rig:
        peer = await Peer.connect(rig.port)
        found = await ask(peer, "c1", model=MessageModel.BROADCASTING)
        assert found == [(BROKER, queue_id, "PULL") for queue_id in range(4)]
        peer.leave()


@virtual_time
async def test_without_server_side_balancing_everybody_gets_everything(tmp_path) -> None:
    async with popping(tmp_path, VirtualClock(), serverLoadBalancerEnable="false") as rig:
        peers = [await member(rig, name) for name in ("c1", "c2")]
        assert len(await ask(peers[0], "c1") or []) == 4
        for peer in peers:
            peer.leave()


@virtual_time
async def test_nothing_known_is_none_and_nothing_left_is_an_empty_list(tmp_path) -> None:
    async with popping(tmp_path, VirtualClock(), queue_count=1) as rig:
        stranger = await Peer.connect(rig.port)
        assert await ask(stranger, "c1") is None  # the group has no members
        peers = [await member(rig, name) for name in ("c1", "c2")]
        assert await ask(peers[0], "c1", topic="nowhere") is None
        assert await ask(peers[0], "c1", strategy="MACHINE_ROOM_NEARBY-AVG") is None
        assert await ask(peers[1], "c2") == []
        assert await ask(stranger, "not of the group") == []
        for peer in (stranger, *peers):
            peer.leave()


@virtual_time
async def test_modes_are_kept_over_a_restart(tmp_path) -> None:
    clock = VirtualClock()
    async with popping(tmp_path, clock) as rig:
        peer = await member(rig, "c1")
        await set_mode(peer, share_count=3)
        # Answered, it is on disk.
        assert '"popShareQueueNum":3' in (tmp_path / "config" / "messageRequestMode.json").read_text()
        rig.is_killed = True
        peer.leave()
    async with popping(tmp_path, clock) as rig:
        assert rig.room.modes.find(GROUP, TOPIC).mode is RequestMode.POP
        assert rig.room.modes.find("another", TOPIC).mode is RequestMode.PULL


@virtual_time
async def test_javas_file_is_read(tmp_path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "messageRequestMode.json").write_text(JAVA_FILE)
    async with popping(tmp_path, VirtualClock()) as rig:
        modes = rig.room.modes
        assert (modes.find("G", "T").mode, modes.find("G", "T").pop_share_queue_num) == (RequestMode.POP, 8)
        assert modes.find("H", "T").mode is RequestMode.PULL


@virtual_time
async def test_a_mode_for_nobody_is_refused(tmp_path) -> None:
    async with popping(tmp_path, VirtualClock()) as rig:
        peer = await Peer.connect(rig.port)
        answer = await set_mode(peer, topic="")
        assert (answer.code, "name both" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        answer = await peer.ask(Command(RequestCode.SET_MESSAGE_REQUEST_MODE, opaque=2, body=b'{"mode":'))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        peer.leave()


@virtual_time
async def test_a_mode_for_what_is_not_there_is_refused(tmp_path) -> None:
    async with popping(tmp_path, VirtualClock(), autoCreateSubscriptionGroup="false") as rig:
        peer = await Peer.connect(rig.port)
        answer = await set_mode(peer, topic="nowhere")
        assert (answer.code, "'nowhere' is not here" in (answer.remark or "")) == (ResponseCode.TOPIC_NOT_EXIST, True)
        answer = await set_mode(peer)
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert rig.room.modes.table == {}
        peer.leave()


# The queues of other brokers


@asynccontextmanager
async def name_server(route: TopicRoute | None) -> AsyncIterator[tuple[str, list[str]]]:
    """One that knows one route; its address and the topics it was asked for."""
    asked: list[str] = []

    def answer(request: Request) -> Reply:
        asked.append(request.command.fields["topic"])
        if route is None:
            return request.command.answer(ResponseCode.TOPIC_NOT_EXIST)
        return request.command.answer(0, body=route.encode())

    config = ListenConfig(host="127.0.0.1", port=0)
    async with listen(config, Table(answer), SystemClock()) as server:
        yield f"127.0.0.1:{server.port}", asked


def queues_of(broker: str, count: int, perm: int = 6) -> QueueRoute:
    return QueueRoute(broker_name=broker, perm=perm, read_queue_nums=count, write_queue_nums=count)


@both_loops
async def test_queues_of_other_brokers_are_shared_out_too_and_asked_for_once(tmp_path) -> None:
    route = TopicRoute(queue_datas=[queues_of("b-2", 2), queues_of(BROKER, 9), queues_of("closed", 3, perm=2)])
    clock = SystemClock()
    async with (
        name_server(route) as (address, asked),
        popping(tmp_path, clock, namesrvAddr=f"127.0.0.1:1;{address}") as rig,
    ):
        peers = {name: await member(rig, name) for name in ("c1", "c2")}
        found = [each for name, peer in peers.items() for each in await ask(peer, name) or []]
        expected = [("b-2", queue_id, "PULL") for queue_id in range(2)]
        assert found == expected + [(BROKER, queue_id, "PULL") for queue_id in range(4)]
        assert asked == [TOPIC]
        await set_mode(peers["c1"])
        assert await ask(peers["c1"], "c1") == [("b-2", -1, "POP"), (BROKER, -1, "POP")]
        for peer in peers.values():
            peer.leave()


@both_loops
async def test_with_no_name_server_there_a_member_gets_what_is_here(tmp_path) -> None:
    clock = SystemClock()
    async with popping(tmp_path, clock, namesrvAddr="127.0.0.1:1") as rig:
        peer = await member(rig, "c1")
        async with asyncio.timeout(10):
            assert len(await ask(peer, "c1") or []) == 4
            assert await ask(peer, "c1", topic="nowhere") is None
        peer.leave()


# Sharing as a rule


@given(
    queue_count=st.integers(1, 40),
    member_count=st.integers(1, 12),
    share_count=st.integers(-1, 14),
    name=st.sampled_from(sorted(STRATEGIES)),
)
def test_whatever_is_shared_every_queue_has_somebody_who_pops_it(queue_count, member_count, share_count, name) -> None:
    queues = sorted(MessageQueue(TOPIC, f"b{i % 2}", i) for i in range(queue_count))
    members = sorted(f"c{i}" for i in range(member_count))
    found = [shared(queues, members, own, STRATEGIES[name], share_count) for own in members]
    for own in found:
        assert len(set(own)) == len(own)
    everything = {queue for own in found for queue in own}
    if share_count <= 0 or share_count >= member_count - 1:
        assert everything == {MessageQueue(TOPIC, queue.broker_name, -1) for queue in queues}
    else:
        assert everything == set(queues)
        if member_count > queue_count:
            assert all(len(own) == 1 for own in found)
