"""A group of brokers with their controllers and a name server, each process on a host of its own, and a workload.

What differs between ours and Apache's is only how a process is started; `Group` is given nodes. It asks the name server
who is master and the controller who is in sync, over the wire, from the host of the clients.
"""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interop import wire
from tests.replication.history import Queues, Send, Sighting, event_of, lines_from
from tests.replication.network import Network
from tests.replication.nodes import Here, Node, Place, await_that, python_command, python_environment
from tests.replication.verdict import Verdict, judge
from tests.replication.workload import read_queues

GROUP, CLUSTER, TOPIC = "safe-a", "ReplicatedCluster", "Payments"
QUEUE_COUNT = 4
READY_LIMIT_S = 180.0  # four JVMs at once on two busy cores
UPDATE_TOPIC, METADATA, SYNC_STATE, ELECT = 17, 1005, 1006, 1002
SYSTEM_TOPIC = "TBW102"


class Loopback:
    """A network that cannot be parted: for machines on which nobody may make namespaces."""

    can_part = False

    def __init__(self) -> None:
        self.hosts: dict[str, Here] = {}

    def host(self, name: str) -> Here:
        return self.hosts.setdefault(name, Here(name))

    def heal(self) -> None:
        pass


@dataclass(slots=True)
class Timeline:
    """What was done to a group, and when; the clock is that of the history."""

    begun_s: float = field(default_factory=time.monotonic)
    events: list[tuple[float, str]] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.events.append((time.monotonic(), text))

    def __str__(self) -> str:
        return "\n".join(f"{at_s - self.begun_s:8.2f} s  {text}" for at_s, text in self.events)


