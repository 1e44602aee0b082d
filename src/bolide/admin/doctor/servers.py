"""What is judged of name servers, brokers and the machine."""

import re
from collections.abc import Iterator, Mapping

from bolide.admin.doctor.facts import BrokerFacts, Facts
from bolide.admin.doctor.findings import ERROR, NOTE, WARNING, Fault, finds
from bolide.model.texts import counted
from bolide.model.topics import TRACE_TOPIC

_HEAVY_MS = 200
# What a broker does where its disk is fuller: take nothing, and delete files before their time.
_DISK_RATIOS = {"diskSpaceWarningLevelRatio": 0.90, "diskMaxUsedSpaceRatio": 0.75}
_DAYS_MIN = 3
_RESERVED_HOURS = 72
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = re.compile(r"([0-9.]+) (B|KiB|MiB|GiB|TiB)\b")
_BEHIND_MAX = 16 << 20
_CLOCK_APART_MS = 2_000  # what a broker tells of its time is in whole seconds
_TIMER_LATE_S = 10
_SEND_SLOW_MS = 1_000
_OPEN_FILES_MIN, _MAP_COUNT_MIN, _MEMORY_MIN, _FSYNC_MS_MAX = 65_536, 65_530, 1 << 30, 50.0
_NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs"})
_SLOW_STEPS = ("200~500ms", "500ms~1s", "1~2s", "2~3s", "3~4s", "4~5s", "5~10s", "10s~")


@finds("D01")
def unreachable(facts: Facts) -> Iterator[Fault]:
    """A registered address cannot be reached from here."""
    for each in facts.namesrvs:
        if each.problem:
            yield (
                ERROR,
                f"name server {each.address}: {each.problem}",
                "clients that know it alone are cut off",
                f"start it, or take {each.address} from the lists of name servers",
            )
    for broker in facts.brokers:
        if broker.problem and not broker.is_refused:
            yield (
                ERROR,
                f"broker {broker.name} ({broker.broker_id}) is registered at {broker.address}: {broker.problem}",
                "clients are told this address, and those that are where we are cannot use it",
                "start it, or tell it an address that clients reach: bolide broker --advertise HOST:PORT (brokerIP1)",
            )


@finds("D03")
def busy(facts: Facts) -> Iterator[Fault]:
    """Brokers take long to store, and so refuse for load."""
    for broker in facts.brokers:
        steps = _steps(broker.runtime.get("putMessageDistributeTime", ""))
        slow, total = sum(steps.get(name, 0) for name in _SLOW_STEPS), sum(steps.values())
        waits_ms = _number(broker.runtime, "sendThreadPoolQueueHeadWaitTimeMills")
        if (total and slow * 1000 > total) or waits_ms >= _HEAVY_MS:
            yield (
                WARNING,
                f"broker {broker.name}: {slow} of {total} messages took over {_HEAVY_MS} ms to store",
                "senders hear SYSTEM_BUSY when that goes on",
                "look at the disk (bolide_fsync_seconds), or add a broker",
            )


@finds("D07")
def disk(facts: Facts) -> Iterator[Fault]:
    """A disk near or over one of its ratios, or full soon at the pace of its log."""
    for broker in facts.brokers:
        ratio = _ratio(broker.runtime.get("commitLogDiskRatio", ""))
        limit, early = (_percent(broker, key) or other for key, other in _DISK_RATIOS.items())
        days = _days_left(broker, limit, facts.now_ms)
        lasts = "" if days is None else f", and at the pace of its log full in {days:.1f} days"
        seen = f"the disk of broker {broker.name} is {ratio:.0%} full, the limit is {limit:.0%}{lasts}"
        if ratio >= limit:
            yield ERROR, seen, "it takes no messages there", "free space, or lower fileReservedTime"
        elif ratio >= early or (days is not None and days < _DAYS_MIN):
            yield (
                WARNING,
                seen,
                "old messages are deleted early, and then nothing is taken",
                "free space, or lower fileReservedTime",
            )


