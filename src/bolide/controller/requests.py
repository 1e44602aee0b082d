"""Requests of brokers and administrators: read, handed to `changes.py`, and answered with what is kept then.

Only the leader answers them; another controller refuses with 2007, and the asker looks for the leader again (1005,
which everybody answers). A refusal is part of the dialogue: 2008 and 2010 make a broker register, 2011 tells who is
master just as 0 does.
"""

import logging
import re
from collections.abc import Awaitable, Callable

from bolide.controller import elections
from bolide.controller.changes import Changes
from bolide.controller.config import LiveConfig
from bolide.controller.elections import Health, ReplicaGroup, Report
from bolide.controller.liveness import Liveness
from bolide.controller.register import Register
from bolide.errors import Refusal
from bolide.protocol.bodies.controller import (
    ElectedMaster,
    Replica,
    ReplicaGroupState,
    ReplicaTable,
    SyncStateSet,
    decode_broker_names,
)
from bolide.protocol.bodies.routes import BrokerMembers
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.controller import (
    AlterSyncStateSetAnswer,
    AlterSyncStateSetRequest,
    ApplyBrokerIdAnswer,
    ApplyBrokerIdRequest,
    CleanBrokerRequest,
    ElectMasterAnswer,
    ElectMasterRequest,
    GetControllerMetadataAnswer,
    GetNextBrokerIdAnswer,
    GetNextBrokerIdRequest,
    GetReplicaAnswer,
    GetReplicaRequest,
    RegisterReplicaAnswer,
    RegisterReplicaRequest,
)
from bolide.protocol.headers.registration import BrokerHeartbeatRequest
from bolide.remoting.handlers import bounded_body
from bolide.remoting.session import Request

BODY_SIZE_MAX = 256 * 1024
_IDS = re.compile(r"[0-9]{1,18}(;[0-9]{1,18}){0,999};?")
Answer = Command | Awaitable[Command]
log = logging.getLogger(__name__)


