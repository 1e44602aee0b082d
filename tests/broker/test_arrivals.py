"""Who hears of messages that can be read now."""

from dataclasses import replace
from pathlib import Path

from bolide.broker.arrivals import Arrivals
from bolide.broker.role import SLAVE
from bolide.model.topics import SCHEDULE_TOPIC
from bolide.store.dispatch import Arrival
from tests.broker.senders import message, sending
from tests.remoting.loops import virtual_time


@virtual_time
async def test_of_a_topic_only_those_hear_whom_it_concerns_and_of_copies_who_copies(tmp_path: Path) -> None:
    async with sending(tmp_path) as side:
        of_all: list[str] = []
        of_delays: list[str] = []
        of_copies: list[str] = []
        Arrivals(
            side.state,
            (lambda arrival: of_all.append(arrival.topic),),
            {SCHEDULE_TOPIC: lambda arrival: of_delays.append(arrival.topic)},
            lambda arrival: of_copies.append(arrival.topic),
        )
        tell = side.store.dispatch.on_arrival
        assert tell is not None
        for topic in ("Orders", SCHEDULE_TOPIC):
            tell(Arrival(topic, 0, 0, bytes(20), 0))
        assert of_all == ["Orders", SCHEDULE_TOPIC]
        assert of_delays == [SCHEDULE_TOPIC]
        assert not of_copies
        side.state.role.become(replace(side.state.role.now, kind=SLAVE))
        tell(Arrival("Orders", 0, 1, bytes(20), 0))
        assert of_copies == ["Orders"]
        assert len(of_all) == 3


@virtual_time
async def test_a_hearer_that_fails_costs_neither_the_sender_nor_the_others(tmp_path: Path) -> None:
    async with sending(tmp_path) as side:
        heard: list[str] = []

        def fail(arrival: Arrival) -> None:
            raise KeyError(arrival.topic)

        Arrivals(side.state, (fail, lambda arrival: heard.append(arrival.topic)), {}, lambda _: None)
        answer = await side.sent(message(b"x", topic="Orders"))
        assert answer.code == 0
        assert heard == ["Orders"]
        assert side.store.mishaps.counts == {"broker.arrivals": 1}
