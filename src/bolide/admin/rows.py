"""What an administrator was told, as rows for programs: `--output json` of a command and `?format=json` of a page.

A function here has the columns of one kind of row, so that commands and pages cannot differ.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from bolide.model.texts import moment, span

if TYPE_CHECKING:  # a command has one kind of row, and would load them all
    from bolide.admin.admin import BrokerRow, GroupRow, ProgressRow
    from bolide.admin.backtracking import Move
    from bolide.admin.controllers import ReplicaRow
    from bolide.admin.deadletters import DeadGroupRow
    from bolide.admin.doctor.findings import Finding
    from bolide.admin.membership import MemberRow
    from bolide.admin.topics import TopicQueueRow
    from bolide.admin.transactions import OpenTransaction
    from bolide.model.message import StoredMessage
    from bolide.protocol.bodies.access import Acl, AclEntry, User
    from bolide.protocol.bodies.clients import ConnectedProducer, Connection
    from bolide.protocol.bodies.groups import GroupConfig, RetryPolicy


_FIRST_NUMBERED = 212  # 4.0.0's snapshot, then 4.0.0; each release since has two numbers


def version_text(number: int) -> str:
    """The release of RocketMQ whose protocol a client speaks, as it names itself: `V5_5_0`."""
    if number < _FIRST_NUMBERED:
        return str(number)
    release, is_final = divmod(number - _FIRST_NUMBERED, 2)
    text = f"V{4 + release // 100}_{release // 10 % 10}_{release % 10}"
    return text if is_final else f"{text}_SNAPSHOT"


def broker_more_cells(told: "Mapping[str, str]", now_ms: int) -> dict[str, object]:
    """What a broker tells beside its rates: what waits, disk, age of the oldest message, totals by day."""
    put_today, put_before, got_today, got_before = _totals(told, "Put") + _totals(told, "Get")
    oldest_ms = int(told.get("earliestMessageTimeStamp", "-1") or -1)
    return {
        "sends_waiting": told.get("sendThreadPoolQueueSize"),
        "pulls_waiting": told.get("pullThreadPoolQueueSize"),
        "timers_behind": told.get("timerReadBehind"),
        "page_cache_ms": told.get("pageCacheLockTimeMills"),
        "oldest_hours": round((now_ms - oldest_ms) / 3_600_000, 2) if oldest_ms > 0 else None,
        "disk_used": told.get("commitLogDiskRatio"),
        "active": told.get("brokerActive"),
        "in_today": put_today,
        "out_today": got_today,
        "in_yesterday": put_before,
        "out_yesterday": got_before,
    }


def _totals(told: "Mapping[str, str]", way: str) -> tuple[int, int]:
    before, morning, now = (
        int(told.get(f"msg{way}Total{when}", "0") or 0) for when in ("YesterdayMorning", "TodayMorning", "TodayNow")
    )
    return now - morning, morning - before


def broker_cells(row: "BrokerRow", replicas: "Mapping[str, ReplicaRow]") -> dict[str, object]:
    """A broker; where any has replicas, with its role."""
    return {
        "cluster": row.cluster,
        "broker": row.name,
        "id": row.broker_id,
        "address": row.address,
        "version": row.version if row.is_reachable else row.version or "does not answer",
        "in_per_s": row.put_rate,
        "out_per_s": row.got_rate,
        **(_replica_cells(replicas.get(row.address)) if replicas else {}),
    }


def _replica_cells(row: "ReplicaRow | None") -> dict[str, object]:
    if row is None:
        return {"role": "master", "epoch": None, "in_sync": None, "lag_bytes": None, "lag_ms": None}
    return {
        "role": row.role,
        "epoch": row.epoch,
        "in_sync": row.is_in_sync,
        "lag_bytes": row.lag_size,
        "lag_ms": row.lag_ms,
    }


def group_cells(row: "GroupRow") -> dict[str, object]:
    """A consumer group."""
    return {
        "group": row.group,
        "members": row.member_count,
        "behind": row.behind,
        "retries_behind": row.retry_behind,
        "dead_letters": row.dead_count,
        "subscriptions": "conflict" if row.has_conflict else "alike" if row.member_count else "",
    }


def member_cells(row: "MemberRow") -> dict[str, object]:
    """A member of a group."""
    return {
        "client": row.client_id,
        "address": row.address,
        "language": row.language,
        "version": version_text(row.version),
        "wants": wants_text(row),
        "conflict": "; ".join(map(str, row.differences)) or None,
    }


def wants_text(row: "MemberRow") -> str | None:
    """What a member subscribes to; None if it did not say."""
    return "; ".join(f"{topic}: {text}" for topic, _, text in sorted(row.wants)) if row.wants else None


def progress_cells(row: "ProgressRow") -> dict[str, object]:
    """How far a group is in a queue."""
    return {
        "topic": row.queue.topic,
        "broker": row.queue.broker_name,
        "queue": row.queue.queue_id,
        "offset": row.consumer_offset,
        "end": row.broker_offset,
        "behind": row.behind,
        "in_flight": row.in_flight,
        "last_consumed": moment(row.last_consumed_ms),
    }


def config_cells(config: "GroupConfig") -> dict[str, object]:
    """What a group is set to."""
    return {
        "group": config.group_name,
        "may_consume": config.consume_enable,
        "retries": config.retry_max_times if config.retry_queue_nums > 0 else 0,
        "retry_queues": config.retry_queue_nums,
        "delays": _delays(config.group_retry_policy),
    }


def _delays(policy: "RetryPolicy") -> str:
    from bolide.protocol.bodies.groups import GrowingDelays, RetryKind

    if policy.type is RetryKind.EXPONENTIAL:
        growing = policy.exponential_retry_policy or GrowingDelays()
        return f"{span(growing.initial)}, × {growing.multiplier} each time, at most {span(growing.max)}"
    listed = policy.customized_retry_policy
    return ", ".join(map(span, listed.next)) if listed is not None and listed.next else "levels (10s to 2h)"


def move_cells(move: "Move") -> dict[str, object]:
    """Where a reset takes a group in a queue."""
    return {
        "broker": move.queue.broker_name,
        "queue": move.queue.queue_id,
        "from": move.before,
        "to": move.after,
        "change": move.distance,
    }


def queue_cells(row: "TopicQueueRow") -> dict[str, object]:
    """A queue of a topic."""
    return {
        "broker": row.queue.broker_name,
        "queue": row.queue.queue_id,
        "min": row.min_offset,
        "max": row.max_offset,
        "messages": row.message_count,
        "last_stored": moment(row.last_update_ms),
    }


def message_cells(message: "StoredMessage") -> dict[str, Any]:
    """A message with all that is known of it."""
    return {
        "id": message.message_id,
        "offset_id": message.offset_id,
        "topic": message.topic,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "tags": message.tags,
        "keys": message.keys,
        "born_at": message.born_at,
        "born_host": str(message.born_host),
        "stored_at": message.stored_at,
        "store_host": str(message.store_host),
        "retries": message.reconsume_times,
        "log_offset": message.physical_offset,
        "system_flag": message.sys_flag,
        "properties": dict(message.properties),
        "body": message.body.decode("utf-8", "backslashreplace"),
    }


def dead_group_cells(row: "DeadGroupRow") -> dict[str, object]:
    """A group with dead letters."""
    return {"group": row.group, "dead_letters": row.count, "newest": moment(row.last_ms)}


def transaction_cells(each: "OpenTransaction", now_ms: int) -> dict[str, object]:
    """A transaction that nobody decided."""
    return {
        "id": each.id,
        "topic": each.topic,
        "group": each.group,
        "keys": " ".join(each.message.keys),
        "begun": moment(each.message.born_at),
        "age_s": (now_ms - each.message.born_at) // 1000,
        "checks": each.check_count,
        "broker": each.broker_name,
        "offset_id": each.offset_id,
    }


def producer_cells(group: str, each: "ConnectedProducer") -> dict[str, str]:
    """Somebody who sends."""
    address = each.remote_ip.removeprefix("/")  # Java's way to write one that was never looked up
    cells = {"group": group, "does": "sends", "client": each.client_id, "address": address}
    return cells | {"language": each.language, "version": version_text(each.version)}


def consumer_cells(group: str, each: "Connection") -> dict[str, str]:
    """Somebody who consumes."""
    cells = {"group": group, "does": "consumes", "client": each.client_id, "address": each.client_addr}
    return cells | {"language": each.language, "version": version_text(each.version)}


def user_rows(by_broker: "Mapping[str, list[User]]") -> list[dict[str, str]]:
    """Users, each with the brokers that know it."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for broker, users in by_broker.items():
        for user in users:
            row = (user.username or "", user.user_type or "", user.user_status or "")
            places.setdefault(row, []).append(broker)
    return [
        {"user": name, "type": kind, "status": status, "brokers": ", ".join(brokers)}
        for (name, kind, status), brokers in sorted(places.items())
    ]


