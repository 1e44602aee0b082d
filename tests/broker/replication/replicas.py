"""A master and its slaves: whole brokers on free ports beside a name server, whose stores a test can compare."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bolide.broker.broker import Broker, serve
from bolide.broker.config import read_config
from bolide.clock import Clock
from bolide.model import properties as names
from bolide.model.queue import QueueKey
from bolide.protocol.bodies import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.headers.pop import PopMessageRequest
from bolide.protocol.headers.send import SendMessageRequest
from bolide.protocol.properties import encode_properties
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.remoting.server import Server
from bolide.store.store import Store
from bolide.testing import VirtualClock
from tests.broker.whole import SMALL
from tests.namesrv.peers import Running, running
from tests.remoting.loops import eventually
from tests.store.replicas import assert_equal_files

NAME = "broker-a"
LIMIT_S = 60
TOPIC = TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2, perm=6)


@dataclass
class Life:
    """A broker that runs."""

    broker: Broker
    server: Server
    stack: AsyncExitStack

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def store(self) -> Store:
        return self.broker.state.store

    async def stop(self) -> None:
        await self.stack.aclose()


@dataclass
class Group:
    """Brokers of one name. Each has a directory, and may be started again as another."""

    root: Path
    clock: Clock
    ns: Running
    client: Client
    lives: list[Life] = field(default_factory=list)

    async def start(self, directory: str, **settings: str) -> Life:
        given = SMALL | {"storePathRootDir": str(self.root / directory), "brokerName": NAME, "brokerClusterName": "C1"}
        given |= {"listenPort": "0", "bindAddress": "127.0.0.1", "namesrvAddr": self.ns.address}
        given |= {"bolideHaReconnectInterval": "100"}
        stack = AsyncExitStack()
        broker, server = await stack.enter_async_context(serve(read_config(given | settings), self.clock))
        life = Life(broker, server, stack)
        self.lives.append(life)
        return life

    async def master(self, directory: str = "master", **settings: str) -> Life:
        life = await self.start(directory, **settings)
        life.broker.state.topics.update(TOPIC)
        assert await life.broker.registration.told(LIMIT_S)
        return life

    async def slave(self, directory: str = "slave", broker_id: int = 1, **settings: str) -> Life:
        return await self.start(directory, brokerRole="SLAVE", brokerId=str(broker_id), **settings)

    async def send(self, life: Life, body: bytes, queue_id: int = 0, *, topic: str = "T", **properties: str) -> Command:
        """A send as producers make it."""
        header = SendMessageRequest(
            producer_group="P",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_count=4,
            queue_id=queue_id,
            sys_flag=4 if names.TRANSACTION_PREPARED in properties else 0,
            born_ms=self.clock.now_ms(),
            flag=0,
            properties=encode_properties({names.UNIQUE_KEY: body[:20].hex(), **properties}).decode(),
            reconsume_times=0,
        )
        command = Command(310, fields=header.encode(short=True), body=body)
        return await self.client.request(life.address, command, 20)


@asynccontextmanager
async def group(root: Path, clock: Clock | None = None, **namesrv: str) -> AsyncIterator[Group]:
    clock = clock or VirtualClock()
    async with running(root, clock, **namesrv) as ns, Client(ConnectConfig(), clock) as client:
        brokers = Group(root, clock, ns, client)
        try:
            yield brokers
        finally:
            for life in brokers.lives:
                await life.stop()


async def pull(brokers: Group, life: Life, offset: int, queue_id: int = 0, suspend_ms: int = 0) -> Command:
    """A pull that brings its subscription along."""
    fields = {"consumerGroup": "G", "topic": "T", "queueId": str(queue_id), "queueOffset": str(offset)}
    fields |= {"maxMsgNums": "32", "sysFlag": str(4 | (2 if suspend_ms else 0)), "commitOffset": "0"}
    fields |= {"suspendTimeoutMillis": str(suspend_ms), "subscription": "*", "subVersion": "0"}
    return await brokers.client.request(life.address, Command(RequestCode.PULL_MESSAGE, fields=fields), 60)


async def pop(brokers: Group, master: Life) -> Command:
    """Take messages, and never say that they were handled."""
    header = PopMessageRequest(
        consumer_group="G",
        topic="T",
        queue_id=-1,
        message_count_max=32,
        invisible_ms=10_000,
        poll_ms=0,
        born_ms=brokers.clock.now_ms(),
        init_mode=0,
        expression_type="TAG",
        expression="*",
    )
    return await brokers.client.request(master.address, Command(RequestCode.POP_MESSAGE, fields=header.encode()), 20)


async def equal(master: Life, slave: Life) -> None:
    """Wait until the slave has the master's log, and every queue of it; then the files are equal to the byte."""
    ours, theirs = slave.store, master.store
    await eventually(lambda: ours.visible_end == theirs.log_end and not ours.dispatch_behind, LIMIT_S)
    assert log_of(ours) == log_of(theirs)
    keys = [key for key in theirs.queue_keys if theirs.max_offset(key)]
    for key in keys:
        assert ours.max_offset(key) == theirs.max_offset(key), key
        assert bodies(ours, key) == bodies(theirs, key), key
    if ours.log_start == theirs.log_start:
        assert_equal_files(theirs.config.root, ours.config.root)


def log_of(store: Store) -> bytes:
    """The log from its start to its end."""
    content, at = b"", store.log_start
    while at < store.log_end:
        view = store.log_view(at, 1 << 30)
        assert view, at
        content += bytes(view)
        at += len(view)
    return content


def bodies(store: Store, key: QueueKey) -> list[bytes]:
    return [bytes(view) for slices in store.walk(key, 0) for view in slices.views]
