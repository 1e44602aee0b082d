"""One test body, both loops; or in virtual time. What a loop would only have logged fails the test."""

import asyncio
import functools
import inspect
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
import uvloop

from bolide.testing.loop import VirtualLoop

Test = Callable[..., Coroutine[Any, Any, None]]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]
# The rooms that `make test` runs on both kernels. A kernel knows no loop: what one finds on asyncio it finds on uvloop.
BOTH_KERNELS = {"protocol", "remoting", "namesrv", "store", "broker"}
REAL_LIMIT_S = 120  # of a machine with much else to do
REAL_WAIT_S = 60
POLL_INTERVAL_S = 0.002


def run_on(loop_factory: LoopFactory, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    complaints: list[dict[str, Any]] = []

    async def listen_and_run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
        await body()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(listen_and_run())
    assert not complaints


def loops_of(room: str, kernel: str | None) -> dict[str, LoopFactory]:
    """Both, unless the room is run a second time with the other kernel (`make test`): then each kernel has its loop."""
    loops: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    paired = {"plain": "asyncio", "compiled": "uvloop"}.get(kernel or "")
    return {paired: loops[paired]} if paired and room in BOTH_KERNELS else loops


def both_loops(test: Test) -> Callable[..., None]:
    """Run an async test on asyncio and on uvloop, each within some real seconds."""
    loops = loops_of(test.__module__.split(".")[1], os.environ.get("BOLIDE_KERNEL"))

    @pytest.mark.parametrize("loop_factory", loops.values(), ids=loops)
    @functools.wraps(test)
    def on_a_loop(*, loop_factory: LoopFactory, **given: Any) -> None:
        async def in_time() -> None:
            async with asyncio.timeout(REAL_LIMIT_S):
                await test(**given)

        run_on(loop_factory, in_time)

    own = inspect.signature(test)
    factory = inspect.Parameter("loop_factory", inspect.Parameter.KEYWORD_ONLY)
    on_a_loop.__signature__ = own.replace(parameters=[*own.parameters.values(), factory])  # type: ignore[attr-defined]
    return on_a_loop


def one_loop(test: Test) -> Callable[..., None]:
    """Run a long async test on uvloop alone."""

    @functools.wraps(test)
    def on_uvloop(**given: Any) -> None:
        run_on(uvloop.new_event_loop, lambda: test(**given))

    return on_uvloop


def virtual_time(test: Test) -> Callable[..., None]:
    """Run an async test on a loop whose time jumps when everybody is idle."""

    @functools.wraps(test)
    def in_virtual_time(**given: Any) -> None:
        run_on(VirtualLoop, lambda: test(**given))

    return in_virtual_time


async def eventually(condition: Callable[[], bool], limit_s: float = 10) -> None:
    """Wait until a condition holds. In virtual time the limit is part of what a test says, and the looks become rarer;
    in real time the machine's other work counts too, and the limit is longer.
    """
    is_virtual = isinstance(asyncio.get_running_loop(), VirtualLoop)
    stretch = 1
    async with asyncio.timeout(limit_s if is_virtual else max(limit_s, REAL_WAIT_S)):
        while not condition():
            await asyncio.sleep(POLL_INTERVAL_S * stretch)
            stretch = min(stretch * 2, 500) if is_virtual else 1


async def within(limit_s: float, wait: Awaitable[Any]) -> Any:
    async with asyncio.timeout(limit_s):
        return await wait


def own_loop() -> Callable[[], bool]:
    """Tells whether it is asked in the loop that runs now. A cluster of other tests may live in this process: what is
    replaced for everybody counts what happens here alone.
    """
    loop = asyncio.get_running_loop()
    return lambda: asyncio.get_running_loop() is loop


class Turns:
    """Counts the turns of the loop."""

    def __init__(self) -> None:
        self.now = 0
        self._handle = asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        self.now += 1
        self._handle = asyncio.get_running_loop().call_soon(self._step)

    def close(self) -> None:
        self._handle.cancel()
