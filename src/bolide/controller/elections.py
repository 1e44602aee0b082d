"""Who becomes master, who is in sync, and what is refused: decisions over one value per broker name.

Rules that hold for every function here: epochs only grow; an epoch has one master; each change of a set raises the
epoch of the set; a new master comes from the last confirmed set, unless the owner allowed unclean elections. What is
returned replaces what was given in one step (`register.py`), or not at all. Codes, their order and their remarks are
those of RocketMQ 5.5; where our rule is another one, the function says why.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from bolide.errors import Refusal
from bolide.model.names import path_problem, shown
from bolide.protocol.codes import ResponseCode

FIRST_ID = 1
MEMBERS_MAX = 64  # of one name
NAME_SIZE_MAX = 200  # bytes; a name becomes the name of a file
EPOCH_MAX = (1 << 31) - 1
# What brokers report is believed up to here above what is kept: a stranger's number must not use up all epochs.
_REPORTED_LEAD_MAX = 1_000_000


class Member(msgspec.Struct, frozen=True):
    """A broker that was given an id; the check code lets it ask for the same id again.

    The seat says which lock it holds on which running machine; nothing where it does not tell.
    """

    address: str
    check_code: str
    seat: str = ""

    def is_at(self, address: str, seat: str) -> bool:
        """Whether a broker there must be this one: at its address, or with its lock on the same host."""
        has_lock = bool(seat) and seat == self.seat
        return self.address == address or (has_lock and _host(self.address) == _host(address))


class ReplicaGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is kept of one broker name."""

    cluster: str
    name: str
    members: dict[int, Member] = {}
    next_id: int = FIRST_ID
    master_id: int | None = None
    master_epoch: int = 0
    sync_set: tuple[int, ...] = ()
    set_epoch: int = 0

    @property
    def master_address(self) -> str | None:
        """Where the master is; None without one."""
        return None if self.master_id is None else self.members[self.master_id].address


@dataclass(frozen=True, slots=True)
class Report:
    """What a living broker said of its log, and how gladly it would be master (less is more)."""

    epoch: int = -1
    end: int = -1
    priority: int = EPOCH_MAX

    def is_above(self, other: "Report") -> bool:
        return (self.epoch, self.end) > (other.epoch, other.end)


@dataclass(frozen=True, slots=True)
class Health:
    """Which members are alive: those that were heard, and those that nobody had the time to miss (`awaited`)."""

    reports: Mapping[int, Report] = field(default_factory=dict)
    awaited: frozenset[int] = frozenset()

    def is_alive(self, member: int | None) -> bool:
        return member in self.reports or member in self.awaited


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def name_problem(name: str) -> str | None:
    """Why nothing is kept under this name; None if it can be."""
    if (problem := path_problem(name)) is not None:
        return f"a broker cannot be called that: {problem}"
    if (size := len(name.encode("utf-8", "replace"))) > NAME_SIZE_MAX:
        return f"broker name {shown(name)} takes {size} bytes; at most {NAME_SIZE_MAX} are allowed"
    return None


def next_id(group: ReplicaGroup | None) -> int:
    """The id that a new broker may apply for."""
    return FIRST_ID if group is None else group.next_id


def apply(group: ReplicaGroup | None, cluster: str, name: str, member: int, check_code: str) -> ReplicaGroup:
    """Give an id to a broker. One with the same check code has it already, and the same group comes back.

    Java gives any id that is free, also one far above the next, and then hands out one that is taken. Here an id is the
    next one, or one that was given before and cleaned since.
    """
    if group is None:
        if member != FIRST_ID:
            text = f"Broker-set: {name} hasn't been registered in controller, but broker try to apply brokerId: "
            raise Refusal(ResponseCode.CONTROLLER_BROKER_ID_INVALID, f"{text}{member}")
        if (problem := name_problem(name)) is not None:
            raise Refusal(ResponseCode.CONTROLLER_INVALID_REQUEST, problem)
        group = ReplicaGroup(cluster=cluster, name=name)
    if cluster != group.cluster:
        text = f"broker name {name} belongs to cluster {group.cluster}, not to {shown(cluster)}; choose another name"
        raise Refusal(ResponseCode.CONTROLLER_INVALID_REQUEST, text)
    known = group.members.get(member)
    if known is not None and known.check_code == check_code:
        return group
    if known is not None or not FIRST_ID <= member <= group.next_id:
        text = f"Fail to apply brokerId: {member} in broker-set: {name}"
        raise Refusal(ResponseCode.CONTROLLER_BROKER_ID_INVALID, text)
    if len(group.members) >= MEMBERS_MAX:
        text = f"broker name {name} has {MEMBERS_MAX} brokers, which is the limit; clean those that are gone"
        raise Refusal(ResponseCode.CONTROLLER_INVALID_REQUEST, text)
    members = {**group.members, member: Member(check_code.partition(";")[0], check_code)}
    return msgspec.structs.replace(group, members=members, next_id=max(group.next_id, member + 1))


