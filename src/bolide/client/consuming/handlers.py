"""Functions that are called for messages: `@handler` names them, `run` starts them all and stops them on a signal.

    @bolide.handler("Orders", group="orders-cg", concurrency=8)
    def on_order(message): ...

    bolide.run("127.0.0.1:9876")          # or: bolide run module -n 127.0.0.1:9876

The decorator leaves the function as it is, so that it can be called and tested like any other. An `App` has handlers of
its own.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from bolide.client.blocking.loop import background_loop
from bolide.client.config import ClientConfig, Credentials, client_config
from bolide.client.consuming.listener import CONSUME_TIMEOUT_S, ConsumeHook, Function, Listener, PageFunction
from bolide.client.consuming.rules import LOCAL_DIRECTORY, SubscriberRules
from bolide.client.consuming.start_from import StartFrom
from bolide.client.consuming.subscriber import Subscriber
from bolide.client.consuming.subscriptions import Expression, Topics, parse_topics
from bolide.client.serializers import JSON, Serializer
from bolide.clock import Clock, SystemClock
from bolide.errors import ClientError
from bolide.remoting.config import ConnectConfig
from bolide.remoting.isolated_tasks import IsolatedTasks

F = TypeVar("F", bound=Callable[..., Any])
CONCURRENCY = 20
BATCH_MAX = 1024
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A function and what it wants to be called for."""

    function: Function | PageFunction
    group: str
    topics: Mapping[str, Expression]
    concurrency: int = CONCURRENCY
    batch_max: int | None = None
    ordered: bool = False
    broadcasting: bool = False
    start_from: StartFrom | None = None
    timeout_s: float = CONSUME_TIMEOUT_S
    hooks: tuple[ConsumeHook, ...] = ()
    retry_count_max: int | None = None
    offsets_directory: Path = LOCAL_DIRECTORY
    trace: bool | str = False
    serializer: Serializer = JSON

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ClientError(f"group {self.group}: concurrency must be at least 1, not {self.concurrency}")
        if self.batch_max is not None and not 1 <= self.batch_max <= BATCH_MAX:
            raise ClientError(f"group {self.group}: batch_max must be 1 to {BATCH_MAX}, not {self.batch_max}")


class App:
    """Handlers that belong together, and the cluster they listen to; those of another `App` are not called with them.

        app = bolide.App("127.0.0.1:9876")

        @app.handler("Orders", group="orders-cg")
        def on_order(message): ...

        app.run()            # until SIGTERM or Ctrl-C; `bolide run module:app` does the same

    In a program that does more, `with app:` or `async with app:` has them called as long as the block lasts. Two tests
    with an `App` each do not meet. `@bolide.handler` and `bolide.run` are those of the one that is always there.
    """

    def __init__(
        self,
        namesrv: str | None = None,
        *,
        credentials: Credentials | None = None,
        connect: ConnectConfig | None = None,
        clock: Clock | None = None,
        serializer: Serializer = JSON,
    ) -> None:
        """Without `namesrv` the environment's NAMESRV_ADDR is used; `serializer` reads for `message.value()`."""
        self.namesrv = namesrv
        self.handlers: list[Handler] = []
        self._credentials = credentials
        self._connect = connect
        self._clock = clock
        self._serializer = serializer
        self._open: AbstractContextManager[None] | None = None
        self._open_async: AbstractAsyncContextManager[list[Subscriber]] | None = None

    def __repr__(self) -> str:
        groups = ", ".join(dict.fromkeys(each.group for each in self.handlers))
        return f"<App of {groups or 'no handler yet'}{f' at {self.namesrv}' if self.namesrv else ''}>"

    def handler(
        self,
        topics: Topics,
        *,
        group: str,
        concurrency: int = CONCURRENCY,
        batch_max: int | None = None,
        ordered: bool = False,
        broadcasting: bool = False,
        start_from: StartFrom | None = None,
        timeout_s: float = CONSUME_TIMEOUT_S,
        hooks: Sequence[ConsumeHook] = (),
        retry_count_max: int | None = None,
        offsets_directory: Path = LOCAL_DIRECTORY,
        trace: bool | str = False,
    ) -> Callable[[F], F]:
        """Have a function called for each message of these topics, once `run` has begun; it may be async.

        With `batch_max` it is called with a list of up to this many messages of one queue (see `listener.py`).
        """

        def register(function: F) -> F:
            self.handlers.append(
                Handler(
                    function=function,
                    group=group,
                    topics=parse_topics(topics),
                    concurrency=concurrency,
                    batch_max=batch_max,
                    ordered=ordered,
                    broadcasting=broadcasting,
                    start_from=start_from,
                    timeout_s=timeout_s,
                    hooks=tuple(hooks),
                    retry_count_max=retry_count_max,
                    offsets_directory=offsets_directory,
                    trace=trace,
                    serializer=self._serializer,
                )
            )
            return function

        return register

    def run(self, namesrv: str | None = None) -> None:
        """Call the handlers until SIGTERM or SIGINT; calls under way are finished, then the groups are left."""
        asyncio.run(_until_stopped(self._listening(namesrv)))

    def _listening(self, namesrv: str | None = None) -> AbstractAsyncContextManager[list[Subscriber]]:
        return listening(
            namesrv or self.namesrv,
            self.handlers,
            credentials=self._credentials,
            connect=self._connect,
            clock=self._clock,
        )

    def __enter__(self) -> Self:
        self._open = listening_in_background(
            self.namesrv,
            self.handlers,
            credentials=self._credentials,
            connect=self._connect,
            clock=self._clock,
        )
        self._open.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._open is not None, "it was entered"
        self._open.__exit__(kind, problem, trace)

    async def __aenter__(self) -> Self:
        self._open_async = self._listening()
        await self._open_async.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._open_async is not None, "it was entered"
        await self._open_async.__aexit__(kind, problem, trace)


