"""Shared by all tests: nothing but what most of them need."""

import gc
import logging
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from bolide.remoting.sparse import Sparse

# How long an example takes, or its making, says more of the machine's other work than of ours. The same examples are
# drawn each time: what fails then fails because of what was changed. `make soak` draws many more, by chance (Makefile).
settings.register_profile(
    "house", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, max_examples=60
)
settings.register_profile("chance", settings.get_profile("house"), derandomize=False, max_examples=400)
settings.load_profile("house")

# Who runs the tests may have a profile for a cluster of their own: it is not for these.
os.environ["BOLIDE_PROFILE"] = ""

# Nine thousand tests are collected, and none of them is garbage: looking through them again and again takes as long as
# half of all else. What was collected is then set apart, so that no test pays for the others either.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


# Spark's session takes seconds to start and a gigabyte to run; the programs of a page go on from one another; sources
# are parsed once for all that look at them; pages share a cluster and a browser.
TOGETHER = ("tests/spark/", "tests/client/test_docs.py", "tests/tidy/", "tests/dashboard/")
# In the folder, but with a Spark of its own: whoever is free may run it beside the others.
ALONE = ("tests/spark/test_kills.py",)
# What takes longest begins first: at the end all others would wait for it.
FIRST = (*ALONE, "tests/crash/", "tests/client/test_outages.py")
# Whole programs at work, for five seconds and more: several Sparks, workers of Celery, groups of brokers that die, the
# benchmarks, each program of the documentation, servers started with each worst value. `make test` is for every few
# minutes, and leaves them to `make long`, which CI runs too; so it does with most cases of large grids (`grids.py`).
LONG = (
    "tests/admin/doctor/test_faults.py",
    "tests/broker/controlled/test_membership.py::test_what_is_acknowledged",
    "tests/broker/replication/test_acting_killed.py",
    "tests/broker/replication/test_change.py::test_timed_messages_wait",
    "tests/broker/replication/test_slave.py::test_a_slave_restarted_as_master",
    "tests/broker/replication/test_slave.py::test_a_slave_that_is_promoted",
    "tests/broker/replication/test_slave.py::test_tables_of_a_slave_follow",
    "tests/celery/test_worker.py",
    "tests/cli/test_controller.py",
    "tests/cli/test_dashboard.py",
    "tests/cli/test_instances.py",
    "tests/cli/test_replicas.py",
    "tests/cli/test_replication_mistakes.py",
    "tests/cli/test_worst_settings.py",
    "tests/client/consuming/test_loops.py::test_a_member_that_has_nothing_to_do",
    "tests/client/test_docs.py::test_a_program_of_the_pages_runs",
    "tests/client/test_faults.py::test_a_member_that_hangs",
    "tests/client/test_faults.py::test_without_any_name_server",
    "tests/client/test_outages.py",
    "tests/client/test_soak.py",
    "tests/client/test_switches.py",
    "tests/client/transactions/test_transactions.py::test_a_half_message_whose_replicas",
    "tests/controller/test_etcd_register.py::test_a_node_of_etcd_may_fall",
    "tests/controller/test_etcd_register.py::test_of_two_controllers",
    "tests/crash/test_flows.py::test_eight_kills",
    "tests/crash/test_ordered.py",
    "tests/crash/test_slow_disk.py",
    "tests/dashboard/pages/test_overview.py::test_one_broker_of_two_is_gone",
    "tests/e2e/test_backup.py",
    "tests/e2e/test_dashboard.py",
    "tests/faststream/test_broker.py::test_a_worker_that_is_killed",
    "tests/ha/test_replication.py::test_a_line_that_breaks",
    "tests/namesrv/test_shares.py::test_memory_stays_bounded",
    "tests/spark/jobs/test_java_stores.py",
    "tests/spark/test_elsewhere.py",
    "tests/spark/test_examples.py",
    "tests/spark/test_kills.py",
    "tests/taskiq/",
    "tests/test_benchmarks.py",
    "tests/test_client_benchmarks.py",
    "tests/test_hostile_benchmark.py",
    "tests/test_site.py::test_a_site_holds",
    "tests/test_site.py::test_links_that_lead",
    "tests/testing/test_plugin.py::test_an_example",
    "tests/testing/test_replicas.py",
)


@pytest.hookimpl(tryfirst=True)  # before marks are chosen from
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))
    for item in items:
        if item.nodeid.startswith(LONG):
            item.add_marker("long")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Side by side (`-n 3`), each test goes to whoever is free, but those that belong together to one. The largest
    group begins first.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(ALONE):
                return nodeid
            return next((group for group in TOGETHER if nodeid.startswith(group)), nodeid)

        def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
            """Asked after every test: of nine thousand groups of one only the last few can be pending."""
            pending = 0
            for group in reversed(workload.values()):
                left = sum(not is_done for is_done in group.values())
                if not left:
                    break
                pending += left
            return pending

    return Together(config, log)


@pytest.fixture(autouse=True)
def all_lines_are_said() -> None:
    """Of lines that strangers cause some are said in a while, of all tests together; each test begins anew."""
    for logger in logging.Logger.manager.loggerDict.values():
        for each in getattr(logger, "filters", ()):
            if isinstance(each, Sparse):
                each.forget()
