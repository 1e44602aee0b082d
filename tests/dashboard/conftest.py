"""One cluster for all tests of the dashboard; each test has topics and groups of its own names.

It ends with this folder: a cluster in the same process would be counted by later tests that count what a process does.
"""

from collections.abc import Iterator

import pytest

from bolide.testing import cluster
from bolide.testing.blocking import Cluster
from tests.dashboard.site import Site, site


@pytest.fixture(scope="package")
def rocket() -> Iterator[Cluster]:
    settings = {"traceTopicEnable": "true", "enablePropertyFilter": "true", "autoCreateTopicEnable": "true"}
    settings |= {"recallMessageEnable": "true", "enableMixedMessageType": "true"}
    with cluster(settings=settings) as found:
        yield found


@pytest.fixture(scope="package")
def pages(rocket: Cluster) -> Iterator[Site]:
    """Read only, as it is started without options."""
    with site(rocket.namesrv) as found:
        yield found


@pytest.fixture(scope="package")
def changing(rocket: Cluster) -> Iterator[Site]:
    """With --allow-changes."""
    with site(rocket.namesrv, allows_changes=True) as found:
        yield found


@pytest.fixture(scope="package")
def guarded() -> Iterator[Cluster]:
    """A cluster with access control: Root may all."""
    settings = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
        "innerClientAuthenticationCredentials": '{"accessKey":"root","secretKey":"root-secret"}',
    }
    with cluster(settings=settings) as found:
        yield found
