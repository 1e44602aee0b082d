"""What a group is set to: whether it may consume, how often and after how long its failures are retried."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from bolide.errors import ClientError
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.groups import UpdateGroupForbiddenRequest

_READ = 4  # as in a topic's permission; set, it forbids
_ELSEWHERE = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)

if TYPE_CHECKING:
    from bolide.protocol.bodies.groups import GroupConfig


class GroupSettings(ABC):
    """The administrator's operations on the settings of groups."""

    @abstractmethod
    async def _masters(self, cluster: str | None = None) -> list[str]:
        """The addresses of all masters."""

    @abstractmethod
    async def _ask(self, address: str, command: Command) -> Command:
        """Ask one broker."""

    async def group_config(self, group: str) -> "GroupConfig":
        """What a group is set to, as the first broker that has it says."""
        return next(iter((await self.group_configs(group)).values()))

    async def group_configs(self, group: str) -> "dict[str, GroupConfig]":
        """What a group is set to at each master that has it, by address."""
        from bolide.protocol.bodies.groups import GroupConfig, GroupTable

        found: dict[str, GroupConfig] = {}
        for address in await self._masters():
            answer = await self._ask(address, Command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
            config = GroupTable.decode(answer.body).subscription_group_table.get(group)
            if config is not None:
                found[address] = config
        if found:
            return found
        raise ClientError(
            f"group {group} does not exist; `bolide group list` shows those that do",
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        )

    async def set_group(self, config: "GroupConfig") -> list[str]:
        """Create or change a group on every master; returns their addresses."""
        addresses = await self._masters()
        for address in addresses:
            await self._ask(address, Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode()))
        return addresses

    async def forbid(self, group: str, topic: str) -> list[str]:
        """Keep a group from reading a topic, at every master that has both; returns their addresses.

        Its members hear NO_PERMISSION (16) from now on; how far they are stays. Raises for a topic or a group that no
        master has.
        """
        return await self._set_readable(group, topic, is_readable=False)

    async def allow(self, group: str, topic: str) -> list[str]:
        """Let a group read a topic again that was forbidden to it."""
        return await self._set_readable(group, topic, is_readable=True)

    async def forbidden_topics(self, group: str) -> list[str]:
        """The topics that any master keeps a group from."""
        from bolide.protocol.bodies.groups import GroupTable

        found: set[str] = set()
        for address in await self._masters():
            answer = await self._ask(address, Command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
            forbidden = GroupTable.decode(answer.body).forbidden_table.get(group, {})
            found.update(topic for topic, bits in forbidden.items() if bits & _READ)
        return sorted(found)

    async def _set_readable(self, group: str, topic: str, *, is_readable: bool) -> list[str]:
        header = UpdateGroupForbiddenRequest(group=group, topic=topic, is_readable=is_readable)
        done: list[str] = []
        problem: ClientError | None = None
        for address in await self._masters():
            try:
                await self._ask(address, Command(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, fields=header.encode()))
                done.append(address)
            except ClientError as refused:
                if refused.code not in _ELSEWHERE:
                    raise
                problem = refused
        if problem is not None and not done:
            raise problem
        return done
