"""`bolide cluster`: replicas are shown where there are any."""

import pytest

from bolide.testing import cluster
from tests.cli import inside
from tests.cli.processes import run, told, wait_for
from tests.e2e.up import send

COLUMNS = ("role", "epoch", "in_sync", "lag_bytes", "lag_ms")


@pytest.mark.feature("X05")
def test_it_shows_who_leads_who_is_in_sync_and_who_is_behind() -> None:
    with cluster(replicas=3) as rocket:
        master = rocket.master()
        rocket.create_topic("T", 1)
        assert send(master.address, "T", b"x").code == 0
        # A slave tells how much it has, and the master by what it heard from it how late it is.
        wait_for(lambda: all(row["lag_bytes"] == row["lag_ms"] == 0 for row in told(rocket.namesrv, "cluster")[0]))
        rows = {row["address"]: [row[name] for name in COLUMNS] for row in told(rocket.namesrv, "cluster")[0]}
        assert rows.pop(master.address) == ["master", 1, True, 0, 0]
        assert list(rows.values()) == [["slave", 1, True, 0, 0]] * 2
        assert "in sync" in run(rocket.namesrv, "cluster").stdout


@pytest.mark.feature("X05")
def test_the_lead_is_handed_to_the_replica_that_is_named_or_to_another_than_now() -> None:
    with cluster(replicas=2) as rocket:
        name = inside.told(rocket.namesrv, "cluster")[0][0]["broker"]
        old = rocket.master()
        wait_for(lambda: all(row["in_sync"] for row in inside.told(rocket.namesrv, "cluster")[0]))
        (led,) = inside.told(rocket.namesrv, "broker", "promote", name)
        assert (led["name"], led["epoch"]) == (name, 2)
        assert led["address"] != old.address
        assert rocket.master().address == led["address"]
        wait_for(lambda: all(row["in_sync"] for row in inside.told(rocket.namesrv, "cluster")[0]))
        first = 3 - led["replica"]
        said = inside.run(rocket.namesrv, "broker", "promote", name, "--replica", str(first)).stdout
        assert said == f"{name}: replica {first} at {old.address} leads (epoch 3)\n"
        missing = inside.run(rocket.namesrv, "broker", "promote", name, "--replica", "9")
        assert missing.exit_code != 0
        assert "replica 9" in missing.stderr
        unknown = inside.run(rocket.namesrv, "broker", "promote", "nobody")
        assert unknown.exit_code != 0
        assert "nobody" in unknown.stderr


def test_slaves_by_settings_have_no_epoch_and_a_cluster_without_replicas_no_such_columns() -> None:
    with cluster(replicas=2, controller=False) as rocket:
        rows = told(rocket.namesrv, "cluster")[0]
        assert [(row["role"], row["epoch"], row["in_sync"]) for row in rows] == [
            ("master", None, None),
            ("slave", None, None),
        ]
    with cluster(brokers=2) as rocket:
        assert not any(name in row for row in told(rocket.namesrv, "cluster")[0] for name in COLUMNS)