def replace_id(group: ReplicaGroup, old: int, new: int, health: Health) -> ReplicaGroup:
    """A broker that comes from another address has a new id, and the old one is nobody's from now on.

    The old one may be frozen or cut off with the same id: as nobody's, what it acknowledges counts for no election. The
    directory may be a copy that lacks something, so while a master lives it is the master's to say that the new id is
    in sync. Without one the new id takes the old one's place: the others may have moved too, and one has to be elected.
    """
    if old not in group.members:
        return group
    assert not health.is_alive(old), "an id that is in use is kept"
    if group.master_id == old:
        group = replace_dead(group, health, is_unclean_allowed=False) or without_master(group)
    in_sync = set(group.sync_set)
    if old in in_sync:
        in_sync.remove(old)
        if not health.is_alive(group.master_id):
            in_sync.add(new)
        set_epoch = _raised(group.set_epoch, ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED)
        group = msgspec.structs.replace(group, sync_set=tuple(sorted(in_sync)), set_epoch=set_epoch)
    members = {member: known for member, known in group.members.items() if member != old}
    return msgspec.structs.replace(group, members=members)


def register(
    group: ReplicaGroup | None, name: str, member: int, address: str, health: Health, seat: str = ""
) -> ReplicaGroup:
    """Take the address of a broker that begins its work.

    Java tells a master that restarted unnoticed that it is still master of the same epoch, whatever its log lost. Here
    its return counts as its death: a living member of the set may have more, and is elected; `health` does not count
    the one who returns. Nobody there: there is no master, and it has to ask for an election like everybody.
    """
    if group is None:
        text = f"Broker-set: {name} hasn't been registered in controller"
        raise Refusal(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, text)
    known = group.members.get(member)
    if known is None:
        text = f"BrokerId: {member} hasn't been registered in broker-set: {name}"
        raise Refusal(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, text)
    if (known.address, known.seat) != (address, seat):
        members = {**group.members, member: Member(address, known.check_code, seat)}
        group = msgspec.structs.replace(group, members=members)
    if group.master_id != member:
        return group
    assert not health.is_alive(member), "who begins is not alive before it was heard"
    return replace_dead(group, health, is_unclean_allowed=False) or without_master(group)


def elect(
    group: ReplicaGroup | None,
    health: Health,
    *,
    asker: int | None,
    is_designated: bool = False,
    is_unclean_allowed: bool = False,
) -> ReplicaGroup:
    """Elect a master, as a broker or an administrator asks. The same group comes back while its master is alive.

    The first election is won by the broker that asks. Later ones wait for members of the set that were not missed yet:
    one of them may have more. Java elects any id the first time, also one that nobody has.
    """
    if group is None:
        raise Refusal(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "Broker hasn't been registered")
    if asker is not None and asker > 0 and asker not in group.members:
        text = f"BrokerId: {asker} hasn't been registered in broker-set: {group.name}"
        raise Refusal(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, text)
    if not group.sync_set and asker in group.members:
        return _crowned(group, asker, health)
    old = group.master_id
    if is_designated:
        if asker == old and health.is_alive(old):
            return group
        candidates = set(group.members) if is_unclean_allowed else set(group.sync_set)
        if asker in candidates and asker in health.reports:
            return _crowned(group, asker, health)
        raise Refusal(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, "Failed to elect a new master")
    if old is not None and health.is_alive(old):
        return group
    elected = replace_dead(group, health, is_unclean_allowed=is_unclean_allowed)
    if elected is None or elected.master_id is None:
        awaited = sorted(health.awaited.intersection(group.sync_set))
        why = f": brokers {awaited} may have more and were not heard yet; ask again in some seconds" if awaited else ""
        raise Refusal(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, f"Failed to elect a new master{why}")
    return elected


def replace_dead(group: ReplicaGroup, health: Health, *, is_unclean_allowed: bool) -> ReplicaGroup | None:
    """What follows the death of a master: the best of those in sync, or no master; None while some are awaited.

    The best has the newest epoch, then the longest log, then the least priority number, then the least id.
    """
    if not health.awaited.isdisjoint(group.sync_set):
        return None
    candidates = [member for member in group.sync_set if member in health.reports]
    if not candidates and is_unclean_allowed:
        if not health.awaited.isdisjoint(group.members):
            return None
        candidates = [member for member in group.members if member in health.reports]
    if candidates:
        return _crowned(group, min(candidates, key=lambda member: _rank(health.reports[member], member)), health)
    return group if group.master_id is None else without_master(group)


