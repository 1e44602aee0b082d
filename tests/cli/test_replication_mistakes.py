"""Brokers that must not run beside others, as a user types them: each is refused with what to do, nothing is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import bolide
from tests.e2e.up import SMALL, Up, begin, bodies, running, send

LOCAL = ("--host", "127.0.0.1", "--port", "0", *SMALL)
SLAVE = ("--set", "brokerRole=SLAVE", "--set", "brokerName=orders")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Up, str]]:
    """A master called orders, and its name server."""
    home = tmp_path_factory.mktemp("namesrv")
    with running(home, "namesrv", "--host", "127.0.0.1", "--port", "0") as namesrv:
        words = ("-n", namesrv.namesrv, *LOCAL, "--set", "brokerName=orders")
        with running(tmp_path_factory.mktemp("master"), "broker", *words) as master:
            assert send(master.broker, "T", b"kept").code == 0
            yield master, namesrv.namesrv


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--set", "brokerName=orders"], "a master of this name runs at {}; stop it, or give this one another name"),
        ([*SLAVE, "--set", "brokerId=0"], "a slave's id must be more than 0: 0 is the master's"),
        (
            [*SLAVE, "--set", "brokerId=1", "--set", "brokerClusterName=Other"],
            "broker 'orders' is in cluster 'DefaultCluster' at a name server; set that, or another brokerName",
        ),
    ],
    ids=["two masters of one name", "a slave with the master's id", "a slave of another cluster"],
)
def test_a_broker_that_is_one_too_many_is_refused(
    tmp_path: Path, up: tuple[Up, str], words: list[str], sentence: str
) -> None:
    master, namesrv = up
    done = bolide(tmp_path, "broker", "-n", namesrv, *LOCAL, *words)
    assert done.returncode == 2
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert sentence.format(master.broker) in error
    assert bodies(master.broker, "T", 0) == [b"kept"]


def test_the_directory_of_another_broker_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with running(tmp_path, "broker", *LOCAL, "--set", "brokerName=orders") as owner:
        assert send(owner.broker, "T", b"kept").code == 0
        assert owner.stop()[0] == 0
    before = contents(tmp_path / "store")
    for more in ([], ["--safe", "--controller", "127.0.0.1:1"]):
        done = bolide(tmp_path, "broker", *LOCAL, "--set", "brokerName=other", *more)
        assert done.returncode == 2
        assert (
            "it is the directory of broker 'orders', and brokerName is 'other': give each broker its own" in done.stderr
        )
        assert contents(tmp_path / "store") == before


def test_with_an_unknown_controller_it_waits_and_says_what_to_look_at(tmp_path: Path) -> None:
    broker = begin(tmp_path, "broker", *LOCAL, "--safe", "--controller", "127.0.0.1:1")
    try:
        assert broker.process.stderr is not None
        told = next(line for line in broker.process.stderr if "no role yet" in line)
        assert "(127.0.0.1:1: Connection refused); is controllerAddr right, and do they run?" in told
        code, _, _ = broker.stop()
        assert code == 0
    finally:
        broker.kill()
    assert not list(tmp_path.rglob("brokerIdentity*"))
