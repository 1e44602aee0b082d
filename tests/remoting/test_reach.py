"""A node that is cut off: what breaks, what cannot begin, and what goes on after it."""

import asyncio
import contextvars
import socket

import pytest

from bolide.remoting.reach import REACH, Reach, accept_from, reach_of


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection."""
    return socket.socketpair()


def is_broken(end: socket.socket) -> bool:
    end.setblocking(False)
    try:
        return end.recv(1) == b""
    except BlockingIOError:
        return False


def test_a_node_that_is_cut_off_loses_what_it_accepted_and_what_it_dialled() -> None:
    reach = Reach()
    (accepted, far), (dialled, server) = pair(), pair()
    assert reach.admit(accepted)
    reach.note(dialled, 9876)
    reach.set(True, frozenset())
    assert is_broken(far)
    assert is_broken(server)


def test_refused_ports_are_not_dialled_and_all_others_are() -> None:
    reach = Reach()
    (near, far), (other, kept), (accepted, client) = pair(), pair(), pair()
    reach.admit(accepted)
    reach.note(near, 10)
    reach.note(other, 11)
    reach.set(False, frozenset({10}))
    assert is_broken(far)
    assert not is_broken(kept)
    assert not is_broken(client)
    assert [reach.has(port) for port in (10, 11)] == [False, True]


def test_a_connection_that_was_under_way_while_its_port_went_out_of_reach_breaks() -> None:
    reach = Reach()
    near, far = pair()
    reach.set(False, frozenset({10}))
    reach.note(near, 10)
    assert is_broken(far)


def test_whoever_comes_to_a_node_that_is_cut_off_is_hung_up_on_until_it_is_healed() -> None:
    reach = Reach()

    def visit() -> bool:
        REACH.set(reach)
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
            listener.setblocking(False)
            try:
                accept_from(listener)[0].close()
            except BlockingIOError:
                return False
            return True

    reach.set(True, frozenset())
    assert not contextvars.copy_context().run(visit)
    reach.set(False, frozenset())
    assert contextvars.copy_context().run(visit)


def test_a_task_without_a_reach_dials_and_accepts_as_ever() -> None:
    assert reach_of(1) is None
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        accept_from(listener)[0].close()


def test_the_tasks_of_one_node_are_cut_off_and_those_beside_it_are_not() -> None:
    async def node(reach: Reach) -> bool:
        REACH.set(reach)
        try:
            reach_of(9876)
        except ConnectionRefusedError:
            return False
        return True

    async def both() -> list[bool]:
        cut, whole = Reach(), Reach()
        cut.set(True, frozenset())
        return list(await asyncio.gather(node(cut), node(whole)))

    assert asyncio.run(both()) == [False, True]


@pytest.mark.parametrize("count", [3])
def test_connections_that_are_over_are_forgotten(count: int) -> None:
    reach = Reach()
    for _ in range(count):
        near, far = pair()
        reach.note(near, 1)
        near.close()
        far.close()
    near, far = pair()
    reach.note(near, 1)
    assert len(reach._dialled) == 1
