"""A slave's topics, groups and request modes: its master's, as soon as they change there.

A master of ours keeps the question for its version until there is a newer one, and hears with it which version we have
on our disk (`catalog.py`). Masters of Apache have no such version: they are asked with the other tables (`tables.py`).
Both take over what came one at a time: an older answer never replaces a newer one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from bolide.broker.pop.modes import RequestModes, parse_modes
from bolide.broker.replication.catalog import HOLD_S, version_of
from bolide.broker.role import RoleState
from bolide.broker.state import BrokerState
from bolide.broker.tables.groups import parse_groups
from bolide.broker.tables.table_files import TableWriter
from bolide.broker.tables.topics import parse_topics
from bolide.errors import BolideError, ClientError
from bolide.protocol.bodies.groups import GroupTable
from bolide.protocol.bodies.routes import DataVersion
from bolide.protocol.bodies.topics import TopicTable
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.replication import (
    REPLICA_ID_FIELD,
    TABLES_VERSION_FIELD,
    ExchangeHaStateAnswer,
    GetAllGroupConfigAnswer,
    GetAllGroupConfigRequest,
    GetAllTopicConfigAnswer,
    GetAllTopicConfigRequest,
)
from bolide.remoting.client import Client

RETRY_S = 0.1  # a new master may be asked before it leads, and one that makes a topic there waits for us
ASK_LIMIT_S = 3.0
PAGE_LIMIT_S = 30.0
_PAGE_COUNT = 2_000
_PAGES_TRIED_MAX = 3
log = logging.getLogger(__name__)

Table = TypeVar("Table", TopicTable, GroupTable)
TakeOver = Callable[[], None]
Step = Callable[[str], Awaitable[TakeOver | None]]


async def ask(client: Client, master: str, command: Command, limit_s: float) -> Command | None:
    """A master's answer; None where it does not know the request."""
    answer = await client.request(master, command, limit_s)
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise ClientError(f"it answered {answer.code}: {answer.remark}", answer.code)
    return answer


@dataclass(frozen=True, slots=True)
class _Paged(Generic[Table]):
    """A table that a master tells in pages, and the field that has its entries."""

    noun: str
    code: RequestCode
    request: type[GetAllTopicConfigRequest] | type[GetAllGroupConfigRequest]
    answer: type[GetAllTopicConfigAnswer] | type[GetAllGroupConfigAnswer]
    parse: Callable[[str], Table]
    entries: str


_TOPICS = _Paged(
    "topics",
    RequestCode.GET_ALL_TOPIC_CONFIG,
    GetAllTopicConfigRequest,
    GetAllTopicConfigAnswer,
    parse_topics,
    "topic_config_table",
)
_GROUPS = _Paged(
    "groups",
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    GetAllGroupConfigRequest,
    GetAllGroupConfigAnswer,
    parse_groups,
    "subscription_group_table",
)


class CatalogCopy:
    """The slave's side, as long as this broker is one."""

    def __init__(self, state: BrokerState, client: Client, table_writer: TableWriter, modes: RequestModes) -> None:
        self._state = state
        self._client = client
        self._table_writer = table_writer
        self._modes = modes
        self._role_changed = asyncio.Event()
        self.taking = asyncio.Lock()  # held from the question until its answer is taken over
        self.steps: Sequence[tuple[str, Step]] = (
            ("topics", self._topics),
            ("groups", self._groups),
            ("request modes", self._request_modes),
        )
        state.role.listen(lambda old, new: self._role_changed.set())

    async def follow_forever(self) -> None:
        """Have what the master has, as soon as it has it, until cancelled."""
        while True:
            self._role_changed.clear()
            role, wait_s = self._state.role.now, None
            if role.is_following:
                try:
                    is_newer = await self._is_newer(role)
                    if is_newer:
                        await self._take(role)
                    if is_newer is not None:
                        continue
                except (BolideError, OSError, ValueError) as problem:
                    log.debug("topics and groups not asked for master=%s problem=%s", role.master_address, problem)
                    wait_s = RETRY_S
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._role_changed.wait()

    async def _is_newer(self, role: RoleState) -> bool | None:
        """Tell the master what we have, and wait for news; None for a master that is not ours."""
        await self._table_writer.flush()
        own = version_of(self._state).encode()
        fields = {REPLICA_ID_FIELD: str(role.broker_id), TABLES_VERSION_FIELD: own}
        command = Command(RequestCode.EXCHANGE_BROKER_HA_INFO, fields=fields)
        answer = await ask(self._client, role.master_address, command, HOLD_S + ASK_LIMIT_S)
        its = None if answer is None else answer.fields.get(TABLES_VERSION_FIELD)
        if its is None and answer is not None and not ExchangeHaStateAnswer.decode(answer.fields).master_ha_address:
            raise ClientError("it does not lead yet")
        return None if its is None else its != own

    async def _take(self, role: RoleState) -> None:
        async with self.taking:
            for _, step in self.steps:
                take_over = await step(role.master_address)
                if self._state.role.now is not role:
                    return
                if take_over is not None:
                    take_over()

    # The tables, one by one

    async def _topics(self, master: str) -> TakeOver | None:
        table = await self._whole(_TOPICS, master)
        return lambda: self._state.topics.adopt(table)

    async def _groups(self, master: str) -> TakeOver | None:
        table = await self._whole(_GROUPS, master)
        return lambda: self._state.groups.adopt(table)

    async def _whole(self, paged: "_Paged[Table]", master: str) -> Table:
        for _ in range(_PAGES_TRIED_MAX):
            table = await self._pages(paged, master)
            if table is not None:
                return table
        raise ClientError(f"its {paged.noun} change faster than they can be asked for")

    async def _pages(self, paged: "_Paged[Table]", master: str) -> Table | None:
        """A table, page by page; None if it changed meanwhile."""
        entries: dict[str, msgspec.Struct] = {}
        version: DataVersion | None = None
        while True:
            known = "" if version is None else version.encode().decode()
            header = paged.request(first=len(entries), data_version=known, count_max=_PAGE_COUNT)
            answer = await ask(self._client, master, Command(paged.code, fields=header.encode()), PAGE_LIMIT_S)
            if answer is None:
                raise ClientError(f"it does not tell its {paged.noun}")
            page = paged.parse(answer.body.decode())
            if version is not None and page.data_version != version:
                return None
            version, before = page.data_version, len(entries)
            entries.update(getattr(page, paged.entries))
            total = paged.answer.decode(answer.fields).total_count
            if total is None or len(entries) >= total or len(entries) == before:
                return msgspec.structs.replace(page, **{paged.entries: entries})

    async def _request_modes(self, master: str) -> TakeOver | None:
        answer = await ask(self._client, master, Command(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE), ASK_LIMIT_S)
        if answer is None or not answer.body:
            return None
        modes = parse_modes(answer.body.decode())
        return lambda: self._modes.adopt(modes)
