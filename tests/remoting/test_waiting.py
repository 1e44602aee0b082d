"""Frames that wait: read a few at a time, in their order, up to a bad one."""

from types import SimpleNamespace
from typing import cast

from bolide import kernel
from bolide.protocol.command import Command
from bolide.remoting.session import Session
from bolide.remoting.waiting import Waiting


class Asked:
    def __init__(self) -> None:
        self.settled: list[int] = []

    def settle(self, command: Command) -> bool:
        self.settled.append(command.opaque)
        return True


def session_with(asked: Asked) -> Session:
    return cast(Session, SimpleNamespace(last_active_s=7.0, pending=asked))


def waiting_with(frames: bytes) -> tuple[Waiting, Asked]:
    asked = Asked()
    waiting = Waiting()
    stream = bytearray(frames)
    bounds, used, _ = kernel.cut_frames(memoryview(stream), len(stream), 1 << 24)
    assert used == len(frames)
    waiting.put(session_with(asked), memoryview(stream), bounds)
    stream[:] = bytes(len(stream))  # the buffer is used anew
    return waiting, asked


def request(opaque: int, flag: int = 0) -> bytes:
    return Command(38, opaque=opaque, flag=flag, fields={"consumerGroup": "g"}).encode()


BAD = (12).to_bytes(4, "big") + (8).to_bytes(4, "big") + b"nonsense"


def served(waiting: Waiting, asked: Asked) -> list[int]:
    found = []
    while waiting:
        if not waiting.ready:
            waiting.read_some(session_with(asked))
        for each in waiting.ready:
            assert each.arrived_s == 7.0
            found.append(each.command.opaque)
        waiting.ready.clear()
    return found


def test_all_of_a_large_read_are_given_in_their_order() -> None:
    waiting, asked = waiting_with(b"".join(request(n) for n in range(500)))
    assert len(waiting) == 500
    assert served(waiting, asked) == list(range(500))
    assert waiting.problem is None


def test_a_bad_header_is_met_when_those_before_it_were_served_and_ends_the_rest() -> None:
    waiting, asked = waiting_with(b"".join(request(n) for n in range(100)) + BAD + request(200))
    assert waiting.problem is None  # not read yet: only a few are at once
    assert served(waiting, asked) == list(range(100))
    assert waiting.problem is not None


def test_answers_among_requests_are_settled_and_not_served() -> None:
    waiting, asked = waiting_with(b"".join(request(n, flag=n % 2) for n in range(100)))
    assert served(waiting, asked) == list(range(0, 100, 2))
    assert asked.settled == list(range(1, 100, 2))


def test_what_was_cleared_is_gone_read_or_not() -> None:
    waiting, asked = waiting_with(b"".join(request(n) for n in range(100)))
    waiting.read_some(session_with(asked))
    waiting.clear()
    assert not waiting
    assert not waiting.ready
    assert not waiting.unread
