"""Whether there is a gRPC port beside a broker, and what is said if there cannot be."""

import logging
import socket
from pathlib import Path

import pytest

from bolide.cli import grpc_port
from bolide.errors import ConfigError
from bolide.testing.loop import VirtualClock
from tests.proxy.serving import serving
from tests.remoting.loops import virtual_time


def test_there_is_none_where_nobody_wants_it() -> None:
    assert grpc_port.read_grpc_config({}, is_default=False) is None
    assert grpc_port.read_grpc_config({"grpcServerPort": "off"}, is_default=True) is None


def test_it_has_the_host_and_the_certificates_of_the_broker_and_a_port_of_its_own() -> None:
    settings = {"bindAddress": "127.0.0.1", "listenPort": "10911", "tls.server.mode": "disabled", "brokerName": "b"}
    config = grpc_port.read_grpc_config(settings, is_default=True)
    assert config is not None
    listen = config.port.listen
    assert (listen.host, listen.port, listen.tls_mode) == ("127.0.0.1", 8081, "disabled")


def test_without_its_packages_only_who_asked_for_it_hears_an_error(monkeypatch) -> None:
    monkeypatch.setattr(grpc_port, "PACKAGES", ("no_such_package",))
    assert grpc_port.read_grpc_config({}, is_default=True) is None
    with pytest.raises(ConfigError, match=r"bolide\[grpc\]"):
        grpc_port.read_grpc_config({"grpcServerPort": "0"}, is_default=True)


@virtual_time
async def test_a_port_that_is_taken_is_a_warning_unless_somebody_asked_for_it(tmp_path: Path, caplog) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = {"bindAddress": "127.0.0.1", "grpcServerPort": str(taken.getsockname()[1])}
        config = grpc_port.read_grpc_config(settings, is_default=True)
        async with serving(tmp_path, clock := VirtualClock()) as served:
            with caplog.at_level(logging.WARNING):
                async with grpc_port.grpc_beside(served.broker, config, clock, is_asked=False) as address:
                    assert address is None
            assert "choose another port with --grpc-port" in caplog.text
            with pytest.raises(ConfigError, match="--grpc-port 0 for a free one"):
                async with grpc_port.grpc_beside(served.broker, config, clock, is_asked=True):
                    pass
