"""The client for callers without a loop, against a real broker in this process."""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import bolide
from bolide.client.blocking.loop import background_loop
from bolide.testing import Cluster, cluster

WAIT_S = 60.0


@pytest.fixture(scope="module")
def rocket() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


@pytest.fixture
def producer(rocket: Cluster) -> Iterator[bolide.Producer]:
    with bolide.Producer("pg", rocket.namesrv, instance_name="") as opened:
        yield opened


def read(rocket: Cluster, topic: str, group: str, count: int, expression: str = "*") -> list[bolide.Received]:
    """The first messages of a topic, each acknowledged by going on."""
    taken: list[bolide.Received] = []
    oldest = bolide.StartFrom.oldest()
    with bolide.Consumer(group, {topic: expression}, rocket.namesrv, start_from=oldest) as consumer:
        for message in consumer:
            taken.append(message)
            if len(taken) == count:
                break
    return taken


@pytest.mark.feature("F095", "F078", "F089")
def test_what_is_sent_is_what_arrives(rocket: Cluster, producer: bolide.Producer) -> None:
    receipt = producer.send("Whole", b"body", tags="TagA", keys=["k1", "k2"], properties={"colour": "red"}, flag=7)
    (message,) = read(rocket, "Whole", "whole-cg", 1)
    assert (message.topic, message.body, message.tags, message.keys) == ("Whole", b"body", "TagA", ["k1", "k2"])
    assert message.properties["colour"] == "red"
    assert message.flag == 7
    assert (message.msg_id, message.offset_id) == (receipt.msg_id, receipt.offset_id)
    assert (message.queue, message.queue_offset) == (receipt.queue, receipt.queue_offset)
    assert message.born_at <= message.stored_at
    assert message.attempt == 1


@pytest.mark.feature("F076")
def test_offsets_of_a_queue_begin_at_0_and_count_up(rocket: Cluster, producer: bolide.Producer) -> None:
    queue = producer.queues("Count")[0]
    assert [producer.send("Count", b"x", queue=queue).queue_offset for _ in range(3)] == [0, 1, 2]


@pytest.mark.feature("F098", "F281")
def test_messages_of_one_shard_share_a_queue_and_keep_their_order(rocket: Cluster, producer: bolide.Producer) -> None:
    receipts = [producer.send("Shards", str(n).encode(), shard="user-7") for n in range(20)]
    assert len({receipt.queue for receipt in receipts}) == 1
    assert [message.body for message in read(rocket, "Shards", "shards-cg", 20)] == [str(n).encode() for n in range(20)]


@pytest.mark.feature("F117")
def test_a_batch_is_one_queue_with_consecutive_offsets(rocket: Cluster, producer: bolide.Producer) -> None:
    receipts = producer.send_batch([bolide.Message("Batch", b"%d" % n, tags="T") for n in range(5)])
    assert len({receipt.queue for receipt in receipts}) == 1
    assert [receipt.queue_offset for receipt in receipts] == list(range(5))
    taken = read(rocket, "Batch", "batch-cg", 5)
    assert [message.msg_id for message in taken] == [receipt.msg_id for receipt in receipts]


def test_a_body_that_does_not_get_smaller_travels_as_it_is(rocket: Cluster) -> None:
    body = random.Random(7).randbytes((4 << 20) - 1000)  # compressed it would be larger than brokers take
    with bolide.Producer("pg", rocket.namesrv, timeout_s=20) as producer, bolide.Admin(rocket.namesrv) as admin:
        receipt = producer.send("Random", body)
        assert admin.message_at(receipt.offset_id).body == body


@pytest.mark.feature("F111")
@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
def test_large_bodies_travel_compressed_and_arrive_whole(rocket: Cluster, compression: str) -> None:
    topic = f"Large-{compression}"
    with bolide.Producer(f"large-{compression}", rocket.namesrv, compression=compression) as producer:
        producer.send(topic, b"x" * 4095)
        producer.send(topic, b"x" * 4096)
    taken = read(rocket, topic, f"large-{compression}-cg", 2)
    assert sorted(len(message.body) for message in taken) == [4095, 4096]
    assert sorted(message.stored.store_size < 1000 for message in taken) == [False, True]


@pytest.mark.feature("F097")
def test_a_oneway_send_arrives_too(rocket: Cluster, producer: bolide.Producer) -> None:
    producer.send_oneway("Oneway", b"quiet")
    assert [message.body for message in read(rocket, "Oneway", "oneway-cg", 1)] == [b"quiet"]


@pytest.mark.feature("F096")
def test_an_asynchronous_send_calls_back_in_another_thread(rocket: Cluster, producer: bolide.Producer) -> None:
    called = threading.Event()
    threads: list[str] = []

    def done(_: object) -> None:
        threads.append(threading.current_thread().name)
        called.set()

    future = producer.submit("Async", b"x")
    future.add_done_callback(done)
    assert future.result(WAIT_S).is_ok
    assert called.wait(WAIT_S)
    assert threading.current_thread().name not in threads


