"""Brokers and administrators to a controller of 5.x, and its one word back: ids, roles and sets that are in sync.

Java requires none of these fields but those of an election; what an answer cannot be given without is required here.
`invoke_time` is the sender's clock in milliseconds, by which one kind of Java's controllers judges who is alive.
"""

from bolide.model.names import GroupName, Label, Text
from bolide.protocol.headers.header import Header, Int32, Int64, RequestHeader, header, wire


@header
class GetControllerMetadataAnswer(Header):
    """Who leads the controllers; every one of them answers this."""

    group: GroupName | None = wire("group", default=None)
    leader_id: Label | None = wire("controllerLeaderId", default=None)
    leader_address: Label | None = wire("controllerLeaderAddress", default=None)
    is_leader: bool = wire("isLeader", default=False)
    peers: Text | None = wire("peers", default=None)


@header
class GetNextBrokerIdRequest(RequestHeader):
    """Which id may a new broker of this name apply for."""

    cluster_name: Label | None = wire("clusterName", default=None)
    broker_name: Label = wire("brokerName")


@header
class GetNextBrokerIdAnswer(Header):
    """The id that is free now; another broker may be quicker to apply for it."""

    cluster_name: Label | None = wire("clusterName", default=None)
    broker_name: Label | None = wire("brokerName", default=None)
    next_broker_id: Int64 | None = wire("nextBrokerId", default=None)


@header
class ApplyBrokerIdRequest(RequestHeader):
    """Give me this id. The check code (`address;milliseconds`) lets me ask again when the answer was lost."""

    cluster_name: Label | None = wire("clusterName", default=None)
    broker_name: Label = wire("brokerName")
    broker_id: Int64 = wire("appliedBrokerId")
    check_code: Label = wire("registerCheckCode")
    # our own: the id it had at another address, which nobody is to have any more
    replaced_id: Int64 | None = wire("bolideReplacedId", default=None)


@header
class ApplyBrokerIdAnswer(Header):
    """It is yours."""

    cluster_name: Label | None = wire("clusterName", default=None)
    broker_name: Label | None = wire("brokerName", default=None)


@header
class RegisterReplicaRequest(RequestHeader):
    """I am here, under an id that was given to me, at this address."""

    cluster_name: Label | None = wire("clusterName", default=None)
    broker_name: Label = wire("brokerName")
    broker_id: Int64 = wire("brokerId")
    broker_address: Label = wire("brokerAddress")
    invoke_time: Int64 | None = wire("invokeTime", default=None)
    # our own: which lock it holds, so that it is known when it comes from another address
    seat: Label | None = wire("bolideSeat", default=None)


@header
class RegisterReplicaAnswer(Header):
    """The master and its epochs, if there is a master that is alive. The body has the set."""

    cluster_name: Label | None = wire("clusterName", default=None)
    broker_name: Label | None = wire("brokerName", default=None)
    master_broker_id: Int64 | None = wire("masterBrokerId", default=None)
    master_address: Label | None = wire("masterAddress", default=None)
    master_epoch: Int32 | None = wire("masterEpoch", default=None)
    sync_state_set_epoch: Int32 | None = wire("syncStateSetEpoch", default=None)


@header
class ElectMasterRequest(RequestHeader):
    """Elect a master: asked by a broker for itself, or by an administrator, who may name the only one to be elected."""

    cluster_name: Label | None = wire("clusterName", default=None)
    broker_name: Label = wire("brokerName")
    broker_id: Int64 | None = wire("brokerId", default=None)
    is_designated: bool = wire("designateElect", default=False)
    invoke_time: Int64 | None = wire("invokeTime", default=None)


@header
class ElectMasterAnswer(Header):
    """The master now, elected by this request (0) or still alive (2011)."""

    master_broker_id: Int64 | None = wire("masterBrokerId", default=None)
    master_address: Label | None = wire("masterAddress", default=None)
    master_epoch: Int32 | None = wire("masterEpoch", default=None)
    sync_state_set_epoch: Int32 | None = wire("syncStateSetEpoch", default=None)


@header
class GetReplicaRequest(RequestHeader):
    """Who is master of this name, and which set is in sync."""

    broker_name: Label = wire("brokerName")
    # our own: who asks, so that it hears when its id is another's
    replica_id: Int64 | None = wire("bolideReplicaId", default=None)
    address: Label | None = wire("bolideAddress", default=None)
    seat: Label | None = wire("bolideSeat", default=None)


@header
class GetReplicaAnswer(Header):
    """The epoch always, the master only if there is one. The body has the set."""

    master_broker_id: Int64 | None = wire("masterBrokerId", default=None)
    master_address: Label | None = wire("masterAddress", default=None)
    master_epoch: Int32 | None = wire("masterEpoch", default=None)


@header
class AlterSyncStateSetRequest(RequestHeader):
    """A master says which set is in sync with it. The body has the new set, and the epoch of the old one."""

    broker_name: Label = wire("brokerName")
    master_broker_id: Int64 = wire("masterBrokerId")
    master_epoch: Int32 = wire("masterEpoch")
    invoke_time: Int64 | None = wire("invokeTime", default=None)


@header
class AlterSyncStateSetAnswer(Header):
    """The epoch of the new set. The body has the set with it."""

    new_sync_state_set_epoch: Int32 = wire("newSyncStateSetEpoch", default=0)


@header
class NotifyRoleChangedRequest(RequestHeader):
    """Controller to broker: this is your master now. The body has the set."""

    master_broker_id: Int64 | None = wire("masterBrokerId", default=None)
    master_address: Label | None = wire("masterAddress", default=None)
    master_epoch: Int32 | None = wire("masterEpoch", default=None)
    sync_state_set_epoch: Int32 | None = wire("syncStateSetEpoch", default=None)


@header
class CleanBrokerRequest(RequestHeader):
    """Forget these ids of a name (`1;2`), or the whole name when no ids are given; living brokers only if asked."""

    cluster_name: Label | None = wire("clusterName", default=None)
    broker_name: Label = wire("brokerName")
    broker_ids: Text | None = wire("brokerControllerIdsToClean", default=None)
    is_living_cleaned: bool = wire("isCleanLivingBroker", default=False)
    invoke_time: Int64 | None = wire("invokeTime", default=None)
