"""Who must acknowledge, by the master's knowledge of the controller."""

from hypothesis import given
from hypothesis import strategies as st

from bolide.broker.controlled.sync_set import JOIN_LIMIT_S, JOIN_PAUSE_S, NEAR_SIZE, Limits, Replica, SyncSet

LIMITS = Limits(behind_max_s=15.0, absent_max_s=5.0)


def slave(replica_id: int, acked_end: int = 100, caught_up_s: float = 0.0, *, is_learner: bool = False) -> Replica:
    return Replica(replica_id, acked_end, caught_up_s, is_learner)


def test_a_slave_that_has_everything_is_wanted() -> None:
    group = SyncSet(1, {1}, 1, 0.0)
    assert group.wanted([slave(2)], 0.0, 100, LIMITS) == {1, 2}


def test_a_slave_begins_to_acknowledge_before_it_is_proposed() -> None:
    group = SyncSet(1, {1}, 1, 0.0)
    assert group.wanted([slave(2, acked_end=99)], 0.0, 100, LIMITS) == {1}
    assert group.acknowledging == {2}
    # More was appended, and is safe with the slave only: what counts is what was safe without it.
    assert group.wanted([slave(2, acked_end=100)], 0.1, 500, LIMITS) == {1, 2}


def test_a_slave_that_is_far_behind_holds_up_nobody() -> None:
    group = SyncSet(1, {1}, 1, 0.0)
    assert group.wanted([slave(2, acked_end=0)], 0.0, NEAR_SIZE + 1, LIMITS) == {1}
    assert group.acknowledging == frozenset()


def test_a_slave_that_joins_too_slowly_is_let_go_and_tried_again_later() -> None:
    group = SyncSet(1, {1}, 1, 0.0)
    group.wanted([slave(2, acked_end=99)], 0.0, 100, LIMITS)
    late_s = JOIN_LIMIT_S + 0.1
    assert group.wanted([slave(2, acked_end=99)], late_s, 100, LIMITS) == {1}
    assert group.acknowledging == frozenset()
    group.wanted([slave(2, acked_end=99)], late_s + JOIN_PAUSE_S - 0.1, 100, LIMITS)
    assert group.acknowledging == frozenset()
    group.wanted([slave(2, acked_end=99)], late_s + JOIN_PAUSE_S + 0.1, 100, LIMITS)
    assert group.acknowledging == {2}


def test_a_slave_that_leaves_while_it_joins_holds_up_nobody() -> None:
    group = SyncSet(1, {1}, 1, 0.0)
    group.wanted([slave(2, acked_end=99)], 0.0, 100, LIMITS)
    group.wanted([], 0.1, 100, LIMITS)
    assert group.acknowledging == frozenset()


def test_a_learner_is_never_wanted() -> None:
    group = SyncSet(1, {1}, 1, 0.0)
    assert group.wanted([slave(2, is_learner=True)], 0.0, 100, LIMITS) == {1}


def test_a_member_that_left_is_not_wanted_from_that_moment_on() -> None:
    group = SyncSet(1, {1, 2}, 1, 0.0)
    assert group.wanted([slave(2)], 0.0, 100, LIMITS) == {1, 2}
    assert group.wanted([], 0.1, 100, LIMITS) == {1}


def test_a_member_that_has_not_come_yet_is_awaited_for_a_while() -> None:
    group = SyncSet(1, {1, 2}, 1, 0.0)
    assert group.wanted([], 4.9, 100, LIMITS) == {1, 2}
    assert group.wanted([], 5.0, 100, LIMITS) == {1}


def test_a_member_that_falls_behind_is_not_wanted_after_its_time() -> None:
    group = SyncSet(1, {1, 2}, 1, 0.0)
    assert group.wanted([slave(2, acked_end=50, caught_up_s=1.0)], 16.0, 100, LIMITS) == {1, 2}
    assert group.wanted([slave(2, acked_end=50, caught_up_s=1.0)], 16.1, 100, LIMITS) == {1}


