"""The application walks the queues: offsets, statuses, and what it keeps at the brokers."""

from collections.abc import Iterator

import pytest

import bolide
from bolide.errors import ClientError
from bolide.testing import Cluster, cluster


@pytest.fixture(scope="module")
def rocket() -> Iterator[Cluster]:
    with cluster() as running:
        running.create_topic("T", 1)
        with bolide.Producer("pg", running.namesrv) as producer:
            for number in range(40):
                producer.send("T", b"%d" % number, tags="even" if number % 2 == 0 else "odd")
        yield running


@pytest.fixture
def walker(rocket: Cluster) -> Iterator[bolide.PullConsumer]:
    with bolide.PullConsumer("walk", rocket.namesrv) as opened:
        yield opened


@pytest.fixture
def queue(walker: bolide.PullConsumer) -> bolide.MessageQueue:
    (found,) = walker.queues("T")
    return found


@pytest.mark.feature("F211", "F212", "F215")
def test_a_pull_brings_32_unless_told_otherwise_and_says_where_to_go_on(
    walker: bolide.PullConsumer, queue: bolide.MessageQueue
) -> None:
    pulled = walker.pull(queue, 0)
    assert (pulled.status, len(pulled.messages), pulled.next_offset) == (bolide.PullStatus.FOUND, 32, 32)
    assert (pulled.min_offset, pulled.max_offset) == (0, 40)
    assert [message.body for message in walker.pull(queue, 10, 3).messages] == [b"10", b"11", b"12"]


def test_tags_are_filtered_and_the_walk_goes_past_what_was_not_wanted(
    walker: bolide.PullConsumer, queue: bolide.MessageQueue
) -> None:
    pulled = walker.pull(queue, 0, expression="odd")
    assert {message.tags for message in pulled.messages} == {"odd"}
    nothing = walker.pull(queue, 0, expression="neither")
    assert nothing.status in (bolide.PullStatus.NO_MATCHED_MSG, bolide.PullStatus.NO_NEW_MSG)
    assert nothing.messages == []
    assert nothing.next_offset > 0


def test_the_end_is_told_at_once_or_waited_at(walker: bolide.PullConsumer, queue: bolide.MessageQueue) -> None:
    assert walker.pull(queue, 40).status is bolide.PullStatus.NO_NEW_MSG
    assert walker.pull(queue, 40, wait_s=0.2).status is bolide.PullStatus.NO_NEW_MSG
    assert walker.pull(queue, 400).status is bolide.PullStatus.OFFSET_ILLEGAL


def test_offsets_are_kept_under_the_groups_name(walker: bolide.PullConsumer, queue: bolide.MessageQueue) -> None:
    walker.commit(queue, 17)
    assert walker.committed(queue) == 17
    assert (walker.min_offset(queue), walker.max_offset(queue)) == (0, 40)
    stored_at = walker.pull(queue, 20, 1).messages[0].stored_at
    assert walker.offset_at(queue, stored_at) <= 20


def test_what_makes_no_sense_is_refused(walker: bolide.PullConsumer, queue: bolide.MessageQueue) -> None:
    with pytest.raises(ClientError, match="neither may be negative"):
        walker.pull(queue, -1)
    with pytest.raises(ClientError, match="neither may be negative"):
        walker.pull(queue, 0, 0)
    with pytest.raises(ClientError, match="a pulled message has no verdict"):
        walker.pull(queue, 0, 1).messages[0].ack()
    with pytest.raises(ClientError, match="has no route"):
        walker.queues("Absent")
