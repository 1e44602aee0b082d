"""`bolide transaction` as people and programs type it, against a broker with open transactions."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

import bolide
from bolide.testing import Cluster, cluster
from tests.cli.inside import run
from tests.cli.processes import wait_for

SLOW = {"transactionOpBatchInterval": 50}
QUICK = {"transactionCheckInterval": 50, "transactionTimeOut": 20, "transactionCheckMax": 2}


def listed(namesrv: str, *options: str) -> list[dict[str, Any]]:
    done = run(namesrv, "transaction", "list", *options, "--output", "json")
    assert done.exit_code == 0, done.output
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def unsure(message: bolide.StoredMessage) -> bolide.Outcome:
    return bolide.Outcome.UNKNOWN


@pytest.fixture(scope="module")
def rocket() -> Iterator[Cluster]:
    """A broker with three transactions: one open, one committed, one rolled back."""
    with cluster(settings=SLOW) as running, bolide.Admin(running.namesrv) as admin:
        with bolide.TransactionProducer("transfers", running.namesrv, checker=unsure) as producer:
            for word in ("open", "commit", "rollback"):
                with producer.transaction("Transfers", word.encode(), keys=f"t-{word}") as transaction:
                    if word == "open":
                        transaction.unknown()
                    elif word == "rollback":
                        transaction.rollback()
        wait_for(lambda: len(list(admin.open_transactions())) == 1)
        yield running


def test_open_transactions_are_listed_and_decided_ones_are_not(rocket: Cluster) -> None:
    rows = listed(rocket.namesrv)
    assert [(row["topic"], row["group"], row["keys"], row["checks"]) for row in rows] == [
        ("Transfers", "transfers", "t-open", 0)
    ]
    assert rows[0]["age_s"] >= 0
    assert listed(rocket.namesrv, "--group", "another") == []
    shown = run(rocket.namesrv, "transaction", "list")
    assert rows[0]["id"] in shown.output
    assert "no transaction was given up" in run(rocket.namesrv, "transaction", "list", "--given-up").output


def test_an_id_that_is_none_and_one_that_is_nowhere_say_so(rocket: Cluster) -> None:
    wrong = run(rocket.namesrv, "transaction", "resume", "t-open")
    assert wrong.exit_code != 0
    assert "list --given-up` shows them" in wrong.output
    host, port = rocket.brokers[0].address.split(":")
    nowhere = bytes(map(int, host.split("."))) + int(port).to_bytes(4, "big") + (1 << 40).to_bytes(8, "big")
    absent = run(rocket.namesrv, "transaction", "resume", nowhere.hex().upper())
    assert absent.exit_code != 0
    assert "no message here with the id" in absent.output


def test_what_was_given_up_is_shown_and_taken_up_again() -> None:
    answers = [bolide.Outcome.UNKNOWN]

    def checker(message: bolide.StoredMessage) -> bolide.Outcome:
        return answers[-1]

    with (
        cluster(settings=QUICK) as rocket,
        bolide.Admin(rocket.namesrv) as admin,
        bolide.TransactionProducer("transfers", rocket.namesrv, checker=checker) as producer,
    ):
        with producer.transaction("Transfers", b"x", keys="t-1") as transaction:
            transaction.unknown()
        wait_for(lambda: bool(list(admin.given_up_transactions())))
        (row,) = listed(rocket.namesrv, "--given-up")
        assert (row["id"], row["checks"]) == (transaction.id, 2)
        answers.append(bolide.Outcome.COMMIT)
        done = run(rocket.namesrv, "transaction", "resume", row["offset_id"])
        assert (done.exit_code, done.output.partition(";")[0]) == (0, "1 taken up again")
        oldest = bolide.StartFrom.oldest()
        with bolide.Consumer("g", "Transfers", rocket.namesrv, start_from=oldest) as consumer:
            assert next(iter(consumer)).keys == ["t-1"]


def test_one_that_was_asked_about_is_listed_once_also_behind_one_whose_group_is_away() -> None:
    def open_one(producer: bolide.TransactionProducer) -> None:
        with producer.transaction("Transfers", b"x") as transaction:
            transaction.unknown()

    with cluster(settings=QUICK | {"transactionCheckMax": 10_000}) as rocket:
        with bolide.TransactionProducer("away", rocket.namesrv, checker=unsure) as producer:
            open_one(producer)
        with bolide.TransactionProducer("transfers", rocket.namesrv, checker=unsure) as producer:
            open_one(producer)
            wait_for(lambda: any(row["checks"] >= 2 for row in listed(rocket.namesrv, "--group", "transfers")))
            assert sorted(row["group"] for row in listed(rocket.namesrv)) == ["away", "transfers"]
