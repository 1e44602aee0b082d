"""Controllers of broker groups: who leads, who is master, who is in sync; ours and those of RocketMQ 5.

Every call names the controllers itself (`host:port;host:port`): a name server does not know them. What only the leader
answers goes to the one that any of them names.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from bolide.admin.reach import Reach
from bolide.client.routes import MASTER_ID
from bolide.clock import Clock
from bolide.errors import ClientError, NoAnswer
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.settings import read_properties, write_properties

if TYPE_CHECKING:
    from bolide.protocol.bodies.brokers import ReplicationState
    from bolide.protocol.bodies.controller import BrokerEpochs, ReplicaGroupState
    from bolide.protocol.headers.controller import ElectMasterAnswer, GetControllerMetadataAnswer


class ReplicaRow(msgspec.Struct, frozen=True):
    """One broker of a name that has several. None is what nobody tells: settings that say who leads have no epochs.

    A slave that does what it can for a master that is away is an `acting slave`.
    """

    role: str
    epoch: int | None
    is_in_sync: bool | None
    lag_size: int | None
    lag_ms: int | None


class ControllerCalls(Reach):
    """The part of an administrator that asks controllers."""

    _clock: Clock

    async def controller_metadata(self, controllers: str) -> "GetControllerMetadataAnswer":
        """Who leads, as the first controller that answers tells."""
        from bolide.protocol.headers.controller import GetControllerMetadataAnswer

        problems = []
        for address in _addresses(controllers):
            try:
                answer = await self._ask(address, Command(RequestCode.CONTROLLER_GET_METADATA_INFO))
                return GetControllerMetadataAnswer.decode(answer.fields)
            except NoAnswer as problem:
                problems.append(str(problem))
        raise ClientError(f"no controller answers: {'; '.join(problems)}; `bolide controller` starts one")

    async def _ask_leader(self, controllers: str, command: Command) -> Command:
        leader = (await self.controller_metadata(controllers)).leader_address
        if not leader:
            raise ClientError(f"no controller of {controllers} leads now; try again in some seconds")
        return await self._ask(leader, command)

    async def sync_state(self, controllers: str, names: Sequence[str] = ()) -> "dict[str, ReplicaGroupState]":
        """The master and the set of some broker names; without names of all, which only a controller of ours tells."""
        from bolide.protocol.bodies.controller import ReplicaTable, encode_broker_names

        command = Command(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=encode_broker_names(list(names)))
        answer = await self._ask_leader(controllers, command)
        return ReplicaTable.decode(answer.body).replicas_info_table if answer.body else {}

    async def elect_master(self, controllers: str, name: str, broker_id: int, cluster: str = "") -> "ElectMasterAnswer":
        """Make a broker master that is in sync and alive."""
        from bolide.protocol.headers.controller import ElectMasterAnswer, ElectMasterRequest

        header = ElectMasterRequest(
            cluster_name=cluster,
            broker_name=name,
            broker_id=broker_id,
            is_designated=True,
            invoke_time=self._clock.now_ms(),
        )
        command = Command(RequestCode.CONTROLLER_ELECT_MASTER, fields=header.encode())
        return ElectMasterAnswer.decode((await self._ask_leader(controllers, command)).fields)

    async def controllers_of(self, name: str) -> str:
        """The controllers that the brokers of a name have in their settings; raises ClientError for a name without."""
        known = await self.clusters()
        data = known.broker_addr_table.get(name)
        if data is None:
            raise ClientError(f"no broker is called {name!r}; there are: {', '.join(sorted(known.broker_addr_table))}")
        answers = await self._from_each(
            {f"{name} {number}": address for number, address in data.broker_addrs.items()},
            Command(RequestCode.GET_BROKER_CONFIG),
        )
        for answer in answers:
            settings = read_properties(answer.body.decode("utf-8", "replace"))
            if settings.get("enableControllerMode") == "true" and settings.get("controllerAddr"):
                return settings["controllerAddr"]
        raise ClientError(f"the role of {name} is in its settings (brokerRole): no controller can hand it over")

    async def promote(self, name: str, broker_id: int | None = None) -> "ElectMasterAnswer":
        """Hand the lead of a group to a replica that is in sync: the one that is named, or another than now."""
        controllers = await self.controllers_of(name)
        state = (await self.sync_state(controllers, [name])).get(name)
        if state is None:
            raise ClientError(f"the controllers {controllers} do not know {name}")
        able = [replica.broker_id for replica in state.in_sync_replicas if replica.alive]
        others = [number for number in able if number != state.master_broker_id]
        if broker_id is None and not others:
            raise ClientError(f"no other replica of {name} is in sync and alive; `bolide cluster` shows them")
        if broker_id is not None and broker_id not in able:
            raise ClientError(f"replica {broker_id} of {name} is not in sync and alive; these are: {able}")
        return await self.elect_master(controllers, name, min(others) if broker_id is None else broker_id)

    async def replicas(self) -> dict[str, ReplicaRow]:
        """Of every name that has more than a master each broker, by address."""
        known = (await self.clusters()).broker_addr_table
        groups = [(name, data.broker_addrs) for name, data in known.items() if set(data.broker_addrs) != {MASTER_ID}]
        found = await asyncio.gather(*(self._replica_rows(name, addresses) for name, addresses in groups))
        return {address: row for rows in found for address, row in rows.items()}

    async def _replica_rows(self, name: str, addresses: dict[int, str]) -> dict[str, ReplicaRow]:
        try:
            group = (await self.sync_state(await self.controllers_of(name), [name])).get(name)
        except ClientError:
            group = None
        in_sync = None if group is None else {replica.broker_address for replica in group.in_sync_replicas}
        places = sorted(addresses.items())
        states = await asyncio.gather(*(self._replication_state(address) for _, address in places))
        end = max((state.master_commit_log_max_offset for state in states if state and state.is_master), default=None)
        lags_ms = {
            slave.bolide_slave_id: slave.bolide_lag_ms
            for state in states
            if state is not None and state.is_master
            for slave in state.ha_connection_info
        }
        rows = {}
        for (number, address), state in zip(places, states, strict=True):
            lag = None if state is None or end is None else max(0, end - state.ha_client_runtime_info.max_offset)
            is_master = number == 0 if state is None else state.is_master
            rows[address] = ReplicaRow(
                "master" if is_master else "acting slave" if state and state.bolide_is_acting else "slave",
                None if group is None else group.master_epoch,
                None if in_sync is None else address in in_sync,
                0 if is_master else lag,
                0 if is_master else lags_ms.get(number),
            )
        return rows

    async def _replication_state(self, address: str) -> "ReplicationState | None":
        from bolide.protocol.bodies.brokers import ReplicationState

        try:
            return ReplicationState.decode((await self._ask(address, Command(RequestCode.GET_BROKER_HA_STATUS))).body)
        except ClientError:
            return None

    async def clean_broker(
        self, controllers: str, name: str, broker_ids: Iterable[int] = (), *, living: bool = False, cluster: str = ""
    ) -> None:
        """Have brokers forgotten that will not return, or a whole name; those alive only with `living`.

        Apache's controller looks for the living under the cluster that it is told, and finds none under another: so
        they are looked for here too.
        """
        from bolide.protocol.headers.controller import CleanBrokerRequest

        broker_ids = list(broker_ids)
        if not living:
            await self._demand_gone(controllers, name, broker_ids)
        header = CleanBrokerRequest(
            cluster_name=cluster,
            broker_name=name,
            broker_ids=";".join(map(str, broker_ids)),
            is_living_cleaned=living,
            invoke_time=self._clock.now_ms(),
        )
        await self._ask_leader(controllers, Command(RequestCode.CLEAN_BROKER_DATA, fields=header.encode()))

    async def _demand_gone(self, controllers: str, name: str, broker_ids: Sequence[int]) -> None:
        state = (await self.sync_state(controllers, [name])).get(name)
        replicas = [] if state is None else [*state.in_sync_replicas, *state.not_in_sync_replicas]
        alive = sorted(
            each.broker_id for each in replicas if each.alive and each.broker_id in (broker_ids or [each.broker_id])
        )
        if alive:
            numbers = ", ".join(map(str, alive))
            raise ClientError(
                f"broker {numbers} of {name} is still alive: stop it first, or forget the living too (`--living`)",
                ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA,
            )

    async def broker_epochs(self, address: str) -> "BrokerEpochs":
        """From where to where each master wrote a broker's log."""
        from bolide.protocol.bodies.controller import BrokerEpochs

        return BrokerEpochs.decode((await self._ask(address, Command(RequestCode.GET_BROKER_EPOCH_CACHE))).body)

    async def controller_config(self, address: str) -> dict[str, str]:
        """The settings of one controller."""
        answer = await self._ask(address, Command(RequestCode.GET_CONTROLLER_CONFIG))
        return read_properties(answer.body.decode("utf-8", "replace"))

    async def set_controller_config(self, address: str, changes: dict[str, str]) -> None:
        """Change settings of one controller, all that are given or none."""
        body = write_properties(changes).encode()
        await self._ask(address, Command(RequestCode.UPDATE_CONTROLLER_CONFIG, body=body))


def _addresses(controllers: str) -> list[str]:
    found = [text.strip() for text in controllers.replace(",", ";").split(";") if text.strip()]
    if not found:
        raise ClientError("no controller is named; give host:port, several with semicolons between them")
    return found
