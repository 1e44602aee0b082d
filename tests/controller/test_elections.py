"""Decisions over groups: each refusal with its code, in Java's order, and who is elected."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from bolide.controller import elections
from bolide.controller.elections import EPOCH_MAX, MEMBERS_MAX, Health, ReplicaGroup, Report
from bolide.errors import Refusal
from bolide.protocol.codes import ResponseCode


def group_of(count: int = 3, **changes: object) -> ReplicaGroup:
    """A group of so many members, of which 1 is master and all are in sync."""
    group: ReplicaGroup | None = None
    for member in range(1, count + 1):
        group = elections.apply(group, "c", "g", member, f"h:{member};7")
    assert group is not None
    ids = tuple(range(1, count + 1))
    kept = msgspec.structs.replace(group, master_id=1, master_epoch=3, sync_set=ids, set_epoch=5)
    return msgspec.structs.replace(kept, **changes)


def alive(*members: int, **ends: int) -> Health:
    return Health({member: Report(3, ends.get(f"end{member}", 100)) for member in members})


@contextmanager
def refused(code: ResponseCode) -> Iterator[None]:
    with pytest.raises(Refusal) as caught:
        yield
    assert caught.value.code == code


def test_ids_are_given_one_after_another_and_again_to_the_same_broker() -> None:
    assert elections.next_id(None) == 1
    group = elections.apply(None, "c", "g", 1, "h:1;7")
    assert group.members[1].address == "h:1"
    assert elections.next_id(group) == 2
    assert elections.apply(group, "c", "g", 1, "h:1;7") is group
    for member in (0, -1, 1, 3, EPOCH_MAX, (1 << 63) - 1):
        with refused(ResponseCode.CONTROLLER_BROKER_ID_INVALID):
            elections.apply(group, "c", "g", member, "h:9;9")
    with refused(ResponseCode.CONTROLLER_BROKER_ID_INVALID):
        elections.apply(None, "c", "g", 2, "h:2;7")


def test_a_cleaned_id_can_be_applied_for_again_and_the_next_one_does_not_fall_back() -> None:
    group = elections.clean(group_of(3), "g", frozenset({3}), alive(1, 2), is_living_cleaned=False)
    assert group is not None
    assert elections.next_id(group) == 4
    assert sorted(elections.apply(group, "c", "g", 3, "h:3;8").members) == [1, 2, 3]


@pytest.mark.parametrize("name", ["", ".", "..", "../up", "a/b", ".hidden", "a\0b", "x" * 201])
def test_a_name_that_would_be_a_path_is_not_kept(name: str) -> None:
    with refused(ResponseCode.CONTROLLER_INVALID_REQUEST):
        elections.apply(None, "c", name, 1, "h:1;7")


def test_a_name_belongs_to_one_cluster_and_has_a_bounded_number_of_brokers() -> None:
    with refused(ResponseCode.CONTROLLER_INVALID_REQUEST):
        elections.apply(group_of(1), "other", "g", 2, "h:2;7")
    with refused(ResponseCode.CONTROLLER_INVALID_REQUEST):
        elections.apply(group_of(MEMBERS_MAX), "c", "g", MEMBERS_MAX + 1, "h:2;7")


def test_registering_stores_a_new_address_and_strangers_have_to_apply_first() -> None:
    group = elections.register(group_of(), "g", 2, "moved:2", alive(1), "lock")
    assert group.members[2].address == "moved:2"
    assert group.members[2].is_at("moved:9", "lock")
    assert not any(group.members[2].is_at(*other) for other in (("moved:9", ""), ("moved:9", "copy"), ("h:2", "lock")))
    unknown = elections.register(group, "g", 2, "moved:2", alive(1)).members[2]
    assert not unknown.is_at("moved:9", "lock"), "what it held before says nothing of what it holds now"
    assert group.master_id == 1
    for kept, member in ((None, 1), (group, 9)):
        with refused(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED):
            elections.register(kept, "g", member, "h:1", alive())


def replaced(old: int, health: Health) -> elections.ReplicaGroup:
    """What becomes of a group of three when the broker with an id comes as a fourth."""
    return elections.replace_id(elections.apply(group_of(), "c", "g", 4, "moved:1;7"), old, 4, health)


def test_an_id_that_was_replaced_is_nobodys_and_the_new_one_waits_for_the_master() -> None:
    group = replaced(3, alive(1, 2))
    assert sorted(group.members) == [1, 2, 4]
    assert (group.master_id, group.sync_set, group.set_epoch) == (1, (1, 2), 6)
    assert elections.replace_id(group, 3, 4, alive(1, 2)) is group


def test_an_id_is_replaced_in_the_set_where_no_master_lives() -> None:
    group = replaced(3, alive(2))
    assert (group.sync_set, group.set_epoch) == ((1, 2, 4), 6)
    group = replaced(1, alive())
    assert (group.master_id, group.master_epoch, group.sync_set) == (None, 4, (2, 3, 4))
    assert elections.elect(group, alive(4), asker=4).master_id == 4


def test_a_master_that_comes_with_another_id_was_dead() -> None:
    group = replaced(1, alive(2, 3, end3=200))
    assert (group.master_id, group.master_epoch, group.sync_set) == (3, 4, (3,))
    assert sorted(group.members) == [2, 3, 4]


@pytest.mark.feature("X05")
def test_a_master_that_begins_again_is_dead_and_the_longest_log_of_the_set_leads() -> None:
    group = elections.register(group_of(), "g", 1, "h:1", alive(2, 3, end3=200))
    assert (group.master_id, group.master_epoch, group.sync_set, group.set_epoch) == (3, 4, (3,), 6)


@pytest.mark.parametrize("health", [Health(), Health(awaited=frozenset({2})), Health({3: Report()}, frozenset({2}))])
def test_a_master_that_begins_again_alone_is_master_no_more(health: Health) -> None:
    group = elections.register(group_of(), "g", 1, "h:1", health)
    assert (group.master_id, group.master_epoch, group.sync_set, group.set_epoch) == (None, 4, (1, 2, 3), 5)


def test_the_first_election_is_won_by_the_member_that_asks() -> None:
    group = group_of(2, master_id=None, master_epoch=0, sync_set=(), set_epoch=0)
    elected = elections.elect(group, Health(), asker=2)
    assert (elected.master_id, elected.master_epoch, elected.sync_set, elected.set_epoch) == (2, 1, (2,), 1)
    with refused(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED):
        elections.elect(group, Health(), asker=7)
    with refused(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED):
        elections.elect(None, Health(), asker=1)


def test_nothing_changes_while_the_master_is_alive_or_was_not_missed_yet() -> None:
    group = group_of()
    assert elections.elect(group, alive(1, 2), asker=2) is group
    assert elections.elect(group, Health({2: Report()}, frozenset({1})), asker=2) is group
    assert elections.elect(group, alive(1), asker=1, is_designated=True) is group


@pytest.mark.parametrize(
    ("reports", "best"),
    [
        ({2: Report(3, 100), 3: Report(3, 200)}, 3),
        ({2: Report(4, 100), 3: Report(3, 200)}, 2),
        ({2: Report(3, 0), 3: Report(3, (1 << 31) + 1)}, 3),  # Java's comparison overflows here (#10578)
        ({2: Report(3, 100, 5), 3: Report(3, 100, 4)}, 3),
        ({2: Report(3, 100), 3: Report(3, 100)}, 2),
        ({3: Report()}, 3),
    ],
)
def test_the_newest_epoch_then_the_longest_log_then_the_priority_wins(reports: dict, best: int) -> None:
    elected = elections.elect(group_of(), Health(reports), asker=2)
    assert (elected.master_id, elected.master_epoch) == (best, max(3, *(r.epoch for r in reports.values()), 3) + 1)
    assert elected.sync_set == (best,)


def test_only_members_of_the_set_are_elected_unless_that_is_allowed() -> None:
    group = group_of(sync_set=(1, 2))
    with refused(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED):
        elections.elect(group, alive(3), asker=3)
    assert elections.elect(group, alive(3), asker=3, is_unclean_allowed=True).master_id == 3
    assert elections.elect(group, alive(2, 3, end3=900), asker=3, is_unclean_allowed=True).master_id == 2


def test_an_election_waits_for_members_that_may_have_more() -> None:
    health = Health({2: Report(3, 1)}, frozenset({3}))
    with pytest.raises(Refusal, match=r"brokers \[3\] may have more"):
        elections.elect(group_of(), health, asker=2)
    assert elections.replace_dead(group_of(), health, is_unclean_allowed=False) is None


def test_an_administrator_names_the_one_to_be_elected_or_nobody_is() -> None:
    assert elections.elect(group_of(), alive(1, 2), asker=2, is_designated=True).master_id == 2
    for health, member in ((alive(1), 2), (alive(1, 3), 2)):
        with refused(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED):
            elections.elect(group_of(), health, asker=member, is_designated=True)
    with refused(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED):
        elections.elect(group_of(sync_set=(1,)), alive(1, 2), asker=2, is_designated=True)


def test_a_dead_master_without_a_successor_leaves_the_set_and_a_higher_epoch() -> None:
    group = elections.replace_dead(group_of(), Health(), is_unclean_allowed=False)
    assert group is not None
    assert (group.master_id, group.master_epoch, group.sync_set) == (None, 4, (1, 2, 3))
    assert elections.replace_dead(group, Health(), is_unclean_allowed=False) is group
    assert elections.elect(group, alive(3), asker=3).master_epoch == 5


def test_the_last_epoch_is_not_followed_by_a_negative_one() -> None:
    with refused(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED):
        elections.elect(group_of(master_epoch=EPOCH_MAX), alive(2), asker=2)
    with refused(ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED):
        elections.alter(group_of(set_epoch=EPOCH_MAX), 1, 3, [1, 2], EPOCH_MAX, alive(1, 2))


def test_an_epoch_is_above_what_brokers_have_seen_but_no_strangers_number_uses_them_up() -> None:
    group = group_of(1, master_id=None, master_epoch=0, sync_set=(), set_epoch=0)
    assert elections.elect(group, Health({1: Report(41, 9)}), asker=1).master_epoch == 42
    assert elections.elect(group, Health({1: Report(EPOCH_MAX, 9)}), asker=1).master_epoch == 1


ALTERED = [
    ((None, 1, 3, [1], 5, (1,)), ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
    ((group_of(), 9, 9, [3, 2, 1, 1], 9, (1,)), ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
    ((group_of(), 2, 9, [9], 9, ()), ResponseCode.CONTROLLER_INVALID_MASTER),
    ((group_of(master_id=None), 1, 3, [1], 5, (1,)), ResponseCode.CONTROLLER_INVALID_MASTER),
    ((group_of(), 1, 2, [9], 9, ()), ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH),
    ((group_of(), 1, 3, [9], 4, ()), ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH),
    ((group_of(), 1, 3, [9, 2], 5, (2,)), ResponseCode.CONTROLLER_INVALID_REPLICAS),
    ((group_of(), 1, 3, [2], 5, ()), ResponseCode.CONTROLLER_BROKER_NOT_ALIVE),
    ((group_of(), 1, 3, [2], 5, (2,)), ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
    ((group_of(), 1, 3, [], 5, (2,)), ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
]


@pytest.mark.parametrize(("given", "code"), ALTERED)
def test_a_set_is_refused_in_javas_order(given: tuple, code: ResponseCode) -> None:
    group, master, epoch, proposed, set_epoch, living = given
    with refused(code):
        elections.alter(group, master, epoch, proposed, set_epoch, alive(*living))


def test_each_change_of_a_set_raises_its_epoch() -> None:
    group = elections.alter(group_of(), 1, 3, [2, 1], 5, alive(1, 2))
    assert (group.sync_set, group.set_epoch) == ((1, 2), 6)


def test_cleaning_forgets_what_is_named_and_nothing_alive() -> None:
    invalid = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    for group, members in ((group_of(), frozenset()), (group_of(), frozenset({2})), (None, frozenset())):
        with refused(invalid):
            elections.clean(group, "g", members, alive(1, 2), is_living_cleaned=False)
    left = elections.clean(group_of(), "g", frozenset({1}), alive(1), is_living_cleaned=True)
    assert left is not None
    assert (left.master_id, left.master_epoch, left.sync_set, left.set_epoch) == (None, 4, (2, 3), 6)
    assert sorted(left.members) == [2, 3]
    assert elections.clean(group_of(master_id=None), "g", frozenset(), alive(), is_living_cleaned=False) is None
    assert elections.clean(group_of(2), "g", frozenset({1, 2}), alive(), is_living_cleaned=False) is None


def test_a_set_that_was_cleaned_away_opens_the_next_election_with_a_higher_epoch() -> None:
    left = elections.clean(group_of(sync_set=(1,)), "g", frozenset({1}), alive(2), is_living_cleaned=False)
    assert left is not None
    elected = elections.elect(left, alive(2), asker=2)
    assert (elected.master_id, elected.master_epoch) == (2, 5)