class Requests:
    """What brokers and administrators ask."""

    def __init__(self, register: Register, changes: Changes, liveness: Liveness, settings: LiveConfig) -> None:
        self._register = register
        self._changes = changes
        self._liveness = liveness
        self._settings = settings

    def handlers(self) -> dict[int, Callable[[Request], Answer]]:
        led = {
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: self.next_id,
            RequestCode.CONTROLLER_APPLY_BROKER_ID: self.apply,
            RequestCode.CONTROLLER_REGISTER_BROKER: self.register,
            RequestCode.CONTROLLER_ELECT_MASTER: self.elect,
            RequestCode.CONTROLLER_GET_REPLICA_INFO: self.replica,
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: self.alter,
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: self.sync_state,
            RequestCode.CLEAN_BROKER_DATA: self.clean,
        }
        return {
            RequestCode.CONTROLLER_GET_METADATA_INFO: self.metadata,
            RequestCode.BROKER_HEARTBEAT: self.heartbeat,
            **{code: self._led(handler) for code, handler in led.items()},
        }

    def _led(self, handler: Callable[[Request], Awaitable[Command]]) -> Callable[[Request], Answer]:
        def serve(request: Request) -> Awaitable[Command]:
            if not self._register.is_leader:
                raise Refusal(ResponseCode.CONTROLLER_NOT_LEADER, "The controller is not in leader state")
            return handler(request)

        return serve

    def metadata(self, request: Request) -> Command:
        """1005: who leads. A controller that may be reached by several addresses tells the one it was reached by."""
        leader = self._register.leader
        header = GetControllerMetadataAnswer(
            group=self._settings.now.group,
            leader_id="" if leader is None else leader.id,
            leader_address="" if leader is None else _reached(leader.address, request),
            is_leader=self._register.is_leader,
            peers="".join(f"{node.id}:{_reached(node.address, request)};" for node in self._register.peers),
        )
        return request.command.answer(ResponseCode.SUCCESS, fields=header.encode())

    def heartbeat(self, request: Request) -> Command:
        """904: a broker is alive. A stranger's heartbeat is answered like any, and nothing is kept of it."""
        header = BrokerHeartbeatRequest.decode(request.command.fields)
        if header.broker_id is None:
            raise Refusal(ResponseCode.CONTROLLER_INVALID_REQUEST, "Heart beat with empty brokerId")
        name, member = header.broker_name, header.broker_id
        group = self._changes.known.get(name)
        if group is not None and member in group.members and header.cluster_name == group.cluster:
            if self._register.is_leader and header.broker_address != group.members[member].address:
                # It registers first, wherever it is: this one has the number of another.
                return request.command.answer(ResponseCode.SUCCESS, remark="Heart beat of an address not registered")
            report = Report(
                epoch=-1 if header.epoch is None else header.epoch,
                end=-1 if header.max_offset is None else header.max_offset,
                priority=elections.EPOCH_MAX if header.election_priority is None else header.election_priority,
            )
            if self._liveness.heard(name, member, report, header.heartbeat_timeout_ms, request.session):
                log.info("broker heard name=%s id=%d peer=%s", name, member, request.session.peer)
        return request.command.answer(ResponseCode.SUCCESS, remark="Heart beat success")

    async def next_id(self, request: Request) -> Command:
        """1012: which id is free."""
        header = GetNextBrokerIdRequest.decode(request.command.fields)
        group = await self._changes.read(header.broker_name)
        answer = GetNextBrokerIdAnswer(
            cluster_name=header.cluster_name, broker_name=header.broker_name, next_broker_id=elections.next_id(group)
        )
        return request.command.answer(ResponseCode.SUCCESS, fields=answer.encode())

    async def apply(self, request: Request) -> Command:
        """1013: give an id."""
        header = ApplyBrokerIdRequest.decode(request.command.fields)
        name, cluster = header.broker_name, header.cluster_name or ""

        def decide(group: ReplicaGroup | None, health: Health) -> ReplicaGroup | None:
            count = len(self._changes.known)
            if group is None and count >= self._settings.now.names_max:
                text = f"{count} broker names are kept here, which is the limit (bolideBrokerNamesMax); clean those "
                raise Refusal(ResponseCode.CONTROLLER_INVALID_REQUEST, f"{text}that are gone, or raise it")
            if header.replaced_id is not None and group is not None:
                self._refuse_second(group, header.replaced_id, header.check_code.partition(";")[0])
            after = elections.apply(group, cluster, name, header.broker_id, header.check_code)
            if header.replaced_id is None or after is group:
                return after
            log.warning("id changed name=%s from=%d to=%d", name, header.replaced_id, header.broker_id)
            return elections.replace_id(after, header.replaced_id, header.broker_id, health)

        await self._changes.change(name, decide)
        answer = ApplyBrokerIdAnswer(cluster_name=header.cluster_name, broker_name=name)
        return request.command.answer(ResponseCode.SUCCESS, fields=answer.encode())

    async def register(self, request: Request) -> Command:
        """1003: a broker begins its work; what it said in an earlier life counts no more."""
        header = RegisterReplicaRequest.decode(request.command.fields)
        name, member = header.broker_name, header.broker_id

        def decide(group: ReplicaGroup | None, health: Health) -> ReplicaGroup | None:
            if group is not None and member in group.members:
                self._refuse_second(group, member, header.broker_address, header.seat or "")
                self._liveness.forget(name, member)
                health = self._changes.health(name, group)
            return elections.register(group, name, member, header.broker_address, health, header.seat or "")

        group = (await self._changes.change(name, decide)).after
        assert group is not None, "what registered is there"
        has_master = group.master_id is not None and self._changes.health(name, group).is_alive(group.master_id)
        answer = RegisterReplicaAnswer(
            cluster_name=header.cluster_name,
            broker_name=name,
            master_broker_id=group.master_id if has_master else None,
            master_address=group.master_address if has_master else None,
            master_epoch=group.master_epoch if has_master else None,
            sync_state_set_epoch=group.set_epoch if has_master else None,
        )
        return request.command.answer(ResponseCode.SUCCESS, fields=answer.encode(), body=_set_of(group).encode())

    def _refuse_second(self, group: ReplicaGroup, member: int, address: str, seat: str = "") -> None:
        """Raises Refusal for a broker with the number of one that lives elsewhere: its directory was copied.

        Both would acknowledge under one number, and either could be elected with what only the other has.
        """
        if member not in group.members or group.members[member].is_at(address, seat):
            return
        known = group.members[member].address
        if self._changes.health(group.name, group).is_alive(member):
            why = f"replica {member} of {group.name} runs at {known}, and {address} has a copy of its directory"
            text = f"{why}: give each broker its own, an empty one is filled; or stop the one that runs"
            raise Refusal(ResponseCode.CONTROLLER_INVALID_REQUEST, text)

    def _check_id(self, group: ReplicaGroup, member: int, address: str, seat: str) -> None:
        """Raises Refusal for a broker whose id is nobody's or another's, or was that of one nobody saw end.

        Only brokers of ours say who they are, and take another id then (`elections.replace_id`). One that holds the
        lock of the one before keeps the id: that one has ended, though this controller may be too young to know.
        """
        if member not in group.members:
            text = f"BrokerId: {member} hasn't been registered in broker-set: {group.name}"
            raise Refusal(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, text)
        self._refuse_second(group, member, address, seat)
        known = group.members[member]
        if not known.is_at(address, seat) and not self._liveness.is_seen_to_end(group.name, member):
            text = (
                f"replica {member} of {group.name} was at {known.address} and nobody saw it end: apply for another id"
            )
            raise Refusal(ResponseCode.CONTROLLER_BROKER_ID_INVALID, text)

    async def elect(self, request: Request) -> Command:
        """1002: elect a master, for a broker or for an administrator."""
        header = ElectMasterRequest.decode(request.command.fields)
        is_unclean_allowed = self._settings.now.is_unclean_allowed

        def decide(group: ReplicaGroup | None, health: Health) -> ReplicaGroup | None:
            return elections.elect(
                group,
                health,
                asker=header.broker_id,
                is_designated=header.is_designated,
                is_unclean_allowed=is_unclean_allowed,
            )

        before, group = await self._changes.change(header.broker_name, decide)
        assert group is not None, "only what is there has a master"
        answer = ElectMasterAnswer(
            master_broker_id=group.master_id,
            master_address=group.master_address,
            master_epoch=group.master_epoch,
            sync_state_set_epoch=group.set_epoch,
        ).encode()
        if group is before:
            remark = f"The old master {group.master_id} is still alive, not need to elect new master for broker "
            body = ElectedMaster(sync_state_set=list(group.sync_set)).encode()
            code = ResponseCode.CONTROLLER_MASTER_STILL_EXIST
            return request.command.answer(code, remark=remark + group.name, fields=answer, body=body)
        addresses = {member: known.address for member, known in group.members.items()}
        members = BrokerMembers(broker_addrs=addresses, broker_name=group.name, cluster=group.cluster)
        body = ElectedMaster(broker_member_group=members, sync_state_set=list(group.sync_set)).encode()
        return request.command.answer(ResponseCode.SUCCESS, fields=answer, body=body)

    async def replica(self, request: Request) -> Command:
        """1004: who is master."""
        header = GetReplicaRequest.decode(request.command.fields)
        group = await self._changes.read(header.broker_name)
        if group is None:
            raise Refusal(ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, "Broker metadata is not existed")
        if header.replica_id is not None and header.address is not None:
            self._check_id(group, header.replica_id, header.address, header.seat or "")
        answer = GetReplicaAnswer(
            master_broker_id=group.master_id, master_address=group.master_address, master_epoch=group.master_epoch
        )
        return request.command.answer(ResponseCode.SUCCESS, fields=answer.encode(), body=_set_of(group).encode())

    async def alter(self, request: Request) -> Command:
        """1001: a master says who is in sync with it."""
        header = AlterSyncStateSetRequest.decode(request.command.fields)
        proposed = SyncStateSet.decode(bounded_body(request, BODY_SIZE_MAX))

        def decide(group: ReplicaGroup | None, health: Health) -> ReplicaGroup | None:
            return elections.alter(
                group,
                header.master_broker_id,
                header.master_epoch,
                proposed.sync_state_set,
                proposed.sync_state_set_epoch,
                health,
            )

        group = (await self._changes.change(header.broker_name, decide)).after
        assert group is not None, "only what is there is altered"
        log.info("set altered name=%s set=%s epoch=%d", group.name, list(group.sync_set), group.set_epoch)
        fields = AlterSyncStateSetAnswer(new_sync_state_set_epoch=group.set_epoch).encode()
        return request.command.answer(ResponseCode.SUCCESS, fields=fields, body=_set_of(group).encode())

    async def sync_state(self, request: Request) -> Command:
        """1006: all members of some names, in sync or not; an empty list asks for every name, as in no Java."""
        names = decode_broker_names(bounded_body(request, BODY_SIZE_MAX)) or sorted(self._changes.known)
        table = {}
        for name in dict.fromkeys(names):
            group = await self._changes.read(name) if name in self._changes.known else None
            if group is not None:
                table[name] = _state_of(group, self._changes.health(name, group))
        body = ReplicaTable(replicas_info_table=table).encode()
        return request.command.answer(ResponseCode.SUCCESS, body=body)

    async def clean(self, request: Request) -> Command:
        """1011: forget members, or a whole name."""
        header = CleanBrokerRequest.decode(request.command.fields)
        members = _ids_of(header.broker_ids or "")

        def decide(group: ReplicaGroup | None, health: Health) -> ReplicaGroup | None:
            is_living_cleaned = header.is_living_cleaned
            return elections.clean(group, header.broker_name, members, health, is_living_cleaned=is_living_cleaned)

        await self._changes.change(header.broker_name, decide)
        log.info("cleaned name=%s ids=%s", header.broker_name, sorted(members) or "all")
        return request.command.answer(ResponseCode.SUCCESS)


def _reached(address: str, request: Request) -> str:
    return request.session.local if address.startswith(":") else address


def _ids_of(text: str) -> frozenset[int]:
    text = text.strip()
    if text and not _IDS.fullmatch(text):
        remark = "Please set the option <brokerControllerIdsToClean> according to the format, ids with ; between them"
        raise Refusal(ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, remark)
    return frozenset(int(part) for part in text.split(";") if part)


def _set_of(group: ReplicaGroup) -> SyncStateSet:
    return SyncStateSet(sync_state_set=list(group.sync_set), sync_state_set_epoch=group.set_epoch)


def _state_of(group: ReplicaGroup, health: Health) -> ReplicaGroupState:
    replicas = [
        Replica(alive=health.is_alive(member), broker_address=known.address, broker_id=member, broker_name=group.name)
        for member, known in sorted(group.members.items())
    ]
    return ReplicaGroupState(
        in_sync_replicas=[replica for replica in replicas if replica.broker_id in group.sync_set],
        master_address=group.master_address,
        master_broker_id=group.master_id,
        master_epoch=group.master_epoch,
        not_in_sync_replicas=[replica for replica in replicas if replica.broker_id not in group.sync_set],
        sync_state_set_epoch=group.set_epoch,
    )
