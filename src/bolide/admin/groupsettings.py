"""What a group is set to: whether it may consume, how often and after how long its failures are retried."""

from abc import ABC, abstractmethod

from bolide.errors import ClientError
from bolide.protocol.bodies import GroupConfig, GroupTable
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command


class GroupSettings(ABC):
    """The administrator's operations on the settings of groups."""

    @abstractmethod
    async def _masters(self, cluster: str | None = None) -> list[str]:
        """The addresses of all masters."""

    @abstractmethod
    async def _ask(self, address: str, command: Command) -> Command:
        """Ask one broker."""

    async def group_config(self, group: str) -> GroupConfig:
        """What a group is set to, as the first broker that has it says."""
        return next(iter((await self.group_configs(group)).values()))

    async def group_configs(self, group: str) -> dict[str, GroupConfig]:
        """What a group is set to at each master that has it, by address."""
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

    async def set_group(self, config: GroupConfig) -> list[str]:
        """Create or change a group on every master; returns their addresses."""
        addresses = await self._masters()
        for address in addresses:
            await self._ask(address, Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode()))
        return addresses
