"""SQL92 expressions that requests bring: compiled once, in turns where they are long, and remembered up to a bound."""

import asyncio
import gc
import threading
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.tables import expressions as expressions_module
from bolide.broker.tables.expressions import AT_ONCE_LENGTH_MAX, Expressions, Uncompiled
from bolide.filter.sql import SQL92, Predicate, SqlError, compile_sql
from bolide.protocol.codes import ResponseCode
from tests.broker.pullers import GROUP, TOPIC, Rig, bodies_of, heartbeat_of, pull_of, pulling
from tests.broker.whole import whole
from tests.remoting.ends import Peer
from tests.remoting.loops import both_loops

ON: dict[str, Any] = {"enablePropertyFilter": "true"}
SLOW = " OR ".join(f"a{n} > {n}" for n in range(300))


def test_what_was_compiled_is_remembered_up_to_a_bound() -> None:
    expressions = Expressions()
    first = expressions.compiled("a = 1", SQL92)
    assert expressions.compiled("a = 1", SQL92) is first
    del first
    for i in range(400):
        expressions.compiled_at_once(f"a = {i} OR b = '{'x' * 9000}'", SQL92)
    gc.collect()
    assert len(expressions._recent) <= expressions_module.REMEMBERED_COUNT_MAX
    assert sum(map(len, expressions._recent)) <= expressions_module.REMEMBERED_LENGTH_MAX
    assert len(expressions._alive) == len(expressions._recent)


def test_what_somebody_waits_with_is_known_however_many_come_after_it() -> None:
    expressions = Expressions()
    held = expressions.compiled_at_once(SLOW, SQL92)
    for i in range(300):
        expressions.compiled(f"a = {i}", SQL92)
    assert expressions.compiled(SLOW, SQL92) is held


def test_a_long_text_that_is_not_known_is_not_compiled_at_once() -> None:
    expressions = Expressions()
    short = f"a = '{'x' * (AT_ONCE_LENGTH_MAX - 6)}'"
    assert expressions.compiled(short, SQL92).expression == short
    with pytest.raises(Uncompiled) as busy:
        expressions.compiled(SLOW, SQL92)
    assert (busy.value.code, busy.value.text) == (ResponseCode.SYSTEM_BUSY, SLOW)
    for text in ("", "x" * 20_000):  # which compile_sql sees at once
        with pytest.raises(SqlError):
            expressions.compiled(text, SQL92)


def test_whoever_compiles_breathes_between_the_words() -> None:
    breaths: list[None] = []
    compile_sql(SLOW, lambda: breaths.append(None))
    assert len(breaths) > 300 * 4


def _put(rig: Rig) -> None:
    rig.put(b"yes", a7="8")
    rig.put(b"no", a7="7")


@both_loops
async def test_a_pull_with_a_long_expression_is_answered_when_that_has_been_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []

    def compile_noted(text: str, *more: Any) -> Predicate:
        compiled.append(text)
        return compile_sql(text, *more)

    monkeypatch.setattr(expressions_module, "compile_sql", compile_noted)
    async with pulling(tmp_path, **ON) as rig:
        _put(rig)
        peers = [await Peer.connect(rig.port) for _ in range(12)]  # more than there are threads
        asked = pull_of(0, subscription=SLOW, expression_type=SQL92)
        answers = await asyncio.gather(*(peer.ask(asked) for peer in peers))
        assert [bodies_of(answer) for answer in answers] == [[b"yes"]] * len(peers)
        assert compiled == [SLOW]
        for peer in peers:
            peer.leave()


@both_loops
async def test_many_who_bring_long_expressions_do_not_keep_each_other_from_an_answer(tmp_path: Path) -> None:
    async with pulling(tmp_path, **ON) as rig:
        _put(rig)
        peers = [await Peer.connect(rig.port) for _ in range(20)]
        texts = [f"b{n} IS NOT NULL OR {SLOW}" for n in range(len(peers))]
        asked = [pull_of(0, subscription=text, expression_type=SQL92) for text in texts]
        answers = await asyncio.gather(*(peer.ask(each) for peer, each in zip(peers, asked, strict=True)))
        assert [bodies_of(answer) for answer in answers] == [[b"yes"]] * len(peers)
        bad = await peers[0].ask(pull_of(0, subscription=f"{SLOW} AND (", expression_type=SQL92))
        assert bad.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        for peer in peers:
            peer.leave()


@both_loops
async def test_who_leaves_while_his_expression_is_compiled_keeps_nobody_waiting(tmp_path: Path) -> None:
    async with pulling(tmp_path, **ON) as rig:
        _put(rig)
        leavers = [await Peer.connect(rig.port) for _ in range(12)]
        for number, peer in enumerate(leavers):
            peer.send(pull_of(0, subscription=f"b{number} IS NOT NULL OR {SLOW}", expression_type=SQL92))
        for peer in leavers:
            peer.leave()
        stayer = await Peer.connect(rig.port)
        answer = await stayer.ask(pull_of(0, subscription=f"b99 IS NOT NULL OR {SLOW}", expression_type=SQL92))
        assert bodies_of(answer) == [b"yes"]
        stayer.leave()


@both_loops
async def test_a_heartbeat_with_a_long_expression_is_heard_when_that_has_been_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled_in: set[str] = set()

    def compile_noted(text: str, *more: Any) -> Predicate:
        compiled_in.add(threading.current_thread().name.rpartition("_")[0])
        return compile_sql(text, *more)

    monkeypatch.setattr(expressions_module, "compile_sql", compile_noted)
    async with whole(tmp_path, **ON) as served:
        heartbeat = heartbeat_of(expression=SLOW, expression_type=SQL92, version=1)
        assert (await served.ask(heartbeat.code, heartbeat.body)).code == 0
        assert compiled_in == {"slow_work"}
        kept = served.broker.filters.get(TOPIC, GROUP)
        assert kept is not None
        assert kept.expression == SLOW
