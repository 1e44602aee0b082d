"""Twenty kills in the middle of everything: workers and the broker die again and again, and every task is done."""

import os
import random
import threading
from pathlib import Path

import pytest
from kombu import pools
from kombu.exceptions import OperationalError

from bolide.errors import BolideError
from bolide.testing import cluster
from tests.celery.workers import Worker, shop_at
from tests.cli.processes import wait_for

KILL_COUNT = 20
TASK_COUNT = 500
LIMIT_S = 300


@pytest.mark.soak
def test_twenty_kills_of_workers_and_broker_lose_no_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(17)
    with cluster(processes=True) as rocket:
        shop = shop_at(rocket.namesrv, tmp_path, monkeypatch)
        workers = [Worker(rocket.namesrv, tmp_path, pool) for pool in ("prefork", "threads")]

        def send_all() -> None:
            for number in range(TASK_COUNT):
                while True:
                    try:
                        shop.note.delay(number)
                        break
                    except (BolideError, OperationalError):
                        continue  # the sender knows that it was not taken, and says it again

        sending = threading.Thread(target=send_all)
        sending.start()
        try:
            for kill in range(KILL_COUNT):
                before = done(tmp_path)
                wait_for(lambda before=before: done(tmp_path) > before or done(tmp_path) == TASK_COUNT, LIMIT_S)
                if kill % 4 == 3:
                    rocket.brokers[0].kill()
                    rocket.brokers[0].start()
                else:
                    number = chance.randrange(2)
                    workers[number].kill()
                    workers[number] = Worker(rocket.namesrv, tmp_path, ("prefork", "threads")[number])
            sending.join(LIMIT_S)
            wait_for(lambda: done(tmp_path) == TASK_COUNT, LIMIT_S)
        finally:
            for worker in workers:
                worker.kill()
            sending.join(LIMIT_S)
            shop.app.close()
            pools.reset()


def done(directory: Path) -> int:
    return sum(name.startswith("done-") for name in os.listdir(directory))
