"""Answers that lie ready: right, dropped when stale, bounded."""

import msgspec
import pytest

from bolide import kernel
from bolide.namesrv import views
from bolide.namesrv.answers import Answers
from bolide.namesrv.routes import RouteTables
from bolide.protocol.command import Command, encode_commands, read_commands
from tests.namesrv.brokers import RW, TOPICS, announce


def cut(stream: bytes) -> list[int]:
    return kernel.cut_frames(stream, len(stream), 1 << 24)[0]


def look_ups(*commands: Command) -> tuple[bytes, list[int]]:
    stream = encode_commands(list(commands))
    return stream, cut(stream)


def look_up(topic: str, version: int = 479, opaque: int = 0, **fields: str) -> Command:
    return Command(105, opaque=opaque, fields={"topic": topic, **fields}, version=version)


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def tables(answers: Answers) -> RouteTables:
    tables = RouteTables(answers.forget)
    tables.register(announce("a"), 0)
    return tables


def keep(answers: Answers, tables: RouteTables, topic: str, *, is_quoted: bool = True) -> bytes:
    route = views.route(tables, topic)
    assert route is not None
    return answers.keep(topic, route, is_quoted=is_quoted)


def answered(answers: Answers, *commands: Command) -> tuple[list[Command], int]:
    replies, left = answers.answer(*look_ups(*commands))
    return read_commands(replies, cut(replies)), len(left) // 2


def test_a_kept_route_is_answered_in_the_form_its_asker_reads(answers: Answers, tables: RouteTables) -> None:
    quoted = keep(answers, tables, "T1")
    bare = keep(answers, tables, "T1", is_quoted=False)
    assert b'{"0":"a-0:10911"}' in quoted
    assert b'{0:"a-0:10911"}' in bare
    replies, left_count = answered(
        answers,
        look_up("T1", 479, opaque=1),
        look_up("T1", 400, opaque=2),
        look_up("T1", 400, opaque=3, acceptStandardJsonOnly="true"),
        look_up("T2", opaque=4),
    )
    assert [(reply.opaque, reply.code, reply.body) for reply in replies] == [
        (1, 0, quoted),
        (2, 0, bare),
        (3, 0, quoted),
    ]
    assert left_count == 1


def test_only_the_form_that_was_asked_for_is_encoded(answers: Answers, tables: RouteTables) -> None:
    keep(answers, tables, "T1")
    assert len(answers) == 1
    assert answered(answers, look_up("T1", 400)) == ([], 1)


def test_a_change_drops_the_answers_of_its_topics_alone(answers: Answers, tables: RouteTables) -> None:
    for topic in TOPICS:
        keep(answers, tables, topic)
    tables.delete_topic("T1")
    assert answered(answers, look_up("T1"), look_up("T2")) == (answered(answers, look_up("T2"))[0], 1)
    tables.register(announce("b", topics={"T2": RW, "N": RW}), 0)
    assert answered(answers, look_up("T2"))[1] == 1
    assert answered(answers, look_up("TBW102"))[1] == 0
    tables.disconnect("to a-0:10911", 1)
    assert len(answers) == 0
    assert answers.size == 0


def test_a_kept_answer_is_always_what_the_tables_would_say(answers: Answers, tables: RouteTables) -> None:
    changes = [
        lambda: tables.wipe_write("a"),
        lambda: tables.add_write("a"),
        lambda: tables.register(announce("a", 1), 1),
        lambda: tables.register(announce("a", filter_servers=["f:1"]), 1),
        lambda: tables.register(announce("b"), 1),
        lambda: tables.register(announce("a", zone="z"), 1),
        lambda: tables.unregister("DefaultCluster", "b", "b-0:10911", 2),
        lambda: tables.register(announce("a", mappings={"T1": msgspec.Raw(b"{}")}, counter=3), 3),
        lambda: tables.register(announce("a", mappings={"T1": msgspec.Raw(b'{"epoch":2}')}, counter=4), 3),
    ]
    for change in changes:
        keep(answers, tables, "T1")
        change()
        route = views.route(tables, "T1")
        assert route is not None
        replies, left_count = answered(answers, look_up("T1"))
        assert left_count == 1 or replies[0].body == route.encode()


def test_memory_is_bounded(tables: RouteTables) -> None:
    size = len(keep(Answers(), tables, "T1"))
    answers = Answers(size_max=2 * size)
    for i in range(10):
        route = views.route(tables, "T1")
        assert route is not None
        answers.keep(f"topic-{i}", route, is_quoted=True)
        assert answers.size <= 2 * size
    answers.clear()
    assert route is not None
    for _ in range(5):
        answers.keep("topic", route, is_quoted=True)
    assert (answers.size, len(answers)) == (size, 1)


def test_everything_else_of_a_read_is_left_in_order(answers: Answers, tables: RouteTables) -> None:
    keep(answers, tables, "T1")
    stream, bounds = look_ups(
        Command(106, opaque=1), look_up("T1", opaque=2), Command(103, opaque=3, body=b"x"), look_up("T9", opaque=4)
    )
    replies, left = answers.answer(stream, bounds)
    assert [command.opaque for command in read_commands(replies, cut(replies))] == [2]
    assert [command.opaque for command in read_commands(stream, left)] == [1, 3, 4]
