"""Requests of administrators about subscription groups: create, change, delete, show, forbid.

A change is answered when it is on disk, and the replicas that may lead next have it.
"""

import logging

import msgspec

from bolide.broker.admin.topics import INT32_MAX, kept
from bolide.broker.replication.catalog import Catalog
from bolide.broker.sending.backoff import policy_problem
from bolide.broker.state import BrokerState
from bolide.broker.tables.attributes import GROUP_ATTRIBUTES, altered
from bolide.broker.tables.groups import BUILT_IN_GROUPS, READ_BIT
from bolide.broker.tables.places import known_group, known_topic, unknown_group
from bolide.errors import Refusal
from bolide.model.names import group_problem
from bolide.model.topics import QUEUE_COUNT_MAX
from bolide.protocol.bodies.groups import GroupConfig, GroupConfigList, GroupForbidden
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.groups import (
    DeleteGroupRequest,
    GetGroupConfigRequest,
    UpdateGroupForbiddenRequest,
)
from bolide.remoting.handlers import Handler
from bolide.remoting.session import Request

# Lists of delays and subscriptions are part of it; nobody needs more than a few dozen entries.
CONFIG_SIZE_MAX = 64 * 1024
log = logging.getLogger(__name__)


class GroupCalls:
    """Who administers groups."""

    def __init__(self, state: BrokerState, catalog: Catalog) -> None:
        self._groups = state.groups
        self._topics = state.topics
        self._offsets = state.offsets
        self._stats = state.stats
        self._catalog = catalog

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_list,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.config,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbid,
        }

    async def update(self, request: Request) -> Command:
        """200: create a group or change it; one that is already so stays as it is, without a new version."""
        return await self._update_all(request, [GroupConfig.decode(request.command.body)])

    async def update_list(self, request: Request) -> Command:
        """225: several groups, all or none."""
        return await self._update_all(request, GroupConfigList.decode(request.command.body).group_config_list)

    async def _update_all(self, request: Request, wanted: list[GroupConfig]) -> Command:
        self._catalog.check()
        configs = [self._checked(config) for config in wanted]
        changed = [config for config in configs if self._groups.get(config.group_name) != config]
        self._groups.update_all(configs)
        for config in changed:
            log.info("group set group=%s config=%.500s by=%s", config.group_name, config, request.session.peer)
        await kept(self._catalog)
        return request.command.answer(ResponseCode.SUCCESS)

    def _checked(self, wanted: GroupConfig) -> GroupConfig:
        """The group as it will be kept; raises Refusal for what cannot be."""
        group = wanted.group_name
        problem = group_problem(group) or _size_problem(wanted) or policy_problem(wanted.group_retry_policy)
        if problem is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, problem)
        known = self._groups.get(group)
        attributes = altered(known.attributes if known is not None else {}, wanted.attributes, GROUP_ATTRIBUTES)
        return msgspec.structs.replace(wanted, attributes=attributes)

    async def delete(self, request: Request) -> Command:
        """207: forget a group, and if asked how far it had read. One that is not here is no error."""
        header = DeleteGroupRequest.decode(request.command.fields)
        group = header.group
        if group in BUILT_IN_GROUPS:
            remark = f"group {group!r} belongs to RocketMQ itself and cannot be deleted"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        self._catalog.check()
        self._groups.remove(group)
        if header.is_offset_removed:
            self._offsets.remove_group(group)
        self._stats.forget_group(group)
        log.info("group deleted group=%s offsets=%s by=%s", group, header.is_offset_removed, request.session.peer)
        await kept(self._catalog)
        return request.command.answer(ResponseCode.SUCCESS)

    def config(self, request: Request) -> Command:
        """352: what a group is set to, or would be with its first consumer. RocketMQ makes it; proxies ask for all."""
        group = GetGroupConfigRequest.decode(request.command.fields).group
        config = self._groups.look_up(group)
        if config is None:
            raise unknown_group(group)
        return request.command.answer(ResponseCode.SUCCESS, body=config.encode())

    def all(self, request: Request) -> Command:
        """201: all groups. 5.x can ask for them in pages; without a total in the answer this is the only one."""
        return request.command.answer(ResponseCode.SUCCESS, body=self._groups.snapshot().encode())

    async def forbid(self, request: Request) -> Command:
        """353: may a group read a topic? With `readable` it is set first."""
        header = UpdateGroupForbiddenRequest.decode(request.command.fields)
        group, topic = header.group, header.topic
        if header.is_readable is not None:
            # RocketMQ notes anything here; a name that is misspelt would forbid nothing and stay for ever.
            known_group(self._groups, group)
            known_topic(self._topics, topic)
            self._catalog.check()
            self._groups.forbid(group, topic, READ_BIT, not header.is_readable)
            log.info("group readable=%s group=%s topic=%s", header.is_readable, group, topic)
            await kept(self._catalog)
        is_readable = not self._groups.is_forbidden(group, topic, READ_BIT)
        body = GroupForbidden(group=group, readable=is_readable, topic=topic).encode()
        return request.command.answer(ResponseCode.SUCCESS, body=body)


def _size_problem(wanted: GroupConfig) -> str | None:
    """What Java could not read again, or what is too much of anything."""
    for word, count in (
        ("retryMaxTimes", wanted.retry_max_times),
        ("consumeTimeoutMinute", wanted.consume_timeout_minute),
        ("groupSysFlag", wanted.group_sys_flag),
    ):
        if not -INT32_MAX <= count <= INT32_MAX:
            return f"{word} = {count}: does not fit into 32 bits"
    if not -1 <= wanted.retry_queue_nums <= QUEUE_COUNT_MAX:
        return f"retryQueueNums = {wanted.retry_queue_nums}: a topic has at most {QUEUE_COUNT_MAX} queues"
    if (size := len(wanted.encode())) > CONFIG_SIZE_MAX:
        return f"the configuration of a group takes {size} bytes; at most {CONFIG_SIZE_MAX} are kept"
    return None
