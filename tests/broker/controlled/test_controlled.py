"""Brokers under a controller: whole brokers of one name, in virtual time, with the real controller beside them."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from bolide.broker.controlled.membership import Membership
from bolide.broker.later.delay import Delays
from bolide.broker.later.delay import parse as parse_delays
from bolide.broker.later.timers import Timers
from bolide.broker.replication.catalog_copy import CatalogCopy
from bolide.broker.replication.tables import SlaveTables
from bolide.broker.tables.offsets import FILE_NAME
from bolide.broker.tables.offsets import parse as parse_offsets
from bolide.errors import NoAnswer, StoreError
from bolide.ha.leading import SlaveLink
from bolide.model import properties as names
from bolide.model.queue import QueueKey
from bolide.protocol.bodies import GroupConfig, TopicConfig
from bolide.protocol.bodies.controller import BrokerEpochs, SyncStateSet
from bolide.protocol.bodies.routes import Clusters
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.topics import UpdateTopicRequest
from bolide.store.record import Draft
from bolide.store.timercheck import parse_check
from tests.broker.controlled.replicas import SAFE, Replicas, replicas
from tests.broker.replication.replicas import LIMIT_S, NAME, Life, bodies, equal, group, log_of
from tests.remoting.loops import eventually, virtual_time


def _knows(life: Life, topic: str) -> bool:
    return topic in life.broker.state.topics.table


async def _nothing_told(*_: object) -> bool:
    await asyncio.sleep(0.01)  # virtual
    return True


async def _for_ever(*_: object) -> None:
    await asyncio.Event().wait()


@pytest.mark.feature("X05")
@virtual_time
async def test_the_first_leads_and_the_others_follow_until_all_are_in_sync(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (group, master):
        assert master is group.lives[1]
        assert (await group.send(master, b"one")).code == ResponseCode.SUCCESS
        for number in (2, 3):
            await equal(master, group.lives[number])


@pytest.mark.feature("X05")
@virtual_time
async def test_another_leads_when_the_master_is_gone_and_has_all_that_was_acknowledged(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (group, master):
        sent = [b"%d" % number for number in range(20)]
        for body in sent:
            assert (await group.send(master, body)).code == ResponseCode.SUCCESS
        await group.stop(1)
        second = await group.in_sync(2, 3)
        found = [record for key in (QueueKey("T", 0),) for record in bodies(second.store, key)]
        assert len(found) == len(sent)
        assert (await group.send(second, b"after")).code == ResponseCode.SUCCESS
        assert second.store.max_offset(QueueKey("T", 0)) == len(sent) + 1
        await group.start(1)
        assert await group.in_sync(1, 2, 3) is second
        await equal(second, group.lives[1])


@virtual_time
async def test_below_the_minimum_nothing_is_stored_and_the_sender_hears_why(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (group, master):
        for number in (2, 3):
            await group.stop(number)
        await group.in_sync(1)
        end = master.store.log_end
        answer = await group.send(master, b"alone")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "in-sync replicas not enough" in (answer.remark or "")
        assert master.store.log_end == end


@pytest.mark.feature("X05")
@virtual_time
async def test_who_waits_for_replicas_when_the_lead_is_lost_is_told_to_send_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas(tmp_path) as (group, master):
        assert (await group.send(master, b"one")).code == ResponseCode.SUCCESS
        monkeypatch.setattr(SlaveLink, "push", lambda link: None)  # nothing is copied any more
        async with asyncio.TaskGroup() as tasks:
            sends = [tasks.create_task(group.send(master, body), name="sender") for body in (b"two", b"three")]
            await eventually(lambda: master.store.visible_end < master.store.log_end, LIMIT_S)
            await group.promote(2)
        for answer in [send.result() for send in sends]:
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert "[REJECTREQUEST]" in (answer.remark or "")
        monkeypatch.undo()
        second = await group.in_sync(1, 2, 3)
        assert second is group.lives[2]
        assert second.store.max_offset(QueueKey("T", 0)) == 1
        await equal(second, master)


@pytest.mark.parametrize("how", [{names.DELAY: "1"}, {names.TIMER_DELAY_S: "2"}], ids=["delay level", "timer"])
def test_what_a_master_delivered_and_had_cut_off_is_delivered_by_it_when_it_leads_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, str]
) -> None:
    """Nobody has told it since how far the other one came."""

    @virtual_time
    async def play() -> None:
        async with replicas(tmp_path) as (group, master):
            monkeypatch.setattr(SlaveTables, "sync", _nothing_told)
            assert (await group.brokers.send(master, b"later", 0, topic="T", **how)).code == ResponseCode.SUCCESS
            confirmed_end = master.store.log_end
            with monkeypatch.context() as cut:
                cut.setattr(SlaveLink, "push", lambda link: None)  # nothing is copied any more
                await eventually(lambda: master.store.log_end > confirmed_end, LIMIT_S)
                await asyncio.sleep(4)  # virtual: what was delivered would be written by now
                cut.setattr(Delays, "deliver_due", _nothing_told)
                cut.setattr(Timers, "deliver_due", _nothing_told)
                await group.promote(2)
                await eventually(lambda: group.lives[2].broker.state.role.is_leading, LIMIT_S)
                cut.undo()
                cut.setattr(Delays, "deliver_due", _nothing_told)
                cut.setattr(Timers, "deliver_due", _nothing_told)
                await group.in_sync(1, 2, 3)
                await eventually(lambda: master.store.log_end == confirmed_end, LIMIT_S)
                assert master.store.max_offset(QueueKey("T", 0)) == 0
            await group.promote(1)
            await eventually(lambda: master.store.max_offset(QueueKey("T", 0)) == 1, LIMIT_S)

    play()


@virtual_time
async def test_slaves_are_told_only_of_deliveries_that_no_change_of_masters_can_take_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas(tmp_path) as (group, master):

        async def told(code: RequestCode) -> bytes:
            return (await group.brokers.client.request(master.address, Command(code), 5)).body

        sent_ms = group.brokers.clock.now_ms()
        assert (await group.brokers.send(master, b"level", topic="T", DELAY="1")).code == ResponseCode.SUCCESS
        assert (await group.brokers.send(master, b"timer", topic="T", TIMER_DELAY_SEC="2")).code == ResponseCode.SUCCESS
        with monkeypatch.context() as cut:
            cut.setattr(SlaveLink, "push", lambda link: None)  # nothing is copied any more
            await eventually(lambda: master.store.next_offset(QueueKey("T", 0)) == 2, LIMIT_S)
            await asyncio.sleep(4)  # virtual: what was delivered would be written by now
            assert parse_delays((await told(RequestCode.GET_ALL_DELAY_OFFSET)).decode()).offset_table.get(1, 0) == 0
            assert parse_check(await told(RequestCode.GET_TIMER_CHECK_POINT)).read_ms <= sent_ms + 2_000


@virtual_time
async def test_how_far_groups_came_in_a_log_that_is_cut_is_neither_written_nor_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pop moves its group on because of a checkpoint in the log; so do the checks of transactions."""
    async with replicas(tmp_path) as (group, master):
        monkeypatch.setattr(SlaveTables, "sync", _nothing_told)
        assert (await group.send(master, b"settled")).code == ResponseCode.SUCCESS
        offsets = master.broker.state.offsets
        offsets.put("G", "T", 0, 1)
        await offsets.kept()
        with monkeypatch.context() as cut:
            cut.setattr(SlaveLink, "push", lambda link: None)
            master.broker.intake.append_own([Draft("T", 0, b"checkpoint", b"", 0, 0, 0, bytes(8))])
            offsets.put("G", "T", 0, 2)
            await asyncio.sleep(10)  # virtual
            text = (master.broker.state.settings.now.directory / FILE_NAME).read_text()
            assert parse_offsets(text).offset_table["T@G"] == {0: 1}
            await group.promote(2)
            await eventually(lambda: not master.broker.state.role.is_leading, LIMIT_S)
        assert offsets.get("G", "T", 0) == 1