def _days_left(broker: BrokerFacts, limit: float, now_ms: int) -> float | None:
    """Until the limit is reached; None where too little is known, or files are old enough to go before that."""
    sizes = _SIZE.findall(broker.runtime.get("commitLogDirCapacity", ""))
    first_ms = _number(broker.runtime, "earliestMessageTimeStamp")
    size = _number(broker.runtime, "commitLogMaxOffset") - _number(broker.runtime, "commitLogMinOffset")
    age_ms = now_ms - first_ms
    if len(sizes) != 2 or first_ms <= 0 or age_ms < _HOUR_MS or size <= 0:
        return None
    total, free = (float(amount) * _UNITS[unit] for amount, unit in sizes)
    left_ms = max(0.0, free - (1 - limit) * total) / size * age_ms
    kept_ms = (_number(broker.settings, "fileReservedTime") or _RESERVED_HOURS) * _HOUR_MS
    return left_ms / _DAY_MS if age_ms + left_ms < kept_ms else None


@finds("D08")
def wrong_port(facts: Facts) -> Iterator[Fault]:
    """Another protocol is spoken at an address than clients expect."""
    for address, spoken in facts.wrong_protocols.items():
        yield (
            ERROR,
            f"{address} speaks {spoken}",
            "clients of the other kind hang or fail there",
            "remoting clients ask the name server (9876), gRPC clients the proxy's port (8081)",
        )


@finds("D11")
def disagreement(facts: Facts) -> Iterator[Fault]:
    """Name servers do not know the same."""
    answering = [each for each in facts.namesrvs if not each.problem]
    for each in answering[1:]:
        first = answering[0]
        if each.brokers != first.brokers:
            odd = sorted({name for (name, _), _ in set(each.brokers.items()) ^ set(first.brokers.items())})
            yield (
                WARNING,
                f"name servers {first.address} and {each.address} differ on {', '.join(odd)}",
                "clients see different clusters, by whom they ask",
                "every broker needs all name servers in namesrvAddr",
            )
        elif each.topics != first.topics:
            odd = sorted(each.topics ^ first.topics)[:5]
            yield (
                WARNING,
                f"name servers {first.address} and {each.address} differ on topics {', '.join(odd)}",
                "some clients find no route",
                "wait half a minute; then look at the brokers' registrations",
            )


@finds("D12")
def same_name(facts: Facts) -> Iterator[Fault]:
    """Two brokers claim one name and id."""
    places: dict[tuple[str, int], set[str]] = {}
    for namesrv in facts.namesrvs:
        for seat, address in namesrv.brokers.items():
            places.setdefault(seat, set()).add(address)
    for seat, addresses_seen in facts.rivals.items():
        places.setdefault(seat, set()).update(addresses_seen)
    for (name, broker_id), addresses in places.items():
        if len(addresses) > 1:
            yield (
                ERROR,
                f"broker {name} ({broker_id}) is at {' and at '.join(sorted(addresses))}",
                "they take each other's place, and messages are split between them",
                "give one of them another brokerName or brokerId",
            )


@finds("D13")
def refused(facts: Facts) -> Iterator[Fault]:
    """A broker does not let us in."""
    for broker in facts.brokers:
        if broker.is_refused:
            yield (
                ERROR,
                f"broker {broker.name} at {broker.address}: {broker.problem}",
                "clients with these credentials are refused too",
                "bolide login, or --access-key and --secret-file",
            )


