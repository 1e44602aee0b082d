"""The controller: wiring, and the order in which it all stops.

Nothing is decided here. Read `serve` from the inside out for the order of the shutdown: the port closes first and
running answers finish, elections end, then the lead is given up, so that another controller can take it at once.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from bolide import kernel
from bolide.access.serving import open_door
from bolide.access.signing import signers
from bolide.clock import Clock
from bolide.controller.changes import Changes
from bolide.controller.config import RULES, ControllerConfig, LiveConfig, shown
from bolide.controller.file_register import FileRegister
from bolide.controller.liveness import Liveness
from bolide.controller.metrics import ControllerMeter, show
from bolide.controller.notices import Notices
from bolide.controller.register import Node, Register
from bolide.controller.requests import Requests
from bolide.errors import ConfigError, Refusal, StoreError
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.remoting.changes import LOG_LEVEL, read_changes, set_log_level
from bolide.remoting.client import Client
from bolide.remoting.handlers import Handler, Handlers
from bolide.remoting.isolated_tasks import IsolatedTasks
from bolide.remoting.operators import LOCAL, demand_local
from bolide.remoting.owner import Owner
from bolide.remoting.pages import PageServer
from bolide.remoting.server import Server, listen
from bolide.remoting.session import Reply, Request, Session
from bolide.settings import write_properties

_EVERYWHERE = ("", "0.0.0.0", "::")
log = logging.getLogger(__name__)


class Controller(Owner):
    """The owner of all connections."""

    def __init__(
        self, config: ControllerConfig, clock: Clock, register: Register, notices: Notices, thread: ThreadPoolExecutor
    ) -> None:
        self.settings = LiveConfig(config)
        self.register = register
        self.is_stopping = False
        self.meter = ControllerMeter(clock) if config.metrics.is_on else None
        self.pages: PageServer | None = None  # where metrics are shown, while it runs
        self.liveness = Liveness(clock, self._died)
        self.changes = Changes(
            register, self.liveness, self.settings, notices, None if self.meter is None else self.meter.elected
        )
        self._thread = thread
        requests = Requests(register, self.changes, self.liveness, self.settings)
        gate = demand_local if config.admin_from == LOCAL else None
        operations: dict[int, Handler] = {
            RequestCode.UPDATE_CONTROLLER_CONFIG: self._update_config,
            RequestCode.GET_CONTROLLER_CONFIG: self._config,
        }
        self.door, access = open_door(config.access, config.data_path, clock, thread, "controller")
        door = None if self.door is None else self.door.enter
        self._handlers = Handlers(requests.handlers(), operations, access, gate=gate, door=door)

    def _died(self, name: str, member: int) -> None:
        if not self.is_stopping:
            self.changes.orphaned(name, member)

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        return self._handlers.serve(request)

    def on_answer(self, request: Request, answer: Command) -> None:
        if self.meter is not None:
            self.meter.answered(request, answer.code)

    def closed(self, session: Session, why: str) -> None:
        if self.door is not None:
            self.door.left(session)
        if not self.is_stopping:  # everybody is sent away then, which is no news of any broker
            self.liveness.ended(session)

    async def _update_config(self, request: Request) -> Command:
        """1009: change settings at run time, all that are given or none."""
        changes = read_changes(request)
        config = RULES.updated(self.settings.now, changes)
        if changes:
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(self._thread, RULES.note, config.store_path, changes)
            except StoreError as problem:
                raise Refusal(ResponseCode.SYSTEM_ERROR, str(problem)) from None
        self.settings.now = RULES.updated(self.settings.now, changes)
        if LOG_LEVEL in changes:
            set_log_level(self.settings.now.log_level)
        log.info("settings changed %s kept=%s", ", ".join(sorted(changes)), config.store_path)
        return request.command.answer(ResponseCode.SUCCESS)

    def _config(self, request: Request) -> Command:
        """1010: all settings."""
        return request.command.answer(ResponseCode.SUCCESS, body=write_properties(shown(self.settings.now)).encode())


def open_register(config: ControllerConfig, clock: Clock) -> Register:
    """Where groups are kept, by the settings; raises BolideError where they cannot be."""
    if not config.etcd_endpoints:
        return FileRegister(config.data_path)
    from bolide.controller.etcd_register import EtcdRegister  # its client is an extra

    return EtcdRegister(config, clock)


@asynccontextmanager
async def serve(config: ControllerConfig, clock: Clock) -> AsyncIterator[tuple[Controller, Server]]:
    """A controller that answers as long as the block lasts."""
    if config.log_level:
        set_log_level(config.log_level)
    log.info("controller starts kernel=%s group=%s", kernel.NAME, config.group)
    if config.ignored:
        log.warning("settings without effect here: %s", ", ".join(sorted(config.ignored)))
    register = open_register(config, clock)
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="controller.settings") as thread:
            async with (
                Client(config.connect, clock, hooks=signers(config.access)) as client,
                IsolatedTasks() as sending,
            ):
                controller = Controller(config, clock, register, Notices(client, sending), thread)
                async with asyncio.TaskGroup() as background:
                    tasks: list[asyncio.Task[None]] = []
                    try:
                        async with listen(config.listen, controller, clock) as server:
                            node = _own_node(config, server.port)
                            await register.join(node)
                            tasks += _start(background, controller)
                            try:
                                async with show(controller, node, clock) as controller.pages:
                                    yield controller, server
                            finally:
                                controller.is_stopping = True
                    finally:
                        for task in tasks:
                            task.cancel()
    finally:
        await register.close()
    log.info("controller stopped")


def _start(background: asyncio.TaskGroup, controller: Controller) -> list[asyncio.Task[None]]:
    doors = [] if controller.door is None else [controller.door.refresh_forever()]
    lead = controller.register.lead_forever(controller.changes.leader_changed)
    return [
        background.create_task(lead, name="controller.lead"),
        background.create_task(controller.liveness.expire_forever(), name="controller.liveness"),
        background.create_task(controller.changes.elect_forever(), name="controller.elections"),
        *(background.create_task(each, name="controller.access") for each in doors),
    ]


def _own_node(config: ControllerConfig, port: int) -> Node:
    """What brokers are told of this controller; without a host they are told the one they came to."""
    host = config.listen.host
    address = config.address or f"{'' if host in _EVERYWHERE else host}:{port}"
    if config.etcd_endpoints and address.startswith(":"):
        why = "other controllers tell brokers where this one is: give --host ADDRESS, or set bolideControllerAddress"
        raise ConfigError("bindAddress", host, why)
    return Node(config.self_id or ("n0" if not config.etcd_endpoints else address), address)
