"""A test of one's own service, with a broker of its own inside the test.

pytest examples/test_own_service.py

`bolide_cluster` is a fixture that comes with Bolide: a name server and a broker in this process, gone after the test.
"""

from collections.abc import Iterator

import pytest

import bolide
from bolide.testing import Cluster


class Newsletter:
    """The service under test: welcomes whoever signs up."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv

    def welcome(self, count: int) -> Iterator[str]:
        oldest = bolide.StartFrom.oldest()
        with bolide.Consumer("newsletter", {"People": "signed-up"}, self._namesrv, start_from=oldest) as consumer:
            for number, message in enumerate(consumer, 1):
                yield f"Welcome, {message.body.decode()}!"
                if number == count:
                    return


@pytest.fixture
def producer(bolide_cluster: Cluster) -> Iterator[bolide.Producer]:
    with bolide.Producer("tests", bolide_cluster.namesrv) as opened:
        yield opened


def test_who_signs_up_is_welcomed_and_who_leaves_is_not(bolide_cluster: Cluster, producer: bolide.Producer) -> None:
    for name, tag in (("Ada", "signed-up"), ("Charles", "left"), ("Grace", "signed-up")):
        producer.send("People", name.encode(), tags=tag)
    assert sorted(Newsletter(bolide_cluster.namesrv).welcome(2)) == ["Welcome, Ada!", "Welcome, Grace!"]


def test_a_broker_that_is_restarted_costs_nobody_the_welcome(
    bolide_cluster: Cluster, producer: bolide.Producer
) -> None:
    producer.send("People", b"Ada", tags="signed-up")
    bolide_cluster.brokers[0].restart()
    assert list(Newsletter(bolide_cluster.namesrv).welcome(1)) == ["Welcome, Ada!"]
