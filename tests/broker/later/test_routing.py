"""Where a message is stored that is not to be delivered yet."""

import pytest

from bolide.broker.later.routing import DelayRouter
from bolide.errors import Refusal
from bolide.store.config import StoreConfig

WAITING = DelayRouter(StoreConfig().delay_levels)


@pytest.mark.feature("F163")
def test_a_message_with_a_delay_level_waits_in_the_queue_of_its_level() -> None:
    topic, queue_id, properties = WAITING.route("Orders", 7, {"DELAY": "3", "KEYS": "k", "TIMER_DELAY_SEC": "9"})
    assert (topic, queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert properties == {"DELAY": "3", "KEYS": "k", "REAL_TOPIC": "Orders", "REAL_QID": "7"}


def test_a_level_beyond_the_last_is_the_last() -> None:
    _, queue_id, properties = WAITING.route("Orders", 0, {"DELAY": "99"})
    assert (queue_id, properties["DELAY"]) == (17, "18")


@pytest.mark.parametrize("level", ["0", "-1"])
def test_without_a_level_a_message_goes_where_it_belongs(level: str) -> None:
    assert WAITING.route("Orders", 1, {"DELAY": level}) == ("Orders", 1, {"DELAY": level})


def test_a_level_that_is_no_number_is_refused() -> None:
    with pytest.raises(Refusal, match="a delay level of 'soon'"):
        WAITING.route("Orders", 1, {"DELAY": "soon"})
