"""Chains of faults that once lost messages somewhere, each against any group.

They are told in the words of a group: nobody knows beforehand which broker leads.
"""

import time

from tests.replication.group import Group
from tests.replication.network import Network
from tests.replication.nodes import await_that

ELECTION_LIMIT_S = 60.0


def shrink_without_controller(group: Group, puts_wanted: int, wait_s: float) -> int:
    """Apache 5.4.0 to 5.5.1 lose messages here (PR 9897): the master shrinks its set when a connection ends.

    The controller is down, so nobody agrees to it. The slave that was cut off is still in the controller's set, and is
    elected when the master dies. Returns how many sends were acknowledged while it was cut off.
    """
    net = group.network
    assert isinstance(net, Network), "links are cut"
    master = group.await_whole()
    apart, kept = [node for node in group.brokers if node is not master]
    group.timeline.note(f"{master.name} leads; the controller dies, the link to {apart.name} is cut")
    for controller in group.controllers:
        controller.kill()
    net.cut(master.place.name, apart.place.name)
    cut_s = time.monotonic()
    # A master that keeps its word acknowledges nothing from here on, so waiting for it has an end.
    deadline_s = cut_s + wait_s
    await_that(
        "enough is acknowledged, or time is up",
        lambda: len(group.acknowledged_after(cut_s)) >= puts_wanted or time.monotonic() > deadline_s,
        wait_s + 10,
    )
    group.timeline.note(f"{master.name} dies after {len(group.acknowledged_after(cut_s))} acknowledgements")
    master.kill()
    acknowledged = len(group.acknowledged_after(cut_s))
    # The third one has it all, and comes a little late to the election.
    for controller in group.controllers:
        net.cut(kept.place.name, controller.place.name)
        controller.start()
    group.timeline.note(f"the controller is back; {kept.name} does not reach it yet")
    await_that(f"{apart.name} leads", lambda: group.master() is apart, ELECTION_LIMIT_S)
    group.timeline.note(f"{apart.name} leads; everything is mended")
    group.mend()
    group.await_whole()
    group.await_acknowledged(1, ELECTION_LIMIT_S)
    return acknowledged


def strand_the_master(group: Group, puts_wanted: int, wait_s: float) -> int:
    """The master is cut off from all but its clients; another one is elected, and then the clients learn of it.

    A master that acknowledges alone loses all of that. Returns how many sends it acknowledged alone.
    """
    net = group.network
    assert isinstance(net, Network), "links are cut"
    master = group.await_whole()
    group.timeline.note(f"{master.name} leads; it reaches its clients and nobody else")
    for node in (*group.controllers, *group.brokers, group.namesrv):
        if node is not master:
            net.cut(master.place.name, node.place.name)
    cut_s = time.monotonic()
    group.await_master_but(master, ELECTION_LIMIT_S)
    deadline_s = cut_s + wait_s
    await_that(
        "enough is acknowledged, or time is up",
        lambda: len(group.acknowledged_after(cut_s)) >= puts_wanted or time.monotonic() > deadline_s,
        wait_s + ELECTION_LIMIT_S,
    )
    acknowledged = len(group.acknowledged_after(cut_s))
    group.timeline.note(f"another one leads; {acknowledged} were acknowledged meanwhile; everything is mended")
    group.mend()
    group.await_whole()
    group.await_acknowledged(1, ELECTION_LIMIT_S)
    return acknowledged
