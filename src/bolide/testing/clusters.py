"""A cluster inside a test: name servers and brokers on free ports, in temporary directories, gone when the block ends.

    with cluster() as rocket:                               # one of each, in a thread of this process
        ... a client of any language with rocket.namesrv ...
        rocket.brokers[0].restart()

    async with cluster(brokers=2, processes=True) as rocket:  # for asyncio, and as processes
        await rocket.brokers[1].kill()                      # kill -9
        await rocket.brokers[1].start()

    with cluster(replicas=3, processes=True) as rocket:     # three brokers of one name, and a controller
        rocket.master().kill()
        rocket.cut(rocket.master())                         # its process lives, and nobody hears of it
        rocket.master()                                     # another one, as soon as it leads

One call, two faces: `with` blocks and brings a thread with a loop of its own, `async with` uses the running loop. When
the block begins, every broker is registered with every name server. Files are small, so that a test rolls them; a full
disk neither refuses messages nor deletes any. Settings are RocketMQ's keys.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

from bolide.access.config import AccessConfig
from bolide.access.signing import signers
from bolide.clock import Clock, SystemClock
from bolide.errors import ClientError
from bolide.protocol.bodies.routes import Clusters, TopicRoute
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.headers.topics import UpdateTopicRequest
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.remoting.server import Server
from bolide.settings import build
from bolide.testing.blocking import CALL_LIMIT_S, Call, Cluster
from bolide.testing.cuttable import Cuts
from bolide.testing.nodes import HOST, AsyncNode, InsideLife, Life, NotStarted, ProcessLife, Serve, Settings, alone
from bolide.testing.replicas import ReplicaGroup, member_settings

REGISTER_LIMIT_S = 20.0
_REQUEST_LIMIT_S = 5.0
_POLL_INTERVAL_S = 0.005
_READ_WRITE = 6

# A message of the largest size still fits a segment; everything else is as small as it may be. How full the disk is,
# and how long other tests keep the machine from reading a message or writing one, decides nothing.
SMALL_FILES = {
    "mappedFileSizeCommitLog": str(8 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 1000),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "diskMaxUsedSpaceRatio": "100",
    "diskSpaceCleanForciblyRatio": "100",
    "diskSpaceWarningLevelRatio": "100",
    "waitTimeMillsInSendQueue": "60000",
    "osPageCacheBusyTimeOutMills": "60000",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """How many of what a cluster begins with."""

    namesrvs: int
    brokers: int
    replicas: int
    has_controller: bool


class AsyncCluster:
    """Name servers and brokers, for asyncio; made by `async with cluster(...)`."""

    def __init__(self, directory: Path, program: str | None, settings: Settings, clock: Clock) -> None:
        self.directory = directory
        self.namesrvs: list[AsyncNode] = []
        self.controllers: list[AsyncNode] = []
        self.brokers: list[AsyncNode] = []
        self._groups: list[ReplicaGroup] = []
        self._cuts: set[tuple[AsyncNode, AsyncNode | None]] = set()
        self._program = program
        self._settings = settings
        self._clock = clock
        self._group = asyncio.TaskGroup()
        self._tls = {key: text for key, text in settings.items() if key == "useTLS" or key.startswith("tls.")}
        # Where brokers ask who we are, we are one of them.
        self._client = Client(build(ConnectConfig, self._tls), clock, hooks=signers(build(AccessConfig, settings)))

    @property
    def namesrv(self) -> str:
        """The addresses of all name servers, as clients take them."""
        return ";".join(node.address for node in self.namesrvs)

    async def add_namesrv(self) -> AsyncNode:
        """One more name server. Brokers that are here do not know it; those that come later do."""
        node = self._node(f"namesrv-{len(self.namesrvs)}", "namesrv", _serve_namesrv, self._tls)
        node.settings |= {
            "kvConfigPath": str(node.directory / "kvConfig.json"),
            "configStorePath": str(node.directory / "namesrv.properties"),
        }
        await node.start()
        self.namesrvs.append(node)
        return node

    async def add_controller(self) -> AsyncNode:
        """A controller; groups of replicas that come later are under it."""
        node = self._node(f"controller-{len(self.controllers)}", "controller", _serve_controller, self._tls)
        node.settings |= {
            "controllerStorePath": str(node.directory / "groups"),
            "configStorePath": str(node.directory / "controller.properties"),
        }
        await node.start()
        self.controllers.append(node)
        return node

    async def add_group(self, replicas: int, name: str | None = None) -> list[AsyncNode]:
        """So many brokers of one name; returns when one leads, all are in sync, and every name server knows them."""
        name = name or f"broker-{len(self._groups)}"
        controllers = ";".join(node.address for node in self.controllers)
        members = []
        for number in range(replicas):
            node = self._broker(f"{name}-{number + 1}", member_settings(name, replicas, number, controllers))
            await node.start()
            self.brokers.append(node)
            members.append(node)
        group = ReplicaGroup(name, members, self.controllers, self._command)
        self._groups.append(group)
        await self._until(group.is_whole, f"not all replicas of {name} are in sync")
        for node in members:
            await self.registered(node)
        await self.master(name)
        return members

    async def master(self, name: str | None = None) -> AsyncNode:
        """The broker that leads the group now (the only one, or the one of that name); waits until one does."""
        group = self._group_of(name)
        found: list[AsyncNode] = []

        async def leads() -> bool:
            found[:] = filter(None, [await group.leader()])
            return bool(found) and all([await self._knows(one, found[0], 0) for one in self._reachable_namesrvs])

        await self._until(leads, f"nobody leads {group.name}")
        return found[0]

    async def promote(self, node: AsyncNode) -> None:
        """Hand the lead of its group to a broker as soon as it is in sync; returns when it leads."""
        group = self._group_of(node.settings["brokerName"])
        await self._until(partial(group.elect, node), f"{node!r} is not elected")

        async def leads() -> bool:
            return await self.master(group.name) is node

        await self._until(leads, f"{node!r} does not lead")

    async def cut(self, node: AsyncNode, other: AsyncNode | None = None) -> None:
        """Break every connection between two nodes, and let none begin until `heal`.

        Without `other` the node is cut off from everybody, the clients of this test included. Its process runs on.
        """
        self._cuts.add((node, other))
        await self._apply_cuts()

    async def heal(self) -> None:
        """Undo every cut."""
        self._cuts.clear()
        await self._apply_cuts()

    async def _apply_cuts(self) -> None:
        alone = {node for node, other in self._cuts if other is None}
        for node in (*self.namesrvs, *self.controllers, *self.brokers):
            pairs = {other for pair in self._cuts if node in pair for other in pair if other is not None} | alone
            refused = frozenset().union(*(other.ports for other in pairs - {node}))
            await node.cut(Cuts(node in alone, refused))

    def _group_of(self, name: str | None) -> ReplicaGroup:
        found = [group for group in self._groups if name in (None, group.name)]
        if len(found) != 1:
            names = ", ".join(group.name for group in self._groups) or "none; cluster(replicas=3) makes one"
            raise ClientError(f"which group of replicas? There are: {names}")
        return found[0]

    async def add_broker(self, name: str | None = None, settings: Mapping[str, object] | None = None) -> AsyncNode:
        """One more broker; returns when every name server that runs knows it."""
        name = name or f"broker-{len(self.brokers)}"
        node = self._broker(name, {"brokerName": name}, settings)
        await node.start()
        self.brokers.append(node)
        await self.registered(node)
        return node

    def _broker(self, name: str, own: Settings, settings: Mapping[str, object] | None = None) -> AsyncNode:
        place = {"brokerIP1": HOST, "namesrvAddr": self.namesrv}
        given = {**SMALL_FILES, **place, **own, **self._settings, **_texts(settings or {})}
        node = self._node(name, "broker", _serve_broker, given)
        node.settings["storePathRootDir"] = str(node.directory / "store")
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
        for namesrv in self._reachable_namesrvs:
            await self._until(partial(self._knows, namesrv, broker), f"{broker!r} is not known to {namesrv!r}")

    @property
    def _reachable_namesrvs(self) -> list[AsyncNode]:
        return [node for node in self.namesrvs if node.is_reachable]

    async def create_topic(self, topic: str, queue_count: int = 4) -> None:
        """Make a topic on every master that runs; returns when every name server that runs routes to all of them."""
        header = UpdateTopicRequest(
            topic=topic,
            default_topic="TBW102",
            read_queue_count=queue_count,
            write_queue_count=queue_count,
            permission=_READ_WRITE,
            filter_type="SINGLE_TAG",
            is_ordered=False,
        )
        members = {id(node) for group in self._groups for node in group.members}
        running = [node for node in self.brokers if node.is_running and id(node) not in members]
        running += [await self.master(group.name) for group in self._groups]
        for broker in running:
            answer = await self._ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header.encode())
            if answer.code != 0:
                raise ClientError(f"topic {topic!r} was not made by {broker!r}: {answer.remark}", answer.code)
        for namesrv in self._reachable_namesrvs:
            has_all = partial(self._routes, namesrv, topic, len(running))
            await self._until(has_all, f"{namesrv!r} has no route to topic {topic!r}")

    async def _knows(self, namesrv: AsyncNode, broker: AsyncNode, broker_id: int | None = None) -> bool:
        answer = await self._ask(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO, {})
        entry = Clusters.decode(answer.body).broker_addr_table.get(broker.settings["brokerName"])
        found = {} if entry is None else entry.broker_addrs
        return broker.address in (found.values() if broker_id is None else [found.get(broker_id)])

    async def _routes(self, namesrv: AsyncNode, topic: str, broker_count: int) -> bool:
        answer = await self._ask(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        return answer.code == 0 and len(TopicRoute.decode(answer.body).queue_datas) >= broker_count

    async def _until(self, probe: Callable[[], Awaitable[bool]], complaint: str) -> None:
        try:
            async with asyncio.timeout(REGISTER_LIMIT_S):
                while not await probe():  # noqa: ASYNC110 (what is waited for happens elsewhere)
                    await asyncio.sleep(_POLL_INTERVAL_S)
        except TimeoutError:
            raise NotStarted(f"{complaint} after {REGISTER_LIMIT_S:g} s") from None

    async def _ask(self, node: AsyncNode, code: int, fields: dict[str, str]) -> Command:
        return await self._command(node, Command(code, fields=fields))

    async def _command(self, node: AsyncNode, command: Command) -> Command:
        return await self._client.request(node.address, command, _REQUEST_LIMIT_S)

    async def close(self) -> None:
        """Stop everything, brokers first, so that they can say goodbye; one that fails to keeps nobody else."""
        async with AsyncExitStack() as stack:
            for node in (*self.namesrvs, *self.controllers, *self.brokers):
                stack.push_async_callback(node.stop)

    @asynccontextmanager
    async def running(self, shape: "Shape") -> AsyncIterator["AsyncCluster"]:
        try:
            async with self._client, self._group:
                try:
                    for _ in range(shape.namesrvs):
                        await self.add_namesrv()
                    if shape.replicas > 1 and shape.has_controller:
                        await self.add_controller()
                    for _ in range(shape.brokers):
                        await (self.add_group(shape.replicas) if shape.replicas > 1 else self.add_broker())
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
async def _serve_controller(settings: Settings, clock: Clock) -> AsyncIterator[Server]:
    from bolide.controller.config import read_config
    from bolide.controller.server import serve

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


class _Thread:
    """A cluster in a thread, with a loop of its own."""

    def __init__(self, plan: "PlannedCluster") -> None:
        self._plan = plan
        self._started: Future[tuple[asyncio.AbstractEventLoop, AsyncCluster, asyncio.Event]] = Future()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="bolide.cluster")
        self._ended: Future[None] = self._pool.submit(self._run)

    def opened(self) -> Cluster:
        loop, inner, _ = self._started.result(CALL_LIMIT_S)
        return Cluster(inner, Call(loop, self._ended))

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
        shape: Shape,
        program: str | None,
        directory: Path | None,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._shape = shape
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
            await stack.enter_async_context(inner.running(self._shape))
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
    replicas: int = 1,
    controller: bool = True,
    processes: bool = False,
    directory: Path | None = None,
    settings: Mapping[str, object] | None = None,
    clock: Clock | None = None,
    program: str = "bolide.cli.main",
) -> PlannedCluster:
    """A cluster to be entered with `with` or with `async with`.

    With `replicas` each of the `brokers` is a group of so many, under a controller; without `controller` the first of
    them is the master and the others are its slaves, by their settings.

    `settings` go to every broker, those of TLS to every server. A `directory` that is given must be empty and is left
    behind; otherwise a temporary one is removed at the end. A `clock` of one's own (virtual time) serves inside this
    process only. `program` is the module that processes run: one of your own may prepare something (a disk that
    misbehaves) before it calls ours.
    """
    run = program if processes else None
    shape = Shape(namesrvs, brokers, replicas, controller)
    return PlannedCluster(shape, run, directory, _texts(settings or {}), clock or SystemClock())
