"""Our client at Apache's name server and broker: every way to send, to consume and to look, of both lines.

`--broker bolide` is the default of other scenarios; here the servers are always Java's, because it is the client that
is examined.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bolide
from bolide.remoting.config import ConnectConfig
from interop.certificates import make_certificate
from interop.clients import JavaAgent, java_agent
from interop.cluster import LARGE, Station, java_broker, java_name_server, java_station, known_endpoints
from interop.process import await_that
from interop.release import CLIENT_RELEASES, SERVER_RELEASES

TIMEOUT_S = 40.0
OLDEST = bolide.StartFrom.oldest()


@pytest.fixture(scope="module", params=SERVER_RELEASES)
def apache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    with java_station(tmp_path_factory.mktemp(f"apache-{request.param}"), request.param) as station:
        yield station


@pytest.fixture
def producer(apache: Station) -> Iterator[bolide.Producer]:
    with bolide.Producer("py-producers", apache.name_servers) as opened:
        yield opened


class Reader:
    """A consumer in a thread, and what it took."""

    def __init__(self, consumer: bolide.Consumer, act: Callable[[bolide.Received], None] | None = None) -> None:
        self.consumer = consumer
        self.taken: list[bolide.Received] = []
        self._act = act
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        for message in self.consumer:
            if self._act is not None:
                self._act(message)
            self.taken.append(message)

    def __enter__(self) -> "Reader":
        self.consumer.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close()
        self._thread.join(TIMEOUT_S)

    @property
    def bodies(self) -> list[str]:
        return [message.body.decode() for message in self.taken]

    @property
    def queues(self) -> set[int]:
        return {queue.queue_id for queue in self.consumer.queues if not queue.topic.startswith("%")}

    def await_bodies(self, expected: set[str]) -> None:
        await_that(f"{len(expected)} messages", lambda: expected <= set(self.bodies), TIMEOUT_S)


def reader(apache: Station, group: str, topic: str, tags: str = "*", **options: object) -> Reader:
    act = options.pop("act", None)
    options.setdefault("start_from", OLDEST)
    return Reader(bolide.Consumer(group, {topic: tags}, apache.name_servers, **options), act)  # type: ignore[arg-type]


@pytest.mark.short
@pytest.mark.feature("F003", "F095", "F097")
def test_every_way_to_send_arrives_once_and_whole(apache: Station, producer: bolide.Producer) -> None:
    topic = apache.make_topic("PyWays")
    receipts = [producer.send(topic, b"sync", tags="A", keys=["k1", "k2"], properties={"colour": "red"}, flag=5)]
    receipts.append(producer.submit(topic, b"async").result(TIMEOUT_S))
    producer.send_oneway(topic, b"oneway")
    receipts += producer.send_batch([bolide.Message(topic, f"batch-{number}".encode()) for number in range(10)])
    receipts += [producer.send(topic, f"shard-{number}".encode(), shard="user-7") for number in range(10)]
    expected = {"sync", "async", "oneway"} | {f"{kind}-{number}" for kind in ("batch", "shard") for number in range(10)}
    for compression in ("zlib", "lz4", "zstd"):
        with bolide.Producer(f"py-{compression}", apache.name_servers, compression=compression) as packing:
            receipts.append(packing.send(topic, compression.encode() * 2000))
        expected.add(compression * 2000)
    with reader(apache, "py-ways", topic) as found:
        found.await_bodies(expected)
    assert Counter(found.bodies) == Counter(expected)
    by_id = {message.msg_id: message for message in found.taken}
    for receipt in receipts:
        message = by_id[receipt.msg_id]
        assert (message.queue, message.queue_offset) == (receipt.queue, receipt.queue_offset)
    whole = by_id[receipts[0].msg_id]
    assert (whole.tags, whole.keys, whole.properties["colour"], whole.flag) == ("A", ["k1", "k2"], "red", 5)
    sharded = [message for message in found.taken if message.body.startswith(b"shard")]
    assert len({message.queue for message in sharded}) == 1
    assert [message.body for message in sharded] == [f"shard-{number}".encode() for number in range(10)]


@pytest.mark.short
@pytest.mark.feature("F085", "F093", "F092")
def test_messages_are_found_by_key_by_id_and_by_tag(apache: Station, producer: bolide.Producer) -> None:
    topic = apache.make_topic("PyFind")
    receipt = producer.send(topic, b"sought", keys=["order-1", "customer-2"], tags="Aa")
    producer.send(topic, b"other", keys=["order-2"], tags="BB")
    producer.send(topic, b"third", tags="C")
    with bolide.Admin(apache.name_servers) as admin:
        await_that("the index has it", lambda: bool(admin.messages_by_key(topic, "customer-2")), TIMEOUT_S)
        assert [message.body for message in admin.messages_by_key(topic, "order-1")] == [b"sought"]
        assert [message.body for message in admin.messages_by_id(topic, receipt.msg_id)] == [b"sought"]
        assert admin.message_at(receipt.offset_id).body == b"sought"
        assert admin.messages_by_key(topic, "order-9") == []
    with reader(apache, "py-find", topic, "Aa || C") as found:
        found.await_bodies({"sought", "third"})
    assert sorted(found.bodies) == ["sought", "third"]


@pytest.mark.feature("F229")
def test_a_refused_message_comes_again_and_a_dead_one_lies_with_the_dead(
    apache: Station, producer: bolide.Producer
) -> None:
    topic = apache.make_topic("PyAgain", 1)
    for name in ("fine", "later", "never"):
        producer.send(topic, name.encode())
    attempts: list[tuple[bytes, int, str]] = []

    def judge(message: bolide.Received) -> None:
        attempts.append((message.body, message.attempt, message.topic))
        if message.body == b"later" and message.attempt == 1:
            message.nack(delay=1)
        if message.body == b"never":
            message.dead_letter("cannot be done")

    with reader(apache, "py-again", topic, act=judge):
        await_that("the retry", lambda: (b"later", 2, topic) in attempts, TIMEOUT_S)
    assert sorted(attempts) == [(b"fine", 1, topic), (b"later", 1, topic), (b"later", 2, topic), (b"never", 1, topic)]
    with bolide.PullConsumer("py-dead", apache.name_servers) as walker:
        (queue,) = await_that("the dead letters", lambda: _queues(walker, "%DLQ%py-again"), TIMEOUT_S)
        assert [message.body for message in walker.pull(queue, 0).messages] == [b"never"]


def _queues(walker: bolide.PullConsumer, topic: str) -> list[bolide.MessageQueue]:
    try:
        return walker.queues(topic)
    except bolide.ClientError:
        return []


@pytest.mark.feature("F280", "F282")
def test_ordered_consumption_keeps_the_order_through_refusals_and_a_second_member(
    apache: Station, producer: bolide.Producer
) -> None:
    topic = apache.make_topic("PyOrder", 4)
    seen: dict[int, list[int]] = {number: [] for number in range(4)}

    def judge(message: bolide.Received) -> None:
        if message.queue_offset % 5 == 0 and message.attempt == 1:
            message.nack(delay=0.1)
            return
        seen[message.queue.queue_id].append(message.queue_offset)

    def send(count: int) -> None:
        for queue in producer.queues(topic):
            for _ in range(count):
                producer.send(topic, b"x", queue=queue)

    send(15)
    with reader(apache, "py-order", topic, ordered=True, act=judge):
        await_that("the first", lambda: all(len(offsets) >= 10 for offsets in seen.values()), TIMEOUT_S)
        with reader(apache, "py-order", topic, ordered=True, act=judge) as second:
            await_that("the second owns some", lambda: len(second.queues) == 2, TIMEOUT_S)
            send(15)
            await_that("all", lambda: all(set(offsets) == set(range(30)) for offsets in seen.values()), TIMEOUT_S)
    for offsets in seen.values():
        assert list(dict.fromkeys(offsets)) == list(range(30))


def test_broadcasting_gives_everything_to_each_and_goes_on_after_a_restart(
    apache: Station, producer: bolide.Producer, tmp_path: Path
) -> None:
    topic = apache.make_topic("PyBroadcast")
    first = {f"first-{number}" for number in range(20)}
    for body in sorted(first):
        producer.send(topic, body.encode())
    line: dict[str, Any] = {"broadcasting": True, "offsets_directory": tmp_path}
    with (
        reader(apache, "py-cast", topic, instance_name="a", **line) as a,
        reader(apache, "py-cast", topic, instance_name="b", **line) as b,
    ):
        a.await_bodies(first)
        b.await_bodies(first)
    assert Counter(a.bodies) == Counter(b.bodies) == Counter(first)
    producer.send(topic, b"second")
    with reader(apache, "py-cast", topic, instance_name="a", **line) as again:
        again.await_bodies({"second"})
    assert again.bodies == ["second"]


@pytest.mark.feature("F211", "F237")
def test_walking_queues_and_resetting_a_group(apache: Station, producer: bolide.Producer) -> None:
    topic = apache.make_topic("PyWalk", 2)
    bodies = {f"message-{number}" for number in range(20)}
    for body in sorted(bodies):
        producer.send(topic, body.encode())
    with bolide.PullConsumer("py-walk", apache.name_servers) as walker:
        found = []
        for queue in walker.queues(topic):
            pulled = walker.pull(queue, walker.min_offset(queue))
            found += [message.body.decode() for message in pulled.messages]
            assert pulled.next_offset == walker.max_offset(queue) == 10
            assert walker.pull(queue, 10).status is bolide.PullStatus.NO_NEW_MSG
            assert walker.committed(queue) in (None, 0)
            walker.commit(queue, 7)
            assert walker.committed(queue) == 7
    assert Counter(found) == Counter(bodies)
    with reader(apache, "py-reset", topic) as member, bolide.Admin(apache.name_servers) as admin:
        member.await_bodies(bodies)
        member.consumer.commit()
        admin.reset_group("py-reset", topic, 0)
        await_that("everything a second time", lambda: len(member.taken) >= 40, TIMEOUT_S)
        assert Counter(member.bodies) == Counter(dict.fromkeys(bodies, 2))
        assert sum(row.behind for row in admin.group_progress("py-reset")) >= 0


@pytest.fixture(scope="module")
def java(apache: Station, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaAgent]:
    with java_agent(tmp_path_factory.mktemp("agent"), CLIENT_RELEASES[-1], apache.name_servers) as agent:
        yield agent


@pytest.mark.short
@pytest.mark.feature("F203", "F224")
def test_a_group_of_our_consumers_and_javas_shares_the_queues_while_members_come_and_go(
    apache: Station, producer: bolide.Producer, java: JavaAgent
) -> None:
    topic, group = apache.make_topic("PyMixed", 8), "py-mixed"
    sent: set[str] = set()

    def send(prefix: str) -> None:
        for number in range(40):
            producer.send(topic, f"{prefix}-{number}".encode())
            sent.add(f"{prefix}-{number}")

    def java_queues() -> set[int]:
        held = java.do("assigned", name="mixed", topic=topic)
        return {int(part.rpartition(":")[2]) for part in held.split(",") if part}

    def is_shared(*ours: Reader, with_java: bool) -> bool:
        shares = [member.queues for member in ours] + ([java_queues()] if with_java else [])
        return sorted(number for share in shares for number in share) == list(range(8)) and all(shares)

    with reader(apache, group, topic) as first:
        send("alone")
        java.do("push", name="mixed", group=group, topic=topic)
        await_that("two share", lambda: is_shared(first, with_java=True), TIMEOUT_S)
        send("two")
        with reader(apache, group, topic) as second:
            await_that("three share", lambda: is_shared(first, second, with_java=True), TIMEOUT_S)
            send("three")
            java.do("stop", name="mixed")
            await_that("ours share", lambda: is_shared(first, second, with_java=False), TIMEOUT_S)
            send("ours")
        await_that("one has all", lambda: is_shared(first, with_java=False), TIMEOUT_S)
        send("one")

        def counts() -> Counter[str]:
            theirs = [event["body"] for event in java.received("mixed")]
            return Counter([*first.bodies, *second.bodies, *theirs])

        await_that("everything arrived", lambda: set(counts()) == sent, TIMEOUT_S)
        # Handing over, a Java member may tell its progress after the next owner has begun.
        repeated = {body: count for body, count in counts().items() if count > 1}
        print(f"delivered twice while queues changed hands: {len(repeated)} of {len(sent)}")
        assert len(repeated) <= len(sent) // 4
        assert len(java.received("mixed")) > 10


def test_javas_tools_see_our_consumers(apache: Station, producer: bolide.Producer, java: JavaAgent) -> None:
    topic = apache.make_topic("PySeen")
    with reader(apache, "py-seen", topic) as member:
        producer.send(topic, b"seen")
        member.await_bodies({"seen"})
        member.consumer.commit()
        with bolide.Admin(apache.name_servers) as admin:
            found = admin.members("py-seen")
        assert found is not None
        (client_id,) = (one.client_id for one in found.connection_set)
        assert client_id in java.admin("consumerStatus", "-g", "py-seen")
        running = java.admin("consumerStatus", "-g", "py-seen", "-i", client_id)
        assert "PROP_CONSUMER_START_TIMESTAMP" in running
        assert topic in running


@pytest.mark.short
def test_a_broker_with_access_control_takes_whom_it_knows(tmp_path: Path) -> None:
    """ACL 1.0, as 4.9 has it."""
    (tmp_path / "plain_acl.yml").write_text(
        "accounts:\n- accessKey: PythonClient\n  secretKey: '12345678'\n  admin: true\n"
    )
    release = SERVER_RELEASES[0]
    jvm = (*LARGE, "-Drocketmq.acl.plain.file=../plain_acl.yml")  # as seen from the home of the broker
    with (
        java_name_server(tmp_path, release) as server,
        java_broker(tmp_path, release, server.endpoint, {"aclEnable": True}, jvm) as broker,
    ):
        broker.await_route(server)
        known = bolide.Credentials(access_key="PythonClient", secret_key="12345678")
        with bolide.Producer("acl-pg", server.endpoint, credentials=known) as producer:
            producer.send("Guarded", b"known")
            producer.submit("Guarded", b"by the loop").result(TIMEOUT_S)
        with bolide.Consumer("acl-cg", "Guarded", server.endpoint, start_from=OLDEST, credentials=known) as consumer:
            taken: list[bytes] = []
            limit_s = time.monotonic() + TIMEOUT_S
            while len(taken) < 2 and time.monotonic() < limit_s:
                taken += [message.body for message in consumer.receive(2, 5)]
            assert sorted(taken) == [b"by the loop", b"known"]
        wrong = bolide.Credentials(access_key="PythonClient", secret_key="87654321")
        for credentials in (None, wrong):
            with (
                pytest.raises(bolide.ClientError, match=r"(?i)accesskey|signature|acl|account"),
                bolide.Producer("acl-pg", server.endpoint, credentials=credentials) as stranger,  # wrong: refused here
            ):
                stranger.send("Guarded", b"unknown")


@pytest.mark.parametrize("release", SERVER_RELEASES)
def test_all_of_it_over_tls(release: str, tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    jvm = (
        *LARGE,
        "-Dtls.server.mode=enforcing",
        "-Dtls.test.mode.enable=false",
        f"-Dtls.server.certPath={made.certificate}",
        f"-Dtls.server.keyPath={made.key}",
    )
    with (
        java_name_server(tmp_path, release) as server,
        java_broker(tmp_path, release, server.endpoint, jvm=jvm) as broker,
    ):
        # It cannot be asked to hurry: that is asked in plain.
        await_that("the broker is known", lambda: broker.endpoint in known_endpoints(server), TIMEOUT_S)
        connect = ConnectConfig(is_tls=True)
        # The name server of this scenario speaks plain and TLS, the broker TLS alone.
        with bolide.Producer("tls-pg", server.endpoint, connect=connect) as producer:
            producer.send("Secret", b"quiet")
        with bolide.Consumer("tls-cg", "Secret", server.endpoint, start_from=OLDEST, connect=connect) as consumer:
            assert [message.body for message in consumer.receive(1, TIMEOUT_S)] == [b"quiet"]
