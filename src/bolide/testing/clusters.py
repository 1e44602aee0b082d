"""A cluster inside a test: name servers and brokers on free ports, in temporary directories, gone when the block ends.

    with cluster() as rocket:                               # one of each, in a thread of this process
        ... a client of any language with rocket.namesrv ...
        rocket.brokers[0].restart()

    async with cluster(brokers=2, processes=True) as rocket:  # for asyncio, and as processes
        await rocket.brokers[1].kill()                      # kill -9
        await rocket.brokers[1].start()

One call, two faces: `with` blocks and brings a thread with a loop of its own, `async with` uses the running loop. When
the block begins, every broker is registered with every name server. Files are small, so that a test rolls them; a full
disk neither refuses messages nor deletes any. Settings are RocketMQ's keys.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from bolide.clock import Clock, SystemClock
from bolide.errors import ClientError
from bolide.protocol.bodies.routes import Clusters, TopicRoute
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.headers.topics import UpdateTopicRequest
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.remoting.server import Server
from bolide.testing.nodes import HOST, AsyncNode, InsideLife, Life, NotStarted, ProcessLife, Serve, Settings, alone

T = TypeVar("T")

REGISTER_LIMIT_S = 20.0
CALL_LIMIT_S = 120.0
_REQUEST_LIMIT_S = 5.0
_POLL_INTERVAL_S = 0.005
_READ_WRITE = 6

# A message of the largest size still fits a segment; everything else is as small as it may be.
SMALL_FILES = {
    "mappedFileSizeCommitLog": str(8 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 1000),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "diskMaxUsedSpaceRatio": "100",
    "diskSpaceCleanForciblyRatio": "100",
    "diskSpaceWarningLevelRatio": "100",
}


class AsyncCluster:
    """Name servers and brokers, for asyncio; made by `async with cluster(...)`."""

    def __init__(self, directory: Path, program: str | None, settings: Settings, clock: Clock) -> None:
        self.directory = directory
        self.namesrvs: list[AsyncNode] = []
        self.brokers: list[AsyncNode] = []
        self._program = program
        self._settings = settings
        self._clock = clock
        self._group = asyncio.TaskGroup()
        self._client = Client(ConnectConfig(), clock)

    @property
    def namesrv(self) -> str:
        """The addresses of all name servers, as clients take them."""
        return ";".join(node.address for node in self.namesrvs)

    async def add_namesrv(self) -> AsyncNode:
        """One more name server. Brokers that are here do not know it; those that come later do."""
        node = self._node(f"namesrv-{len(self.namesrvs)}", "namesrv", _serve_namesrv, {})
        node.settings |= {
            "kvConfigPath": str(node.directory / "kvConfig.json"),
            "configStorePath": str(node.directory / "namesrv.properties"),
        }
        await node.start()
        self.namesrvs.append(node)
        return node

    async def add_broker(self, name: str | None = None, settings: Mapping[str, object] | None = None) -> AsyncNode:
        """One more broker; returns when every name server that runs knows it."""
        name = name or f"broker-{len(self.brokers)}"
        node = self._node(
            name,
            "broker",
            _serve_broker,
            {
                **SMALL_FILES,
                "brokerName": name,
                "brokerIP1": HOST,
                "namesrvAddr": self.namesrv,
                **self._settings,
                **_texts(settings or {}),
            },
        )
        node.settings["storePathRootDir"] = str(node.directory / "store")
        await node.start()
        self.brokers.append(node)
        await self.registered(node)
        return node

    def _node(self, name: str, command: str, serve: Serve, settings: Settings) -> AsyncNode:
        directory = self.directory / name
        directory.mkdir(parents=True)
        live = partial(self._live, name, command, serve, directory)
        return AsyncNode(name, directory, {"bindAddress": HOST, **settings}, live)

    def _live(self, name: str, command: str, serve: Serve, directory: Path, settings: Settings) -> Life:
        if self._program is not None:
            return ProcessLife(name, command, settings, directory, self._program)
        return InsideLife(name, serve, settings, self._clock, self._group)

    async def registered(self, broker: AsyncNode) -> None:
        """Wait until every name server that runs shows the broker."""
        for namesrv in self.namesrvs:
            if namesrv.is_running:
                await self._until(partial(self._knows, namesrv, broker), f"{broker!r} is not known to {namesrv!r}")

    async def create_topic(self, topic: str, queue_count: int = 4) -> None:
        """Make a topic on every broker that runs; returns when every name server that runs routes to all of them."""
        header = UpdateTopicRequest(
            topic=topic,
            default_topic="TBW102",
            read_queue_count=queue_count,
            write_queue_count=queue_count,
            permission=_READ_WRITE,
            filter_type="SINGLE_TAG",
            is_ordered=False,
        )
        running = [broker for broker in self.brokers if broker.is_running]
        for broker in running:
            answer = await self._ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header.encode())
            if answer.code != 0:
                raise ClientError(f"topic {topic!r} was not made by {broker!r}: {answer.remark}", answer.code)
        for namesrv in self.namesrvs:
            if namesrv.is_running:
                has_all = partial(self._routes, namesrv, topic, len(running))
                await self._until(has_all, f"{namesrv!r} has no route to topic {topic!r}")

    async def _knows(self, namesrv: AsyncNode, broker: AsyncNode) -> bool:
        answer = await self._ask(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO, {})
        entry = Clusters.decode(answer.body).broker_addr_table.get(broker.name)
        return entry is not None and broker.address in entry.broker_addrs.values()

    async def _routes(self, namesrv: AsyncNode, topic: str, broker_count: int) -> bool:
        answer = await self._ask(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        return answer.code == 0 and len(TopicRoute.decode(answer.body).queue_datas) >= broker_count

    async def _until(self, probe: "partial[Coroutine[Any, Any, bool]]", complaint: str) -> None:
        try:
            async with asyncio.timeout(REGISTER_LIMIT_S):
                while not await probe():  # noqa: ASYNC110 (what is waited for happens elsewhere)
                    await asyncio.sleep(_POLL_INTERVAL_S)
        except TimeoutError:
            raise NotStarted(f"{complaint} after {REGISTER_LIMIT_S:g} s") from None

    async def _ask(self, node: AsyncNode, code: int, fields: dict[str, str]) -> Command:
        return await self._client.request(node.address, Command(code, fields=fields), _REQUEST_LIMIT_S)

    async def close(self) -> None:
        """Stop everything, brokers first, so that they can say goodbye; one that fails to keeps nobody else."""
        async with AsyncExitStack() as stack:
            for node in (*self.namesrvs, *self.brokers):
                stack.push_async_callback(node.stop)

    @asynccontextmanager
    async def running(self, namesrv_count: int, broker_count: int) -> AsyncIterator["AsyncCluster"]:
        try:
            async with self._client, self._group:
                try:
                    for _ in range(namesrv_count):
                        await self.add_namesrv()
                    for _ in range(broker_count):
                        await self.add_broker()
                    yield self
                finally:
                    await self.close()
        except ExceptionGroup as group:
            raise alone(group) from None  # a failed assertion of the block should look like one


@asynccontextmanager
async def _serve_namesrv(settings: Settings, clock: Clock) -> AsyncIterator[Server]:
    from bolide.namesrv.config import read_config
    from bolide.namesrv.server import serve

    async with serve(read_config(settings), clock) as (_, server):
        yield server


@asynccontextmanager
async def _serve_broker(settings: Settings, clock: Clock) -> AsyncIterator[Server]:
    from bolide.broker.broker import serve
    from bolide.broker.config import read_config

    async with serve(read_config(settings), clock) as (_, server):
        yield server


def _texts(settings: Mapping[str, object]) -> Settings:
    from bolide.settings import as_text

    return {key: as_text(value) for key, value in settings.items()}


class Node:
    """A name server or a broker of the cluster, for callers without a loop."""

    def __init__(self, node: AsyncNode, call: "_Call") -> None:
        self._node = node
        self._call = call

    def __repr__(self) -> str:
        return repr(self._node)

    @property
    def name(self) -> str:
        return self._node.name

    @property
    def address(self) -> str:
        """host:port; the same in every life."""
        return self._node.address

    @property
    def port(self) -> int:
        return self._node.port

    @property
    def directory(self) -> Path:
        return self._node.directory

    @property
    def is_running(self) -> bool:
        return self._node.is_running

    @property
    def pid(self) -> int:
        """Whose process it is: this one's, or its own."""
        return self._node.pid

    def start(self) -> None:
        """Bring it up, on the port and with the directory it had before."""
        self._call(self._node.start())

    def stop(self) -> None:
        """End it as SIGTERM does: what was begun is answered, everything is saved."""
        self._call(self._node.stop())

    def kill(self) -> None:
        """End it as `kill -9` does: nothing is answered and nothing more is saved."""
        self._call(self._node.kill())

    def restart(self) -> None:
        """Stop it if it runs, then start it."""
        self._call(self._node.restart())


