"""Two controllers over one register, in every order: an epoch has one master, and masters come from the set."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bolide.controller import elections
from bolide.controller.elections import Health, ReplicaGroup, Report
from bolide.errors import Refusal

MEMBERS = st.integers(1, 4)
CONTROLLERS = st.integers(0, 1)
HEALTH = st.builds(
    lambda reports, awaited: Health(reports, frozenset(awaited) - reports.keys()),
    st.dictionaries(MEMBERS, st.builds(Report, st.integers(-1, 30), st.integers(-1, 9), st.integers(0, 2))),
    st.frozensets(MEMBERS, max_size=1),
)


class TwoControllers(RuleBasedStateMachine):
    """Each controller reads, decides by its own opinion of who is alive, and writes if nobody wrote meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: ReplicaGroup | None = None
        self.revision = 0
        self.decided: list[tuple[ReplicaGroup | None, int] | None] = [None, None]
        self.masters: dict[int, int] = {}
        self.sets: dict[int, tuple[int, ...]] = {}

    def decide(self, controller: int, act: Any, *given: Any, **more: Any) -> None:
        try:
            self.decided[controller] = act(*given, **more), self.revision
        except Refusal:
            self.decided[controller] = None

    @rule(controller=CONTROLLERS)
    def write(self, controller: int) -> None:
        decided, self.decided[controller] = self.decided[controller], None
        if decided is None or decided[1] != self.revision:
            return
        before, after = self.kept, decided[0]
        if after is before:
            return
        self.kept, self.revision = after, self.revision + 1
        if before is None or after is None:
            return
        assert after.master_epoch >= before.master_epoch
        assert after.set_epoch >= before.set_epoch
        assert after.next_id >= before.next_id
        if after.sync_set != before.sync_set:
            assert after.set_epoch > before.set_epoch
        if after.master_id != before.master_id:
            assert after.master_epoch > before.master_epoch
            assert after.master_id is None or not before.sync_set or after.master_id in before.sync_set

    @rule(controller=CONTROLLERS, member=MEMBERS)
    def apply(self, controller: int, member: int) -> None:
        self.decide(controller, elections.apply, self.kept, "c", "g", member, f"h:{member};1")

    @rule(controller=CONTROLLERS, member=MEMBERS, health=HEALTH)
    def register(self, controller: int, member: int, health: Health) -> None:
        reports = {known: report for known, report in health.reports.items() if known != member}
        health = Health(reports, health.awaited - {member})
        self.decide(controller, elections.register, self.kept, "g", member, f"h:{member}", health)

    @rule(controller=CONTROLLERS, member=MEMBERS, health=HEALTH, is_designated=st.booleans())
    def elect(self, controller: int, member: int, health: Health, is_designated: bool) -> None:
        self.decide(controller, elections.elect, self.kept, health, asker=member, is_designated=is_designated)

    @rule(controller=CONTROLLERS, health=HEALTH)
    def replace_dead(self, controller: int, health: Health) -> None:
        group = self.kept
        if group is not None and group.master_id is not None and not health.is_alive(group.master_id):
            after = elections.replace_dead(group, health, is_unclean_allowed=False)
            self.decided[controller] = (group if after is None else after), self.revision

    @rule(controller=CONTROLLERS, proposed=st.sets(MEMBERS), lag=st.integers(0, 1), health=HEALTH)
    def alter(self, controller: int, proposed: set[int], lag: int, health: Health) -> None:
        group = self.kept
        if group is not None and group.master_id is not None:
            epochs = group.master_epoch - lag, {*proposed, group.master_id}, group.set_epoch
            self.decide(controller, elections.alter, group, group.master_id, *epochs, health)

    @rule(controller=CONTROLLERS, members=st.frozensets(MEMBERS, min_size=1, max_size=2), health=HEALTH)
    def clean(self, controller: int, members: frozenset[int], health: Health) -> None:
        if self.kept is not None and not set(self.kept.sync_set) & members:
            self.decide(controller, elections.clean, self.kept, "g", members, health, is_living_cleaned=False)

    @invariant()
    def an_epoch_has_one_master_and_a_set_epoch_one_set(self) -> None:
        group = self.kept
        if group is None:
            self.masters, self.sets = {}, {}
            return
        if group.master_id is not None:
            assert self.masters.setdefault(group.master_epoch, group.master_id) == group.master_id
            assert group.master_id in group.sync_set
        assert self.sets.setdefault(group.set_epoch, group.sync_set) == group.sync_set
        assert set(group.sync_set) <= group.members.keys()


TwoControllers.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_no_order_of_two_controllers_breaks_a_rule = TwoControllers.TestCase
