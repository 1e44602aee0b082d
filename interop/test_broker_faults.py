"""Nothing acknowledged is lost and nothing is out of order, whatever happens to our broker, its clients or the line.

A producer sends number after number into every queue and tells what was acknowledged; orderly consumers tell what they
receive. Messages may come twice, as RocketMQ promises no more, but each queue's first receipts go upwards.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bolide.testing.link import Link, open_link
from interop.clients import IMPATIENT, JavaAgent, java_agent
from interop.cluster import HOST, bolide_broker, bolide_name_server, bolide_up
from interop.process import await_moment, await_that, free_port
from interop.release import CLIENT_RELEASES

TOPIC, GROUP = "Load", "of-load"
TIMEOUT_S = 60.0
CUT_S = 10.0
CHURN_S = 60.0

releases = pytest.mark.parametrize("release", CLIENT_RELEASES)


def acknowledged(agent: JavaAgent) -> set[str]:
    return {event["body"] for event in agent.events("acknowledged")}


def await_load(agent: JavaAgent, more: int) -> None:
    """Wait until so many more messages are acknowledged."""
    wanted = len(acknowledged(agent)) + more
    await_that(f"{wanted} acknowledged", lambda: len(acknowledged(agent)) >= wanted, TIMEOUT_S)


def await_all_received(producing: JavaAgent, *agents: JavaAgent) -> None:
    def missing() -> set[str]:
        received = {event["body"] for agent in agents for event in agent.events("received")}
        return acknowledged(producing) - received

    await_that("every acknowledged message is received", lambda: not missing(), TIMEOUT_S)


def assert_in_order(agent: JavaAgent) -> None:
    """In every queue the numbers of the first receipts go upwards."""
    seen: set[str] = set()
    last: dict[str, int] = {}
    for body in (event["body"] for event in agent.events("received")):
        queue_id, _, number = body.partition("/")
        if body not in seen:
            assert int(number) > last.get(queue_id, -1), f"queue {queue_id}: {number} came after {last[queue_id]}"
            last[queue_id] = int(number)
            seen.add(body)


def consume(agent: JavaAgent, name: str, **options: object) -> None:
    agent.do("push", name=name, group=GROUP, topic=TOPIC, orderly=True, **options)


@pytest.mark.parametrize("release", ["4.9.8", pytest.param("5.5.0", marks=pytest.mark.short)])
def test_a_broker_killed_under_load_has_all_that_it_acknowledged(
    tmp_path: Path, stack: ExitStack, release: str
) -> None:
    ports = free_port(), free_port(-2)
    station = stack.enter_context(bolide_up(tmp_path, ports=ports))
    station.make_topic(TOPIC)
    agent = stack.enter_context(java_agent(tmp_path, release, station.name_servers, timeoutMs=3000))
    consume(agent, "orderly")
    agent.do("load", topic=TOPIC)
    for _ in range(2):
        await_load(agent, 2000)
        station.program.kill()
        station = stack.enter_context(bolide_up(tmp_path, ports=ports))
    await_load(agent, 2000)
    agent.do("endload")
    await_all_received(agent, agent)
    assert_in_order(agent)


@pytest.mark.parametrize("release", [pytest.param("4.9.8", marks=pytest.mark.short), "5.5.0"])
def test_what_a_killed_consumer_had_in_hand_goes_to_the_next(tmp_path: Path, stack: ExitStack, release: str) -> None:
    station = stack.enter_context(bolide_up(tmp_path))
    station.make_topic(TOPIC)
    dies, lives = (stack.enter_context(java_agent(tmp_path, release, station.name_servers)) for _ in range(2))
    lives.do("load", topic=TOPIC)
    await_load(lives, 2000)
    lives.do("endload")
    dies.do("push", name="slow", group=GROUP, topic=TOPIC, pauseMs=20)
    await_that("a part is received", lambda: len(dies.events("received")) > 200, TIMEOUT_S)
    dies.program.kill()
    lives.do("push", name="next", group=GROUP, topic=TOPIC)
    await_all_received(lives, lives, dies)
    in_hand = {event["body"] for event in dies.events("received")}
    assert acknowledged(lives) - in_hand <= {event["body"] for event in lives.events("received")}


@releases
def test_consumers_that_join_and_leave_for_a_minute_miss_nothing(
    tmp_path: Path, stack: ExitStack, release: str
) -> None:
    station = stack.enter_context(bolide_up(tmp_path))
    station.make_topic(TOPIC)
    agent = stack.enter_context(java_agent(tmp_path, release, station.name_servers, **IMPATIENT))
    agent.do("load", topic=TOPIC, pauseMs=5)
    consume(agent, "stays")
    deadline_s = time.monotonic() + CHURN_S
    rounds = 0
    while time.monotonic() < deadline_s:
        for name in ("comes", "comes-too"):
            consume(agent, name)
        await_load(agent, 500)
        for name in ("comes", "comes-too"):
            agent.do("stop", name=name)
        await_load(agent, 500)
        rounds += 1
    agent.do("endload")
    await_all_received(agent, agent)
    assert_in_order(agent)
    assert rounds > 3
    assert agent.received("stays")
    assert agent.received("comes")


class HeldLink:
    """A link of `bolide.testing` in a thread of its own, for a scenario without a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, link: Link) -> None:
        self._loop = loop
        self._link = link
        self.address = link.address

    def do(self, act: Callable[[Link], None]) -> None:
        asyncio.run_coroutine_threadsafe(self._act(act), self._loop).result(10)

    async def _act(self, act: Callable[[Link], None]) -> None:
        act(self._link)


@contextmanager
def held_link(target: str) -> Iterator[HeldLink]:
    opened: queue.Queue[HeldLink] = queue.Queue()
    ended = asyncio.Event()

    async def hold() -> None:
        async with open_link(target) as link:
            opened.put(HeldLink(asyncio.get_running_loop(), link))
            await ended.wait()

    thread = threading.Thread(target=asyncio.run, args=(hold(),))
    thread.start()
    held = opened.get(timeout=10)
    try:
        yield held
    finally:
        held.do(lambda _: ended.set())
        thread.join(10)


def break_line(link: Link) -> None:
    link.is_down = True
    link.cut()


@pytest.mark.parametrize("fault", [break_line, Link.freeze])
@releases
def test_a_line_cut_for_ten_seconds_costs_time_only(
    tmp_path: Path, stack: ExitStack, release: str, fault: Callable[[Link], None]
) -> None:
    server = stack.enter_context(bolide_name_server(tmp_path))
    port = free_port(-2)
    link = stack.enter_context(held_link(f"{HOST}:{port}"))
    station = stack.enter_context(bolide_broker(tmp_path, server.endpoint, port=port, advertise=link.address))
    station.make_topic(TOPIC)
    agent = stack.enter_context(java_agent(tmp_path, release, server.endpoint, timeoutMs=3000))
    consume(agent, "orderly")
    agent.do("load", topic=TOPIC, pauseMs=1)
    await_load(agent, 1000)
    link.do(fault)
    await_moment(time.time() + 1)  # what was on its way has come
    before = len(acknowledged(agent))
    await_moment(time.time() + CUT_S)
    assert len(acknowledged(agent)) == before
    link.do(Link.heal)
    await_load(agent, 1000)
    agent.do("endload")
    await_all_received(agent, agent)
    assert_in_order(agent)
