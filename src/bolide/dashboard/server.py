"""Serving the dashboard: uvicorn inside a loop that is not its own."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn

from bolide.clock import Clock
from bolide.dashboard.app import build_app
from bolide.dashboard.config import DashboardConfig
from bolide.dashboard.desks import Desks
from bolide.dashboard.login import Door
from bolide.errors import ConfigError
from bolide.remoting.isolated_tasks import IsolatedTasks

GRACE_S = 2
_POLL_INTERVAL_S = 0.01


class _Server(uvicorn.Server):
    """Signals are the command's to hear."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def check_door(config: DashboardConfig, clock: Clock) -> None:
    """Raise where everybody in the network would be let in."""
    if config.is_loopback or config.password_file is not None:
        return
    async with IsolatedTasks() as tasks:
        desks = Desks(config, clock, tasks)
        door = await desks.door()
        if door is Door.CLUSTER and desks.is_door_known:
            return
    why = (
        "checks no users (access control is off)"
        if desks.is_door_known
        else "could not be asked whether it checks users"
    )
    raise ConfigError(
        "--host",
        config.host,
        f"others would reach it without a login, for the cluster {why}: give --password-file, or listen on 127.0.0.1",
    )


@asynccontextmanager
async def serve(config: DashboardConfig, clock: Clock) -> AsyncIterator[str]:
    """Serve pages while the block runs; gives the address to open."""
    await check_door(config, clock)
    listening = _listen(config)
    port = listening.getsockname()[1]
    settings = uvicorn.Config(
        build_app(config, clock),
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        timeout_graceful_shutdown=GRACE_S,
        loop="none",
    )
    server = _Server(settings)
    async with IsolatedTasks() as tasks:
        serving = tasks.start(server.serve(sockets=[listening]), name="dashboard.serve")
        try:
            while not server.started and not serving.done():  # noqa: ASYNC110 (uvicorn sets no event)
                await asyncio.sleep(_POLL_INTERVAL_S)
            shown = f"[{config.host}]" if ":" in config.host else config.host
            yield config.public_url or f"http://{'127.0.0.1' if shown in ('0.0.0.0', '[::]') else shown}:{port}"
        finally:
            server.should_exit = True
            await asyncio.wait([serving])
            listening.close()


def _listen(config: DashboardConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((config.host, config.port))
    except OSError as problem:
        found.close()
        raise ConfigError("listenPort", config.port, f"cannot listen on {config.host}: {problem.strerror}") from problem
    found.listen(128)
    found.setblocking(False)
    return found
