"""Putting a group elsewhere, at the broker and in its running members."""

import asyncio
from pathlib import Path

import pytest

from bolide.broker.tables.offsets import FILE_NAME, parse
from bolide.protocol.bodies import ConsumeType, MessageModel, ResetOffsets, ResetOffsetsForC
from bolide.protocol.command import Command
from bolide.testing import VirtualClock, run
from tests.broker.meeting import Guest, Meeting, consumer, meeting, queue_fields
from tests.store.given import START_MS

# As in 4.9, where the members alone carry a reset out.
BY_MEMBERS = {"useServerSideResetOffset": "false"}


async def prepare(broker: Meeting) -> None:
    """Ten messages a second apart in queue 0 of two; the group has settled five of them."""
    broker.topic("T", 2)
    broker.tables.groups.find("g")
    for _ in range(10):
        broker.store_messages("T", 0, 1)
        await asyncio.sleep(1)  # virtual
    for queue_id in range(2):
        broker.offsets.put("g", "T", queue_id, 5 if queue_id == 0 else 0)


async def reset(guest: Guest, at_ms: int, **more: object) -> Command:
    fields = {"topic": "T", "group": "g", "timestamp": at_ms, "isForce": "true", **more}
    return await guest.ask(222, {name: str(value) for name, value in fields.items()})


def moved(answer: Command) -> dict[int, int]:
    assert answer.code == 0, answer.remark
    return {queue.queue_id: offset for queue, offset in ResetOffsets.decode(answer.body).offset_table.items()}


@pytest.mark.parametrize(
    ("at_ms", "offset"),
    [(START_MS + 3_000, 3), (START_MS + 7_500, 8), (0, 0), (-1, 10), (START_MS + 100_000, 10)],
    ids=["back", "ahead", "the beginning", "the end", "beyond the end"],
)
def test_the_stored_offset_is_that_of_the_time(tmp_path: Path, at_ms: int, offset: int) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock(START_MS)) as broker, broker.guest() as admin:
            await prepare(broker)
            assert moved(await reset(admin, at_ms)) == {0: offset, 1: 0}
            answer = await admin.ask(14, queue_fields("g", "T", 0))
            assert answer.fields["offset"] == str(offset)
            assert broker.offsets.take_reset("g", "T", 0) == offset, "the next pull is to be told"

    run(scenario())


def offset_file(root: Path) -> Path:
    (file,) = root.rglob(FILE_NAME)
    return file


@pytest.mark.parametrize("how", ["reset", "clone"])
def test_where_an_operator_put_a_group_is_on_disk_when_he_is_told(tmp_path: Path, how: str) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock(START_MS)) as broker, broker.guest() as admin:
            await prepare(broker)
            broker.offsets.put("f", "T", 0, 7)
            if how == "reset":
                assert moved(await reset(admin, START_MS + 7_000)) == {0: 7, 1: 0}
            else:
                fields = {"srcGroup": "f", "destGroup": "g", "topic": "T", "offline": "true"}
                assert (await admin.ask(314, fields)).code == 0
            file = offset_file(tmp_path)
            assert parse(file.read_text()).offset_table["T@g"][0] == 7
            file.with_name(file.name + ".tmp").mkdir()  # nothing can be written there
            failed = await reset(admin, START_MS + 2_000)
            assert failed.code == 1
            assert "a crash may undo it" in (failed.remark or "")
            file.with_name(file.name + ".tmp").rmdir()

    run(scenario())


def test_a_member_that_goes_on_committing_does_not_undo_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock(START_MS)) as broker, broker.guest() as guest:
            await prepare(broker)
            await guest.beat("c1", consumer("g", "T"))
            await reset(guest, START_MS + 2_000)
            answer = await guest.ask(15, queue_fields("g", "T", 0, commitOffset=6))
            assert answer.code == 0
            assert "reset" in (answer.remark or "")
            assert broker.offsets.get("g", "T", 0) == 2

    run(scenario())


def test_where_nobody_is_in_the_group_who_commits_moves_it_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock(START_MS)) as broker, broker.guest() as admin:
            await prepare(broker)
            await reset(admin, START_MS + 2_000)
            assert (await admin.ask(15, queue_fields("g", "T", 0, commitOffset=6))).code == 0
            assert broker.offsets.get("g", "T", 0) == 6
            assert broker.offsets.take_reset("g", "T", 0) == 6, "whoever comes is told the last word"

    run(scenario())


