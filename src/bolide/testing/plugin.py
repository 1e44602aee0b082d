"""The pytest plugin: the fixture `bolide_cluster`, there for every project that has Bolide installed.

    def test_an_order_is_sent(bolide_cluster):
        shop = Shop(namesrv=bolide_cluster.namesrv)
        ...

    @pytest.mark.bolide_cluster(brokers=2, processes=True)
    def test_a_killed_broker_is_left_alone(bolide_cluster):
        bolide_cluster.brokers[0].kill()

The marker takes what `bolide.testing.cluster` takes. Nothing of Bolide is loaded until a test asks for the fixture.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from bolide.testing.blocking import Cluster

_MARK = "bolide_cluster"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{_MARK}(**options): what the fixture of that name starts (bolide.testing)")


@pytest.fixture
def bolide_cluster(request: pytest.FixtureRequest) -> "Iterator[Cluster]":
    """A name server and a broker in this process, or what the marker `bolide_cluster` asks for."""
    from bolide.testing.clusters import cluster

    mark = request.node.get_closest_marker(_MARK)
    with cluster(**(mark.kwargs if mark is not None else {})) as running:
        yield running