default_app = App()
registered = default_app.handlers
handler = default_app.handler
"""`App.handler` of the application that is there from the start, which `run` and `listening` serve."""


@asynccontextmanager
async def listening(
    namesrv: str | None = None,
    handlers: Iterable[Handler] | None = None,
    *,
    credentials: Credentials | None = None,
    connect: ConnectConfig | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[list[Subscriber]]:
    """Call the handlers (all that were registered, if none are given) as long as the block lasts."""
    chosen = list(registered if handlers is None else handlers)
    if not chosen:
        raise ClientError(
            "no function is registered: decorate one with @bolide.handler(topic, group=...), or @app.handler"
        )
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack, IsolatedTasks() as calls:
        subscribers = []
        try:
            for item in chosen:
                name = "DEFAULT" if item.broadcasting else ""
                config = client_config(namesrv, instance_name=name, credentials=credentials, connect=connect)
                subscriber = _subscriber(item, config, clock)
                await subscriber.start()
                subscribers.append(subscriber)
                listener = Listener(
                    subscriber,
                    item.function,
                    concurrency=item.concurrency,
                    batch_max=item.batch_max,
                    timeout_s=item.timeout_s,
                    hooks=item.hooks,
                )
                calls.start(listener.run(), name=f"handler.{item.group}")
                log.info("listening group=%s topics=%s", item.group, ",".join(item.topics))
            yield subscribers
        finally:
            for subscriber in subscribers:
                stack.push_async_callback(subscriber.close)
                subscriber.stop_handing_out()


@contextmanager
def listening_in_background(
    namesrv: str | None = None,
    handlers: Iterable[Handler] | None = None,
    *,
    credentials: Credentials | None = None,
    connect: ConnectConfig | None = None,
    clock: Clock | None = None,
) -> Iterator[None]:
    """The same for callers without a loop: the block goes on at once, and its end waits for the calls under way."""
    background = background_loop()
    ended = asyncio.Event()
    started: Future[None] = Future()

    async def listen() -> None:
        try:
            async with listening(namesrv, handlers, credentials=credentials, connect=connect, clock=clock):
                started.set_result(None)
                await ended.wait()
        except BaseException as problem:
            if not started.done():
                started.set_exception(problem)
            raise

    listener = background.submit(listen())
    started.result()
    try:
        yield
    finally:
        background.loop.call_soon_threadsafe(ended.set)
        listener.result()


def _subscriber(item: Handler, config: ClientConfig, clock: Clock) -> Subscriber:
    rules = SubscriberRules(
        is_broadcasting=item.broadcasting,
        is_ordered=item.ordered,
        start_from=item.start_from or StartFrom.newest(),
        retry_count_max=item.retry_count_max,
        page_count_max=item.batch_max or 1,
        local_directory=item.offsets_directory,
        trace=item.trace,
        serializer=item.serializer,
    )
    return Subscriber(item.group, item.topics, config, clock, rules)


async def run_until_stopped(
    namesrv: str | None = None, *, credentials: Credentials | None = None, connect: ConnectConfig | None = None
) -> None:
    """Call all registered handlers until SIGTERM or SIGINT; calls under way are finished, then the groups are left."""
    await _until_stopped(listening(namesrv, credentials=credentials, connect=connect))


async def _until_stopped(opened: AbstractAsyncContextManager[object]) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, stopped.set)
    try:
        async with opened:
            await stopped.wait()
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def run(
    namesrv: str | None = None, *, credentials: Credentials | None = None, connect: ConnectConfig | None = None
) -> None:
    """The same for a program that has no loop of its own; blocks until a signal comes."""
    asyncio.run(run_until_stopped(namesrv, credentials=credentials, connect=connect))