@pytest.mark.feature("F123")
def test_threads_share_a_producer_and_lose_nothing(rocket: Cluster, producer: bolide.Producer) -> None:
    receipts: list[bolide.Receipt] = []

    def send(number: int) -> None:
        receipts.extend([producer.send("Threads", f"{number}-{n}".encode()) for n in range(25)])

    threads = [threading.Thread(target=send, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert len({receipt.msg_id for receipt in receipts}) == 500
    bodies = {message.body for message in read(rocket, "Threads", "threads-cg", 500)}
    assert len(bodies) == 500


@pytest.mark.feature("F266", "F273")
def test_tags_that_share_a_hash_are_told_apart(rocket: Cluster, producer: bolide.Producer) -> None:
    for tags in ("Aa", "BB", "Cc", "BB"):
        producer.send("Tags", tags.encode(), tags=tags, shard="one")
    assert [message.body for message in read(rocket, "Tags", "tags-cg", 2, "BB")] == [b"BB", b"BB"]


@pytest.mark.feature("F235")
def test_a_message_whose_handling_failed_comes_again_and_one_gone_by_does_not(
    rocket: Cluster, producer: bolide.Producer
) -> None:
    for number in range(3):
        producer.send("Again", b"%d" % number, shard="one")
    oldest = bolide.StartFrom.oldest()

    def handle(message: bolide.Received) -> None:
        if message.body == b"1":
            raise ZeroDivisionError

    def consume() -> None:
        with bolide.Consumer("again-cg", "Again", rocket.namesrv, start_from=oldest) as consumer:
            for message in consumer:
                handle(message)

    with pytest.raises(ZeroDivisionError):
        consume()
    assert [message.body for message in read(rocket, "Again", "again-cg", 2)] == [b"1", b"2"]


@pytest.mark.feature("F252")
def test_a_refused_message_is_handed_out_again_here(rocket: Cluster, producer: bolide.Producer) -> None:
    producer.send("Refused", b"x")
    attempts: list[int] = []
    oldest = bolide.StartFrom.oldest()
    with bolide.Consumer("refused-cg", "Refused", rocket.namesrv, start_from=oldest) as consumer:
        for message in consumer:
            attempts.append(message.attempt)
            if len(attempts) == 3:
                break
            message.nack(delay=0.05)
    assert attempts == [1, 2, 3]


def test_two_verdicts_on_one_message_are_a_mistake_that_is_told(rocket: Cluster, producer: bolide.Producer) -> None:
    producer.send("Twice", b"x")
    (message,) = read(rocket, "Twice", "twice-cg", 1)
    with pytest.raises(bolide.ClientError, match="verdict already: ack"):
        message.nack()


def test_closing_from_another_thread_ends_the_iteration(rocket: Cluster, producer: bolide.Producer) -> None:
    producer.send("Ending", b"x")
    consumer = bolide.Consumer("ending-cg", "Ending", rocket.namesrv, start_from=bolide.StartFrom.oldest())
    consumer.start()
    taken: list[bytes] = []

    def iterate() -> None:
        taken.extend(message.body for message in consumer)

    thread = threading.Thread(target=iterate)
    thread.start()
    deadline_s = time.monotonic() + WAIT_S
    while not taken and time.monotonic() < deadline_s:
        thread.join(0.01)
    consumer.close()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert taken == [b"x"]


@pytest.mark.feature("F209")
def test_a_paused_consumer_gets_nothing_until_it_goes_on(rocket: Cluster, producer: bolide.Producer) -> None:
    producer.send("Paused", b"before")
    with bolide.Consumer("paused-cg", "Paused", rocket.namesrv, start_from=bolide.StartFrom.oldest()) as consumer:
        (first,) = consumer.receive(1, WAIT_S)
        first.ack()
        consumer.pause()
        producer.send("Paused", b"after", queue=first.queue)
        assert consumer.receive(1, 0.2) == []
        consumer.resume()
        assert [message.body for message in consumer.receive(1, WAIT_S)] == [b"after"]


@pytest.mark.feature("F237")
def test_a_seek_delivers_again(rocket: Cluster, producer: bolide.Producer) -> None:
    producer.send("Seek", b"x")
    with bolide.Consumer("seek-cg", "Seek", rocket.namesrv, start_from=bolide.StartFrom.oldest()) as consumer:
        (message,) = consumer.receive(1, WAIT_S)
        message.ack()
        consumer.seek(message.queue, 0)
        assert [again.body for again in consumer.receive(1, WAIT_S)] == [b"x"]


def in_a_fork(work: Callable[[], str]) -> str:
    """What a child says of its work, or of what went wrong there."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, work().encode())
        except BaseException as problem:
            os.write(writer, repr(problem).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as told:
        said = told.read().decode()
    os.waitpid(child, 0)
    return said


def test_a_producer_that_was_opened_before_a_fork_works_in_the_child(
    rocket: Cluster, producer: bolide.Producer
) -> None:
    producer.send("Fork", b"before")

    def work() -> str:
        sent = producer.send("Fork", b"child")
        told = producer.submit("Fork", b"submitted").result(WAIT_S)
        producer.close()
        return f"{sent.msg_id} {told.msg_id}"

    of_child = in_a_fork(work).split()
    own = producer.send("Fork", b"after")
    assert len({*of_child, own.msg_id}) == 3
    with bolide.Consumer("fork-cg", "Fork", rocket.namesrv, start_from=bolide.StartFrom.oldest()) as consumer:
        bodies: list[bytes] = []
        while len(bodies) < 4:
            bodies += [message.body for message in consumer.receive(4, WAIT_S)]
    assert sorted(bodies) == [b"after", b"before", b"child", b"submitted"]


def test_what_was_only_made_before_a_fork_opens_in_the_child(rocket: Cluster, producer: bolide.Producer) -> None:
    producer.send("Forked", b"x")
    made = bolide.Producer("made-pg", rocket.namesrv)
    group = bolide.Consumer("made-cg", "Forked", rocket.namesrv, start_from=bolide.StartFrom.oldest())

    def work() -> str:
        with made, group:
            made.send("Forked", b"y")
            return str(len(group.receive(1, WAIT_S)))

    assert in_a_fork(work) == "1"


def test_a_consumer_that_was_opened_before_a_fork_says_so_in_the_child_and_closes_nothing_there(
    rocket: Cluster, producer: bolide.Producer
) -> None:
    producer.send("ForkRead", b"x")
    with bolide.Consumer("read-cg", "ForkRead", rocket.namesrv, start_from=bolide.StartFrom.oldest()) as consumer:

        def work() -> str:
            consumer.close()
            try:
                consumer.receive(1, WAIT_S)
            except bolide.ClientError as problem:
                return str(problem)
            return "received"

        assert "a fork of it" in in_a_fork(work)
        assert [message.body for message in consumer.receive(1, WAIT_S)] == [b"x"]


def test_a_blocking_call_inside_our_own_loop_is_refused(producer: bolide.Producer) -> None:
    async def inside() -> None:
        producer.send("Inside", b"x")

    with pytest.raises(bolide.ClientError, match=r"use bolide\.aio"):
        background_loop().run(inside())


def test_an_unreachable_name_server_is_named_with_the_command_that_starts_one() -> None:
    started_s = time.monotonic()
    with (
        bolide.Producer("pg-lost", "127.0.0.1:1") as producer,
        pytest.raises(bolide.BolideError, match=r"127\.0\.0\.1:1.*bolide up"),
    ):
        producer.send("Lost", b"x")
    assert time.monotonic() - started_s < 30


def test_no_name_server_at_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(bolide.ClientError, match="NAMESRV_ADDR"):
        bolide.Producer("pg-none")


def test_the_environment_names_the_name_server(rocket: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", rocket.namesrv)
    with bolide.Producer("pg-env") as producer:
        assert producer.send("Environment", b"x").is_ok


@pytest.mark.feature("F105", "F099")
@pytest.mark.parametrize(
    ("topic", "body", "why"),
    [
        ("T", b"", "body is empty"),
        ("a topic", b"x", "holds ' '"),
        ("", b"x", "blank"),
        ("SCHEDULE_TOPIC_XXXX", b"x", "belongs to the brokers"),
        ("T", b"x" * (4 << 20) + b"x", "at most 4194304"),
    ],
)
def test_what_no_broker_takes_is_refused_before_it_leaves(
    producer: bolide.Producer, topic: str, body: bytes, why: str
) -> None:
    with pytest.raises(bolide.ClientError, match=why) as refused:
        producer.send(topic, body)
    assert refused.value.code == 13


@pytest.mark.parametrize("properties", [{"TAGS": "x"}, {"a": ""}, {"": "a"}])
def test_properties_need_names_of_their_own_and_values(producer: bolide.Producer, properties: dict[str, str]) -> None:
    with pytest.raises(bolide.ClientError, match="property"):
        producer.send("T", b"x", properties=properties)


@pytest.mark.feature("F099")
@pytest.mark.parametrize("group", ["", "a b", "DEFAULT_PRODUCER"])
def test_a_group_needs_a_name_of_its_own(group: str) -> None:
    with pytest.raises(bolide.ClientError):
        bolide.Producer(group, "127.0.0.1:9876")
