"""What a broker says to its controllers: that it belongs to its group, that it lives, and which replicas are in sync.

    1012, 1013   a number among the replicas, once in the life of a directory
    1003         I am here, at this address, and who leads?
    904          I live, and this is how far my log goes
    1002         let there be a master
    1004         who leads now, and with which set? Is our number still ours?
    1001         (the master's) this set is in sync with me

Nothing is decided here but the number.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from bolide.broker.controlled.controllers import Controllers
from bolide.broker.controlled.identity import Application, IdentityFiles
from bolide.broker.controlled.orders import Order, elected, looked_up, registered
from bolide.clock import Clock
from bolide.errors import NoAnswer, Refusal
from bolide.model.queue import PhysicalOffset
from bolide.protocol.bodies.controller import SyncStateSet
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.controller import (
    AlterSyncStateSetRequest,
    ApplyBrokerIdRequest,
    ElectMasterRequest,
    GetNextBrokerIdAnswer,
    GetNextBrokerIdRequest,
    GetReplicaRequest,
    RegisterReplicaRequest,
)
from bolide.protocol.headers.registration import BrokerHeartbeatRequest

# Of a proposal: whatever else is answered, it may be in force. 2013 says that the controller holds this very set.
NOT_CARRIED_OUT = (
    ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
    ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
    ResponseCode.CONTROLLER_INVALID_MASTER,
    ResponseCode.CONTROLLER_INVALID_REPLICAS,
    ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
)
NO_NUMBER = (ResponseCode.CONTROLLER_BROKER_ID_INVALID, ResponseCode.CONTROLLER_INVALID_REQUEST)
# To a broker that says who it is: its number is nobody's, another's, or perhaps in use elsewhere.
NUMBER_LOST = (
    ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
    ResponseCode.CONTROLLER_BROKER_ID_INVALID,
    ResponseCode.CONTROLLER_INVALID_REQUEST,
)
APPLICATIONS_MAX = 10  # others may be quicker that often
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Member:
    """Who asks."""

    cluster: str
    broker_name: str
    beat_limit_ms: int
    election_priority: int
    seat: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the log goes, for a heartbeat."""

    epoch: int
    end: int
    confirmed_end: int


