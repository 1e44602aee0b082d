"""`bolide cluster`: replicas are shown where there are any."""

import pytest

from bolide.testing import cluster
from tests.cli.processes import run, told, wait_for
from tests.e2e.up import send

COLUMNS = ("role", "epoch", "in_sync", "lag_bytes", "lag_ms")


@pytest.mark.feature("X05")
def test_it_shows_who_leads_who_is_in_sync_and_who_is_behind() -> None:
    with cluster(replicas=3) as rocket:
        master = rocket.master()
        rocket.create_topic("T", 1)
        assert send(master.address, "T", b"x").code == 0
        wait_for(lambda: all(row["lag_bytes"] == 0 for row in told(rocket.namesrv, "cluster")[0]))
        rows = {row["address"]: [row[name] for name in COLUMNS] for row in told(rocket.namesrv, "cluster")[0]}
        assert rows.pop(master.address) == ["master", 1, True, 0, 0]
        assert list(rows.values()) == [["slave", 1, True, 0, 0]] * 2
        assert "in sync" in run(rocket.namesrv, "cluster").stdout


def test_slaves_by_settings_have_no_epoch_and_a_cluster_without_replicas_no_such_columns() -> None:
    with cluster(replicas=2, controller=False) as rocket:
        rows = told(rocket.namesrv, "cluster")[0]
        assert [(row["role"], row["epoch"], row["in_sync"]) for row in rows] == [
            ("master", None, None),
            ("slave", None, None),
        ]
    with cluster(brokers=2) as rocket:
        assert not any(name in row for row in told(rocket.namesrv, "cluster")[0] for name in COLUMNS)