@finds("D16")
def late(facts: Facts) -> Iterator[Fault]:
    """Delayed or timed messages are late, or the timer is off."""
    for broker in facts.brokers:
        if broker.delayed_due_ms is not None:
            # By the broker's own clock: one that is apart from ours is another finding.
            its_now_ms = facts.now_ms + (_told_ms(broker) or broker.asked_ms) - broker.asked_ms
            late_s = (its_now_ms - broker.delayed_due_ms) / 1000
            if late_s > _TIMER_LATE_S:
                yield (
                    WARNING,
                    f"broker {broker.name} delivers delayed messages {late_s:.0f} s late",
                    "delays and retries wait in the same levels, and come later",
                    "look at its log, its disk and its load",
                )
        behind_s = _number(broker.runtime, "timerReadBehind")
        if behind_s > _TIMER_LATE_S:
            yield (
                WARNING,
                f"broker {broker.name} delivers timed messages {behind_s:.0f} s late",
                "whatever was to come at a time comes later",
                "look at its disk and its load",
            )
        if broker.is_master and broker.settings.get("timerWheelEnable", "true") == "false":
            yield (
                NOTE,
                f"broker {broker.name} has no timer (timerWheelEnable=false)",
                "messages for a time of one's own are refused",
                "timerWheelEnable=true",
            )


@finds("D17")
def clocks(facts: Facts) -> Iterator[Fault]:
    """A broker's clock is apart from ours."""
    for broker in facts.brokers:
        told_ms = _told_ms(broker)
        if told_ms is not None and abs(told_ms - broker.asked_ms) > _CLOCK_APART_MS + broker.took_ms:
            apart_s = (told_ms - broker.asked_ms) / 1000
            yield (
                WARNING,
                f"the clock of broker {broker.name} is {apart_s:+.0f} s from this machine's",
                "delays, searches by time and access control go by the clock",
                "use NTP on both",
            )


@finds("D20")
def machine(facts: Facts) -> Iterator[Fault]:
    """Limits of the machine that a store is on."""
    seen = facts.machine
    if seen is None:
        return
    if seen.open_files_max < _OPEN_FILES_MIN:
        yield (
            WARNING,
            f"a process may open {seen.open_files_max} files",
            "a broker needs one for each queue and client",
            "LimitNOFILE=655350 in the unit, or ulimit -n",
        )
    if seen.map_count_max < _MAP_COUNT_MIN:
        yield (
            WARNING,
            f"vm.max_map_count is {seen.map_count_max}",
            "each queue file is a map",
            "sysctl -w vm.max_map_count=655360",
        )
    if seen.memory_free < _MEMORY_MIN:
        yield (
            WARNING,
            f"{seen.memory_free >> 20} MiB of memory are free",
            "readers far behind read from the disk",
            "more memory, or fewer processes",
        )
    if seen.fsync_ms > _FSYNC_MS_MAX:
        yield (
            WARNING,
            f"a sync of the store's disk took {seen.fsync_ms:.0f} ms",
            "synchronous sends wait that long",
            "another disk for the log",
        )
    if seen.file_system in _NETWORK_FILE_SYSTEMS:
        yield (
            ERROR,
            f"the store is on {seen.file_system}",
            "a lost server may take messages that were acknowledged",
            "a local disk, and replicas for safety",
        )


@finds("D21")
def unsendable(facts: Facts) -> Iterator[Fault]:
    """A message of our own was not stored, or late."""
    for broker in facts.brokers:
        if broker.send_problem:
            yield (
                ERROR,
                f"broker {broker.name} did not take a message: {broker.send_problem}",
                "senders that are where we are fail there too",
                f"bolide broker status {broker.address}",
            )
        elif broker.sent_ms is not None and broker.sent_ms > _SEND_SLOW_MS:
            yield (
                WARNING,
                f"broker {broker.name} took {broker.sent_ms} ms for a message",
                "every sender waits that long",
                "look at its disk (bolide_fsync_seconds), its load and the network between",
            )


@finds("N01")
def versions(facts: Facts) -> Iterator[Fault]:
    """Brokers of different versions."""
    told = {broker.runtime.get("brokerVersionDesc", "") for broker in facts.brokers} - {""}
    if len(told) > 1:
        yield NOTE, f"brokers of different versions: {', '.join(sorted(told))}", "fine while upgrading", ""


@finds("N03")
def created_by_use(facts: Facts) -> Iterator[Fault]:
    """Topics that a first message makes, in a cluster of several brokers."""
    masters = facts.masters
    if len(masters) > 1 and any(each.settings.get("autoCreateTopicEnable") == "true" for each in masters):
        yield (
            NOTE,
            "topics are created by their first message (autoCreateTopicEnable)",
            "a misspelt name becomes a topic, and may be on one broker alone",
            "autoCreateTopicEnable=false",
        )


