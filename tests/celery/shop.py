"""A Celery application as users write them, for workers that tests start."""

import os
import time
from functools import partial
from pathlib import Path

from celery import Celery

WORK = Path(os.environ.get("SHOP_DIRECTORY", "."))
LIMIT_S, POLL_INTERVAL_S = 60, 0.01
app = Celery("shop", broker=f"bolide://{os.environ['NAMESRV_ADDR']}", backend=f"db+sqlite:///{WORK / 'results.db'}")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    result_chord_retry_interval=0.1,
    broker_transport_options={"visibility_timeout": 3},
)
# Tests import this module again for each cluster. A shared task would be one of every later application too, in any
# order: two callables of one name.
task = partial(app.task, shared=False)


@task()
def add(left: int, right: int) -> int:
    return left + right


@task()
def total(numbers: list[int]) -> int:
    return sum(numbers)


@task(bind=True, max_retries=3)
def flaky(self) -> int:
    if self.request.retries < 2:
        raise self.retry(countdown=1)
    return int(self.request.retries)


@task()
def nested(left: int, right: int) -> str:
    """A task that sends a task: in a pool of processes the connection is one of the child's own."""
    return str(add.delay(left, right).id)


@task()
def hold(name: str) -> int:
    """Say that it runs, and run until it is let go."""
    with (WORK / f"{name}.began").open("a") as began:
        began.write(f"{os.getpid()}\n")
    deadline_s = time.monotonic() + LIMIT_S
    while not (WORK / f"{name}.go").exists():
        assert time.monotonic() < deadline_s, "nobody let it go"
        time.sleep(POLL_INTERVAL_S)
    return os.getpid()


@task()
def note(number: int) -> None:
    """A mark on the disk for each task that ran."""
    (WORK / f"done-{number}").touch()
