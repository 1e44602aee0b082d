"""Shared by all tests: nothing but what most of them need."""

import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from bolide.remoting.sparse import Sparse

# How long an example takes, or its making, says more of the machine's other work than of ours.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

# Spark's session takes seconds to start and a gigabyte to run; the programs of a page go on from one another.
TOGETHER = ("tests/spark/", "tests/client/test_docs.py")
# In the folder, but with a Spark of its own: whoever is free may run it beside the others.
ALONE = ("tests/spark/test_kills.py",)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Side by side (`-n 2`), each test goes to whoever is free, but those that belong together to one. The largest
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