@finds("N04")
def plain_connections(facts: Facts) -> Iterator[Fault]:
    """Access control without TLS."""
    for broker in facts.masters:
        is_checked = broker.settings.get("authenticationEnabled") == "true"
        if is_checked and broker.settings.get("tls.server.mode") != "enforcing":
            yield (
                NOTE,
                f"broker {broker.name} checks access and takes plain connections",
                "what is sent can be read on the way",
                "tls.server.mode=enforcing",
            )


@finds("N05")
def untraced(facts: Facts) -> Iterator[Fault]:
    """Brokers without a topic for traces."""
    without = sorted(each.name for each in facts.masters if each.settings.get("traceTopicEnable") == "false")
    meant = {each.settings.get("msgTraceTopicName") or TRACE_TOPIC for each in facts.masters}
    if without and not any(meant & each.topics for each in facts.namesrvs):
        yield (
            NOTE,
            f"{', '.join(without)}: no topic for traces (traceTopicEnable=false)",
            "what clients trace is lost there, and `bolide message trace` finds nothing",
            "traceTopicEnable=true, and start the broker again",
        )


@finds("N06")
def behind(facts: Facts) -> Iterator[Fault]:
    """A slave is behind or away."""
    for broker in facts.brokers:
        if broker.slaves is None:
            continue
        registered = sum(each.name == broker.name and not each.is_master for each in facts.brokers)
        if len(broker.slaves) < max(registered, broker.settings.get("brokerRole") == "SYNC_MASTER"):
            yield (
                NOTE,
                f"broker {broker.name}: {counted(registered, 'slave')} registered, {len(broker.slaves)} copy from it",
                "what is sent now is on one disk fewer than meant",
                f"look at the slave's log, and at haMasterAddress; bolide cluster -n {facts.namesrvs[0].address}",
            )
        for slave in broker.slaves:
            if slave.behind > _BEHIND_MAX:
                yield (
                    NOTE,
                    f"slave {slave.address} of broker {broker.name} is {slave.behind >> 20} MiB behind",
                    "if the master dies now, that is missing there",
                    "wait, or look at its disk and the network between",
                )


@finds("N07")
def default_password(facts: Facts) -> Iterator[Fault]:
    """A user of RocketMQ's examples, with the password of the examples."""
    for broker in facts.brokers:
        if broker.default_user:
            yield (
                NOTE,
                f"broker {broker.name} lets in {broker.default_user} with the password of RocketMQ's examples",
                "anybody who knows the examples is an administrator",
                f"bolide user password {broker.default_user}, or bolide user delete {broker.default_user}",
            )


def _percent(broker: BrokerFacts, key: str) -> float:
    return _ratio(broker.settings.get(key, ""), 100)


def _number(table: Mapping[str, str], key: str) -> float:
    try:
        return float(table.get(key, "0") or 0)
    except ValueError:
        return 0.0


def _ratio(text: str, whole: float = 1) -> float:
    try:
        return float(text) / whole
    except ValueError:
        return 0.0


def _steps(text: str) -> dict[str, int]:
    """`[0ms]:12 [0~10ms]:3` as a table."""
    pairs = (part.partition("]:") for part in text.split())
    return {name.lstrip("["): int(count) for name, _, count in pairs if count.isdecimal()}


def _told_ms(broker: BrokerFacts) -> int | None:
    """The broker's time, from when it began and how long it runs: in whole seconds."""
    began, words = broker.runtime.get("bootTimestamp", ""), broker.runtime.get("runtime", "").split()
    numbers = [int(word) for word in words if word.isdecimal()]
    if not began.isdecimal() or len(numbers) != 4:
        return None
    days, hours, minutes, seconds = numbers
    return int(began) + 1000 * (((days * 24 + hours) * 60 + minutes) * 60 + seconds)
