"""A broker that is a master, then a slave, then a master again, without a restart."""

from bolide.broker.role import Role, RoleKind, RoleState


def test_a_slave_and_a_fenced_master_lead_nothing() -> None:
    assert RoleState().is_leading
    assert RoleState(RoleKind.SYNC_MASTER, epoch=3).is_leading
    assert not RoleState(RoleKind.SLAVE, 1).is_leading
    assert not RoleState(is_fenced=True).is_leading


def test_those_who_listen_hear_of_a_change_and_of_nothing_else() -> None:
    role, heard = Role(), []
    role.listen(lambda old, new: heard.append((old, new)))
    master, slave = role.now, RoleState(RoleKind.SLAVE, 1)
    role.become(master)
    role.become(slave)
    role.become(RoleState(RoleKind.SLAVE, 1))
    assert heard == [(master, slave)]
    assert not role.is_leading


def test_a_slave_is_first_when_nobody_that_lives_has_a_smaller_id() -> None:
    slave = RoleState(RoleKind.SLAVE, 2)
    assert slave.is_first_of({2, 3})
    assert not any(slave.is_first_of(living) for living in ({0, 2}, {1, 2}, {3}, set()))
    assert not RoleState(RoleKind.SLAVE, 2, is_fenced=True).is_first_of({2})
    assert not RoleState().is_first_of({0})
