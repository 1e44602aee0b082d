"""Ports that nobody has, also where several processes look for one at the same time."""

import subprocess
import sys

import pytest

from bolide.remoting import ports
from bolide.remoting.ports import BROKER_NEIGHBOURS, NoFreePort, free_port, is_free


def only(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """From now on chance has one port to choose from."""
    monkeypatch.setattr(ports, "_PORT_MIN", port)
    monkeypatch.setattr(ports, "_PORT_MAX", port + 1)


def test_a_port_that_was_given_is_given_to_nobody_else_before_its_server_is_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port(*BROKER_NEIGHBOURS)
    assert is_free(port), "whom it was given to may listen there"
    for each in (port, port - 2, port + 1):
        only(monkeypatch, each)
        with pytest.raises(NoFreePort):
            free_port()
        with pytest.raises(NoFreePort):
            free_port(*BROKER_NEIGHBOURS)


def test_another_process_is_not_given_it_either() -> None:
    port = free_port()
    program = (
        "from bolide.remoting import ports\n"
        f"ports._PORT_MIN, ports._PORT_MAX = {port}, {port + 1}\n"
        "try:\n    ports.free_port()\nexcept ports.NoFreePort:\n    print('none')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "none\n"


def test_a_port_that_was_given_long_ago_may_be_given_again() -> None:
    free_port(*BROKER_NEIGHBOURS)
    claims = ports._claims[-1]
    for _ in range(ports._CLAIMS_MAX):
        assert [claim for claim in claims if claim.fileno() < 0] == []
        free_port()
    assert [claim for claim in claims if claim.fileno() >= 0] == []
    assert len(ports._claims) == ports._CLAIMS_MAX
