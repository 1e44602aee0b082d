"""Replication of one broker: the port that slaves connect to, and the client that follows a master.

Both are there for the life of the process, for roles change. In the plain stream every broker serves slaves, slaves
too; with epochs given the stream is AutoSwitch, and only a broker that leads serves.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from bolide.clock import Clock
from bolide.errors import ConfigError
from bolide.ha.acks import Acks
from bolide.ha.config import HaConfig
from bolide.ha.door import Door, Security
from bolide.ha.epochs import Epochs
from bolide.ha.following import SlaveClient
from bolide.ha.leading import Entrance, Port
from bolide.ha.status import FollowerStatus, SlaveStatus
from bolide.remoting.isolated_tasks import IsolatedTasks
from bolide.remoting.listen_config import ListenConfig
from bolide.remoting.server import bind
from bolide.store.store import Store

_BACKLOG = 64


class Replication:
    """An async context manager: it copies as long as the block lasts, and slaves may come once it listens."""

    acks: Acks

    def __init__(
        self,
        store: Store,
        config: HaConfig,
        clock: Clock,
        epochs: Epochs | None = None,
        own_id: Callable[[], int] = lambda: 0,
        security: Security | None = None,
    ) -> None:
        self._store = store
        self._config = config
        self._clock = clock
        self.epochs = epochs
        self._door = Door(security or Security(), config.allowed_addresses, clock)
        self._client = SlaveClient(store, config, clock, epochs, own_id, self._door)
        self._background = IsolatedTasks()

    async def __aenter__(self) -> Self:
        await self._background.__aenter__()
        entrance = Entrance(self._door, self._background)
        self._port = Port(self._store, self._config, self._clock, self.epochs, entrance)
        self.acks = self._port.acks
        self._store.listen_written(self._port.wake)
        following = self._store.mishaps.lasting("ha.following", self._client.run)
        self._following = self._background.start(following, name="ha.following")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._port.close()
        self.acks.fail_all()
        self._following.cancel()
        await self._background.__aexit__(kind, problem, trace)

    async def listen(self) -> None:
        """Take a port for slaves, until the block ends; raises ConfigError where that is taken."""
        config = self._config
        try:
            self._port.listen(await bind(ListenConfig(host=config.host, port=config.port, backlog=_BACKLOG)))
        except ConfigError as problem:
            raise ConfigError("haListenPort", config.port, problem.why) from problem

    @property
    def port(self) -> int | None:
        """Where slaves connect; None where nobody can."""
        return self._port.number

    def lead(self) -> None:
        """Serve slaves from now on, and follow nobody."""
        self._client.follow(None)
        self._port.is_open = True

    def follow(self, master_ha_address: str | None) -> None:
        """Copy from there; None: stop copying and wait. Another address is connected to at once."""
        self._port.is_open = self.epochs is None
        if not self._port.is_open:
            self._port.drop_all("this broker does not lead")
        self._client.follow(master_ha_address)

    def listen_cut(self, tell: Callable[[], None]) -> None:
        """Have it told when the end of our log was cut off, before anything is stored there again."""
        self._client.on_cut.append(tell)

    async def pause(self) -> None:
        """A change of roles begins: every connection is closed, and nothing is copied or served until it has ended."""
        self._port.is_open = False
        self._client.follow(None)
        self._port.drop_all("the role of this broker changes")
        self.acks.fail_all()

    def nudge(self) -> None:
        """More of the log is confirmed: tell those who have nothing else coming."""
        self._port.wake()

    @property
    def slaves(self) -> list[SlaveStatus]:
        return self._port.slaves

    @property
    def following(self) -> FollowerStatus:
        return self._client.status
