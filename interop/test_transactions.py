"""Transactions across the two: RocketMQ's transactional producers at our broker, ours at Apache's brokers, and stores
with open transactions that change hands.

A body says how its transaction ends, at its sender and when a broker asks: `unknown-commit-7`.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import bolide
from interop.clients import JavaClient, java_client
from interop.cluster import Station, bolide_broker, bolide_name_server, bolide_up, java_broker
from interop.process import await_that, free_port
from interop.release import CLIENT_RELEASES, SERVER_RELEASES

TIMEOUT_S = 60.0
QUICK = {"transactionCheckInterval": 1000, "transactionTimeOut": 1000}
# Files of one size, whoever opens the store.
FILES = {"mappedFileSizeConsumeQueue": 20_000, "maxHashSlotNum": 1000, "maxIndexNum": 4000}
OUTCOMES = {"commit": bolide.Outcome.COMMIT, "rollback": bolide.Outcome.ROLLBACK}
OLDEST = bolide.StartFrom.oldest()


class Checked:
    """A checker that goes by the body, and what it was asked."""

    def __init__(self) -> None:
        self.bodies: list[str] = []

    def __call__(self, message: bolide.StoredMessage) -> bolide.Outcome:
        body = message.body.decode()
        self.bodies.append(body)
        return OUTCOMES.get(body.split("-")[1], bolide.Outcome.UNKNOWN)


def transact(producer: bolide.TransactionProducer, topic: str, *bodies: str) -> None:
    for body in bodies:
        with producer.transaction(topic, body.encode(), keys=body) as transaction:
            word = body.split("-")[0]
            if word == "rollback":
                transaction.rollback()
            elif word == "unknown":
                transaction.unknown()


@contextmanager
def consuming(name_servers: str, topic: str) -> Iterator[list[str]]:
    """The bodies that a consumer gets, as they come."""
    taken: list[str] = []
    consumer = bolide.Consumer(f"reads-{topic}", topic, name_servers, start_from=OLDEST)

    def gather() -> None:
        nonlocal taken
        for message in consumer:
            taken += [message.body.decode()]

    thread = threading.Thread(target=gather, daemon=True)
    with consumer:
        thread.start()
        yield taken
    thread.join(TIMEOUT_S)


def await_bodies(taken: list[str], *expected: str) -> None:
    await_that(f"{expected} of {taken}", lambda: set(expected) <= set(taken), TIMEOUT_S)


@contextmanager
def java_transact(
    directory: Path, release: str, station: Station, topic: str, *bodies: str, group: str = "transfers"
) -> Iterator[JavaClient]:
    arguments: dict[str, object] = {"namesrv": station.name_servers, "group": group, "topic": topic}
    with java_client(directory, release, "Transact", arguments | {"bodies": ",".join(bodies)}) as client:
        client.program.await_output('"done"', TIMEOUT_S)
        yield client


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    with bolide_up(tmp_path_factory.mktemp("quick"), QUICK) as station:
        yield station


@pytest.mark.short
@pytest.mark.feature("F292", "F293", "F294")
@pytest.mark.parametrize("release", CLIENT_RELEASES)
def test_a_java_producer_commits_rolls_back_and_is_asked(release: str, quick: Station, tmp_path: Path) -> None:
    topic = quick.make_topic(f"Transact-{release.replace('.', '-')}")
    bodies = ("commit-x-0", "rollback-x-1", "unknown-commit-2", "unknown-rollback-3", "unknown-later-4")
    group = f"transfers-{release.replace('.', '-')}"
    with (
        java_transact(tmp_path, release, quick, topic, *bodies, group=group) as producer,
        consuming(quick.name_servers, topic) as taken,
    ):
        sent = {event["body"]: event for event in producer.events("sent")}
        assert {event["status"] for event in sent.values()} == {"SEND_OK"}
        await_bodies(taken, "commit-x-0", "unknown-commit-2")

        def later_count() -> int:
            return sum(event["body"] == "unknown-later-4" for event in producer.events("checked"))

        await_that("asked twice", lambda: later_count() >= 2, TIMEOUT_S)
        asked = producer.events("checked")
        assert {event["body"] for event in asked} == set(bodies[2:])
        assert {event["topic"] for event in asked} == {topic}
        assert all(event["transaction"] == sent[event["body"]]["transaction"] for event in asked)
        assert [event["times"] for event in asked if event["body"] == bodies[4]][:2] == ["1", "2"]
        assert [event["body"] for event in asked if event["body"] == bodies[2]] == [bodies[2]]
        assert sorted(taken) == ["commit-x-0", "unknown-commit-2"]


@pytest.mark.feature("F298")
@pytest.mark.parametrize("release", CLIENT_RELEASES)
def test_a_java_mate_answers_for_a_sender_that_was_killed(release: str, quick: Station, tmp_path: Path) -> None:
    topic = quick.make_topic(f"Killed-{release.replace('.', '-')}")
    group = f"killed-{release.replace('.', '-')}"
    # A 5.x producer that never sent anything knows no broker, and none asks it.
    with java_transact(tmp_path, release, quick, topic, "commit-x-9", group=group) as mate:
        with java_transact(tmp_path, release, quick, topic, "unknown-commit-0", group=group) as sender:
            sender.program.signal(signal.SIGKILL)
        with consuming(quick.name_servers, topic) as taken:
            await_bodies(taken, "unknown-commit-0")
        assert "unknown-commit-0" in {event["body"] for event in mate.events("checked")}


@pytest.mark.feature("F292", "F294", "F298")
@pytest.mark.parametrize("release", SERVER_RELEASES)
def test_our_producer_at_a_java_broker_commits_rolls_back_and_is_asked(release: str, tmp_path: Path) -> None:
    checked, mate_checked = Checked(), Checked()
    with (
        bolide_name_server(tmp_path) as server,
        java_broker(tmp_path, release, server.endpoint, {**QUICK, "transactionOpBatchInterval": 200}) as broker,
    ):
        broker.await_route(server)
        with bolide.TransactionProducer("transfers", server.endpoint, checker=checked) as producer:
            transact(producer, "Ours", "commit-x-0", "rollback-x-1", "unknown-commit-2", "unknown-rollback-3")
            with consuming(server.endpoint, "Ours") as taken:
                await_bodies(taken, "commit-x-0", "unknown-commit-2")
            await_that(
                "asked of both", lambda: {"unknown-commit-2", "unknown-rollback-3"} <= set(checked.bodies), TIMEOUT_S
            )
            assert set(taken) == {"commit-x-0", "unknown-commit-2"}
            transact(producer, "Ours", "unknown-commit-4")
        with (
            bolide.TransactionProducer("transfers", server.endpoint, checker=mate_checked),
            consuming(server.endpoint, "Ours") as taken,
        ):
            await_bodies(taken, "unknown-commit-4")
        assert "unknown-commit-4" in mate_checked.bodies


def shared_store(root: Path) -> dict[str, object]:
    """A Java broker on our store: both spellings of each size, for 4.x and 5.x differ."""
    return {
        **FILES,
        "mapedFileSizeConsumeQueue": FILES["mappedFileSizeConsumeQueue"],
        "storePathRootDir": root,
        "storePathCommitLog": root / "commitlog",
        "diskMaxUsedSpaceRatio": 95,
        "brokerName": "broker-b",
    }


@pytest.mark.feature("F296")
def test_a_java_broker_goes_on_with_the_open_transactions_of_our_store(tmp_path: Path) -> None:
    slow = {"transactionCheckInterval": 3_600_000}
    with bolide_name_server(tmp_path) as server:
        with bolide_broker(tmp_path, server.endpoint, {**FILES, **slow}) as ours:
            ours.make_topic("Handed")
            with bolide.TransactionProducer("transfers", server.endpoint, checker=Checked()) as producer:
                transact(producer, "Handed", "commit-x-0", "unknown-commit-1", "rollback-x-2", "unknown-rollback-3")
            root = next(tmp_path.glob("bolide-broker-*")) / "store"
            assert ours.program.stop() == 0
        checked = Checked()
        with (
            java_broker(tmp_path, "5.5.0", server.endpoint, {**shared_store(root), **QUICK}) as theirs,
        ):
            theirs.await_route(server)
            with (
                bolide.TransactionProducer("transfers", server.endpoint, checker=checked),
                consuming(server.endpoint, "Handed") as taken,
            ):
                await_bodies(taken, "commit-x-0", "unknown-commit-1")
                open_ones = {"unknown-commit-1", "unknown-rollback-3"}
                await_that(f"asked of both, not of {checked.bodies}", lambda: open_ones <= set(checked.bodies), 15)
    assert set(checked.bodies) == {"unknown-commit-1", "unknown-rollback-3"}
    assert set(taken) == {"commit-x-0", "unknown-commit-1"}


@pytest.mark.feature("F296")
@pytest.mark.parametrize("release", SERVER_RELEASES)
def test_our_broker_goes_on_with_the_open_transactions_of_a_java_store(release: str, tmp_path: Path) -> None:
    port = free_port(-2)
    root = tmp_path / f"bolide-broker-{port}" / "store"
    with bolide_name_server(tmp_path) as server:
        slow = {"transactionCheckInterval": 3_600_000, "transactionOpBatchInterval": 200}
        with java_broker(tmp_path, release, server.endpoint, {**shared_store(root), **slow}) as theirs:
            theirs.await_route(server)
            with bolide.TransactionProducer("transfers", server.endpoint, checker=Checked()) as producer:
                transact(producer, "Handed", "commit-x-0", "unknown-commit-1", "rollback-x-2", "unknown-rollback-3")
                with consuming(server.endpoint, "Handed") as taken:
                    await_bodies(taken, "commit-x-0")
            theirs.program.stop()
        checked = Checked()
        with (
            bolide_broker(tmp_path, server.endpoint, {**FILES, **QUICK}, port) as ours,
            bolide.TransactionProducer("transfers", server.endpoint, checker=checked),
            consuming(server.endpoint, "Handed") as again,
        ):
            assert ours.name == "broker-b"
            await_bodies(again, "unknown-commit-1")
            open_ones = {"unknown-commit-1", "unknown-rollback-3"}
            await_that("asked of both", lambda: open_ones <= set(checked.bodies), TIMEOUT_S)
    assert set(checked.bodies) == {"unknown-commit-1", "unknown-rollback-3"}
    assert "rollback-x-2" not in {*taken, *again}