def acl_rows(by_broker: "Mapping[str, list[Acl]]") -> list[dict[str, str]]:
    """What users may do, an entry each, with the brokers that say so."""
    places: dict[tuple[str, ...], list[str]] = {}
    for broker, acls in by_broker.items():
        for acl in acls:
            for policy in acl.policies:
                for entry in policy.entries:
                    row = ((acl.subject or "").removeprefix("User:"), *entry_cells(entry), policy.policy_type or "")
                    places.setdefault(row, []).append(broker)
    names = ("user", "resource", "actions", "decision", "from", "policy")
    return [{**dict(zip(names, row, strict=True)), "brokers": ", ".join(at)} for row, at in sorted(places.items())]


def lacking(brokers: Iterable[str], rows: Iterable[Mapping[str, str]]) -> dict[str, list[str]]:
    """The users of whom a broker does not have a row that another has."""
    found: dict[str, list[str]] = {broker: [] for broker in brokers}
    for row in rows:
        for broker in found.keys() - set(row["brokers"].split(", ")):
            found[broker].append(row["user"])
    return {broker: sorted(set(users)) for broker, users in sorted(found.items()) if users}


def entry_cells(entry: "AclEntry") -> tuple[str, str, str, str]:
    """Resource, actions, decision, and from where."""
    sources = ",".join(entry.source_ips or []) or "anywhere"
    return entry.resource or "", ",".join(entry.actions), entry.decision or "", sources


def finding_cells(finding: "Finding") -> dict[str, object]:
    """What the doctor found."""
    return {
        "number": finding.number,
        "severity": finding.severity.value,
        "seen": finding.seen,
        "why": finding.why,
        "fix": finding.fix,
        "page": finding.page,
    }
