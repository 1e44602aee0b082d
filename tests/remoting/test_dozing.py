"""Connections that have begun a frame and say nothing are read a few in a turn, and no slower than that."""

import socket
from collections import Counter
from contextlib import closing
from typing import Any

import pytest

from bolide.remoting import dozing
from bolide.remoting.dozing import WOKEN_A_TURN_MAX, Dozing
from bolide.remoting.session import Session
from bolide.remoting.unfinished import LOOSE_COUNT_MAX
from tests.remoting.ends import Peer, Table, request_of, served
from tests.remoting.loops import Turns, both_loops, eventually, own_loop

COUNT = 400


@both_loops
async def test_those_who_leave_together_in_the_middle_of_a_frame_are_read_a_few_in_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: Counter[int] = Counter()
    with closing(Turns()) as turns:
        eof_received, is_ours = Session.eof_received, own_loop()

        def noted(session: Session) -> bool:
            ended[turns.now] += is_ours()
            return eof_received(session)

        monkeypatch.setattr(Session, "eof_received", noted)
        async with served(Table()) as server:
            ends = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(COUNT)]
            for end in ends:
                end.send(b"\0\0\1")
            await eventually(lambda: server.shared.dozing.count == COUNT - LOOSE_COUNT_MAX)
            for end in ends:
                end.close()
            await eventually(lambda: server.connection_count == 0)
            assert server.shared.dozing.count == 0
    assert ended.total() == COUNT
    assert max(ended.values()) <= LOOSE_COUNT_MAX + 2 * WOKEN_A_TURN_MAX


@both_loops
async def test_a_frame_that_goes_on_after_its_peer_dozed_is_answered_and_so_is_the_next() -> None:
    table = Table()
    async with served(table) as server:
        whole = request_of(7, b"body").encode()
        first = await Peer.connect(server.port)
        first.send(whole[:9])
        others = [await Peer.connect(server.port) for _ in range(LOOSE_COUNT_MAX)]
        for peer in others:
            peer.send(whole[:9])
        await eventually(lambda: server.shared.dozing.count == 1)
        first.send(whole[9:20])
        await eventually(lambda: any(session.reader.held_size == 20 for session in server.sessions))
        await eventually(lambda: server.shared.dozing.count == 1)  # another one: the first was heard last
        first.send(whole[20:] + whole)
        assert [answer.body for answer in await first.answers(2)] == [b"body"] * 2
        for peer in (first, *others):
            peer.leave()
        await eventually(lambda: server.connection_count == 0)


@both_loops
async def test_who_dozes_hears_that_the_server_stops() -> None:
    async with served(Table()) as server:
        peers = [await Peer.connect(server.port) for _ in range(LOOSE_COUNT_MAX + 1)]
        for peer in peers:
            peer.send(b"\0\0\1")
        await eventually(lambda: server.shared.dozing.count == 1)
    for peer in peers:
        assert await peer.end() == b""


@both_loops
async def test_of_too_many_who_doze_the_oldest_goes_of_the_address_that_has_the_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dozing, "DOZING_MAX", 8)
    monkeypatch.setattr(dozing, "SILENT_S", 0.0)
    async with served(Table()) as server:
        other = socket.create_connection(("127.0.0.1", server.port), source_address=("127.0.0.2", 0))
        other.send(b"\0\0\1")
        await eventually(lambda: len(server.sessions) == 1)
        peers = [await Peer.connect(server.port) for _ in range(LOOSE_COUNT_MAX + 12)]
        for peer in peers:
            peer.send(b"\0\0\1")
        await eventually(
            lambda: len(server.sessions) == 1 + LOOSE_COUNT_MAX + 8 - 1 and server.shared.dozing.count == 8
        )
        assert [session.origin for session in server.sessions].count("127.0.0.2") == 1
        other.close()
        for peer in peers:
            peer.leave()
        await eventually(lambda: server.connection_count == 0)
        assert server.shared.dozing.count == 0


@both_loops
async def test_nobody_goes_who_was_heard_a_moment_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dozing, "DOZING_MAX", 8)
    monkeypatch.setattr(dozing, "SILENT_S", 60.0)
    async with served(Table()) as server:
        peers = [await Peer.connect(server.port) for _ in range(LOOSE_COUNT_MAX + 12)]
        for peer in peers:
            peer.send(b"\0\0\1")
        await eventually(lambda: server.shared.dozing.count == 12)
        for peer in peers:
            peer.leave()
        await eventually(lambda: server.connection_count == 0)


def test_without_epoll_nobody_dozes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dozing, "_HAS_EPOLL", False)
    nobody: Any = None
    assert not Dozing().add(nobody, 0)