def test_all_members_of_all_open_proposals_acknowledge_until_a_newer_set_is_known() -> None:
    group = SyncSet(1, {1, 2}, 4, 0.0)
    group.propose(frozenset({1, 2, 3}))
    group.propose(frozenset({1, 4}))
    assert group.acknowledging == {2, 3, 4}
    assert not group.adopt({1}, 4)
    assert group.acknowledging == {2, 3, 4}
    assert group.adopt({1, 4}, 5)
    assert group.acknowledging == {4}


def test_the_master_never_makes_the_set_smaller_on_its_own() -> None:
    group = SyncSet(1, {1, 2}, 4, 0.0)
    assert group.wanted([], 9.0, 100, LIMITS) == {1}
    assert group.acknowledging == {2}


def test_a_refused_proposal_binds_nobody_any_more() -> None:
    group = SyncSet(1, {1}, 1, 0.0)
    assert group.propose(frozenset({1, 2}))
    group.refused(frozenset({1, 2}))
    assert group.acknowledging == frozenset()


def test_a_proposal_whose_answer_was_lost_is_proposed_again_before_anything_is_settled() -> None:
    group = SyncSet(1, {1}, 1, 0.0)
    lost = frozenset({1, 2})
    assert group.propose(lost)
    assert group.proposal(frozenset({1})) == lost
    assert not group.propose(lost)
    assert group.proposal(frozenset({1, 3})) == frozenset({1, 3})


def test_nothing_is_proposed_when_all_is_as_it_should_be() -> None:
    assert SyncSet(1, {1, 2}, 1, 0.0).proposal(frozenset({1, 2})) is None


@given(st.data())
def test_the_set_that_the_controller_holds_always_acknowledges(data: st.DataObject) -> None:
    """A controller that carries out or loses proposals as it likes, and answers that get lost, change nothing."""
    held, held_epoch = frozenset({1, 2}), 1
    group, now_s = SyncSet(1, held, held_epoch, 0.0), 0.0
    under_way: list[tuple[frozenset[int], int]] = []
    for _ in range(data.draw(st.integers(1, 25))):
        now_s += data.draw(st.sampled_from([0.01, 1.0, 6.0]))
        here = [
            slave(one, data.draw(st.sampled_from([0, 100])), now_s) for one in data.draw(st.sets(st.integers(2, 4)))
        ]
        proposed = group.proposal(group.wanted(here, now_s, 100, LIMITS))
        if proposed is not None:
            is_new = group.propose(proposed)
            fate = data.draw(st.sampled_from(["answered", "answer lost", "late", "refused"]))
            if fate == "refused" or group.set_epoch != held_epoch:
                if is_new:
                    group.refused(proposed)
            elif fate == "late":
                under_way.append((proposed, group.set_epoch))
            else:
                held, held_epoch = proposed, held_epoch + 1
                if fate == "answered":
                    group.adopt(held, held_epoch)
        is_late_now: bool = data.draw(st.booleans())
        if under_way and is_late_now:
            late, for_epoch = under_way.pop(0)
            if for_epoch == held_epoch:
                held, held_epoch = late, held_epoch + 1
        if data.draw(st.booleans()):
            group.adopt(held, held_epoch)
        assert held - {1} <= group.acknowledging


def test_one_that_the_controller_does_not_know_keeps_nobody_else_out() -> None:
    group = SyncSet(1, {1}, 1, 0.0)
    here = [slave(2), slave(3)]
    proposed = group.wanted(here, 0.0, 100, LIMITS)
    assert proposed == {1, 2}
    group.propose(proposed)
    group.refused(proposed)
    group.rest(proposed, 1.0)
    assert group.wanted(here, 0.5, 100, LIMITS) == {1, 3}
    assert group.adopt({1, 3}, 2)
    assert group.wanted(here, 1.5, 100, LIMITS) == {1, 2, 3}
