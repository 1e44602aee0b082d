"""The loop behind callers that have none: one thread for each process, started by the first who needs it.

A child of a fork has the memory of its parent and none of its threads: what was opened before would wait for ever. So
what was only made before a fork opens in the child, a producer that was open opens again there (`faces.py`), and anyone
else hears a clear sentence. What the parent opened is never closed in a child, nor freed: it is still in use elsewhere.
"""

import asyncio
import inspect
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from functools import update_wrapper
from types import GenericAlias, TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, get_args

from bolide.client import this_process
from bolide.errors import ClientError

T = TypeVar("T")
P = ParamSpec("P")
_PAGE_COUNT = 64
_lock = threading.Lock()
_loops: dict[int, "BackgroundLoop"] = {}
_of_parents: list[object] = []  # kept as they are


def _begin_child() -> None:
    """A thread of the parent may have held the lock."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_begin_child)


class BackgroundLoop:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self.loop = _new_loop()
        thread = threading.Thread(target=self.loop.run_forever, name="bolide.loop", daemon=True)
        thread.start()
        self._thread_id = thread.ident

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it there; the future is for any thread."""
        try:
            self.check()
        except ClientError:
            coroutine.close()
            raise
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it there and wait for it here."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C while waiting: what was asked for is given up too
            raise

    def check(self) -> None:
        """Raise where waiting could never end."""
        if self.process_id != this_process.process_id:
            raise ClientError(
                f"this was opened in process {self.process_id} and does not work in {os.getpid()}, a fork of it; "
                "open it after the fork"
            )
        if threading.get_ident() == self._thread_id:
            raise ClientError("a blocking call inside Bolide's own loop would wait for itself; use bolide.aio there")


def keep_of_parent(*opened: object) -> None:
    """What a parent opened, and uses: freed here it would be closed."""
    _of_parents.extend(opened)


class LoopOfFirstUse:
    """The loop of the process in which it is first needed; in a fork of that one it refuses."""

    def __init__(self) -> None:
        self._found: BackgroundLoop | None = None

    @property
    def bound(self) -> BackgroundLoop:
        found = self._found
        if found is None:
            found = self._found = background_loop()
        return found

    @property
    def is_of_parent(self) -> bool:
        return self._found is not None and self._found.process_id != this_process.process_id

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return self.bound.submit(coroutine)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.bound.run(coroutine)

    def check(self) -> None:
        self.bound.check()


class Core(Protocol):
    """What lives in the loop, and is opened and closed there."""

    def start(self) -> Coroutine[Any, Any, None]: ...

    def close(self) -> Coroutine[Any, Any, None]: ...


C = TypeVar("C", bound=Core)


class Blocking(Generic[C]):
    """What a caller without a loop holds; it does everything through its core, which lives in the background loop."""

    def __init__(self, core: C) -> None:
        self._core = core
        self._background = LoopOfFirstUse()

    def __repr__(self) -> str:
        return repr(self._core)

    def start(self) -> None:
        """Open it; `with` does it."""
        self._background.run(self._core.start())

    def close(self) -> None:
        """Leave, and end what it holds; the end of `with` does it. In a fork of the process that opened it: nothing."""
        if not self._background.is_of_parent:
            self._background.run(self._core.close())

    def _follow_fork(self) -> None:
        """Before each call; what can go on in a fork of the process that opened it takes its steps here."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# Methods of a blocking class that do what their namesake of the core does: its parameters, types and docstring.


def forward(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """One that waits for what the core's coroutine returns."""

    def call(self: Blocking[Any], /, *given: P.args, **options: P.kwargs) -> T:
        self._follow_fork()
        return self._background.run(method(self._core, *given, **options))

    return update_wrapper(call, method)


def forward_plain(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """One whose namesake is an ordinary function; that one must be called in the loop too."""

    def call(self: Blocking[Any], /, *given: P.args, **options: P.kwargs) -> T:
        async def in_loop() -> T:
            return method(self._core, *given, **options)

        return self._background.run(in_loop())

    return update_wrapper(call, method)


def forward_pages(
    method: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """One that iterates; a few items cross at a time, so that not each of them costs a switch between threads."""

    def call(self: Blocking[Any], /, *given: P.args, **options: P.kwargs) -> Iterator[T]:
        found = method(self._core, *given, **options)
        try:
            while page := self._background.run(_page(found)):
                yield from page
        finally:
            self._background.run(_closed(found))

    update_wrapper(call, method)
    shown = inspect.signature(method)
    items = GenericAlias(Iterator, get_args(shown.return_annotation))
    call.__signature__ = shown.replace(return_annotation=items)  # type: ignore[attr-defined]
    return call


async def _page(found: AsyncIterator[T]) -> list[T]:
    """The next few; an empty list at the end."""
    page: list[T] = []
    async for item in found:
        page.append(item)
        if len(page) == _PAGE_COUNT:
            break
    return page


async def _closed(found: AsyncIterator[T]) -> None:
    if isinstance(found, AsyncGenerator):
        await found.aclose()


def background_loop() -> BackgroundLoop:
    """The loop of this process."""
    with _lock:
        found = _loops.get(os.getpid())
        if found is None:
            _of_parents.extend(_loops.values())
            _loops.clear()
            found = _loops[os.getpid()] = BackgroundLoop()
        return found


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
