"""Pages for Prometheus: what strangers may ask, and how little of the loop they get."""

import asyncio
import contextlib
import itertools
from collections.abc import Iterator

import pytest

from bolide.clock import SystemClock
from bolide.metrics.config import MetricsConfig
from bolide.metrics.page import Family, labels
from bolide.remoting import pages as limits
from bolide.remoting.health import show_metrics
from bolide.remoting.pages import Answer, PageServer, serve_pages
from tests.remoting.loops import both_loops

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


async def ask(server: PageServer | None, request: bytes = GET) -> bytes:
    assert server is not None
    host, port = server.addresses[0].rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), 30)
    finally:
        writer.close()


def told(answer: bytes) -> tuple[int, str]:
    """The status and the text, out of its chunks."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    text = b""
    if b"chunked" not in head:
        return int(head.split()[1]), rest.decode()
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        text += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    assert answer.endswith(b"0\r\n\r\n")
    return int(head.split()[1]), text.decode()


class WorkClock(SystemClock):
    """Time passes when somebody works."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:  # type: ignore[override]
        return self.now_s


def hello() -> Answer:
    return Answer(iter(["hello ", "there"]))


@both_loops
async def test_a_page_is_asked_for_by_its_path() -> None:
    async with serve_pages("127.0.0.1", 0, {"/metrics": hello}, SystemClock()) as server:
        assert told(await ask(server)) == (200, "hello there")
        assert told(await ask(server, b"GET /metrics?x=1 HTTP/1.0\r\n\r\n")) == (200, "hello there")
        assert told(await ask(server, b"HEAD /metrics HTTP/1.0\r\n\r\n")) == (200, "")
        assert told(await ask(server, b"GET / HTTP/1.0\r\n\r\n")) == (404, "no such page; there are /metrics\n")
        assert told(await ask(server, b"POST /metrics HTTP/1.0\r\n\r\n"))[0] == 405


@both_loops
@pytest.mark.parametrize("request_", [b"hello\r\n\r\n", bytes(limits.HEAD_SIZE_MAX + 1), b"GET /met"])
async def test_what_is_no_short_request_is_not_answered(request_: bytes) -> None:
    async with serve_pages("127.0.0.1", 0, {"/metrics": hello}, SystemClock()) as server:
        assert server is not None
        host, port = server.addresses[0].rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request_)
        if writer.can_write_eof() and request_ == b"GET /met":
            writer.write_eof()
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()
        assert told(await ask(server))[0] == 200


@both_loops
async def test_the_one_who_says_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ASK_LIMIT_S", 0.05)
    async with serve_pages("127.0.0.1", 0, {"/metrics": hello}, SystemClock()) as server:
        assert await ask(server, b"GET") == b""


@both_loops
async def test_few_may_ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS_MAX", 1)
    async with serve_pages("127.0.0.1", 0, {"/metrics": hello}, SystemClock()) as server:
        assert server is not None
        host, port = server.addresses[0].rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(GET[:-2])
        with pytest.raises((ConnectionResetError, ValueError, IndexError)):
            told(await ask(server))
        writer.write(GET[-2:])
        assert told(await reader.read()) == (200, "hello there")
        writer.close()


@both_loops
async def test_the_one_who_does_not_take_his_page_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TAKE_LIMIT_S", 0.05)
    is_closed = asyncio.Event()

    def endless() -> Iterator[str]:
        try:
            while True:
                yield "x" * 65_536
        finally:
            is_closed.set()

    async with serve_pages("127.0.0.1", 0, {"/metrics": lambda: Answer(endless())}, SystemClock()) as server:
        assert server is not None
        host, port = server.addresses[0].rsplit(":", 1)
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(GET)
        async with asyncio.timeout(30):
            await is_closed.wait()
        writer.close()


@both_loops
async def test_a_long_page_is_made_in_slices_and_the_loop_has_most_of_its_time() -> None:
    """The clock is held: each piece takes a tenth of a slice, so that ten of them are one."""
    clock = WorkClock()
    turns: list[int] = []
    made = 0

    def slow() -> Iterator[str]:
        nonlocal made
        for _ in range(95):
            clock.now_s += limits.SLICE_S / 10
            made += 1
            yield "piece\n"

    async def count_turns() -> None:
        while True:
            turns.append(made)
            await asyncio.sleep(0)

    async with (
        serve_pages("127.0.0.1", 0, {"/metrics": lambda: Answer(slow())}, clock) as server,
        asyncio.TaskGroup() as group,
    ):
        counting = group.create_task(count_turns())
        assert told(await ask(server)) == (200, "piece\n" * 95)
        counting.cancel()
    steps = [late - early for early, late in itertools.pairwise(turns)]
    assert max(steps) <= 11
    assert sum(step > 0 for step in steps) >= 9


@both_loops
async def test_a_port_that_is_taken_is_warned_of_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with serve_pages("127.0.0.1", 0, {}, SystemClock()) as first:
        assert first is not None
        port = int(first.addresses[0].rsplit(":", 1)[1])
        async with serve_pages("127.0.0.1", port, {}, SystemClock()) as second:
            assert second is None
    assert "metricsPromExporterPort" in caplog.text


@both_loops
async def test_a_server_shows_its_metrics_that_it_lives_and_whether_it_is_ready() -> None:
    why = ""
    config = MetricsConfig(kind="PROM", host="127.0.0.1", port=0, labels="env:test")
    family = Family("things_total", "counter", "Things.")
    page = [(family, [(labels(kind="x"), 3)])]
    async with show_metrics(config, lambda: page, {"cluster": "c"}, lambda: why, SystemClock()) as server:
        status, text = told(await ask(server))
        assert (status, text.splitlines()[-1]) == (200, 'things_total{kind="x",cluster="c",env="test"} 3.0')
        assert "bolide_build_info{" in text
        assert told(await ask(server, b"GET /healthz HTTP/1.0\r\n\r\n")) == (200, "alive\n")
        assert told(await ask(server, b"GET /readyz HTTP/1.0\r\n\r\n")) == (200, "ready\n")
        why = "the disk is full"
        assert told(await ask(server, b"GET /readyz HTTP/1.0\r\n\r\n")) == (503, "the disk is full\n")


@both_loops
async def test_without_a_setting_there_is_no_port() -> None:
    async with show_metrics(MetricsConfig(), list, {}, str, SystemClock()) as server:
        assert server is None
