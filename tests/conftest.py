"""Shared by all tests: nothing but what most of them need."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes, or its making, says more of the machine's other work than of ours.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

SPARK_TESTS = "tests/spark/"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Side by side (`-n 2`), each test goes to whoever is free, and all of Spark's to one: a session takes seconds to
    start and a gigabyte to run. That group is the largest, so it begins first.
    """
    from xdist.scheduler import LoadScopeScheduling

    class OneSession(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return SPARK_TESTS if nodeid.startswith(SPARK_TESTS) else nodeid

    return OneSession(config, log)
