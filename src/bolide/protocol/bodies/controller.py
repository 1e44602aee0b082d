"""What a controller keeps of a broker name, and what a broker tells of its epochs.

| here | RocketMQ |
|---|---|
| `SyncStateSet` | the same |
| `ElectedMaster` | ElectMasterResponseBody |
| `ReplicaTable`, `ReplicaGroupState`, `Replica` | BrokerReplicasInfo, ReplicasInfo, ReplicaIdentity |
| `BrokerEpochs`, `EpochSpan` | EpochEntryCache, EpochEntry |
"""

from bolide.errors import Refusal
from bolide.model.names import LABEL, Label
from bolide.protocol.bodies.body import Body, always, read, write
from bolide.protocol.bodies.routes import BrokerMembers
from bolide.protocol.codes import ResponseCode

_NAMES_MAX = 10_000


class SyncStateSet(Body, frozen=True, kw_only=True):
    """The ids of a name that have everything its master has confirmed, and the epoch of that set."""

    rocketmq_name = "SyncStateSet"
    is_request = True

    sync_state_set: list[int] = always([])
    sync_state_set_epoch: int = always(0)


class ElectedMaster(Body, frozen=True, kw_only=True):
    """What goes with the answer to an election: everyone of that name, if it elected, and the set.

    Ids as keys stand in quotes. Apache's controller writes them bare, and mqadmin of 5.5 chokes on that: it elects, and
    then prints an exception.
    """

    rocketmq_name = "ElectMasterResponseBody"

    broker_member_group: BrokerMembers | None = None
    sync_state_set: list[int] = always([])


class Replica(Body, frozen=True, kw_only=True, gc=False):
    """One broker of a name, and whether the controller takes it for alive."""

    rocketmq_name = "ReplicaIdentity"

    alive: bool = always(False)
    broker_address: str | None = None
    broker_id: int = always(0)
    broker_name: str = always("")


class ReplicaGroupState(Body, frozen=True, kw_only=True):
    """All brokers of a name: its master, its set, and those who are not in it."""

    rocketmq_name = "ReplicasInfo"

    in_sync_replicas: list[Replica] = always([])
    master_address: str | None = None
    master_broker_id: int | None = None
    master_epoch: int = always(0)
    not_in_sync_replicas: list[Replica] = always([])
    sync_state_set_epoch: int = always(0)


class ReplicaTable(Body, frozen=True, kw_only=True):
    """The same for all names that were asked for."""

    rocketmq_name = "BrokerReplicasInfo"

    replicas_info_table: dict[str, ReplicaGroupState] = always({})


class EpochSpan(Body, frozen=True, kw_only=True, gc=False):
    """From where to where a master of one epoch wrote the log."""

    rocketmq_name = "EpochEntry"

    end_offset: int = always((1 << 63) - 1)
    epoch: int = always(0)
    start_offset: int = always(0)


class BrokerEpochs(Body, frozen=True, kw_only=True):
    """The epochs of one broker's log."""

    rocketmq_name = "EpochEntryCache"

    broker_id: int = always(0)
    broker_name: Label = always("")
    cluster_name: Label = always("")
    epoch_list: list[EpochSpan] = always([])
    max_offset: int = always(0)


def encode_broker_names(names: list[str]) -> bytes:
    """The body of a question about several broker names: a bare array."""
    return write(names)


def decode_broker_names(data: bytes) -> list[str]:
    """Read what `encode_broker_names` wrote; raises Refusal if it is no array of names."""
    try:
        names = read(list[str], data)
    except ValueError as problem:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"the broker names in the body cannot be read: {problem}") from None
    if len(names) > _NAMES_MAX:
        remark = f"the body asks for {len(names)} broker names; ask for at most {_NAMES_MAX} at once"
        raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
    for name in names:
        if (unfit := LABEL.problem(name)) is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, unfit)
    return names