class Membership:
    """One broker's conversation with the controllers of its group."""

    def __init__(self, member: Member, controllers: Controllers, files: IdentityFiles, clock: Clock) -> None:
        """Raises StoreError where the directory belongs to another broker."""
        self._member = member
        self.controllers = controllers
        self._files = files
        self._clock = clock
        self.replica_id = files.replica_id() or 0
        self._replaced_id: int | None = None
        self.address = ""

    async def join(self, own_address: Callable[[str], str]) -> Order:
        """Get a number if we have none that is ours alone, and register; raises NoAnswer or Refusal.

        `own_address` makes the address that others reach us by from our end of a connection.
        """
        self.address = own_address(await self.controllers.own_host())
        if self.replica_id:
            await self._check_number()
        for _ in range(APPLICATIONS_MAX):
            if self.replica_id or await self._is_numbered():
                break
        else:
            raise Refusal(ResponseCode.CONTROLLER_BROKER_ID_INVALID, "other brokers took every number we applied for")
        return await self.register()

    async def _check_number(self) -> None:
        """Give our number up where the one that had it may run elsewhere: two would acknowledge in its name."""
        try:
            await self.look()
        except Refusal as refusal:
            if refusal.code not in NUMBER_LOST:
                return
            if refusal.code == ResponseCode.CONTROLLER_INVALID_REQUEST:
                raise  # it does run elsewhere
            log.warning("another number is needed: %s", refusal.remark)
            self._replaced_id, self.replica_id = self.replica_id, 0

    async def _is_numbered(self) -> bool:
        """Apply for a number; false if another broker was quicker."""
        application = self._files.application()
        if application is None:
            header = GetNextBrokerIdRequest(cluster_name=self._member.cluster, broker_name=self._member.broker_name)
            answer = await self._ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header.encode())
            number = GetNextBrokerIdAnswer.decode(answer.fields).next_broker_id or 1
            application = Application(number, f"{self.address};{self._clock.now_ms()}")
            await asyncio.to_thread(self._files.apply, application)
        applied = ApplyBrokerIdRequest(
            cluster_name=self._member.cluster,
            broker_name=self._member.broker_name,
            broker_id=application.replica_id,
            check_code=application.check_code,
            replaced_id=self._replaced_id,
        )
        try:
            await self._ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, applied.encode())
        except Refusal as refusal:
            if refusal.code not in NO_NUMBER:
                raise
            await asyncio.to_thread(self._files.forget_application)
            if refusal.code == ResponseCode.CONTROLLER_INVALID_REQUEST:
                raise  # no other number would do
            return False
        await asyncio.to_thread(self._files.granted, application.replica_id)
        self.replica_id = application.replica_id
        log.info("replica numbered name=%s number=%d", self._member.broker_name, self.replica_id)
        return True

    async def register(self) -> Order:
        """Say that we are here; the answer names the master only if it lives."""
        header = RegisterReplicaRequest(
            cluster_name=self._member.cluster,
            broker_name=self._member.broker_name,
            broker_id=self.replica_id,
            broker_address=self.address,
            invoke_time=self._clock.now_ms(),
            seat=self._member.seat,
        )
        return registered(await self._ask(RequestCode.CONTROLLER_REGISTER_BROKER, header.encode()))

    async def look(self) -> Order:
        """Who leads, whether alive or not. A controller of ours refuses where our number is not ours any more."""
        header = GetReplicaRequest(
            broker_name=self._member.broker_name,
            replica_id=self.replica_id or None,
            address=self.address or None,
            seat=self._member.seat,
        )
        return looked_up(await self._ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, header.encode()))

    async def elect(self) -> Order:
        """Ask for a master; that the old one lives is an answer too."""
        header = ElectMasterRequest(
            cluster_name=self._member.cluster,
            broker_name=self._member.broker_name,
            broker_id=self.replica_id,
            invoke_time=self._clock.now_ms(),
        )
        fine = (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
        return elected(await self._ask(RequestCode.CONTROLLER_ELECT_MASTER, header.encode(), fine=fine))

    async def alter(self, epoch: int, members: frozenset[int], set_epoch: int) -> SyncStateSet:
        """Propose a set in place of the one with `set_epoch`.

        Raises Refusal if it was certainly not carried out, and NoAnswer if nobody knows.
        """
        header = AlterSyncStateSetRequest(
            broker_name=self._member.broker_name,
            master_broker_id=self.replica_id,
            master_epoch=epoch,
            invoke_time=self._clock.now_ms(),
        )
        body = SyncStateSet(sync_state_set=sorted(members), sync_state_set_epoch=set_epoch).encode()
        command = Command(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, fields=header.encode(), body=body)
        answer = await self.controllers.ask(command, is_repeatable=False)
        if answer.code in NOT_CARRIED_OUT:
            raise Refusal(answer.code, answer.remark or "the controller refused the set")
        if answer.code != ResponseCode.SUCCESS:
            raise NoAnswer(f"the controller answered {answer.code}: {answer.remark}", answer.code)
        return SyncStateSet.decode(answer.body)

    async def beat_heard(self, progress: Progress) -> None:
        """Let the one that leads hear a heartbeat, and know that it did."""
        await self._ask(RequestCode.BROKER_HEARTBEAT, self._beat(progress))

    async def beat(self, address: str, progress: Progress) -> None:
        """Let one controller hear a heartbeat."""
        await self.controllers.beat(address, Command(RequestCode.BROKER_HEARTBEAT, fields=self._beat(progress)))

    def _beat(self, progress: Progress) -> dict[str, str]:
        return BrokerHeartbeatRequest(
            cluster_name=self._member.cluster,
            broker_address=self.address,
            broker_name=self._member.broker_name,
            broker_id=self.replica_id,
            epoch=progress.epoch,
            max_offset=PhysicalOffset(progress.end),
            confirm_offset=PhysicalOffset(progress.confirmed_end),
            heartbeat_timeout_ms=self._member.beat_limit_ms,
            election_priority=self._member.election_priority,
        ).encode()

    async def _ask(
        self,
        code: RequestCode,
        fields: dict[str, str],
        body: bytes = b"",
        fine: tuple[ResponseCode, ...] = (ResponseCode.SUCCESS,),
    ) -> Command:
        answer = await self.controllers.ask(Command(code, fields=fields, body=body))
        if answer.code not in fine:
            raise Refusal(answer.code, answer.remark or f"the controller answered request {code} with {answer.code}")
        return answer
