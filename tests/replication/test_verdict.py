"""The judge finds what is planted, and nothing else."""

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.replication.history import Fate, Send, Sighting, event_of, line_of, lines_from
from tests.replication.verdict import Verdict, judge

Held = dict[str, list[tuple[int, str]]]


class World:
    """A history that a faultless cluster would leave, and its queues; both may be changed."""

    def __init__(self, seed: int = 1) -> None:
        chance = random.Random(seed)
        self.events: list[Send | Sighting] = []
        self.queues: Held = defaultdict(list)
        for number in range(60):
            for producer in ("p0", "p1", "p2"):
                self._send(producer, number, chance)
        for queue, held in self.queues.items():
            self.events += [Sighting(queue, offset, body, 99.0) for offset, body in held[::3]]

    def _send(self, producer: str, number: int, chance: random.Random) -> None:
        queue = f"a/{chance.randrange(2)}"
        at_s = number + int(producer[1]) / 10
        fate = chance.choices(list(Fate), (8, 1, 1, 1))[0]
        send = Send(producer, number, at_s, at_s + 0.5, fate)
        if fate is Fate.ACKNOWLEDGED or (fate is not Fate.REFUSED and chance.random() < 0.5):
            held = self.queues[queue]
            held.append((len(held), send.body))
            if fate is Fate.ACKNOWLEDGED:
                send = replace(send, code=0, queue=queue, offset=len(held) - 1)
        self.events.append(send)

    def sends(self, fate: Fate) -> list[Send]:
        return [event for event in self.events if isinstance(event, Send) and event.fate is fate]

    def verdict(self) -> Verdict:
        return judge(self.events, self.queues)

    def forget(self, body: str) -> None:
        """A message is gone and those behind it moved up."""
        for queue, held in self.queues.items():
            self.queues[queue] = list(enumerate(each for _, each in held if each != body))


def lose_the_tail(world: World) -> None:
    last = max(world.sends(Fate.ACKNOWLEDGED), key=lambda send: (send.queue == "a/0", send.offset))
    world.queues["a/0"] = world.queues["a/0"][: last.offset]


def overwrite_one(world: World) -> None:
    """Another master gave the offset to another message; the first is somewhere else."""
    held = world.queues["a/0"]
    send = next(send for send in world.sends(Fate.ACKNOWLEDGED) if send.queue == "a/0")
    other = (send.offset or 0) + 1
    held[other - 1 : other + 1] = [(other - 1, held[other][1]), (other, send.body)]


def show_what_goes(world: World) -> None:
    world.events.append(Sighting("a/0", len(world.queues["a/0"]), "p0/777", 5.0))


def store_what_was_refused(world: World) -> None:
    world.queues["a/1"].append((len(world.queues["a/1"]), world.sends(Fate.REFUSED)[0].body))


def store_twice(world: World) -> None:
    world.queues["a/1"].append((len(world.queues["a/1"]), world.sends(Fate.ACKNOWLEDGED)[0].body))


def store_what_nobody_sent(world: World) -> None:
    world.queues["a/1"].append((len(world.queues["a/1"]), "p9/0"))


def tear_a_queue(world: World) -> None:
    world.queues["a/1"].append((len(world.queues["a/1"]) + 3, world.sends(Fate.ACKNOWLEDGED)[0].body))


def swap_two(world: World) -> None:
    """The queue holds two of a producer's messages in the wrong order, and the receipts say so too."""
    first, second = [send for send in world.sends(Fate.ACKNOWLEDGED) if send.producer == "p1" and send.queue == "a/0"][
        :2
    ]
    held = world.queues["a/0"]
    for send, other in ((first, second), (second, first)):
        world.events[world.events.index(send)] = replace(send, offset=other.offset)
        held[other.offset or 0] = (other.offset or 0, send.body)
    world.events = [event for event in world.events if isinstance(event, Send)]


PLANTED: dict[Callable[[World], None], str] = {
    lose_the_tail: "lost",
    overwrite_one: "moved",
    show_what_goes: "unseen",
    store_what_was_refused: "unrefused",
    store_twice: "doubled",
    store_what_nobody_sent: "invented",
    tear_a_queue: "torn",
    swap_two: "disordered",
}


@pytest.mark.parametrize("seed", range(20))
def test_a_history_that_was_kept_has_no_fault(seed: int) -> None:
    assert World(seed).verdict().faults() == {}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
@pytest.mark.parametrize("seed", range(5))
def test_a_planted_fault_is_found_under_its_name(plant: Callable[[World], None], seed: int) -> None:
    world = World(seed)
    plant(world)
    assert PLANTED[plant] in world.verdict().faults()


@pytest.mark.parametrize("fate", list(Fate))
def test_any_one_acknowledged_message_that_is_gone_is_lost_and_no_other(fate: Fate) -> None:
    for send in World().sends(fate):
        world = World()
        world.events = [event for event in world.events if isinstance(event, Send)]
        world.forget(send.body)
        assert [told.split()[0] for told in world.verdict().lost] == ([send.body] if fate is Fate.ACKNOWLEDGED else [])


def test_a_client_that_repeats_itself_may_have_a_message_twice() -> None:
    world = World()
    store_twice(world)
    send = world.sends(Fate.ACKNOWLEDGED)[0]
    world.events[world.events.index(send)] = replace(send, is_retried=True)
    verdict = world.verdict()
    assert verdict.faults() == {}
    assert verdict.counts["repeated"] == 1


def test_sends_that_overlap_have_no_order() -> None:
    first = Send("p", 0, 1.0, 9.0, Fate.ACKNOWLEDGED, 0, queue="a/0", offset=1)
    second = Send("p", 1, 2.0, 3.0, Fate.ACKNOWLEDGED, 0, queue="a/0", offset=0)
    queues: Held = {"a/0": [(0, "p/1"), (1, "p/0")]}
    assert judge([first, second], queues).faults() == {}
    assert judge([replace(first, ended_s=1.5), second], queues).faults().keys() == {"disordered"}


def test_a_history_survives_its_file_and_a_writer_that_was_killed(tmp_path: Path) -> None:
    world = World()
    path = tmp_path / "history"
    path.write_text("".join(f"{line_of(event)}\n" for event in world.events) + '{"producer":"p0","num')
    lines, position = lines_from(path, 0)
    assert [event_of(line) for line in lines] == world.events
    with path.open("a") as file:
        file.write('ber":7}\n')
    assert lines_from(path, position)[0] == ['{"producer":"p0","number":7}']


def test_the_verdict_says_what_is_missing() -> None:
    world = World()
    lose_the_tail(world)
    assert "lost 1: p" in str(world.verdict())
    assert "no fault" in str(World().verdict())
