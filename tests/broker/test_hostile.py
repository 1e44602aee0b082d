"""Strangers at a whole broker: whatever they name, nothing grows, nothing outside is touched, and others are served."""

import asyncio
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from bolide.broker.tables.offsets import FILE_NAME
from bolide.clock import SystemClock
from bolide.model import topics as topic_names
from bolide.model.names import KINDS, Kind
from bolide.model.topics import CHECK_EXHAUSTED_TOPIC, MARK_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC
from bolide.protocol.bodies import (
    Body,
    ClientCheck,
    GroupConfig,
    GroupConfigList,
    Heartbeat,
    LockRequest,
    ProducerMember,
    TopicConfigList,
    UnlockRequest,
)
from bolide.protocol.bodies.pop import AssignmentRequest, BatchAck, BatchAcks, GroupRequestMode
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.headers import EndTransactionRequest, header_of
from bolide.protocol.headers.poptext import ORDERLY_REVIVE_QUEUE
from bolide.protocol.properties import join_properties
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from tests.broker.whole import TIMEOUT_S, Whole, whole
from tests.remoting.loops import both_loops, eventually
from tests.store.given import bodies, draft

HOSTILE = ["..", ".", "../x", "../../x", "/etc", "a/b", "a\0b", "a\nERROR forged", "\x1b[2J", "x" * 300, "x" * 40_000]
HOSTILE += ["\u202egpj", "%s%n", "T@g", "", " ", "\ud7ff\ue000", "rmq_sys_REVIVE_LOG_C1", "SCHEDULE_TOPIC_XXXX"]
BODIES: dict[int, type[Body]] = {
    34: Heartbeat,
    46: ClientCheck,
    41: LockRequest,
    42: UnlockRequest,
    400: AssignmentRequest,
    401: GroupRequestMode,
    18: TopicConfigList,
    200: GroupConfig,
    225: GroupConfigList,
    200151: BatchAcks,
}
WITH_HEADER = [code for code in RequestCode if header_of(code).request is not None]