@virtual_time
async def test_with_an_unknown_controller_a_broker_waits_takes_nothing_and_says_what_to_look_at(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with group(tmp_path) as brokers:
        life = await brokers.start("lonely", **SAFE, controllerAddr="127.0.0.1:1")
        await eventually(lambda: "no role yet" in caplog.text, LIMIT_S)
        assert "127.0.0.1:1" in caplog.text
        assert "is controllerAddr right, and do they run?" in caplog.text
        assert (await brokers.send(life, b"x")).code == ResponseCode.SYSTEM_BUSY
        assert life.store.log_end == 0
        assert not (tmp_path / "lonely" / "brokerIdentity").exists()
        found = Clusters.decode((await brokers.ns.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body)
        assert NAME not in found.broker_addr_table


@virtual_time
async def test_a_server_that_is_no_controller_is_named_as_such(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with group(tmp_path) as brokers:
        await brokers.start("lonely", **SAFE, controllerAddr=brokers.ns.address)
        await eventually(lambda: "no role yet" in caplog.text, LIMIT_S)
        assert f"({brokers.ns.address}: another server is there, and no controller)" in caplog.text


@virtual_time
async def test_a_member_of_another_cluster_gets_no_number_and_hears_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with replicas(tmp_path, count=1) as (group, _):
        life = await group.start(2, brokerClusterName="C2")
        await eventually(lambda: "no role yet" in caplog.text, LIMIT_S)
        assert f"broker name {NAME} belongs to cluster C1, not to 'C2'" in caplog.text
        assert (await group.send(life, b"x")).code == ResponseCode.SYSTEM_BUSY
        assert not list((tmp_path / "replica-2").glob("brokerIdentity*"))
        state = await group.controller.state(NAME)
        assert [one.broker_id for one in state.in_sync_replicas] == [1]


@virtual_time
async def test_a_stranger_cannot_depose_a_master_by_a_notice(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (group, master):
        forged = {"masterBrokerId": "2", "masterAddress": "127.0.0.1:1", "masterEpoch": "99", "syncStateSetEpoch": "99"}
        body = SyncStateSet(sync_state_set=[2], sync_state_set_epoch=99).encode()
        command = Command(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, fields=forged, body=body)
        answer = await group.brokers.client.request(master.address, command, LIMIT_S)
        assert answer.code == ResponseCode.SUCCESS
        assert (await group.send(master, b"still")).code == ResponseCode.SUCCESS
        assert master.broker.state.role.now.epoch == 1


@virtual_time
async def test_a_set_whose_confirmation_was_lost_must_acknowledge_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """#5663: the controller took the third replica in, and the master did not hear it."""
    alter = Membership.alter
    lost: list[frozenset[int]] = []

    async def losing(self: Membership, epoch: int, members: frozenset[int], set_epoch: int) -> SyncStateSet:
        held = await alter(self, epoch, members, set_epoch)
        if len(members) == 3 and not lost:
            lost.append(members)
            raise NoAnswer("the answer was lost")
        return held

    monkeypatch.setattr(Membership, "alter", losing)
    async with replicas(tmp_path) as (group, master):
        assert lost
        policy = master.broker.replication.acks.policy
        assert getattr(policy, "ids", None) == {2, 3}
        assert (await group.send(master, b"all")).code == ResponseCode.SUCCESS
        assert log_of(group.lives[3].store) == log_of(master.store)


@virtual_time
async def test_a_broker_tells_the_epochs_of_its_log(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (group, master):
        await group.send(master, b"one")
        end = master.store.log_end
        await group.stop(1)
        second = await group.in_sync(2, 3)
        await group.send(second, b"two")
        answer = await group.brokers.client.request(
            second.address, Command(RequestCode.GET_BROKER_EPOCH_CACHE), LIMIT_S
        )
        told = BrokerEpochs.decode(answer.body)
        assert [(span.epoch, span.start_offset) for span in told.epoch_list] == [(1, 0), (2, end)]
        assert (told.broker_id, told.broker_name) == (2, NAME)


@virtual_time
async def test_a_directory_of_another_group_is_refused(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (group, _):
        await group.stop(3)
        with pytest.raises(ExceptionGroup) as problem:
            await group.start(3, brokerClusterName="C2")
        assert problem.group_contains(StoreError, match="belongs to C1 broker-a")


async def create_topic(group: Replicas, life: Life, topic: str) -> Command:
    """As administrators do it, with three queues."""
    header = UpdateTopicRequest(
        topic=topic,
        default_topic="TBW102",
        read_queue_count=3,
        write_queue_count=3,
        permission=6,
        filter_type="SINGLE_TAG",
        is_ordered=False,
    )
    command = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields=header.encode())
    return await group.brokers.client.request(life.address, command, LIMIT_S)


@pytest.mark.feature("X05")
@virtual_time
async def test_who_made_a_topic_or_a_group_finds_it_at_every_replica(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (group, master):
        for topic in ("One", "Two"):
            assert (await create_topic(group, master, topic)).code == ResponseCode.SUCCESS
            for life in group.lives.values():
                assert life.broker.state.topics.table[topic].read_queue_nums == 3
                assert topic in (life.broker.state.settings.now.directory / "topics.json").read_text()
        body = GroupConfig(group_name="G", retry_max_times=7).encode()
        command = Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        assert (await group.brokers.client.request(master.address, command, LIMIT_S)).code == ResponseCode.SUCCESS
        assert {life.broker.state.groups.table["G"].retry_max_times for life in group.lives.values()} == {7}


@virtual_time
async def test_a_topic_that_a_first_send_made_is_at_every_replica_when_it_is_answered(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (group, master):
        assert (await group.send(master, b"one", topic="New")).code == ResponseCode.SUCCESS
        assert {life.broker.state.topics.table["New"].read_queue_nums for life in group.lives.values()} == {4}


@virtual_time
async def test_a_replica_that_does_not_take_topics_over_is_named_and_the_change_is_not_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas(tmp_path) as (group, master):
        assert (await create_topic(group, master, "Before")).code == ResponseCode.SUCCESS
        monkeypatch.setattr(CatalogCopy, "_take", _nothing_told)
        answer = await create_topic(group, master, "New")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "replica 2, 3 has not heard of it" in (answer.remark or "")
        monkeypatch.undo()
        assert (await create_topic(group, master, "New")).code == ResponseCode.SUCCESS
        assert _knows(group.lives[3], "New")


@virtual_time
async def test_who_does_not_lead_or_lacks_replicas_makes_no_topic(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (group, master):
        answer = await create_topic(group, group.lives[2], "New")
        assert f"master of {NAME}, which is at {master.address}" in (answer.remark or "")
        for number in (2, 3):
            await group.stop(number)
        await group.in_sync(1)
        assert "in-sync replicas not enough" in ((await create_topic(group, master, "New")).remark or "")
        assert not _knows(master, "New")


@virtual_time
async def test_a_replica_of_apache_that_tells_no_version_does_not_keep_topics_from_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CatalogCopy, "follow_forever", _for_ever)
    async with replicas(tmp_path) as (group, master):
        assert (await create_topic(group, master, "New")).code == ResponseCode.SUCCESS


@virtual_time
async def test_a_slave_hears_of_a_new_topic_soon_though_nothing_is_sent(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (group, master):
        master.broker.state.topics.update(TopicConfig(topic_name="New", read_queue_nums=3, write_queue_nums=3, perm=6))
        for number in (2, 3):
            await eventually(partial(_knows, group.lives[number], "New"), 4.0)


@virtual_time
async def test_a_slave_hears_of_a_new_topic_as_soon_as_a_message_of_it_comes(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (group, master):
        master.broker.state.topics.update(TopicConfig(topic_name="New", read_queue_nums=3, write_queue_nums=3, perm=6))
        await group.send(master, b"one", topic="New")
        for number in (2, 3):
            await eventually(partial(_knows, group.lives[number], "New"), 2.0)


@virtual_time
async def test_a_new_master_has_the_topics_of_all_it_acknowledged_though_nobody_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas(tmp_path) as (group, master):
        monkeypatch.setattr(SlaveTables, "sync", _nothing_told)
        monkeypatch.setattr(CatalogCopy, "_take", _nothing_told)
        master.broker.state.topics.update(TopicConfig(topic_name="New", read_queue_nums=3, write_queue_nums=3, perm=6))
        assert (await group.send(master, b"one", topic="New")).code == ResponseCode.SUCCESS
        await group.stop(1)
        second = await group.in_sync(2, 3)
        assert second.broker.state.topics.table["New"].read_queue_nums == 8
        assert (await group.send(second, b"two", topic="New")).code == ResponseCode.SUCCESS
        assert second.store.max_offset(QueueKey("New", 0)) == 2