def _rank(report: Report, member: int) -> tuple[int, int, int, int]:
    return -report.epoch, -report.end, report.priority, member


def _crowned(group: ReplicaGroup, member: int | None, health: Health) -> ReplicaGroup:
    """The group with a new master. Its epoch is above all that its members have seen, even if a register was lost."""
    assert member in group.members, "only members are elected"
    believed = [
        report.epoch
        for known, report in health.reports.items()
        if known in group.members and report.epoch - group.master_epoch <= _REPORTED_LEAD_MAX
    ]
    epoch = _raised(max([group.master_epoch, *believed]), ResponseCode.CONTROLLER_ELECT_MASTER_FAILED)
    set_epoch = _raised(group.set_epoch, ResponseCode.CONTROLLER_ELECT_MASTER_FAILED)
    return msgspec.structs.replace(group, master_id=member, master_epoch=epoch, sync_set=(member,), set_epoch=set_epoch)


def without_master(group: ReplicaGroup) -> ReplicaGroup:
    """Nobody can be elected: the epoch goes on, the set stays, for the next master comes from it."""
    epoch = _raised(group.master_epoch, ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE)
    return msgspec.structs.replace(group, master_id=None, master_epoch=epoch)


def _raised(epoch: int, code: ResponseCode) -> int:
    if epoch >= EPOCH_MAX:
        raise Refusal(code, f"epoch {epoch} is the last there is; clean this broker name and register it again")
    return epoch + 1


def alter(
    group: ReplicaGroup | None, master: int, epoch: int, proposed: Iterable[int], set_epoch: int, health: Health
) -> ReplicaGroup:
    """Take the set that a master says is in sync with it. The refusals come in Java's order."""
    failed = ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    if group is None:
        raise Refusal(failed, "Broker metadata is not existed")
    new = tuple(sorted(set(proposed)))
    if new == group.sync_set:
        raise Refusal(failed, "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet")
    rejecting = "Rejecting alter syncStateSet request because the"
    if group.master_id is None or group.master_id != master:
        current = "null" if group.master_id is None else group.master_id
        text = f"{rejecting} current leader is:{{{current}}}, not {{{master}}}"
        raise Refusal(ResponseCode.CONTROLLER_INVALID_MASTER, text)
    if epoch != group.master_epoch:
        text = f"{rejecting} current master epoch is:{{{group.master_epoch}}}, not {{{epoch}}}"
        raise Refusal(ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, text)
    if set_epoch != group.set_epoch:
        text = f"{rejecting} current syncStateSet epoch is:{{{group.set_epoch}}}, not {{{set_epoch}}}"
        raise Refusal(ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, text)
    for member in new:
        if member not in group.members:
            raise Refusal(ResponseCode.CONTROLLER_INVALID_REPLICAS, f"{rejecting} replicas {{{member}}} don't exist")
        if not health.is_alive(member):
            raise Refusal(ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, f"{rejecting} replicas {{{member}}} don't alive")
    if master not in new:
        raise Refusal(failed, f"{rejecting} newSyncStateSet don't contains origin leader {{{master}}}")
    return msgspec.structs.replace(group, sync_set=new, set_epoch=_raised(group.set_epoch, failed))


def clean(
    group: ReplicaGroup | None, name: str, members: frozenset[int], health: Health, *, is_living_cleaned: bool
) -> ReplicaGroup | None:
    """Forget some members, or, where none are named, all of them; None when nothing is left.

    Java forgets the epochs with the last member in sync, and with all of a name if living brokers may be cleaned. Here
    only what is named goes. Without anybody in sync the next election is open to the first who asks, as the first was.
    """
    invalid = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    if not is_living_cleaned:
        if not members and group is not None and group.master_id is not None:
            raise Refusal(invalid, f"Broker {name} is still alive, clean up failure")
        for member in sorted(members):
            if group is not None and member in group.members and health.is_alive(member):
                raise Refusal(invalid, f"Broker [{name},  {member}] is still alive, clean up failure")
    if group is None:
        raise Refusal(invalid, f"Broker {name} is not existed,clean broker data failure.")
    left = {member: known for member, known in group.members.items() if member not in members}
    if not members or not left:
        return None
    if group.master_id in members:
        group = without_master(group)
    in_sync = tuple(member for member in group.sync_set if member in left)
    set_epoch = group.set_epoch if in_sync == group.sync_set else _raised(group.set_epoch, invalid)
    return msgspec.structs.replace(group, members=left, sync_set=in_sync, set_epoch=set_epoch)