def filled(kind: Any, name: str) -> Any:
    """A value of a type, in which everything that names something is called so."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return name if isinstance(arguments[1], Kind) else filled(arguments[0], name)
    if origin is list:
        return [filled(arguments[0], name)]
    if origin is dict:
        return {}
    if arguments:
        return filled(arguments[0], name)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind, include_extras=True)
        return kind(**{each: filled(hints[each], name) for each in kind.__struct_fields__})
    plain: dict[Any, Any] = {int: 1, bool: False, bytes: b"\x01"}
    return plain[kind] if kind in plain else next(iter(kind))  # the first of an enum


def requests(code: int) -> Iterator[Command]:
    """Every field that names something, called by every hostile name, and the others as they may be."""
    request, _, is_short = header_of(code)
    if request is not None:
        fine: dict[str, str] = {}
        for field in request.wire_fields:
            word = KINDS[field.kind].word if field.kind in KINDS else ""
            kept = "Other" if code == RequestCode.DELETE_TOPIC_IN_BROKER else "T"
            text = {"topic": kept, "group": "g", "": "0"}.get(word, "1")
            fine |= dict.fromkeys(field.keys_in(is_short), text)
        for field in request.wire_fields:
            for name in HOSTILE if field.kind in KINDS else ():
                yield Command(code, fields=fine | dict.fromkeys(field.keys_in(is_short), name), body=b"x")
    if code in BODIES:
        for name in HOSTILE:
            yield Command(code, body=filled(BODIES[code], name).encode())


@dataclass
class Outside:
    """What lies beside the store, and must stay as it is."""

    root: Path

    def __post_init__(self) -> None:
        for name in ("x", "etc", "store/x", "store/etc"):
            (self.root / name).mkdir(parents=True)
            (self.root / name / "kept").write_text("kept")

    def names(self) -> list[str]:
        inside = self.root / "store"
        beside = [path for path in self.root.rglob("*") if inside not in path.parents]
        return sorted(map(str, [*beside, *inside.glob("x/*"), *inside.glob("etc/*")]))


async def ask_all(at: Whole, commands: list[Command]) -> list[Command]:
    answers = []
    for i in range(0, len(commands), 64):
        some = [at.client.request(at.address, each, TIMEOUT_S) for each in commands[i : i + 64]]
        answers += await asyncio.gather(*some)
    return answers


async def serves(at: Whole) -> None:
    at.broker.state.store.append([draft(b"served", "T", 0)])
    answer = await at.ask(30, topic="T", queueId="0")
    assert answer.code == 0, answer.remark


@pytest.mark.parametrize(
    "codes", [WITH_HEADER[::2], WITH_HEADER[1::2], list(BODIES)], ids=["headers", "more", "bodies"]
)
def test_whatever_a_request_names_is_answered_and_harms_nothing(
    tmp_path: Path, codes: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    outside = Outside(tmp_path)

    async def attack() -> None:
        async with whole(tmp_path) as at:
            at.broker.state.topics.ensure("T", 4)
            at.broker.state.groups.find("g")
            at.broker.state.store.append([draft(b"kept", "T", 0)])
            before = outside.names()
            for code in codes:
                sent = list(requests(code))
                for command, answer in zip(sent, await ask_all(at, sent), strict=True):
                    remark = answer.remark or ""
                    assert len(remark) < 2_100, (code, command.fields)
                    assert "Error:" not in remark, (code, command.fields, remark)
            assert outside.names() == before
            tables = at.broker.state
            assert all(topic_is_fine(topic) for topic in tables.topics.table)
            assert len(tables.topics.table) < 60
            assert len(tables.groups.table) < 60
            assert set(tables.offsets.table) <= {
                f"{topic}@{group}" for topic in tables.topics.table for group in tables.groups.table
            }
            assert all(queue_id < 4 for queues in tables.offsets.table.values() for queue_id in queues)
            assert all(len(name) <= 255 for name in tables.members._producing)
            await serves(at)

    async def come_back() -> None:
        async with whole(tmp_path) as at:
            assert bodies(at.broker.state.store, "T")[0] == b"kept"
            await serves(at)

    asyncio.run(attack())
    asyncio.run(come_back())
    assert [record for record in caplog.records if record.exc_info] == []
    assert all(len(record.getMessage()) < 4_000 for record in caplog.records)


def topic_is_fine(topic: str) -> bool:
    return topic.isprintable() and "/" not in topic and topic.strip(".") != ""


DEEP = [b"[" * 100_000, b'{"a":' * 100_000, b'{"query":"q","batch":1,"x":' + b"[" * 200_000]


@both_loops
async def test_what_is_nested_too_deeply_is_refused_in_a_sentence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with whole(tmp_path) as at:
        for code in (*BODIES, 27001):
            for body in DEEP:
                answer = await at.ask(code, body)
                assert answer.code != 0, code
                assert len(answer.remark or "") < 400
                assert "Recursion" not in (answer.remark or "")
        await serves_all(at)
    assert [record for record in caplog.records if record.exc_info] == []


async def serves_all(at: Whole) -> None:
    at.broker.state.topics.ensure("T", 1)
    await serves(at)


# Acknowledgements and offsets


def ack(**changes: Any) -> BatchAck:
    given: dict[str, Any] = {"consumer_group": "g", "topic": "T", "queue_id": 0, "start_offset": 0, "bits": b"\x01"}
    given |= {"pop_time": 1, "invisible_time": 1, "topic_mark": "0", "revive_queue_id": ORDERLY_REVIVE_QUEUE}
    return BatchAck(**given | changes)


@pytest.mark.parametrize("revive_queue_id", [ORDERLY_REVIVE_QUEUE, 0])
@pytest.mark.parametrize(
    "changes",
    [
        {"consumer_group": "nobody"},
        {"topic": "nothing"},
        {"topic_mark": "1"},
        {"queue_id": 4},
        {"queue_id": -1},
        {"queue_id": 123_456},
        {"start_offset": 1 << 64},
        {"start_offset": 1 << 63},
        {"start_offset": (1 << 63) - 1},
        {"start_offset": -1 << 63},
        {"start_offset": 77},
        {"consumer_group": "c" * 200_000},
        {"topic": "t" * 200_000},
    ],
    ids=lambda changes: str(changes)[:40],
)
@both_loops
async def test_a_batch_of_acknowledgements_notes_nothing_that_cannot_be(
    tmp_path: Path, changes: dict[str, Any], revive_queue_id: int
) -> None:
    async with whole(tmp_path) as at:
        at.broker.state.topics.ensure("T", 4)
        at.broker.state.groups.find("g")
        at.broker.state.store.append([draft(b"x", "T", 0)])
        at.broker.state.offsets.put("g", "T", 0, 0)
        body = msgspec.json.encode({"acks": [msgspec.to_builtins(ack(revive_queue_id=revive_queue_id, **changes))]})
        answer = await at.ask(200151, body)
        assert answer.code or changes["start_offset"] in (77, (1 << 63) - 1, -1 << 63), "passed over"
        assert at.broker.state.offsets.table == {"T@g": {0: 0}}
        assert [key for key in at.broker.state.stats._acks if key != ("T", "g")] == []
        query = await at.ask(14, consumerGroup="g", topic="T", queueId="0")
        assert (query.code, query.fields["offset"]) == (0, "0")


@both_loops
async def test_what_is_not_here_costs_the_rest_of_a_batch_nothing(tmp_path: Path) -> None:
    async with whole(tmp_path) as at:
        at.broker.state.topics.ensure("T", 1)
        at.broker.state.groups.find("g")
        at.broker.state.store.append([draft(b"x", "T", 0) for _ in range(3)])
        acks = [ack(consumer_group="deleted"), ack(bits=b"\x01"), ack(topic="deleted")]
        assert (await at.ask(200151, BatchAcks(acks=acks).encode())).code == 0
        assert at.broker.state.offsets.table == {"T@g": {0: 1}}


@pytest.mark.parametrize("code", [200051, 200053])
@pytest.mark.parametrize(
    "changes",
    [{"consumerGroup": "nobody"}, {"topic": "nothing"}, {"queueId": "4"}, {"offset": "77"}, {"offset": str(1 << 64)}],
    ids=str,
)
@both_loops
async def test_one_acknowledgement_notes_nothing_that_cannot_be(
    tmp_path: Path, code: int, changes: dict[str, str]
) -> None:
    async with whole(tmp_path) as at:
        at.broker.state.topics.ensure("T", 4)
        at.broker.state.groups.find("g")
        at.broker.state.store.append([draft(b"x", "T", 0)])
        fields: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": "0", "offset": "0"}
        fields["invisibleTime"] = "1000"
        fields |= {"extraInfo": f"0 1 1 {ORDERLY_REVIVE_QUEUE} 0 broker-a 0 0"} | changes
        assert (await at.ask(code, **fields)).code != 0
        assert at.broker.state.offsets.table == {}
        assert at.broker.state.stats._acks == {}


@both_loops
async def test_a_damaged_offset_in_the_file_is_dropped_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "store" / "config"
    directory.mkdir(parents=True)
    table = {"T@g": {"0": 5, "1": 1 << 64, "2": -(1 << 63), "99999999999": 1}, "U@g": {"0": (1 << 63) - 1}}
    (directory / FILE_NAME).write_text(json.dumps({"offsetTable": table}))
    async with whole(tmp_path) as at:
        # What is left is beyond the end of its queue, which has no message yet.
        assert at.broker.state.offsets.table == {"T@g": {0: 0}, "U@g": {0: 0}}
        at.broker.state.topics.ensure("T", 4)
        assert (await at.ask(14, consumerGroup="g", topic="T", queueId="1")).code == 22
    (said,) = [record for record in caplog.records if "offsets dropped" in record.getMessage()]
    assert said.levelno == logging.WARNING
    assert "count=3" in said.getMessage()


@pytest.mark.parametrize("queue_id", [4, -1, 2**31 - 1])
@both_loops
async def test_a_reset_and_a_commit_name_a_queue_that_is_there(tmp_path: Path, queue_id: int) -> None:
    async with whole(tmp_path) as at:
        at.broker.state.topics.ensure("T", 4)
        at.broker.state.groups.find("g")
        commit: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": str(queue_id), "commitOffset": "1"}
        assert (await at.ask(15, **commit)).code != 0
        if queue_id > 0:
            reset: dict[str, Any] = {"topic": "T", "group": "g", "timestamp": "0", "isForce": "true"}
            assert (await at.ask(222, **reset, queueId=str(queue_id), offset="0")).code != 0
        assert at.broker.state.offsets.table == {}


# Members


async def beat(client: Client, at: Whole, client_id: str, *groups: str) -> Command:
    told = [ProducerMember(group_name=group) for group in groups]
    body = Heartbeat(client_id=client_id, producer_data_set=told).encode()
    return await client.request(at.address, Command(34, body=body), TIMEOUT_S)


@both_loops
async def test_client_ids_are_bounded_and_go_with_their_connection(tmp_path: Path) -> None:
    async with whole(tmp_path) as at:
        producing = at.broker.state.members._producing
        async with Client(ConnectConfig(), SystemClock()) as client:
            assert (await beat(client, at, "x" * 900_000, "p")).code == 29
            for i in range(500):
                assert (await beat(client, at, f"{'x' * 240}{i}", "p")).code == 0
            assert 0 < len(producing) <= 64
            assert at.broker.state.members.producer_session(f"{'x' * 240}499") is not None
        await eventually(lambda: not producing and not at.broker.state.members.producer_groups)


# Transactions

CLOSED = [SCHEDULE_TOPIC, OP_HALF_TOPIC, MARK_TOPIC, CHECK_EXHAUSTED_TOPIC, topic_names.HALF_TOPIC]
CLOSED += ["rmq_sys_REVIVE_LOG_C1", topic_names.TIMER_TOPIC, "nothing"]


@pytest.mark.parametrize(("topic", "queue_id"), [*((topic, 0) for topic in CLOSED), ("T", 123_456)])
@both_loops
async def test_a_half_message_cannot_be_forged_to_reach_what_is_closed(
    tmp_path: Path, topic: str, queue_id: int
) -> None:
    async with whole(tmp_path) as at:
        at.broker.state.topics.ensure("T", 1)
        forged = {"REAL_TOPIC": topic, "REAL_QID": str(queue_id), "PGROUP": "p", "UNIQ_KEY": "u", "TRAN_MSG": "false"}
        fields = {"a": "p", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0"}
        sent = await at.ask(310, b"forged", **fields, i=join_properties(forged))
        assert sent.code == 0, sent.remark
        before = end_of(at, topic, queue_id)
        taken_up = await at.ask(323, msgId=sent.fields["msgId"])
        assert taken_up.code != 0
        assert end_of(at, topic_names.HALF_TOPIC, 0) == 0
        assert end_of(at, topic, queue_id) == before


def end_of(at: Whole, topic: str, queue_id: int) -> int:
    queue = at.broker.state.store.dispatch.queues.get((topic, queue_id))
    return 0 if queue is None else queue.next_offset


@pytest.mark.parametrize("is_oneway", [False, True])
@pytest.mark.parametrize(("topic", "queue_id"), [(SCHEDULE_TOPIC, 3), (MARK_TOPIC, 0), ("T", 123_456), ("nothing", 0)])
@both_loops
async def test_a_half_message_that_was_forged_before_cannot_be_committed(
    tmp_path: Path, topic: str, queue_id: int, is_oneway: bool
) -> None:
    async with whole(tmp_path) as at:
        at.broker.state.topics.ensure("T", 1)
        own: dict[str, Any] = {"PGROUP": "p", "UNIQ_KEY": "u", "TRAN_MSG": "true"}
        forged = own | {"REAL_TOPIC": topic, "REAL_QID": str(queue_id)}
        honest = own | {"REAL_TOPIC": "T", "REAL_QID": "0"}
        drafts = [draft(b"forged", topic_names.HALF_TOPIC, 0, **forged)]
        drafts += [draft(b"honest", topic_names.HALF_TOPIC, 0, **honest)]
        places = at.broker.state.store.append(drafts).physical_offsets
        before = end_of(at, topic, queue_id)
        for offset, place in enumerate(places):
            end = EndTransactionRequest(
                producer_group="p",
                half_queue_offset=offset,  # type: ignore[arg-type]
                physical_offset=place,  # type: ignore[arg-type]
                commit_or_rollback=8,
                is_from_check=True,
                message_id="u",
            )
            command = Command(37, flag=2 * is_oneway, fields=end.encode())
            if is_oneway:
                await at.client.send_oneway(at.address, command)
            else:
                answer = await at.client.request(at.address, command, TIMEOUT_S)
                assert (answer.code == 0) == bool(offset), answer.remark
        await eventually(lambda: bodies(at.broker.state.store, "T") == [b"honest"])
        assert end_of(at, topic, queue_id) == before


@both_loops
async def test_a_batch_of_too_many_acknowledgements_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async with whole(tmp_path) as at:
        answer = await at.ask(200151, b'{"acks":[' + b'{"no end' * 2_000)
        assert "2000 pops acknowledged at once" in (answer.remark or "")
