"""A cluster under test for callers without a loop: every call runs on the loop of the cluster's thread."""

import asyncio
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bolide.testing.nodes import AsyncNode, NotStarted

if TYPE_CHECKING:
    from bolide.testing.clusters import AsyncCluster

T = TypeVar("T")

CALL_LIMIT_S = 120.0


class Node:
    """A name server or a broker of the cluster, for callers without a loop."""

    def __init__(self, inner: AsyncNode, call: "Call") -> None:
        self.inner = inner
        self._call = call

    def __repr__(self) -> str:
        return repr(self.inner)

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def address(self) -> str:
        """host:port; the same in every life."""
        return self.inner.address

    @property
    def port(self) -> int:
        return self.inner.port

    @property
    def directory(self) -> Path:
        return self.inner.directory

    @property
    def is_running(self) -> bool:
        return self.inner.is_running

    @property
    def pid(self) -> int:
        """Whose process it is: this one's, or its own."""
        return self.inner.pid

    def start(self) -> None:
        """Bring it up, on the port and with the directory it had before."""
        self._call(self.inner.start())

    def stop(self) -> None:
        """End it as SIGTERM does: what was begun is answered, everything is saved."""
        self._call(self.inner.stop())

    def kill(self) -> None:
        """End it as `kill -9` does: nothing is answered and nothing more is saved."""
        self._call(self.inner.kill())

    def restart(self) -> None:
        """Stop it if it runs, then start it."""
        self._call(self.inner.restart())

    def freeze(self) -> None:
        """Hold its process (SIGSTOP): its connections stay, and it answers nothing until `thaw`."""
        self._call(self.inner.freeze())

    def thaw(self) -> None:
        """Let it run on where it was held."""
        self._call(self.inner.thaw())


class Cluster:
    """Name servers and brokers, for callers without a loop; made by `with cluster(...)`."""

    def __init__(self, inner: "AsyncCluster", call: "Call") -> None:
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
    def controllers(self) -> list[Node]:
        return [Node(node, self._call) for node in self._inner.controllers]

    @property
    def brokers(self) -> list[Node]:
        return [Node(node, self._call) for node in self._inner.brokers]

    def add_namesrv(self) -> Node:
        """One more name server. Brokers that are here do not know it; those that come later do."""
        return Node(self._call(self._inner.add_namesrv()), self._call)

    def add_broker(self, name: str | None = None, settings: Mapping[str, object] | None = None) -> Node:
        """One more broker; returns when every name server that runs knows it."""
        return Node(self._call(self._inner.add_broker(name, settings)), self._call)

    def master(self, name: str | None = None) -> Node:
        """The broker that leads the group now (the only one, or the one of that name); waits until one does."""
        return Node(self._call(self._inner.master(name)), self._call)

    def promote(self, node: Node) -> None:
        """Hand the lead of its group to a broker as soon as it is in sync; returns when it leads."""
        self._call(self._inner.promote(node.inner))

    def cut(self, node: Node, other: Node | None = None) -> None:
        """Break every connection between two nodes, and let none begin until `heal`.

        Without `other` the node is cut off from everybody, the clients of this test included. Its process runs on.
        """
        self._call(self._inner.cut(node.inner, None if other is None else other.inner))

    def heal(self) -> None:
        """Undo every cut."""
        self._call(self._inner.heal())

    def create_topic(self, topic: str, queue_count: int = 4) -> None:
        """Make a topic on every master that runs; returns when every name server that runs routes to all of them."""
        self._call(self._inner.create_topic(topic, queue_count))


class Call:
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
