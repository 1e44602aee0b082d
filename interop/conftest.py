"""What the scenarios share: a name server to start, a standing cluster of a Java broker behind ours, and a `bolide up`.

`--name-server 5.5.0` runs the scenarios against the Java name server of that release instead of ours, `--broker 5.5.0`
those of `test_broker_*.py` against its broker: this shows that they ask for what the original does.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from interop.clients import IMPATIENT, JavaAgent, java_agent
from interop.cluster import Broker, NameServer, Station, bolide_up, java_broker, java_station, name_server
from interop.release import CLIENT_RELEASES, SERVER_RELEASES, MissingJava, require_java

StartNameServer = Callable[..., NameServer]
StartBroker = Callable[..., Broker]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A name server and one Java broker that it knows."""

    server: NameServer
    broker: Broker


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--name-server", default="bolide", choices=("bolide", *SERVER_RELEASES), help="who is examined")
    parser.addoption("--broker", default="bolide", choices=("bolide", *SERVER_RELEASES), help="who is examined")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "short: a scenario of the form that every submission runs")


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.collectonly:
        return
    try:
        require_java()
    except MissingJava as problem:
        pytest.exit(str(problem), returncode=1)


@pytest.fixture(scope="session")
def kind(pytestconfig: pytest.Config) -> str:
    """Whose name server is examined."""
    return str(pytestconfig.getoption("--name-server"))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def start_name_server(tmp_path: Path, kind: str, stack: ExitStack) -> StartNameServer:
    def start(settings: dict[str, object] | None = None, port: int | None = None) -> NameServer:
        return stack.enter_context(name_server(tmp_path, kind, settings, port))

    return start


@pytest.fixture
def start_broker(tmp_path: Path, stack: ExitStack) -> StartBroker:
    def start(release: str, name_servers: str, **settings: object) -> Broker:
        return stack.enter_context(java_broker(tmp_path, release, name_servers, settings))

    return start


@pytest.fixture(scope="session", params=SERVER_RELEASES)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kind: str) -> Iterator[Cluster]:
    """A standing cluster, shared by the scenarios that leave it as it was."""
    directory = tmp_path_factory.mktemp(f"cluster-{request.param}")
    with name_server(directory, kind) as server, java_broker(directory, request.param, server.endpoint) as broker:
        broker.await_route(server)
        yield Cluster(server, broker)


@pytest.fixture(scope="session")
def broker_kind(pytestconfig: pytest.Config) -> str:
    """Whose broker is examined."""
    return str(pytestconfig.getoption("--broker"))


@pytest.fixture(scope="session")
def station(tmp_path_factory: pytest.TempPathFactory, broker_kind: str) -> Iterator[Station]:
    """A standing `bolide up`, shared by the scenarios that leave it as it was."""
    directory = tmp_path_factory.mktemp("station")
    with bolide_up(directory) if broker_kind == "bolide" else java_station(directory, broker_kind) as station:
        yield station


@pytest.fixture(scope="session", params=CLIENT_RELEASES)
def agent(
    request: pytest.FixtureRequest, station: Station, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaAgent]:
    """A JVM with clients of either release, shared as well."""
    with java_agent(tmp_path_factory.mktemp("agent"), request.param, station.name_servers, **IMPATIENT) as agent:
        yield agent