class Cluster:
    """Name servers and brokers, for callers without a loop; made by `with cluster(...)`."""

    def __init__(self, inner: AsyncCluster, call: "_Call") -> None:
        self._inner = inner
        self._call = call

    @property
    def directory(self) -> Path:
        return self._inner.directory

    @property
    def namesrv(self) -> str:
        """The addresses of all name servers, as clients take them."""
        return self._inner.namesrv

    @property
    def namesrvs(self) -> list[Node]:
        return [Node(node, self._call) for node in self._inner.namesrvs]

    @property
    def brokers(self) -> list[Node]:
        return [Node(node, self._call) for node in self._inner.brokers]

    def add_namesrv(self) -> Node:
        """One more name server. Brokers that are here do not know it; those that come later do."""
        return Node(self._call(self._inner.add_namesrv()), self._call)

    def add_broker(self, name: str | None = None, settings: Mapping[str, object] | None = None) -> Node:
        """One more broker; returns when every name server that runs knows it."""
        return Node(self._call(self._inner.add_broker(name, settings)), self._call)

    def create_topic(self, topic: str, queue_count: int = 4) -> None:
        """Make a topic on every broker that runs; returns when every name server that runs routes to all of them."""
        self._call(self._inner.create_topic(topic, queue_count))


class _Call:
    """Runs coroutines on the loop of the cluster's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ended: "Future[None]") -> None:
        self._loop = loop
        self._ended = ended

    def __call__(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._ended.done():
            coroutine.close()
            self._ended.result()  # what brought the cluster down is the answer to every call
            raise NotStarted("the cluster's block has ended")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_LIMIT_S)


class _Thread:
    """A cluster in a thread, with a loop of its own."""

    def __init__(self, plan: "PlannedCluster") -> None:
        self._plan = plan
        self._started: Future[tuple[asyncio.AbstractEventLoop, AsyncCluster, asyncio.Event]] = Future()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="bolide.cluster")
        self._ended: Future[None] = self._pool.submit(self._run)

    def opened(self) -> Cluster:
        loop, inner, _ = self._started.result(CALL_LIMIT_S)
        return Cluster(inner, _Call(loop, self._ended))

    def close(self) -> None:
        loop, _, closing = self._started.result()
        if not self._ended.done():
            with contextlib.suppress(RuntimeError):  # its loop may have ended in between
                loop.call_soon_threadsafe(closing.set)
        self._pool.shutdown()
        self._ended.result()

    def _run(self) -> None:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        closing = asyncio.Event()
        try:
            async with self._plan as inner:
                self._started.set_result((asyncio.get_running_loop(), inner, closing))
                await closing.wait()
        except BaseException as problem:
            if self._started.done():
                raise
            self._started.set_exception(problem)


class PlannedCluster:
    """What `cluster` returns: enter it with `with` or with `async with`."""

    def __init__(
        self,
        namesrv_count: int,
        broker_count: int,
        program: str | None,
        directory: Path | None,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._counts = namesrv_count, broker_count
        self._program = program
        self._directory = directory
        self._settings = settings
        self._clock = clock
        self._thread: _Thread | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> AsyncCluster:
        async with AsyncExitStack() as stack:
            directory = self._directory
            if directory is None:
                directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bolide-")))
            inner = AsyncCluster(directory, self._program, self._settings, self._clock)
            await stack.enter_async_context(inner.running(*self._counts))
            self._stack = stack.pop_all()
        return inner

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, problem, trace)

    def __enter__(self) -> Cluster:
        self._thread = _Thread(self)
        return self._thread.opened()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None, "left after it was entered"
        self._thread.close()


def cluster(
    *,
    brokers: int = 1,
    namesrvs: int = 1,
    processes: bool = False,
    directory: Path | None = None,
    settings: Mapping[str, object] | None = None,
    clock: Clock | None = None,
    program: str = "bolide.cli.main",
) -> PlannedCluster:
    """A cluster to be entered with `with` or with `async with`.

    `settings` go to every broker. A `directory` that is given must be empty and is left behind; otherwise a temporary
    one is removed at the end. A `clock` of one's own (virtual time) serves inside this process only. `program` is the
    module that processes run: one of your own may prepare something (a disk that misbehaves) before it calls ours.
    """
    run = program if processes else None
    return PlannedCluster(namesrvs, brokers, run, directory, _texts(settings or {}), clock or SystemClock())
