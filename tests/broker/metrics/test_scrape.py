"""A page of ten thousand topics: how long making a piece of it holds the loop."""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from bolide.broker.broker import Broker
from bolide.broker.metrics.meter import Meter
from bolide.broker.metrics.page import BrokerPage
from bolide.metrics.page import pieces
from bolide.protocol.bodies.topics import TopicConfig
from tests.broker.metering import PROM
from tests.broker.whole import whole
from tests.remoting.loops import both_loops

TOPIC_COUNT, GROUP_COUNT = 10_000, 2_500


def fill(broker: Broker) -> None:
    """What ten thousand topics with messages and 2,500 groups leave in the tables."""
    state, meter = broker.state, broker.meter
    assert meter is not None
    for number in range(TOPIC_COUNT):
        state.topics.table[f"topic-{number}"] = TopicConfig(topic_name=f"topic-{number}")
        meter.sent_one(f"topic-{number}", 0, 10, 1_000)
    for number in range(GROUP_COUNT):
        for topic in range(number, number + 4):
            for queue_id in range(4):
                state.offsets.table.setdefault(f"topic-{topic}@group-{number}", {})[queue_id] = 7
            state.stats._add(state.stats._gots, (f"topic-{topic}", f"group-{number}"), 5, 500)


@contextmanager
def uncollected() -> Iterator[None]:
    """The collector stands still: what it would go through here is every other test's, too."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@both_loops
async def test_no_piece_of_a_page_of_ten_thousand_topics_takes_long(tmp_path: Path) -> None:
    """A slice ends after the piece in which its millisecond is over (`tests/remoting/test_pages.py`).

    What a piece takes is this thread's own time: a machine that runs others in between adds nothing to it.
    """
    async with whole(tmp_path, **PROM) as rocket:
        fill(rocket.broker)
        page = BrokerPage(rocket.broker.metrics_port.shown, cast(Meter, rocket.broker.meter))
        took_s: list[float] = []
        series_count = 0
        with uncollected():
            began_s = time.thread_time()
            for piece in pieces(page.families(), {}, 50_000):
                took_s.append(time.thread_time() - began_s)
                series_count += piece.count("\n")
                began_s = time.thread_time()
        took_s.sort()
        assert series_count >= 11 * TOPIC_COUNT + 2 * 4 * GROUP_COUNT
        assert took_s[-3] < 0.005  # the machine's interrupts may have the last two
