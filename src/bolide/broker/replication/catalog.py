"""The catalog, topics and groups, at the replicas that may lead next: who made a topic finds it after a switch.

A message waits for its replicas; so does a change of the catalog. A replica tells its master which version it has on
its disk, and the master keeps that question (906) until it has a newer one. So a change is with all replicas after two
round trips, and only then the one who asked for it hears of success (`flush`).

Versions count within an epoch, in which one master writes: what a replica has of another epoch counts for nothing. A
replica that never told a version is Apache's, or has just come. It is waited for a moment and believed to copy the
tables in its own time.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from bolide.broker.state import BrokerState
from bolide.broker.tables.table_files import TableWriter
from bolide.errors import Refusal
from bolide.protocol.bodies.routes import DataVersion
from bolide.protocol.codes import ResponseCode

HOLD_S = 2.0  # a question waits so long for news
STRANGER_LIMIT_S = 1.0  # a replica that never told a version is waited for so long
_REPLICAS_MAX = 64
_LOOK_EVERY_S = 0.1  # the set of replicas may change while one waits
log = logging.getLogger(__name__)


class CatalogVersion(NamedTuple):
    """Which state of both tables this is."""

    topics: DataVersion
    groups: DataVersion

    def encode(self) -> str:
        return "-".join(f"{one.state_version}.{one.counter}.{one.timestamp}" for one in self)

    @classmethod
    def decode(cls, text: str) -> "CatalogVersion":
        """Raises ValueError."""
        topics, groups = (_version(part) for part in text.split("-"))
        return cls(topics, groups)

    def has(self, other: "CatalogVersion") -> bool:
        """Whether every change of the other one is in this one."""
        pairs: Sequence[tuple[DataVersion, DataVersion]] = tuple(zip(self, other, strict=True))
        return all(own.state_version == its.state_version and own.counter >= its.counter for own, its in pairs)


def _version(text: str) -> DataVersion:
    state_version, counter, timestamp = map(int, text.split("."))
    return DataVersion(state_version=state_version, counter=counter, timestamp=timestamp)


def version_of(state: BrokerState) -> CatalogVersion:
    """What this broker has now."""
    return CatalogVersion(state.topics.version, state.groups.version)


class Catalog:
    """The master's side: which replica has told which version."""

    def __init__(self, state: BrokerState, table_writer: TableWriter) -> None:
        self._state = state
        self._table_writer = table_writer
        self._told: dict[int, CatalogVersion] = {}
        self._changed = asyncio.Event()
        state.topics.listen(lambda names: self._tell())
        state.groups.listen(lambda names: self._tell())
        state.role.listen(lambda old, new: self._tell())

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def check(self) -> None:
        """Raises Refusal where no change can be made: before it is, so that none is."""
        role = self._state.role.now
        if not role.is_leading:
            master = f", which is at {role.master_address}" if role.master_address else ""
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"this broker does not lead: ask the master of {self._name}{master}"
            )
        self._state.safety.check()

    async def flush(self) -> None:
        """Wait until every change outlives this broker: on its disk, and with the replicas that count.

        Raises StoreError for the disk, and Refusal where a replica is late or another broker leads by now.
        """
        role, wanted = self._state.role.now, version_of(self._state)
        await self._table_writer.flush()
        clock = self._state.clock
        limit_s = self._state.settings.now.replication.slave_timeout_ms / 1000
        began_s = clock.monotonic_s()
        while lacking := self._lacking(wanted):
            if self._state.role.now is not role:
                raise Refusal(ResponseCode.SYSTEM_ERROR, "another broker leads by now, and may not know of the change")
            waited_s = clock.monotonic_s() - began_s
            if waited_s >= STRANGER_LIMIT_S and self._told.keys().isdisjoint(lacking):
                log.debug("replicas tell no version of their tables ids=%s", lacking)
                return
            if waited_s >= limit_s:
                late = ", ".join(map(str, lacking))
                remark = (
                    f"the change holds here, but replica {late} has not heard of it within {limit_s:g} s "
                    "(slaveTimeout); ask again, `bolide cluster` shows who is in sync"
                )
                raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
            await self._news(self._changed, min(_LOOK_EVERY_S, limit_s))

    def _lacking(self, wanted: CatalogVersion) -> list[int]:
        told = self._told
        return sorted(one for one in self._state.safety.awaited if one not in told or not told[one].has(wanted))

    async def told(self, replica_id: int, version: CatalogVersion) -> None:
        """A replica has this on its disk; returns when there is something newer, or in a while."""
        if replica_id in self._told or len(self._told) < _REPLICAS_MAX:
            self._told[replica_id] = version
            self._tell()
        clock = self._state.clock
        until_s = clock.monotonic_s() + HOLD_S
        while version_of(self._state) == version and self._state.role.is_leading:
            left_s = until_s - clock.monotonic_s()
            if left_s <= 0:
                return
            await self._news(self._changed, left_s)

    async def _news(self, changed: asyncio.Event, limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await changed.wait()
        except TimeoutError:
            pass

    @property
    def _name(self) -> str:
        return self._state.settings.now.name
