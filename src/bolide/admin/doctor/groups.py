"""What is judged of consumer groups, and of producers who are gone."""

from collections import Counter
from collections.abc import Iterator

from bolide.admin.doctor.facts import Facts, QueueFacts
from bolide.admin.doctor.findings import ERROR, NOTE, WARNING, Fault, finds
from bolide.model.texts import counted

_DAY_MS = 86_400_000
_PILE = 100  # dead letters that nobody looks at
_IDLE_MS = 14 * _DAY_MS
_STUCK_MS = 30_000  # clients tell every 5 s how far they are: what waits a little longer is only not told yet
_SERVER_RESETS = "useServerSideResetOffset"


@finds("D04")
def conflicts(facts: Facts) -> Iterator[Fault]:
    """Members of a group subscribe differently."""
    for group in facts.groups:
        for text in group.conflicts:
            yield (
                ERROR,
                f"group {group.name}: {text}",
                "each member gets messages that others asked for, and misses its own",
                f"give all members one subscription, or two groups; bolide group members {group.name}",
            )


@finds("D05")
def shared_ids(facts: Facts) -> Iterator[Fault]:
    """Two members of a group share a client id."""
    for group in facts.groups:
        counts = Counter(client_id for client_id, _, _ in group.members)
        for client_id, count in counts.items():
            if count > 1:
                yield (
                    ERROR,
                    f"group {group.name}: {count} members call themselves {client_id}",
                    "they are given the same queues, and other queues have nobody",
                    "give each its own instance_name",
                )


@finds("D06")
def stuck(facts: Facts) -> Iterator[Fault]:
    """One queue stands still while others of its group move."""
    for group in facts.groups:
        waiting = [each for each in group.queues if each.end > each.committed and each.committed_before is not None]
        still = [each for each in waiting if each.committed == each.committed_before and _is_late(each)]
        moving = [each for each in group.queues if (each.committed_before or 0) < each.committed]
        if group.members and still and moving:
            for each in still:
                yield (
                    WARNING,
                    f"group {group.name}: queue {each.queue_id} of {each.topic} on {each.broker} stands at "
                    f"{each.committed}, {counted(each.end - each.committed, 'message')} behind, while others move",
                    "its member hangs in one message, or the queue has no owner",
                    f"bolide group show {group.name}; restart the member that owns it",
                )


def _is_late(queue: QueueFacts) -> bool:
    return queue.waits_ms is not None and queue.waits_ms >= _STUCK_MS


@finds("D09")
def dead_letters(facts: Facts) -> Iterator[Fault]:
    """Dead letters are new or pile up, or cannot be read."""
    for group in facts.groups:
        if group.dead_count:
            is_new = facts.now_ms - group.dead_last_ms < _DAY_MS
            yield (
                WARNING if is_new or group.dead_count >= _PILE else NOTE,
                f"group {group.name} has {counted(group.dead_count, 'dead letter')}{', new ones' if is_new else ''}",
                "nobody reads them unless somebody looks",
                f"bolide dlq show {group.name}; bolide dlq resend {group.name}",
            )
            if group.dead_permission is not None and not group.dead_permission & 4:
                yield (
                    NOTE,
                    f"the dead letters of {group.name} may not be read (perm {group.dead_permission})",
                    "tools show nothing of them",
                    f"bolide topic set %DLQ%{group.name} --perm 6",
                )


@finds("D14")
def without_reset(facts: Facts) -> Iterator[Fault]:
    """A reset has no effect: members pull by themselves, and no broker puts them elsewhere.

    A member that pulls does what its program says and does not listen to a reset; it commits where it was, over it.
    """
    unable = sorted(each.name for each in facts.masters if each.settings.get(_SERVER_RESETS, "false") != "true")
    for group in facts.groups:
        if unable and group.members and group.is_pulling:
            yield (
                NOTE,
                f"group {group.name} pulls by itself, and {', '.join(unable)} cannot put it elsewhere",
                "a reset of its offsets has no effect while its members run: they commit over it",
                f"{_SERVER_RESETS}=true, or stop the members before `bolide group reset {group.name}`",
            )


@finds("D15")
def lost(facts: Facts) -> Iterator[Fault]:
    """A group is behind the oldest message: what is between was deleted unread."""
    for group in facts.groups:
        for each in group.queues:
            if each.first is not None and 0 < each.committed < each.first and each.end > each.committed:
                yield (
                    ERROR,
                    f"group {group.name}: queue {each.queue_id} of {each.topic} on {each.broker} was read to "
                    f"{each.committed}, and begins at {each.first}",
                    f"{counted(each.first - each.committed, 'message')} deleted before the group read them",
                    "raise fileReservedTime, or add consumers",
                )


@finds("D18")
def unanswered(facts: Facts) -> Iterator[Fault]:
    """Transactions that nobody can be asked about."""
    for group, count in facts.undecided_groups.items():
        yield (
            ERROR,
            f"{counted(count, 'half message')} of producer group {group}, and no member of it is here",
            "after transactionCheckMax questions they are given up",
            f"start a producer of {group}; bolide transaction list",
        )


@finds("N02")
def forgotten(facts: Facts) -> Iterator[Fault]:
    """A group that nobody is in, and that has read nothing new for weeks."""
    for group in facts.groups:
        idle_ms = facts.now_ms - group.last_read_ms
        if not group.members and group.last_read_ms > 0 and idle_ms > _IDLE_MS:
            yield (
                NOTE,
                f"group {group.name} has no members, and what it read last is {idle_ms // _DAY_MS} days old",
                "it may be forgotten, and its lag rings for nobody",
                f"bolide group delete {group.name}",
            )
