"""What may befall a group, by seed: each fault is begun, lasts and is taken back; a timeline says what happened when.

A plan is drawn before it is carried out, in terms that do not depend on time: the same seed gives the same faults in
the same order. Faults overlap. What a group promises to survive decides what is drawn: processes are killed and frozen
in any number, for their files stay; only one broker at a time loses what it had not synced, and none other has a fault
until it is in sync again.
"""

import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.crash.power import PowerCut, SyncNotes
from tests.replication.group import CLUSTER, ELECT, GROUP, Group
from tests.replication.network import Network, Way
from tests.replication.nodes import Node, await_that
from tests.replication.program import FULL, NOTES, SKEW, STORE

RECOVERY_LIMIT_S = 90.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a plan: what, to which of the nodes (by a number that picks them), for how long, then a pause."""

    kind: str
    pick: int
    lasts_s: float
    pause_s: float
    is_overlapped: bool  # the next one begins before this one ends

    def __str__(self) -> str:
        return f"{self.kind} for {self.lasts_s:.1f} s"


Undo = Callable[[], None]


class Faults:
    """The faults that a group can be given; `carry_out` is told by a plan which."""

    def __init__(self, group: Group, seed: int) -> None:
        self._group = group
        self._seed = seed
        self.counts: Counter[str] = Counter()
        self._kinds: dict[str, Callable[[random.Random], Undo]] = {
            "kill a master": lambda chance: self._kill([self._master(chance)]),
            "kill a broker": lambda chance: self._kill([chance.choice(group.brokers)]),
            "kill two brokers": lambda chance: self._kill(chance.sample(group.brokers, 2)),
            "kill all brokers": lambda chance: self._kill(group.brokers),
            "restart a master": lambda chance: self._restart(self._master(chance)),
            "freeze a master": lambda chance: self._freeze(self._master(chance)),
            "freeze a broker": lambda chance: self._freeze(chance.choice(group.brokers)),
            "kill a controller": lambda chance: self._kill([chance.choice(group.controllers)]),
            "freeze a controller": lambda chance: self._freeze(chance.choice(group.controllers)),
            "kill all controllers": lambda chance: self._kill(group.controllers),
            "kill the name server": lambda chance: self._kill([group.namesrv]),
            "switch masters": self._switch,
            "fill a disk": self._fill_disk,
            "move a clock": self._move_clock,
            "cut power": self._cut_power,
            "kill an etcd": lambda chance: self._kill([chance.choice(group.extra)]),
        }
        self._parting: dict[str, Callable[[random.Random, Network], list[tuple[str, str]]]] = {
            "cut two apart": lambda chance, net: _both(*chance.sample(self._hosts(net), 2)),
            "cut the master from a slave": self._master_and_slave,
            "cut one off": lambda chance, net: _all_of(net, chance.choice(self._hosts(net))),
            "cut the master off": lambda chance, net: _all_of(net, self._master(chance).place.name),
            "cut the master from controllers": self._master_and_controllers,
            "lose one way": lambda chance, net: [_pair(chance.sample(self._hosts(net), 2))],
            "lose all that one sends": lambda chance, net: _all_of(net, chance.choice(self._hosts(net)))[::2],
            "lose some": lambda chance, net: _everyone(net),
            "delay": lambda chance, net: _all_of(net, chance.choice(self._hosts(net))),
        }

    def kinds(self) -> list[str]:
        """What can be done here: a network that cannot be parted is not, and there is no etcd in every group."""
        left_out = set() if self._group.extra else {"kill an etcd"}
        if len(self._group.controllers) == 0:
            left_out |= {kind for kind in self._kinds if "controller" in kind}
        here = [kind for kind in self._kinds if kind not in left_out]
        return here + (list(self._parting) if self._group.network.can_part else [])

    def plan(self, kinds: Sequence[str], lasts_s: tuple[float, float] = (0.5, 6.0), pause_max_s: float = 3.0) -> "Plan":
        return Plan(kinds, random.Random(self._seed), lasts_s, pause_max_s)

    def carry_out(self, plan: "Plan", for_s: float) -> None:
        """Faults one after the other until the time is up; then all is mended."""
        end_s = time.monotonic() + for_s
        undone: list[tuple[Fault, Undo]] = []
        while time.monotonic() < end_s:
            fault = plan.draw()
            undone.append((fault, self._begin(fault)))
            _pass_time(min(fault.lasts_s, end_s - time.monotonic()))
            if not fault.is_overlapped:
                while undone:
                    self._end(*undone.pop())
                _pass_time(min(fault.pause_s, end_s - time.monotonic()))
        while undone:
            self._end(*undone.pop())
        self._group.mend()
        self._group.timeline.note("all is mended")

    def _begin(self, fault: Fault) -> Undo:
        self.counts[fault.kind] += 1
        chance = random.Random(fault.pick)
        if fault.kind in self._kinds:
            return self._kinds[fault.kind](chance)
        return self._part(fault.kind, chance)

    def _end(self, fault: Fault, undo: Undo) -> None:
        undo()
        self._group.timeline.note(f"  end of {fault.kind}")

    def _note(self, text: str) -> None:
        self._group.timeline.note(text)

    # Processes

    def _master(self, chance: random.Random) -> Node:
        return self._group.master() or chance.choice(self._group.brokers)

    def _kill(self, nodes: Sequence[Node]) -> Undo:
        self._note(f"kill {', '.join(node.name for node in nodes)}")
        for node in nodes:
            node.kill()

        def undo() -> None:
            for node in nodes:
                node.start()

        return undo

    def _restart(self, node: Node) -> Undo:
        """So fast that the controller may not see it."""
        self._note(f"kill {node.name} and start it at once")
        node.kill()
        node.start()
        return lambda: None

    def _freeze(self, node: Node) -> Undo:
        self._note(f"freeze {node.name}")
        node.freeze()
        return node.thaw

    def _switch(self, chance: random.Random) -> Undo:
        """A planned switch, as an operator asks for it; a refusal is an answer too."""
        leader = self._group.leading_controller()
        number = chance.randint(1, len(self._group.brokers))
        fields = {"clusterName": CLUSTER, "brokerName": GROUP, "brokerId": str(number), "designateElect": "true"}
        fields["invokeTime"] = str(int(time.time() * 1000))
        answer = self._group.ask(leader.name, ELECT, fields) if leader is not None else None
        self._note(f"switch to id {number}: {'no answer' if answer is None else answer.code}")
        return lambda: None

    # Disks and clocks

    def _fill_disk(self, chance: random.Random) -> Undo:
        node = chance.choice(self._group.brokers)
        self._note(f"the disk of {node.name} is full")
        flag = node.directory / FULL
        flag.touch()
        return lambda: flag.unlink(missing_ok=True)

    def _move_clock(self, chance: random.Random) -> Undo:
        node = chance.choice(self._group.brokers)
        skew_ms = chance.choice((-86_400_000, -60_000, -500, 500, 60_000, 86_400_000))
        self._note(f"the clock of {node.name} is moved by {skew_ms} ms")
        temporary = node.directory / f"{SKEW}.tmp"
        temporary.write_text(str(skew_ms))
        temporary.replace(node.directory / SKEW)
        return lambda: (node.directory / SKEW).unlink(missing_ok=True)

    def _cut_power(self, chance: random.Random) -> Undo:
        """One broker loses what it had not synced. Only that: all are in sync before, and it is again afterwards."""
        group = self._group
        group.mend()
        group.await_whole(RECOVERY_LIMIT_S)
        node = chance.choice(group.brokers)
        node.kill()
        store, world = node.directory / STORE, node.directory / "world"
        if (node.directory / NOTES).exists():
            self._note(f"power cut of {node.name}")
            PowerCut(SyncNotes(store, node.directory / NOTES), chance).leave(world)
            shutil.rmtree(store)
            world.rename(store)
            shutil.rmtree(node.directory / NOTES)
        node.start()
        group.await_whole(RECOVERY_LIMIT_S)
        return lambda: None

    # The network

    def _hosts(self, net: Network) -> list[str]:
        return [name for name in net.hosts if name != self._group.client.name]

    def _master_and_slave(self, chance: random.Random, net: Network) -> list[tuple[str, str]]:
        master = self._master(chance)
        slave = chance.choice([node for node in self._group.brokers if node is not master])
        return _both(master.place.name, slave.place.name)

    def _master_and_controllers(self, chance: random.Random, net: Network) -> list[tuple[str, str]]:
        master = self._master(chance)
        return [way for node in self._group.controllers for way in _both(master.place.name, node.place.name)]

    def _part(self, kind: str, chance: random.Random) -> Undo:
        net = self._group.network
        assert isinstance(net, Network), "asked for by `kinds`"
        ways = self._parting[kind](chance, net)
        way = Way(loss=1.0)
        if kind == "lose some":
            way = Way(loss=chance.choice((0.02, 0.2, 0.5)))
        elif kind == "delay":
            way = Way(delay_s=chance.choice((0.05, 0.3, 1.5)))
        self._note(f"{kind}: {way} {', '.join(f'{one}->{other}' for one, other in ways[:8])}")
        for one, other in ways:
            net.set_way(one, other, way)

        def undo() -> None:
            for one, other in ways:
                net.set_way(one, other, Way())

        return undo


class Plan:
    """An endless list of faults, drawn from a seed."""

    def __init__(
        self, kinds: Sequence[str], chance: random.Random, lasts_s: tuple[float, float], pause_max_s: float
    ) -> None:
        self._kinds = kinds
        self._chance = chance
        self._lasts_s = lasts_s
        self._pause_max_s = pause_max_s

    def draw(self) -> Fault:
        chance = self._chance
        kind = chance.choice(self._kinds)
        lasts_s, pause_s = chance.uniform(*self._lasts_s), chance.uniform(0.0, self._pause_max_s)
        return Fault(kind, chance.randrange(1 << 30), lasts_s, pause_s, chance.random() < 0.3)


def _pair(names: list[str]) -> tuple[str, str]:
    return names[0], names[1]


def _both(one: str, other: str) -> list[tuple[str, str]]:
    return [(one, other), (other, one)]


def _all_of(net: Network, name: str) -> list[tuple[str, str]]:
    """What it sends to each other host, then what it hears from that."""
    return [way for other in net.hosts if other != name for way in _both(name, other)]


def _everyone(net: Network) -> list[tuple[str, str]]:
    return [(one, other) for one in net.hosts for other in net.hosts if one != other]


def _pass_time(time_s: float) -> None:
    deadline_s = time.monotonic() + time_s
    await_that("time passes", lambda: time.monotonic() >= deadline_s, max(time_s, 0.0) + 60)


def write_manners(node: Node, **manners: object) -> None:
    """How the process of a node behaves from its next start on."""
    node.directory.mkdir(parents=True, exist_ok=True)
    (node.directory / "manners.json").write_text(json.dumps(manners))
