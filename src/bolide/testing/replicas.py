"""The brokers of one name in a cluster under test: what their settings are, who leads, and handing the lead over."""

from collections.abc import Awaitable, Callable

from bolide.errors import ClientError
from bolide.protocol.bodies.controller import ReplicaGroupState, ReplicaTable, encode_broker_names
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.headers.controller import ElectMasterRequest
from bolide.testing.nodes import AsyncNode, Settings

Ask = Callable[[AsyncNode, Command], Awaitable[Command]]

SAFE_COUNT = 3  # fewer cannot outlive one of them and go on
# One that was cut off finds the others again soon after it is healed; by default that takes up to 5 s.
QUICK_RETURN = {
    "bolideHaReconnectInterval": "200",
    "syncBrokerMetadataPeriod": "500",
    "syncControllerMetadataPeriod": "500",
}


def member_settings(name: str, count: int, number: int, controllers: str) -> Settings:
    """Of the member with that number, from 0 on; without controllers the first leads and the others are its slaves."""
    if controllers:
        promise = {"bolideReplication": "safe"} if count >= SAFE_COUNT else {"allAckInSyncStateSet": "true"}
        controlled = {"enableControllerMode": "true", "controllerAddr": controllers}
        return {"brokerName": name, **QUICK_RETURN, **controlled, **promise}
    role = "SLAVE" if number else "ASYNC_MASTER"
    return {"brokerName": name, **QUICK_RETURN, "brokerId": str(number), "brokerRole": role}


class ReplicaGroup:
    """All brokers of one name."""

    def __init__(self, name: str, members: list[AsyncNode], controllers: list[AsyncNode], ask: Ask) -> None:
        self.name = name
        self.members = members
        self._controllers = controllers
        self._ask = ask

    async def leader(self) -> AsyncNode | None:
        """Who is to lead: the controller's word, or the settings'. None where that one is down, frozen or cut off."""
        if self._controllers:
            state = await self._state()
            found = [node for node in self.members if state is not None and node.address == state.master_address]
        else:
            found = self.members[:1]
        return next((node for node in found if node.is_reachable), None)

    async def is_whole(self) -> bool:
        """Is every member in sync? Where settings say who leads, nobody asks."""
        if not self._controllers:
            return True
        state = await self._state()
        return state is not None and len(state.in_sync_replicas) == len(self.members)

    async def elect(self, node: AsyncNode) -> bool:
        """Ask the controller for that leader; False while it is not in sync. Raises ClientError where none is asked."""
        if not self._controllers:
            raise ClientError(f"settings say who leads {self.name}: only cluster(controller=True) can promote {node!r}")
        state = await self._state()
        replicas = () if state is None else state.in_sync_replicas
        number = next((one.broker_id for one in replicas if one.alive and one.broker_address == node.address), None)
        if number is None:
            return False
        header = ElectMasterRequest(broker_name=self.name, broker_id=number, is_designated=True)
        answer = await self._ask_controller(Command(RequestCode.CONTROLLER_ELECT_MASTER, fields=header.encode()))
        return answer.code == 0

    async def _state(self) -> ReplicaGroupState | None:
        body = encode_broker_names([self.name])
        answer = await self._ask_controller(Command(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=body))
        if answer.code != 0 or not answer.body:
            return None
        return ReplicaTable.decode(answer.body).replicas_info_table.get(self.name)

    async def _ask_controller(self, command: Command) -> Command:
        running = [node for node in self._controllers if node.is_reachable]
        if not running:
            raise ClientError(f"no controller is reachable that could say who leads {self.name}")
        return await self._ask(running[0], command)
