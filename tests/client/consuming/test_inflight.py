"""What is out of one queue: handed out in order, settled in any, and told as far as nothing is missing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.client.consuming.inflight import InFlight
from bolide.client.consuming.received import Received
from bolide.model.queue import MessageQueue

QUEUE = MessageQueue("T", "a", 0)


def queue_of(offsets: list[int], *, is_serial: bool = False) -> InFlight:
    inflight = InFlight(QUEUE, offsets[0], lambda *_: None, out_count_max=1 if is_serial else None)
    messages = [Received(inflight, (0, offset, b"12345"), b"") for offset in offsets]
    inflight.add(messages, offsets[-1] + 1)
    return inflight


def take_all(inflight: InFlight) -> list[Received]:
    taken = []
    while inflight.has_ready:
        taken += inflight.take(1)
    return taken


@pytest.mark.feature("F219", "F220", "F221")
@given(order=st.permutations(range(8)))
def test_progress_is_the_lowest_unsettled_offset_whatever_is_settled_first(order: list[int]) -> None:
    inflight = queue_of(list(range(10, 18)))
    taken = take_all(inflight)
    assert [message.queue_offset for message in taken] == list(range(10, 18))
    left = set(range(10, 18))
    for number in order:
        inflight.settle(taken[number])
        left.discard(10 + number)
        assert inflight.commit_offset == min(left, default=18)
        assert len(inflight) == len(left)
        assert inflight.held_size == 5 * len(left)


@pytest.mark.feature("F227")
def test_a_dropped_queue_hands_out_nothing_and_what_is_settled_late_counts_for_nothing() -> None:
    inflight = queue_of([0, 1, 2])
    (first,) = inflight.take(1)
    inflight.drop()
    assert not inflight.has_ready
    inflight.settle(first)
    assert inflight.commit_offset == 0


def test_a_serial_queue_has_one_message_out_at_a_time() -> None:
    inflight = queue_of([0, 1], is_serial=True)
    (first,) = inflight.take(1)
    assert not inflight.has_ready
    inflight.put_back(first)
    assert inflight.take(1) == [first]
    inflight.settle(first)
    assert [message.queue_offset for message in inflight.take(2)] == [1]


def test_messages_that_were_taken_and_given_to_nobody_go_back_in_their_order() -> None:
    inflight = queue_of([0, 1, 2, 3])
    taken = inflight.take(3)
    inflight.untake(taken[1:])
    assert [message.queue_offset for message in take_all(inflight)] == [1, 2, 3]


@pytest.mark.parametrize("name", ["is_paused", "is_dropped"])
def test_a_queue_that_is_paused_or_not_locked_hands_out_nothing(name: str) -> None:
    inflight = queue_of([0])
    setattr(inflight, name, True)
    assert not inflight.has_ready
    unlocked = queue_of([0])
    unlocked.is_locked = False
    assert not unlocked.has_ready


def test_offsets_that_are_missing_in_between_do_not_hold_up_the_progress() -> None:
    inflight = queue_of([3, 7, 20])
    taken = take_all(inflight)
    inflight.settle(taken[0])
    assert (inflight.commit_offset, inflight.span) == (7, 13)
    inflight.settle(taken[2])
    inflight.settle(taken[1])
    assert (inflight.commit_offset, inflight.span) == (21, 0)
