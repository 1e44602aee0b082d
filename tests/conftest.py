"""Shared by all tests: nothing but what most of them need."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

SPARK_TESTS = Path(__file__).parent / "spark"

# How long an example takes, or its making, says more of the machine's other work than of ours.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")


@pytest.hookimpl(tryfirst=True)  # before the processes that run the tests side by side look for the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A Spark session is a Java machine that takes seconds to start: one process has it, for all that ask for one."""
    for item in items:
        if SPARK_TESTS in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))
