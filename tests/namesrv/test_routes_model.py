"""The tables against a simple model: any history of registrations, removals and silences leaves both the same.

The model keeps RocketMQ's own shape (topic → broker name → row) and looks through everything on every removal, which is
slow and easy to believe.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bolide.errors import Refusal
from bolide.namesrv.entries import QueueRow
from bolide.namesrv.routes import RouteTables
from tests.namesrv.brokers import announce

names = st.sampled_from(["a", "b"])
ids = st.integers(0, 2)
addresses = st.sampled_from(["x:1", "y:1", "z:1"])
clusters = st.sampled_from(["C1", "C2"])
topics = st.sampled_from(["T1", "T2", "T3"])
rows = st.builds(QueueRow, st.integers(1, 2), st.just(1), st.sampled_from([4, 6]))
tables_of_topics = st.dictionaries(topics, rows, max_size=3)
connections = st.sampled_from(["c1", "c2"])
flags = st.sampled_from([None, False, True])


class Model:
    """RocketMQ's tables in RocketMQ's shape."""

    def __init__(self) -> None:
        self.queues: dict[str, dict[str, QueueRow]] = {}
        self.brokers: dict[str, dict[str, Any]] = {}
        self.clusters: dict[str, set[str]] = {}
        self.live: dict[tuple[str, str], dict[str, Any]] = {}

    def register(self, said: Any, now_ms: int) -> str:
        broker = self.brokers.get(said.name, {"addresses": {}})
        seats = {id_: at for id_, at in broker["addresses"].items() if at != said.address or id_ == said.broker_id}
        holder = seats.get(said.broker_id)
        if holder and holder != said.address:
            other = self.live.get((said.cluster, holder))
            if other and other["version"].state_version > said.version.state_version:
                live = self.live.pop(said.key, {"name": said.name})
                for name in {said.name, live["name"]}:
                    self.vacate(name, said.address)
                return "ignored"
        if holder is None and len(said.topics) == 1:
            return "refused"
        self.clusters.setdefault(said.cluster, set()).add(said.name)
        seats[said.broker_id] = said.address
        self.brokers[said.name] = {
            "cluster": broker.get("cluster", said.cluster),
            "addresses": seats,
            "acting": said.acting_master is True,
        }
        spoke_for = self.live.get(said.key, {"name": said.name})["name"]
        if spoke_for != said.name:
            del self.live[said.key]
            self.vacate(spoke_for, said.address)
        is_prime = said.broker_id != 0 and said.acting_master is not None and said.broker_id == min(seats)
        if said.broker_id == 0 or is_prime:
            known = self.live.get(said.key)
            is_changed = holder is None or known is None or known["version"] != said.version
            for topic, row in said.topics.items():
                if is_changed or said.name not in self.queues.get(topic, {}):
                    perm = row.perm & ~2 if is_prime and said.acting_master else row.perm
                    self.queues.setdefault(topic, {})[said.name] = row.with_perm(perm)
        self.live[said.key] = {
            "name": said.name,
            "heard": now_ms,
            "version": said.version,
            "connection": said.connection,
            "timeout": said.timeout_ms,
        }
        return "registered"

    def remove(self, cluster: str, name: str, address: str, is_goodbye: bool = False) -> None:
        live = self.live.pop((cluster, address), None)
        name = live["name"] if live else name
        if is_goodbye or not any(at == address and entry["name"] == name for (_, at), entry in self.live.items()):
            self.vacate(name, address)

    def vacate(self, name: str, address: str) -> None:
        broker = self.brokers.get(name)
        if broker is None:
            return
        before = broker["addresses"]
        broker["addresses"] = {id_: at for id_, at in before.items() if at != address}
        if not broker["addresses"]:
            del self.brokers[name]
            self.clusters = {
                cluster: members - {name} for cluster, members in self.clusters.items() if members - {name}
            }
            self.queues = {
                topic: {broker: row for broker, row in kept.items() if broker != name}
                for topic, kept in self.queues.items()
                if kept.keys() - {name}
            }
        elif broker["addresses"] != before and broker["acting"] and 0 not in broker["addresses"]:
            for kept in self.queues.values():
                if name in kept:
                    kept[name] = kept[name].without_write()


class TablesMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.stale: set[str] = set()
        self.tables = RouteTables(self.stale.update)
        self.model = Model()
        self.now_ms = 0
        self.shown: dict[str, Any] = {}

    @rule(
        name=names,
        id_=ids,
        address=addresses,
        cluster=clusters,
        topics=tables_of_topics,
        counter=st.integers(1, 2),
        state=st.integers(0, 1),
        connection=connections,
        acting=flags,
        timeout_ms=st.sampled_from([10_000, 120_000]),
    )
    def register(self, name, id_, address, cluster, topics, counter, state, connection, acting, timeout_ms):  # type: ignore[no-untyped-def]
        said = announce(
            name,
            id_,
            topics,
            address=address,
            cluster=cluster,
            counter=counter,
            state=state,
            connection=connection,
            acting_master=acting,
            timeout_ms=timeout_ms,
        )
        expected = self.model.register(said, self.now_ms)
        try:
            enrolled = self.tables.register(said, self.now_ms)
            assert expected == ("ignored" if enrolled.is_ignored else "registered")
        except Refusal:
            assert expected == "refused"

    @rule(name=names, address=addresses, cluster=clusters)
    def unregister(self, name: str, address: str, cluster: str) -> None:
        self.model.remove(cluster, name, address, is_goodbye=True)
        self.tables.unregister(cluster, name, address, self.now_ms)

    @rule(connection=connections)
    def close(self, connection: str) -> None:
        for (cluster, address), entry in list(self.model.live.items()):
            if entry["connection"] == connection:
                self.model.remove(cluster, entry["name"], address)
        self.tables.disconnect(connection, self.now_ms)

    @rule(passed_ms=st.sampled_from([1_000, 10_001, 120_001]))
    def scan(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        for (cluster, address), entry in list(self.model.live.items()):
            if entry["heard"] + entry["timeout"] < self.now_ms:
                self.model.remove(cluster, entry["name"], address)
        self.tables.expire(self.now_ms)

    @rule(name=names)
    def wipe(self, name: str) -> None:
        for kept in self.model.queues.values():
            if name in kept:
                kept[name] = kept[name].without_write()
        self.tables.wipe_write(name)

    @rule(topic=topics)
    def delete(self, topic: str) -> None:
        self.model.queues.pop(topic, None)
        self.tables.delete_topic(topic)

    @invariant()
    def both_say_the_same(self) -> None:
        tables, model = self.tables, self.model
        queues = {
            topic: {name: tables.queues[name][topic] for name in brokers} for topic, brokers in tables.topics.items()
        }
        assert queues == model.queues
        assert sum(len(rows) for rows in tables.queues.values()) == sum(len(kept) for kept in queues.values())
        assert all(tables.queues.values())
        assert {name: (broker.cluster, broker.addresses) for name, broker in tables.brokers.items()} == {
            name: (broker["cluster"], broker["addresses"]) for name, broker in model.brokers.items()
        }
        assert tables.clusters == model.clusters
        assert {key: (live.name, live.heard_ms, live.connection) for key, live in tables.live.items()} == {
            key: (entry["name"], entry["heard"], entry["connection"]) for key, entry in model.live.items()
        }
        assert {(connection, key) for connection, keys in tables._carried.items() for key in keys} == {
            (live.connection, key) for key, live in tables.live.items()
        }

    @invariant()
    def everyone_who_is_routed_is_heard_of(self) -> None:
        heard = {(live.name, address) for (_, address), live in self.tables.live.items()}
        seats = {
            (name, address) for name, broker in self.tables.brokers.items() for address in broker.addresses.values()
        }
        assert seats <= heard
        assert set().union(*self.tables.clusters.values()) == self.tables.brokers.keys()

    @invariant()
    def no_route_changes_unless_it_was_told(self) -> None:
        shown = {
            topic: [
                (name, self.tables.queues[name][topic], dict(self.tables.brokers[name].addresses)) for name in brokers
            ]
            for topic, brokers in self.tables.topics.items()
        }
        changed = {topic for topic in shown.keys() | self.shown.keys() if shown.get(topic) != self.shown.get(topic)}
        assert changed <= self.stale
        self.stale.clear()
        self.shown = shown


TestTables = TablesMachine.TestCase
TestTables.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
