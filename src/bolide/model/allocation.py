"""Who takes which queue: RocketMQ's six strategies as plain functions of the queues, the members and oneself.

Every member computes alone, so all must compute alike: queues are sorted by topic, broker and number, members as
texts, and each function is the original's to the last remainder. A member that is not in the list (the broker has not
heard of it yet) takes nothing.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence

from bolide.model.queue import MessageQueue

Queues = Sequence[MessageQueue]
Strategy = Callable[[Queues, Sequence[str], str], list[MessageQueue]]

_VIRTUAL_NODES = 10


def allocate(strategy: Strategy, queues: Collection[MessageQueue], members: Collection[str], own: str) -> Queues:
    """The queues that are ours, by a strategy; every member must call it with the same queues and members."""
    if own not in members or not queues:
        return []
    return strategy(sorted(queues), sorted(members), own)


def averagely(queues: Queues, members: Sequence[str], own: str) -> list[MessageQueue]:
    """Runs of equal length, the first members take one more where it does not add up. The default."""
    count, index = len(members), members.index(own)
    rest = len(queues) % count
    size = 1 if len(queues) <= count else len(queues) // count + (1 if index < rest else 0)
    start = index * size if rest and index < rest else index * size + rest
    return list(queues[start : start + max(0, min(size, len(queues) - start))])


def by_circle(queues: Queues, members: Sequence[str], own: str) -> list[MessageQueue]:
    """One queue for each member in turn."""
    return list(queues[members.index(own) :: len(members)])


def fixed(chosen: Collection[MessageQueue]) -> Strategy:
    """The given queues, with or without others."""
    kept = list(chosen)
    return lambda queues, members, own: kept


def by_machine_room(rooms: Collection[str]) -> Strategy:
    """Only queues of brokers named `room@name` in the given rooms: equal runs, and the rest one by one."""
    wanted = frozenset(rooms)

    def strategy(queues: Queues, members: Sequence[str], own: str) -> list[MessageQueue]:
        index, count = members.index(own), len(members)
        near = [queue for queue in queues if _room_of(queue.broker_name) in wanted]
        size, rest = divmod(len(near), count)
        taken = near[index * size : (index + 1) * size]
        if index < rest:
            taken.append(near[index + size * count])
        return taken

    return strategy


def _room_of(broker_name: str) -> str | None:
    room, separator, name = broker_name.partition("@")
    return room if separator and "@" not in name else None


def by_consistent_hash(queues: Queues, members: Sequence[str], own: str) -> list[MessageQueue]:
    """A ring with ten places for each member: who joins or leaves moves few queues."""
    ring = sorted(
        {_ring_place(f"{member}-{node}"): member for member in members for node in range(_VIRTUAL_NODES)}.items()
    )
    places = [place for place, _ in ring]

    def owner(queue: MessageQueue) -> str:
        text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
        return ring[bisect_left(places, _ring_place(text)) % len(ring)][1]

    return [queue for queue in queues if owner(queue) == own]


def _ring_place(text: str) -> int:
    import hashlib  # of one strategy among many

    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def nearby(
    room_of_queue: Callable[[MessageQueue], str], room_of_member: Callable[[str], str], inner: Strategy = averagely
) -> Strategy:
    """Queues go to members of their own room; those of rooms without a member are shared by all."""

    def strategy(queues: Queues, members: Sequence[str], own: str) -> list[MessageQueue]:
        own_room = room_of_member(own)
        taken: list[MessageQueue] = []
        by_room: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_room.setdefault(room_of_queue(queue), []).append(queue)
        near = [member for member in members if room_of_member(member) == own_room]
        taken += inner(by_room.pop(own_room, []), near, own)
        for room in sorted(by_room):
            if not any(room_of_member(member) == room for member in members):
                taken += inner(by_room[room], members, own)
        return taken

    return strategy


STRATEGIES: dict[str, Strategy] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle, "CONSISTENT_HASH": by_consistent_hash}
