"""Queues of Celery as topics: names that fit, names that are written otherwise, and what is refused."""

import pytest
from hypothesis import given
from hypothesis.strategies import text

from bolide.celery.names import check_arguments, check_priority, escaped, group_of, is_broadcast, topic_of
from bolide.errors import ClientError
from bolide.model.names import topic_problem


@pytest.mark.parametrize(
    ("queue", "topic"),
    [("celery", "celery"), ("emails.high", "emails%2Ehigh"), ("ü", "%C3%BC"), ("a_b-1", "a_b-1"), ("50%", "50%25")],
)
def test_a_queue_has_the_name_of_its_topic_or_one_that_shows_it(queue: str, topic: str) -> None:
    assert topic_of(queue) == topic


@given(text(min_size=1, max_size=20), text(min_size=1, max_size=20))
def test_no_two_queues_meet_in_one_topic(one: str, other: str) -> None:
    assert (escaped(one) == escaped(other)) == (one == other)
    assert topic_problem(escaped(one)) is None or len(escaped(one)) > 127


def test_a_namespace_stands_before_topics_and_groups() -> None:
    assert (topic_of("celery", "shop"), group_of("workers", "shop")) == ("shop%celery", "shop%workers")


def test_a_name_that_cannot_be_a_topic_is_refused_with_a_sentence() -> None:
    with pytest.raises(ClientError, match=r"queue '\.{60}' cannot be a topic: .* at most 127"):
        topic_of("." * 60)


@pytest.mark.parametrize("priority", [1, 9, -1, "high"])
def test_priorities_are_refused_with_what_to_do_instead(priority: object) -> None:
    with pytest.raises(ClientError, match="a topic has no priorities: send urgent tasks to a queue of their own"):
        check_priority(priority)
    check_priority(0)
    check_priority(None)


def test_a_queue_with_priorities_is_refused() -> None:
    with pytest.raises(ClientError, match="x-max-priority"):
        check_arguments("celery", {"x-max-priority": 10})
    check_arguments("celery", {"x-other": 1})


def test_commands_replies_and_events_are_heard_by_everyone_and_tasks_by_one() -> None:
    tasks = {"type": "direct", "durable": True}
    assert is_broadcast("celery.pidbox", None)
    assert is_broadcast("celeryev", None)
    assert is_broadcast("mine", {"type": "fanout", "durable": True})
    assert is_broadcast("mine", {**tasks, "durable": False})
    assert not is_broadcast("celery", tasks)
    assert not is_broadcast("celery", None)
