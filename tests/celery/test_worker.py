"""Celery's own worker on Bolide: tasks, retries, chords and commands; and no task lost when a process is killed."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kombu import pools

from bolide.testing import Cluster, cluster
from tests.celery.workers import LIMIT_S, shop_at, worker
from tests.cli.processes import wait_for


@pytest.fixture
def rocket() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


@pytest.fixture
def shop(rocket: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    module = shop_at(rocket.namesrv, tmp_path, monkeypatch)
    yield module
    module.app.close()
    pools.reset()


def result(task: Any) -> Any:
    return task.get(timeout=LIMIT_S, interval=0.02)


@pytest.mark.parametrize("pool", ["prefork", pytest.param("threads", marks=pytest.mark.soak)])
def test_a_worker_runs_tasks_retries_and_chords_and_obeys(
    pool: str, rocket: Cluster, shop: ModuleType, tmp_path: Path
) -> None:
    from celery import chord

    early = shop.add.delay(1, 2)  # before there is any worker
    with worker(rocket.namesrv, tmp_path, pool) as running:
        assert result(early) == 3
        later = shop.add.apply_async((20, 3), countdown=2)
        flaky = shop.flaky.delay()
        header = [shop.add.s(number, number) for number in range(4)]
        assert result(chord(header)(shop.total.s())) == 12
        assert result(shop.app.AsyncResult(result(shop.nested.delay(4, 5)))) == 9
        (reply,) = shop.app.control.ping(timeout=LIMIT_S, limit=1)
        assert list(reply.values()) == [{"ok": "pong"}]
        assert (result(flaky), result(later)) == (2, 23)
        assert running.stop() == 0


def test_a_task_waits_at_the_broker_until_its_time_and_not_in_a_worker(rocket: Cluster, shop: ModuleType) -> None:
    import bolide

    shop.add.apply_async((1, 1), countdown=3600)
    shop.add.apply_async((1, 1))
    with bolide.Admin(rocket.namesrv) as admin:
        assert sum(row.max_offset for row in admin.topic_queues("celery")) == 1


def test_what_a_killed_worker_held_is_done_by_the_next_and_a_long_task_is_run_once(
    rocket: Cluster, shop: ModuleType, tmp_path: Path
) -> None:
    held = [shop.hold.delay(name) for name in ("one", "two")]
    began = [tmp_path / "one.began", tmp_path / "two.began"]
    with worker(rocket.namesrv, tmp_path) as first:
        wait_for(lambda: all(path.exists() and path.read_text() for path in began))
        first.kill()
    with worker(rocket.namesrv, tmp_path, "prefork", "--prefetch-multiplier", "1"):
        wait_for(lambda: all(len(path.read_text().split()) == 2 for path in began))
        # Longer than the visibility time-out: while a worker lives, what it runs is not given to others.
        waited = shop.add.apply_async((1, 1), countdown=5)
        with worker(rocket.namesrv, tmp_path, "solo"):
            assert result(waited) == 2
            for name in ("one", "two"):
                (tmp_path / f"{name}.go").touch()
            runners = {int(path.read_text().split()[-1]) for path in began}
            assert {result(task) for task in held} == runners
            assert all(len(path.read_text().split()) == 2 for path in began)


def test_a_broker_that_restarts_costs_no_task(rocket: Cluster, shop: ModuleType, tmp_path: Path) -> None:
    with worker(rocket.namesrv, tmp_path):
        numbers = range(60)
        for number in numbers:
            shop.note.delay(number)
            if number == 30:
                rocket.brokers[0].restart()
        wait_for(lambda: {f"done-{number}" for number in numbers} <= set(os.listdir(tmp_path)))