def test_running_members_are_told_in_the_form_they_read(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock(START_MS)) as broker, broker.guest() as java, broker.guest() as cpp:
            await prepare(broker)
            await java.beat("c1", consumer("g", "T"))
            body = b'{"clientID":"c2","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"T"}]}]}'
            await cpp.ask(34, body=body, language=1)
            answer = await reset(java, START_MS + 3_000)
            await broker.settle()
            (told,) = [command for command in java.told if command.code == 220]
            assert told.is_oneway
            assert (told.fields["topic"], told.fields["group"], told.fields["isForce"]) == ("T", "g", "true")
            assert told.fields["timestamp"] == str(START_MS + 3_000)
            assert told.body == answer.body
            (told,) = [command for command in cpp.told if command.code == 220]
            entries = ResetOffsetsForC.decode(told.body).offset_table
            assert {(each.topic, each.broker_name, each.queue_id): each.offset for each in entries} == {
                ("T", "broker-a", 0): 3,
                ("T", "broker-a", 1): 0,
            }

    run(scenario())


@pytest.mark.feature("F204")
def test_every_member_of_a_broadcasting_group_is_told(tmp_path: Path) -> None:
    """They keep their offsets themselves, so a mark at the broker would reach one of them only."""

    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock(START_MS)) as broker, broker.guest() as one, broker.guest() as two:
            await prepare(broker)
            for guest, name in ((one, "c1"), (two, "c2")):
                await guest.beat(name, consumer("g", "T", message_model=MessageModel.BROADCASTING))
            await reset(one, 0)
            await broker.settle()
            assert [command.code for guest in (one, two) for command in guest.told] == [220, 220]

    run(scenario())


def test_members_that_pop_are_left_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock(START_MS)) as broker, broker.guest() as guest:
            await prepare(broker)
            await guest.beat("c1", consumer("g", "T", consume_type=ConsumeType.CONSUME_POP))
            assert moved(await reset(guest, 0)) == {0: 0, 1: 0}
            await broker.settle()
            assert 220 not in [command.code for command in guest.told]

    run(scenario())


def test_one_queue_can_be_put_at_a_time_or_at_an_offset(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock(START_MS)) as broker, broker.guest() as admin:
            await prepare(broker)
            assert moved(await reset(admin, START_MS + 4_000, queueId=0)) == {0: 4}
            assert moved(await reset(admin, 0, queueId=0, offset=9)) == {0: 9}
            assert moved(await reset(admin, -1, queueId=0, offset=-1)) == {0: 10}
            assert not broker.offsets.has_reset("g", "T", 1)
            for wrong in ({"queueId": 0, "offset": 12}, {"queueId": 2}, {"queueId": 7, "offset": 3}):
                assert (await reset(admin, 0, **wrong)).code == 1, wrong
            assert broker.offsets.get("g", "T", 0) == 10

    run(scenario())


@pytest.mark.parametrize(("fields", "code"), [({"topic": "nothing"}, 17), ({"group": "nobody"}, 26)])
def test_what_is_not_here_is_not_reset(tmp_path: Path, fields: dict[str, str], code: int) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock(START_MS)) as broker, broker.guest() as admin:
            await prepare(broker)
            assert (await reset(admin, 0, **fields)).code == code

    run(scenario())


def test_by_members_alone_somebody_must_be_online(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock(START_MS), **BY_MEMBERS) as broker, broker.guest() as guest:
            await prepare(broker)
            assert (await reset(guest, 0)).code == 206
            await guest.beat("c1", consumer("g", "T"))
            assert moved(await reset(guest, 0)) == {0: 0, 1: 0}
            await broker.settle()
            assert 220 in [command.code for command in guest.told]
            assert broker.offsets.get("g", "T", 0) == 5, "its member will commit the new one"
            assert not broker.offsets.has_reset("g", "T", 0)

    run(scenario())


def test_by_members_alone_without_force_it_only_goes_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock(START_MS), **BY_MEMBERS) as broker, broker.guest() as guest:
            await prepare(broker)
            await guest.beat("c1", consumer("g", "T"))
            assert moved(await reset(guest, START_MS + 3_000, isForce="false")) == {0: 3, 1: 0}
            assert moved(await reset(guest, START_MS + 8_000, isForce="false")) == {0: 5, 1: 0}
            assert moved(await reset(guest, START_MS + 8_000, isForce="true")) == {0: 8, 1: 0}

    run(scenario())


def test_by_members_alone_the_group_must_have_been_everywhere(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock(START_MS), **BY_MEMBERS) as broker, broker.guest() as guest:
            await prepare(broker)
            broker.topic("T", 3)
            await guest.beat("c1", consumer("g", "T"))
            answer = await reset(guest, 0)
            assert answer.code == 1
            assert "queue 2" in (answer.remark or "")

    run(scenario())