@dataclass(slots=True)
class Group:
    """Nodes by what they are; `addresses` has the port at which each is asked."""

    directory: Path
    network: Network | Loopback
    client: Place
    namesrv: Node
    controllers: list[Node]
    brokers: list[Node]
    addresses: dict[str, tuple[str, int]]
    extra: list[Node] = field(default_factory=list)  # etcd
    timeline: Timeline = field(default_factory=Timeline)
    workload: Node | None = None
    _events: list[Send | Sighting] = field(default_factory=list)
    _read_size: int = 0

    @property
    def nodes(self) -> list[Node]:
        return [
            *self.extra,
            self.namesrv,
            *self.controllers,
            *self.brokers,
            *([self.workload] if self.workload else []),
        ]

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    @property
    def namesrv_endpoint(self) -> str:
        return "{}:{}".format(*self.addresses[self.namesrv.name])

    # Asking

    def ask(self, name: str, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> wire.Answer | None:
        """The answer of a node, or None where it gives none."""
        with suppress(OSError, AssertionError):
            return self.client.run(lambda: wire.call(self.addresses[name], code, fields, body))
        return None

    def routed(self) -> dict[str, str]:
        """Broker id → address of this group, as the name server tells it."""
        with suppress(OSError, AssertionError):
            return self.client.run(
                lambda: (
                    wire.broker_addresses(self.addresses[self.namesrv.name], TOPIC).get(GROUP)
                    or wire.broker_addresses(self.addresses[self.namesrv.name], SYSTEM_TOPIC).get(GROUP, {})
                )
            )
        return {}

    def master(self) -> Node | None:
        """Whom clients take for the master now."""
        address = self.routed().get("0")
        return next((node for node in self.brokers if "{}:{}".format(*self.addresses[node.name]) == address), None)

    def leading_controller(self) -> Node | None:
        for node in self.controllers:
            if node.is_running and not node.is_frozen:
                answer = self.ask(node.name, METADATA)
                if answer is not None and answer.fields.get("isLeader") == "true":
                    return node
        return None

    def sync_state(self) -> dict[str, Any]:
        """What the controller knows of the group: masterBrokerId, masterEpoch, inSyncReplicas, notInSyncReplicas."""
        leader = self.leading_controller()
        answer = self.ask(leader.name, SYNC_STATE, body=json.dumps([GROUP]).encode()) if leader is not None else None
        if answer is None or answer.code != 0 or not answer.body:
            return {}
        found: dict[str, Any] = wire.parse(answer.body).get("replicasInfoTable", {}).get(GROUP, {})
        return found

    def in_sync(self) -> set[str]:
        """The names of the brokers in the set of the controller."""
        addresses = {member["brokerAddress"] for member in self.sync_state().get("inSyncReplicas", [])}
        return {node.name for node in self.brokers if "{}:{}".format(*self.addresses[node.name]) in addresses}

    # Living

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        self.await_whole()
        self._make_topic()

    def await_whole(self, limit_s: float = READY_LIMIT_S) -> Node:
        """Wait until every broker is in the controller's set and the name server knows the master; return that."""
        everyone = {node.name for node in self.brokers}
        self._await("every broker is in sync", lambda: self.in_sync() == everyone, limit_s)
        master: Node = self._await("the master is known", self.master, limit_s)
        return master

    def await_master_but(self, old: Node, limit_s: float = READY_LIMIT_S) -> Node:
        """Wait until clients are told of another master than this one."""

        def another() -> Node | None:
            master = self.master()
            return master if master is not old else None

        found: Node = self._await(f"another than {old.name} leads", another, limit_s)
        return found

    def _await(self, claim: str, probe: Callable[[], Any], limit_s: float) -> Any:
        try:
            return await_that(claim, probe, limit_s)
        except AssertionError as problem:
            dead = [node.name for node in self.nodes if not node.is_running]
            problem.add_note(f"controller: {self.sync_state()}\nroute: {self.routed()}\nnot running: {dead}")
            for node in (*self.controllers, *self.brokers):
                problem.add_note(f"--- {node.log}\n{node.last_words(1500)}")
            raise

    def _make_topic(self) -> None:
        count = str(QUEUE_COUNT)
        fields = {"topic": TOPIC, "defaultTopic": SYSTEM_TOPIC, "perm": "6", "topicFilterType": "SINGLE_TAG"}
        fields |= {"readQueueNums": count, "writeQueueNums": count, "topicSysFlag": "0", "order": "false"}

        def made() -> bool:
            master = self.master()
            answer = self.ask(master.name, UPDATE_TOPIC, fields) if master is not None else None
            return answer is not None and answer.code == 0

        self._await("a topic is made", made, READY_LIMIT_S)
        self._await("the topic is routed", self._is_topic_routed, READY_LIMIT_S)

    def _is_topic_routed(self) -> bool:
        return GROUP in self.client.run(lambda: wire.queue_counts(self.addresses[self.namesrv.name], TOPIC))

    # Load

    @property
    def history_path(self) -> Path:
        return self.directory / "history.jsonl"

    def begin_load(self, producer_count: int = 4) -> None:
        command = python_command(
            *("tests.replication.workload", self.namesrv_endpoint, TOPIC, self.history_path),
            *("--producers", producer_count),
        )
        self.workload = Node("workload", self.client, self.directory / "workload", command, python_environment())
        self.workload.start()
        self._await("a message is acknowledged", lambda: self.acknowledged_after(0.0), READY_LIMIT_S)

    def end_load(self) -> None:
        assert self.workload is not None, "it was begun"
        self.workload.stop()

    def events(self) -> list[Send | Sighting]:
        """All so far; what was read before is not read again."""
        if self.history_path.exists():
            lines, self._read_size = lines_from(self.history_path, self._read_size)
            self._events += map(event_of, lines)
        return self._events

    def acknowledged_after(self, at_s: float) -> list[Send]:
        """Sends that began after a moment and were answered with 0."""
        found: list[Send] = []
        for event in reversed(self.events()):  # in the order of their ends, and none takes longer than its limit
            if isinstance(event, Send):
                if event.ended_s < at_s:
                    break
                if event.code == 0 and event.invoked_s >= at_s:
                    found.append(event)
        return found

    def await_acknowledged(self, count: int, limit_s: float) -> None:
        """Wait until this many sends that begin from now on are acknowledged."""
        now_s = time.monotonic()
        self._await(f"{count} messages are acknowledged", lambda: len(self.acknowledged_after(now_s)) >= count, limit_s)

    # The end

    def mend(self) -> None:
        """Take every fault back: all hosts reach each other, all processes run."""
        self.network.heal()
        for node in self.nodes:
            node.thaw()
            node.start()

    def held(self) -> Queues:
        """What the survivors answer for, read through the route."""
        return self.client.run(lambda: asyncio.run(read_queues(self.namesrv_endpoint, TOPIC)))

    def verdict(self) -> Verdict:
        return judge(self.events(), self.held())


def endpoints(addresses: Sequence[tuple[str, int]]) -> str:
    return ";".join("{}:{}".format(*address) for address in addresses)
