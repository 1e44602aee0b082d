"""The six strategies against the original's own results, and what must hold for all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.model.allocation import (
    Strategy,
    allocate,
    averagely,
    by_circle,
    by_consistent_hash,
    by_machine_room,
    fixed,
    nearby,
)
from bolide.model.queue import MessageQueue


def queues_of(count: int, broker: str = "b", topic: str = "T") -> list[MessageQueue]:
    return [MessageQueue(topic, broker, number) for number in range(count)]


def members_of(count: int) -> list[str]:
    return [f"c{number}" for number in range(count)]


def short(queues: list[MessageQueue]) -> str:
    return " ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues)


@pytest.mark.feature("F224")
@pytest.mark.parametrize(
    ("strategy", "queue_count", "member_count", "shares"),
    [
        (averagely, 8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (averagely, 10, 4, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
        (averagely, 4, 5, [[0], [1], [2], [3], []]),
        (averagely, 3, 2, [[0, 1], [2]]),
        (by_circle, 8, 3, [[0, 3, 6], [1, 4, 7], [2, 5]]),
        (by_circle, 10, 4, [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]),
    ],
)
def test_even_strategies_share_as_the_original(
    strategy: Strategy, queue_count: int, member_count: int, shares: list[list[int]]
) -> None:
    members = members_of(member_count)
    found = [[queue.queue_id for queue in allocate(strategy, queues_of(queue_count), members, own)] for own in members]
    assert found == shares


@pytest.mark.feature("F224")
def test_machine_rooms_share_as_the_original() -> None:
    queues = [queue for number in (1, 2, 3) for queue in queues_of(4, f"idc{number}@b{number}")]
    strategy = by_machine_room({"idc1", "idc2"})
    found = [
        short(list(allocate(strategy, queues, members_of(3), own))).replace("idc1@", "").replace("idc2@", "")
        for own in members_of(3)
    ]
    assert found == ["b1:0 b1:1 b2:2", "b1:2 b1:3 b2:3", "b2:0 b2:1"]


@pytest.mark.feature("F224")
def test_nearby_rooms_share_as_the_original() -> None:
    queues = [queue for number in (1, 2, 3) for queue in queues_of(4, f"r{number}")]
    members = ["r1-c0", "r1-c1", "r2-c0"]
    strategy = nearby(lambda queue: queue.broker_name, lambda member: member.split("-")[0])
    assert [short(list(allocate(strategy, queues, members, own))) for own in members] == [
        "r1:0 r1:1 r3:0 r3:1",
        "r1:2 r1:3 r3:2",
        "r2:0 r2:1 r2:2 r2:3 r3:3",
    ]


@pytest.mark.feature("F224")
def test_consistent_hash_shares_as_the_original() -> None:
    queues = queues_of(4, "broker-a", "TopicTest") + queues_of(4, "broker-b", "TopicTest")
    members = ["192.168.0.1@1001", "192.168.0.1@1002", "192.168.0.1@1003"]

    def shares(members: list[str]) -> list[str]:
        return [
            short(list(allocate(by_consistent_hash, queues, members, own))).replace("broker-", "").replace(":", "")
            for own in members
        ]

    assert shares(members) == ["a0 a2", "a3 b1 b3", "a1 b0 b2"]
    assert shares(members[:2]) == ["a0 a1 a2", "a3 b0 b1 b2 b3"]


@pytest.mark.feature("F302")
def test_one_id_twice_gets_the_same_half_twice() -> None:
    shares = [allocate(averagely, queues_of(8), ["A", "A"], "A") for _ in range(2)]
    assert [[queue.queue_id for queue in share] for share in shares] == [[0, 1, 2, 3], [0, 1, 2, 3]]


def test_a_fixed_share_asks_nobody() -> None:
    chosen = queues_of(2)
    assert allocate(fixed(chosen), queues_of(8), members_of(3), "c2") == chosen


def test_who_is_not_among_the_members_takes_nothing() -> None:
    assert allocate(averagely, queues_of(4), members_of(2), "stranger") == []


@pytest.mark.feature("F073", "F074", "F075")
@given(st.integers(0, 40), st.integers(1, 12), st.sampled_from([averagely, by_circle, by_consistent_hash]))
def test_every_queue_has_exactly_one_owner(queue_count: int, member_count: int, strategy: Strategy) -> None:
    queues, members = queues_of(queue_count), members_of(member_count)
    taken = [queue for own in members for queue in allocate(strategy, queues, members, own)]
    assert sorted(taken) == queues
