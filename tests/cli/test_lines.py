"""The log of a server: a line is a record, whatever strangers put into it, and none of them fills it."""

import argparse
import asyncio
import io
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from bolide.cli import start
from bolide.cli.lines import LINE_LENGTH_MAX, OneLine
from bolide.clock import SystemClock
from bolide.protocol.bodies import ConsumerMember, Heartbeat, ProducerMember, Subscription
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.remoting.lines import LINES_MAX, SPAN_S, LineBudget, spoken
from tests.broker.whole import TIMEOUT_S, whole
from tests.e2e.up import ask, running
from tests.remoting.loops import eventually

FORGED = "x\n2026-11-16 21:00:00,000 ERROR bolide.broker: the disk is full\r\x1b[2J\u2028\u202e"


@pytest.fixture(params=["text"])
def written(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What a server would write, set up as its command does it."""
    stream, root = io.StringIO(), logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr("sys.stderr", stream)
    level = root.level
    start.set_up_logs(argparse.Namespace(log_level="info", log_format=request.param, log_name="b-%d"))
    yield stream
    root.setLevel(level)


def test_a_record_is_one_line_whatever_it_shows(written: io.StringIO) -> None:
    logging.getLogger("bolide.test").info("joined client=%s group=%r", FORGED, "g")
    (line,) = written.getvalue().splitlines()
    assert r"client=x\n2026-11-16 21:00:00,000 ERROR bolide.broker: the disk is full\r\x1b[2J\u2028\u202e" in line
    assert line.isprintable()


def test_a_line_says_which_server_wrote_it(written: io.StringIO) -> None:
    logging.getLogger("bolide.test").info("joined")
    assert written.getvalue().endswith(" INFO b-%d bolide.test: joined\n")


@pytest.mark.parametrize("written", ["json"], indirect=True)
def test_a_record_is_one_object_with_the_same_keys_whatever_it_shows(written: io.StringIO) -> None:
    log = logging.getLogger("bolide.test")
    log.warning("segment %s rolled: base=%d file=%s", "x", 7, FORGED)
    log.info("100 %% of %d pages done", 3)
    log.info("plain text=here")
    try:
        raise ValueError(FORGED)
    except ValueError:
        log.exception("failed")
    rolled, done, plain, failed = [json.loads(line) for line in written.getvalue().splitlines()]
    assert rolled["message"] == f"segment x rolled: base=7 file={FORGED}"
    assert (rolled["event"], rolled["facts"]) == ("segment ... rolled", {"base": 7, "file": FORGED})
    assert (rolled["level"], rolled["server"], rolled["logger"]) == ("warning", "b-%d", "bolide.test")
    assert datetime.fromisoformat(rolled["time"]).tzinfo is not None
    assert (done["event"], done["message"], done["facts"]) == ("100 % of ... pages done", "100 % of 3 pages done", {})
    assert (plain["event"], plain["facts"]) == ("plain", {})
    assert failed.pop("trace").startswith("Traceback")
    assert set(rolled) == set(done) == set(failed)
    assert written.getvalue().isascii()


def test_a_line_has_an_end(written: io.StringIO) -> None:
    logging.getLogger("bolide.test").info("%s", "x" * 1_000_000)
    (line,) = written.getvalue().splitlines()
    assert len(line) < LINE_LENGTH_MAX + 100


def test_no_line_of_a_traceback_looks_like_a_record(written: io.StringIO) -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        logging.getLogger("bolide.test").exception("failed")
    first, *rest = written.getvalue().splitlines()
    assert first.endswith("ERROR b-%d bolide.test: failed")
    assert len(rest) > 3
    assert all(line.startswith("    ") for line in rest)
    assert "\x1b" not in written.getvalue()


def test_plain_text_of_any_script_is_left_as_it_is() -> None:
    record = logging.LogRecord("n", logging.INFO, "", 0, "Größe %s 主题", ("é",), None)
    assert OneLine("%(message)s").format(record) == "Größe é 主题"


def test_a_connection_has_so_many_lines_in_a_while_and_errors_have_their_own() -> None:
    budget = LineBudget()
    left = [budget.take(100.0, is_error=False) for _ in range(LINES_MAX + 2)]
    assert left == [*range(LINES_MAX - 1, -1, -1), -1, -2]
    assert budget.take(100.0, is_error=True) > 0
    assert budget.left_out == 2
    assert budget.take(100.0 + SPAN_S, is_error=False) > 0
    assert budget.take(3.0, is_error=False) > 0, "the clock was set back"


def test_the_last_line_says_that_no_more_follow_and_the_next_one_how_many_there_were(written: io.StringIO) -> None:
    @dataclass
    class Peer:
        lines: LineBudget | None = None

    def say(count: int, at_s: float) -> None:
        for i in range(count):
            record = logging.LogRecord("n", logging.INFO, "", 0, "joined group=%d", (i,), None)
            record.created = at_s
            logging.getLogger().handle(record)

    peer = Peer()
    spoken(peer, say, LINES_MAX + 5, 100.0)
    spoken(peer, say, 1, 100.0 + SPAN_S)
    say(1, 100.0)
    lines = written.getvalue().splitlines()
    assert len(lines) == LINES_MAX + 2
    assert lines[-3].endswith("joined group=29 (what this connection causes in the next 10 s is left out)")
    assert lines[-2].endswith("joined group=0 (5 lines of this connection before it were left out)")
    assert lines[-1].endswith("joined group=0")


def test_what_strangers_send_does_not_fill_the_log(tmp_path: Path, written: io.StringIO) -> None:
    client_id = "c" * 255
    producers = [ProducerMember(group_name=f"p{i}") for i in range(1_000)]
    wanted = [Subscription(topic="T", sub_string=f"bad {i}", expression_type="SQL92", sub_version=i) for i in range(99)]
    consumers = [ConsumerMember(group_name=f"c{i}", subscription_data_set=wanted) for i in range(20)]
    heartbeats = [
        Heartbeat(client_id=client_id, producer_data_set=producers),
        Heartbeat(client_id=client_id, consumer_data_set=consumers),
        Heartbeat(client_id=FORGED),
    ]

    async def flood() -> None:
        async with whole(tmp_path, enablePropertyFilter="true") as at:
            before = len(written.getvalue())
            async with Client(ConnectConfig(), SystemClock()) as stranger:
                for heartbeat in heartbeats * 5:
                    await stranger.request(at.address, Command(34, body=heartbeat.encode()), TIMEOUT_S)
            await eventually(lambda: not at.broker.state.members.producer_groups)
            assert len(written.getvalue()) - before < 100_000

    asyncio.run(flood())
    lines = written.getvalue().splitlines()
    assert all("\x1b" not in line for line in lines)
    assert any("is left out" in line for line in lines)
    assert any("producer joined group=p0" in line for line in lines)


@pytest.mark.parametrize("is_known", [True, False])
def test_requests_of_others_are_told_while_one_floods(tmp_path: Path, written: io.StringIO, is_known: bool) -> None:
    async def flood() -> None:
        async with whole(tmp_path) as at, Client(ConnectConfig(), SystemClock()) as honest:
            told = [ProducerMember(group_name=f"p{i}") for i in range(500)]
            await at.ask(34, Heartbeat(client_id="flood", producer_data_set=told).encode())
            own = Heartbeat(client_id="honest", producer_data_set=[ProducerMember(group_name="orders")]).encode()
            client = at.client if is_known else honest
            await client.request(at.address, Command(34, body=own), TIMEOUT_S)

    asyncio.run(flood())
    assert ("producer joined group=orders client=honest" in written.getvalue()) == (not is_known)


@pytest.mark.parametrize(
    ("server", "code"),
    [
        ("namesrv", RequestCode.UPDATE_NAMESRV_CONFIG),
        ("broker", RequestCode.UPDATE_BROKER_CONFIG),
        ("controller", RequestCode.UPDATE_CONTROLLER_CONFIG),
    ],
)
def test_how_much_the_log_says_is_changed_while_a_server_runs(tmp_path: Path, server: str, code: RequestCode) -> None:
    place = ("--host", "127.0.0.1", "--port", "0", *(() if server == "namesrv" else ("--data", "data")))
    with running(tmp_path, server, *place) as up:
        assert ask(up.ready[server], Command(code, body=b"bolideLogLevel=loud")).code != 0
        assert ask(up.ready[server], Command(code, body=b"bolideLogLevel=error")).code == 0
        code_at_end, _, log = up.stop()
    assert code_at_end == 0
    assert "starts kernel" in log or "broker starts" in log
    assert "signal=SIGTERM" not in log
