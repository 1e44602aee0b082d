"""The route tables: which broker is where, what topics it has, when it was last heard of.

Rule: every change of the tables is made in this file, in one turn, and the topics whose routes are different after it
are told to `forget`. Nothing here does I/O or reads a clock: times come in as milliseconds of a steady clock, decisions
go out as values (whom to answer what, which connection to close, whom to notify), and `server.py` carries them out.

RocketMQ keeps queues by topic, then by broker. Here they are kept by broker, then by topic, with the broker names of
each topic beside them: a broker that registers, leaves or is wiped then costs its own topics, not everybody's. The
price is paid by a look-up, which collects its rows from several dicts; `answers.py` makes it once for each change.

A registration comes in two steps, because ten thousand topics take milliseconds to compare. `plan` decides who may
register and `Plan.compare` sets the changed rows aside, as many at a time as the caller likes; `apply` writes them all
in one turn. A plan is good for one `revision` of the tables: if they changed meanwhile, it has to be made again.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping

import msgspec

from bolide.errors import Refusal
from bolide.namesrv.entries import (
    MASTER_ID,
    PERM_READ,
    PERM_WRITE,
    Announcement,
    Broker,
    Cause,
    Departure,
    Enrolled,
    Live,
    LiveKey,
    MinIdNotice,
    Plan,
    QueueRow,
)
from bolide.namesrv.shares import BROKER_SIZE, UNTOLD_TOPICS_MAX, topics_size
from bolide.protocol.bodies.routes import DataVersion
from bolide.protocol.codes import ResponseCode


class RouteTables:
    """RocketMQ's five tables and the sixth of 5.x. Read them freely; change them through the methods alone.

    | here | RocketMQ | from → to |
    |---|---|---|
    | queues, topics | topicQueueTable | broker name → topic → row, and topic → broker names |
    | brokers | brokerAddrTable | broker name → cluster, id → address |
    | clusters | clusterAddrTable | cluster → broker names |
    | live | brokerLiveTable | (cluster, address) → when heard, version, connection |
    | filter_servers | filterServerTable | (cluster, address) → addresses of filter servers |
    | mappings | topicQueueMappingInfoTable | topic → broker name → the mapping as the broker wrote it |
    """

    def __init__(self, forget: Callable[[Iterable[str]], None] = lambda topics: None) -> None:
        self.queues: dict[str, dict[str, QueueRow]] = {}
        self.topics: dict[str, tuple[str, ...]] = {}
        self.brokers: dict[str, Broker] = {}
        self.clusters: dict[str, set[str]] = {}
        self.live: dict[LiveKey, Live] = {}
        self.filter_servers: dict[LiveKey, list[str]] = {}
        self.mappings: dict[str, dict[str, msgspec.Raw]] = {}
        self.revision = 0
        self.sizes: dict[str, int] = {}  # broker name → what its topics and mappings take (`shares.py`)
        self.topics_size = 0  # of all of them
        self._told_counts: dict[str, int] = {}  # broker name → topics it named itself
        self._carried: dict[Hashable, set[LiveKey]] = {}  # connection → whom it registered
        self._forget = forget

    # Registration

    def register(self, announcement: Announcement, now_ms: int, *, drops_missing: bool = False) -> Enrolled:
        """Admit a broker in one turn, however many topics it has."""
        plan = self.plan(announcement, drops_missing=drops_missing)
        plan.compare(len(announcement.topics))
        return self.apply(plan, now_ms)

    def plan(self, announcement: Announcement, *, drops_missing: bool = False) -> Plan:
        """Decide whether a broker may register, and what of its topics counts; the tables stay as they are."""
        plan = Plan(announcement, self.revision)
        broker = self.brokers.get(announcement.name)
        holder = broker.addresses.get(announcement.broker_id) if broker else None
        if holder and holder != announcement.address and self._is_outranked(announcement, holder):
            plan.is_ignored = True
            return plan
        if holder is None and len(announcement.topics) == 1:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"register broker failed: broker {announcement.name!r} id {announcement.broker_id} is not known here, "
                "and a first registration with a single topic could be part of a table; register the whole table first",
            )
        plan.is_first = not holder
        if self._topics_count(announcement, broker):
            rows = self.queues.get(announcement.name, {})
            plan.take_topics(
                rows,
                writes_all=plan.is_first or not self._is_version_known(announcement),
                wipes_write=announcement.broker_id != MASTER_ID and announcement.acting_master is True,
            )
            if drops_missing and not announcement.mappings:
                plan.gone = rows.keys() - announcement.topics.keys()
        return plan

    def _is_version_known(self, announcement: Announcement) -> bool:
        live = self.live.get(announcement.key)
        return live is not None and (live.name, live.version) == (announcement.name, announcement.version)

    def _is_outranked(self, announcement: Announcement, holder: str) -> bool:
        live = self.live.get((announcement.cluster, holder))
        return live is not None and live.version.state_version > announcement.version.state_version

    def _topics_count(self, announcement: Announcement, broker: Broker | None) -> bool:
        """Topics are believed from a master; from 5.x on also from the slave that has the smallest id of its name."""
        if announcement.broker_id == MASTER_ID:
            return True
        if announcement.acting_master is None:
            return False
        others = broker.addresses.items() if broker else ()
        return all(announcement.broker_id <= id_ for id_, address in others if address != announcement.address)

    def apply(self, plan: Plan, now_ms: int) -> Enrolled:
        """Write a compared plan into the tables."""
        assert plan.revision == self.revision, "the tables changed since this plan was made"
        announcement = plan.announcement
        self.revision += 1
        if plan.is_ignored:
            return self._ignore(announcement)
        self.clusters.setdefault(announcement.cluster, set()).add(announcement.name)
        broker = self.brokers.get(announcement.name)
        if broker is None:
            broker = self.brokers[announcement.name] = Broker(announcement.cluster, announcement.name)
        min_before = min(broker.addresses, default=MASTER_ID)
        self._take_seat(broker, announcement)
        self._leave_old_name(announcement)
        written = self._write_rows(announcement.name, plan.changed)
        self._remove_rows(announcement.name, plan.gone)
        if plan.takes_mappings:
            self._write_mappings(announcement)
            self._told_counts[announcement.name] = len(announcement.topics)
        is_new = self._hear(announcement, now_ms)
        self._keep_filter_servers(broker, announcement)
        master_address, ha_address = self._master_of(broker, announcement)
        notice = _arrival_notice(broker, announcement.ha_address) if announcement.broker_id < min_before else None
        return Enrolled(master_address, ha_address, is_new, False, written, len(plan.gone), notice)

    def _ignore(self, announcement: Announcement) -> Enrolled:
        # The claim to another seat stands even though this one is refused: it must not go on under its old id.
        live = self._unhear(announcement.key)
        self.filter_servers.pop(announcement.key, None)
        for name in {announcement.name, live.name if live else announcement.name}:
            self._leave_seat(name, announcement.address)
        return Enrolled(is_ignored=True)

    def _take_seat(self, broker: Broker, announcement: Announcement) -> None:
        before = (dict(broker.addresses), broker.has_acting_master, broker.zone)
        broker.has_acting_master = announcement.acting_master is True
        broker.zone = announcement.zone
        _vacate(broker, announcement.address, keep=announcement.broker_id)
        broker.addresses[announcement.broker_id] = announcement.address
        if before != (broker.addresses, broker.has_acting_master, broker.zone):
            self._forget_broker(broker.name)

    def _leave_old_name(self, announcement: Announcement) -> None:
        # An address speaks for one name; the one it spoke for before would stay for ever, for nobody would miss it.
        live = self.live.get(announcement.key)
        if live is not None and live.name != announcement.name:
            self._leave_seat(live.name, announcement.address)

    def _hear(self, announcement: Announcement, now_ms: int) -> bool:
        is_new = self._unhear(announcement.key) is None
        self.live[announcement.key] = Live(
            announcement.name,
            now_ms,
            announcement.timeout_ms,
            announcement.version,
            announcement.connection,
            announcement.ha_address,
        )
        self._carried.setdefault(announcement.connection, set()).add(announcement.key)
        return is_new

    def _unhear(self, key: LiveKey) -> Live | None:
        live = self.live.pop(key, None)
        if live is not None:
            carried = self._carried[live.connection]
            carried.discard(key)
            if not carried:
                del self._carried[live.connection]
        return live

    def _keep_filter_servers(self, broker: Broker, announcement: Announcement) -> None:
        wanted = announcement.filter_servers
        if wanted is None or wanted == self.filter_servers.get(announcement.key, []):
            return
        if wanted:
            self.filter_servers[announcement.key] = wanted
        else:
            del self.filter_servers[announcement.key]
        self._forget_broker(broker.name)

    def _master_of(self, broker: Broker, announcement: Announcement) -> tuple[str, str]:
        if announcement.broker_id == MASTER_ID:
            return "", ""
        address = broker.addresses.get(MASTER_ID, "")
        live = self.live.get((announcement.cluster, address))
        return (address, live.ha_address) if live else ("", "")

    def _write_mappings(self, announcement: Announcement) -> None:
        for topic, mapping in announcement.mappings.items():
            if topic in self.topics:
                by_name = self.mappings.setdefault(topic, {})
                self._resize(announcement.name, _size_of(mapping) - _size_of(by_name.get(announcement.name)))
                by_name[announcement.name] = mapping
        self._forget(announcement.mappings)

    def _resize(self, name: str, change: int) -> None:
        self.sizes[name] = self.sizes.get(name, 0) + change
        self.topics_size += change

    def carried_count(self, connection: Hashable) -> int:
        """How many brokers a connection registered."""
        return len(self._carried.get(connection, ()))

    @property
    def size(self) -> int:
        """What all that is registered takes."""
        return self.topics_size + len(self.live) * BROKER_SIZE

    def holdings(self) -> dict[Hashable, int]:
        """What each connection's brokers take. A name's topics are those of the smallest id that has it."""
        sizes = {connection: len(keys) * BROKER_SIZE for connection, keys in self._carried.items()}
        for name, broker in self.brokers.items():
            live = self.live.get((broker.cluster, broker.addresses[min(broker.addresses)]))
            if live is not None:
                sizes[live.connection] += self.sizes.get(name, 0)
        return sizes

    # Heartbeats and versions

    def hear(self, cluster: str, address: str, now_ms: int) -> None:
        """Note a sign of life; one of a stranger is ignored."""
        live = self.live.get((cluster, address))
        if live is not None:
            live.heard_ms = now_ms

    def version_of(self, cluster: str, address: str) -> DataVersion | None:
        live = self.live.get((cluster, address))
        return live.version if live else None

    # Removal: three triggers, one effect

    def unregister(self, cluster: str, name: str, address: str, now_ms: int) -> Departure | None:
        """The broker said goodbye (request 104); None when nobody knew it."""
        return self._depart((cluster, address), name, Cause.UNREGISTERED, now_ms)

    def disconnect(self, connection: Hashable, now_ms: int) -> list[Departure]:
        """A connection ended: all that it registered leaves. A client's connection registered nobody."""
        keys = sorted(self._carried.get(connection, ()))
        return self._depart_all(keys, Cause.DISCONNECTED, now_ms)

    def expire(self, now_ms: int) -> list[Departure]:
        """The brokers that were silent for longer than they promised; their connections are to be closed."""
        keys = [key for key, live in self.live.items() if live.heard_ms + live.timeout_ms < now_ms]
        return self._depart_all(keys, Cause.EXPIRED, now_ms)

    def _depart_all(self, keys: Iterable[LiveKey], cause: Cause, now_ms: int) -> list[Departure]:
        departures = [self._depart(key, self.live[key].name, cause, now_ms) for key in keys]
        return [departure for departure in departures if departure is not None]

    def _depart(self, key: LiveKey, name: str, cause: Cause, now_ms: int) -> Departure | None:
        cluster, address = key
        live = self._unhear(key)
        if live is not None:
            name = live.name  # who says goodbye under a wrong name means its own
        elif name not in self.brokers or address not in self.brokers[name].addresses.values():
            return None
        self.revision += 1
        self.filter_servers.pop(key, None)
        is_elsewhere = cause is not Cause.UNREGISTERED and self._is_heard_of(name, address)
        rows, notice = ({}, None) if is_elsewhere else self._leave_seat(name, address)
        # A connection that still speaks for others (a broker container) stays open.
        connection = live.connection if live and live.connection not in self._carried else None
        silent_ms = now_ms - live.heard_ms if live else 0
        return Departure(cluster, name, address, cause, now_ms, silent_ms, rows, connection, notice)

    def _is_heard_of(self, name: str, address: str) -> bool:
        """A broker that moved to another cluster is known under both until the old entry expires."""
        return any(at == address and live.name == name for (_, at), live in self.live.items())

    def _leave_seat(self, name: str, address: str) -> tuple[Mapping[str, QueueRow], MinIdNotice | None]:
        broker = self.brokers.get(name)
        if broker is None:
            return {}, None
        min_before = min(broker.addresses)
        if not _vacate(broker, address, keep=None):
            return {}, None
        self._forget_broker(name)
        if not broker.addresses:
            return self._remove_broker(name), None
        if not broker.has_acting_master:
            return {}, None
        if broker.is_without_master:
            self.wipe_write(name)
        min_id = min(broker.addresses)
        if min_id == min_before:
            return {}, None
        receivers = tuple(broker.addresses.values())
        return {}, MinIdNotice(name, min_id, broker.addresses[min_id], receivers, offline_address=address)

    def _remove_broker(self, name: str) -> Mapping[str, QueueRow]:
        del self.brokers[name]
        # All clusters are looked through: a name that moved is listed in its old cluster too (NS-15).
        for cluster in [cluster for cluster, names in self.clusters.items() if name in names]:
            self.clusters[cluster].discard(name)
            if not self.clusters[cluster]:
                del self.clusters[cluster]
        rows = self.queues.get(name, {})
        self._remove_rows(name, set(rows))
        self.sizes.pop(name, None)
        self._told_counts.pop(name, None)
        return rows

    # Operators' changes

    def wipe_write(self, name: str) -> int:
        """Take the write permission from all topics of a broker name; says how many topics it has."""
        return self._set_perms(name, lambda row: row.perm & ~PERM_WRITE)

    def add_write(self, name: str) -> int:
        """Make all topics of a broker name readable and writable; says how many topics it has."""
        return self._set_perms(name, lambda row: PERM_READ | PERM_WRITE)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Drop a topic's rows, of all brokers or of one cluster's; a broker that has it brings it back later."""
        members = None if cluster is None else self.clusters.get(cluster, set())
        for name in self.topics.get(topic, ()):
            if members is None or name in members:
                self._remove_rows(name, {topic})

    def register_topic(self, topic: str, rows: Mapping[str, QueueRow]) -> bool:
        """Merge rows (by broker name) into one topic; refused as a whole when a name is unknown."""
        if not rows or not rows.keys() <= self.brokers.keys():
            return False
        for name in rows:
            known = self.queues.get(name, {})
            if topic not in known and len(known) - self._told_counts.get(name, 0) >= UNTOLD_TOPICS_MAX:
                text = f"broker {name!r} has {UNTOLD_TOPICS_MAX} topics here that it does not name itself; delete some"
                raise Refusal(ResponseCode.SYSTEM_ERROR, text)
        for name, row in rows.items():
            if self.queues.get(name, {}).get(topic) != row:
                self._write_rows(name, {topic: row})
        return True

    # Table 1 and the names beside it change here alone

    def _write_rows(self, name: str, changed: Mapping[str, QueueRow]) -> int:
        """Write rows that all differ from what is here."""
        if not changed:
            return 0
        known = self.queues.setdefault(name, {})
        alone = (name,)  # one tuple for all topics of a single broker: most of them are
        added = [topic for topic in changed if topic not in known]
        for topic in added:
            self.topics[topic] = self.topics[topic] + alone if topic in self.topics else alone
        known.update(changed)
        self._resize(name, topics_size(added))
        self.revision += 1
        self._forget(changed)
        return len(changed)

    def _set_perms(self, name: str, perm_of: Callable[[QueueRow], int]) -> int:
        rows = self.queues.get(name, {})
        wanted = ((topic, row, perm_of(row)) for topic, row in rows.items())
        self._write_rows(name, {topic: row.with_perm(perm) for topic, row, perm in wanted if perm != row.perm})
        return len(rows)

    def _remove_rows(self, name: str, gone: set[str]) -> None:
        known = self.queues.get(name)
        if known is None or not gone:
            return
        gone = gone & known.keys()
        if len(gone) == len(known):
            del self.queues[name]  # the rows stay whole, for anyone who remembers what this broker had
        else:
            for topic in gone:
                del known[topic]
        removed_size = topics_size(gone)
        for topic in gone:
            names = tuple(other for other in self.topics[topic] if other != name)
            removed_size += self._remove_mapping(topic, name) if self.mappings else 0
            if names:
                self.topics[topic] = names
            else:
                del self.topics[topic]
        self._resize(name, -removed_size)
        self.revision += 1
        self._forget(gone)

    def _remove_mapping(self, topic: str, name: str) -> int:
        by_name = self.mappings.get(topic)
        if by_name is None:
            return 0
        size = _size_of(by_name.pop(name, None))
        if not by_name:
            del self.mappings[topic]
        return size

    def _forget_broker(self, name: str) -> None:
        self._forget(self.queues.get(name, ()))


def _size_of(mapping: msgspec.Raw | None) -> int:
    return 0 if mapping is None else len(bytes(mapping))


def _vacate(broker: Broker, address: str, *, keep: int | None) -> bool:
    """Remove an address from all ids but one; an address has one seat, so a promoted slave leaves its old one."""
    seats = [id_ for id_, holder in broker.addresses.items() if holder == address and id_ != keep]
    for id_ in seats:
        del broker.addresses[id_]
    return bool(seats)


def _arrival_notice(broker: Broker, ha_address: str) -> MinIdNotice:
    min_id = min(broker.addresses)
    others = tuple(address for id_, address in broker.addresses.items() if id_ != min_id)
    receivers = others or tuple(broker.addresses.values())
    return MinIdNotice(broker.name, min_id, broker.addresses[min_id], receivers, ha_address=ha_address)
