"""The gRPC port beside a broker: whether there is one, and what is said if there cannot be.

Where nobody asked for it, a missing package or a port that is taken is a line in the log. Where somebody did, it is an
error.
"""

import argparse
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from bolide.cli.start import reachable
from bolide.errors import ConfigError
from bolide.remoting.ports import free_port, is_free

if TYPE_CHECKING:
    from bolide.broker.broker import Broker
    from bolide.clock import Clock
    from bolide.proxy.config import ProxyConfig

PORT = 8081
OFF = "off"
PACKAGES = ("google.protobuf",)
_ANOTHER = "choose another port with --grpc-port, or --grpc-port 0 for a free one"
log = logging.getLogger(__name__)


def add_grpc_option(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--grpc-port",
        metavar="PORT",
        help=f"port for RocketMQ 5's own clients, 0 takes a free one, off for none (grpcServerPort; default {default})",
    )


def is_installed() -> bool:
    """Whether what the extra `grpc` brings is here."""
    try:
        return all(find_spec(name) is not None for name in PACKAGES)
    except ModuleNotFoundError:
        return False


def grpc_keys() -> frozenset[str]:
    """The settings that can stand beside a broker's, and are the gRPC port's alone."""
    if not is_installed():
        return frozenset({"grpcServerPort"})
    from bolide.broker.config import USED_KEYS
    from bolide.proxy.config import OWN_KEYS

    return OWN_KEYS - USED_KEYS


def read_grpc_config(settings: Mapping[str, str], is_default: bool) -> "ProxyConfig | None":
    """The configuration of the port, or None if there is none; `settings` are the broker's, with its own among them."""
    asked = settings.get("grpcServerPort")
    if asked == OFF or (asked is None and not is_default):
        return None
    if not is_installed():
        if asked is not None:
            raise ConfigError("grpcServerPort", asked, "needs packages that are not here: pip install 'bolide[grpc]'")
        log.info("no gRPC port: pip install 'bolide[grpc]' for RocketMQ 5's own clients")
        return None
    from bolide.proxy.config import SHARED_KEYS, read_config

    keys = grpc_keys() | SHARED_KEYS
    given = {"grpcServerPort": str(PORT), **{key: text for key, text in settings.items() if key in keys}}
    return read_config(given)[0]


def planned_port(settings: Mapping[str, str]) -> int | None:
    """Where a proxy beside `bolide up` is to listen, or None if there is to be none."""
    config = read_grpc_config(settings, is_default=True)
    if config is None:
        return None
    listening = config.port.listen
    port = listening.port or free_port()
    if is_free(port, reachable(listening.host, 0).rpartition(":")[0]):
        return port
    if "grpcServerPort" in settings:
        raise ConfigError("grpcServerPort", port, f"is taken; {_ANOTHER}")
    log.warning("no gRPC port: %d is taken; %s", port, _ANOTHER)
    return None


@asynccontextmanager
async def grpc_beside(
    broker: "Broker", config: "ProxyConfig | None", clock: "Clock", *, is_asked: bool
) -> AsyncIterator[str | None]:
    """Serve gRPC beside a broker, if it is to be; yields the address of the port."""
    async with AsyncExitStack() as stack:
        address = None
        if config is not None:
            from bolide.proxy.server import serve_beside

            listening = config.port.listen
            try:
                _, server = await stack.enter_async_context(serve_beside(broker, config, clock))
                address = reachable(listening.host, server.port)
            except ConfigError as problem:
                why = f"{problem.why}; {_ANOTHER}"
                if is_asked:
                    raise ConfigError("grpcServerPort", listening.port, why) from None
                log.warning("no gRPC port: %s", why)
        yield address
