"""What a controller says of a group: who leads it, since which epoch, and which replicas are in sync.

It comes as the answer to three questions, in three spellings; here it is one value.
"""

from dataclasses import dataclass

from bolide.protocol.bodies.controller import ElectedMaster, SyncStateSet
from bolide.protocol.command import Command
from bolide.protocol.headers.controller import (
    ElectMasterAnswer,
    GetReplicaAnswer,
    RegisterReplicaAnswer,
)


@dataclass(frozen=True, slots=True)
class Order:
    """Without a master `master_id` is 0: replicas count from 1."""

    epoch: int = 0
    master_id: int = 0
    master_address: str = ""
    members: frozenset[int] = frozenset()
    set_epoch: int = 0

    @property
    def age(self) -> tuple[int, int]:
        """Orders that are older than one that was heard are not carried out."""
        return self.epoch, self.set_epoch


def registered(answer: Command) -> Order:
    """The answer to 1003; it names a master only if that one is alive."""
    return _order(RegisterReplicaAnswer.decode(answer.fields), _set_in(answer.body))


def looked_up(answer: Command) -> Order:
    """The answer to 1004."""
    return _order(GetReplicaAnswer.decode(answer.fields), _set_in(answer.body))


def elected(answer: Command) -> Order:
    """The answer to 1002, whether it elected or the old master lives."""
    header = ElectMasterAnswer.decode(answer.fields)
    body = ElectedMaster.decode(answer.body) if answer.body else ElectedMaster()
    members = SyncStateSet(sync_state_set=body.sync_state_set, sync_state_set_epoch=header.sync_state_set_epoch or 0)
    return _order(header, members)


def _set_in(body: bytes) -> SyncStateSet:
    return SyncStateSet.decode(body) if body else SyncStateSet()


def _order(
    header: RegisterReplicaAnswer | GetReplicaAnswer | ElectMasterAnswer,
    members: SyncStateSet,
) -> Order:
    return Order(
        epoch=header.master_epoch or 0,
        master_id=header.master_broker_id or 0,
        master_address=header.master_address or "",
        members=frozenset(members.sync_state_set),
        set_epoch=members.sync_state_set_epoch,
    )
