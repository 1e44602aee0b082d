"""Filter servers beside this broker: who is there, and how they come to be.

A filter server says every ten seconds where it is found (301). One that hangs up, or is silent for half a minute, is
forgotten. What is known goes into every registration with the name servers, so that consumers with a filter of their
own find them in the route of their topics.

With `filterServerNums` the broker starts those that are missing: always the same command, with settings from the file
that `bolideFilterServerConfig` names. Nothing that arrives here is executed; what a filter server executes, it executes
itself.
"""

import asyncio
import logging
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass

from bolide.broker.config import LiveConfig
from bolide.clock import Clock
from bolide.errors import ConfigError, Refusal
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.filters import RegisterFilterServerAnswer, RegisterFilterServerRequest
from bolide.remoting.address import split_address
from bolide.remoting.handlers import Handler
from bolide.remoting.session import Request, Session

SILENCE_MAX_S = 30.0
SCAN_INTERVAL_S = 10.0
FIRST_START_S = 5.0
START_INTERVAL_S = 30.0
COUNT_MAX = 64
_ADDRESS = re.compile(r"[A-Za-z0-9._:%\[\]-]{1,255}")
log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Known:
    address: str
    seen_s: float


class FilterServers:
    """Those that are there."""

    def __init__(self, settings: LiveConfig, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._known: dict[Session, _Known] = {}
        self._children: list[asyncio.subprocess.Process] = []
        self._on_change: list[Callable[[], None]] = []

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.REGISTER_FILTER_SERVER: self.register}

    def listen(self, tell: Callable[[], None]) -> None:
        """Have it told whenever one comes or goes."""
        self._on_change.append(tell)

    def addresses(self) -> list[str]:
        """Where they are found, each once."""
        return list(dict.fromkeys(known.address for known in self._known.values()))

    def register(self, request: Request) -> Command:
        """301: a filter server is there."""
        header = RegisterFilterServerRequest.decode(request.command.fields)
        if not is_address(header.address):
            remark = f"filterServerAddr must be host:port, as clients reach it, not {header.address[:80]!r}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        if request.session not in self._known and len(self._known) >= COUNT_MAX:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"{COUNT_MAX} filter servers are here, more are not kept")
        before = self.addresses()
        self._known[request.session] = _Known(header.address, self._clock.monotonic_s())
        self._tell(before)
        config = self._settings.now
        answer = RegisterFilterServerAnswer(broker_name=config.name, broker_id=config.broker_id)
        return request.command.answer(ResponseCode.SUCCESS, fields=answer.encode())

    def left(self, session: Session) -> None:
        """A connection is gone, and the filter server behind it."""
        if session in self._known:
            before = self.addresses()
            del self._known[session]
            self._tell(before)

    def scan(self) -> None:
        """Forget who was silent for half a minute."""
        since_s = self._clock.monotonic_s() - SILENCE_MAX_S
        for session in [session for session, known in self._known.items() if known.seen_s < since_s]:
            log.warning("filter server silent address=%s", self._known[session].address)
            self.left(session)
            session.close("silent")

    def _tell(self, before: list[str]) -> None:
        if self.addresses() != before:
            log.info("filter servers: %s", ", ".join(self.addresses()) or "none")
            for tell in self._on_change:
                tell()

    async def scan_forever(self) -> None:
        """Look for silent ones every 10 s."""
        while True:
            await asyncio.sleep(SCAN_INTERVAL_S)
            self.scan()

    # Starting them

    async def start_forever(self, port: int) -> None:
        """Start those that are missing, first after 5 s; at the end, end those that were started here."""
        try:
            await asyncio.sleep(FIRST_START_S)
            while True:
                await self.start_missing(port)
                await asyncio.sleep(START_INTERVAL_S)
        finally:
            for child in self._children:
                if child.returncode is None:
                    child.terminate()

    async def start_missing(self, port: int) -> None:
        """As many as the settings ask for, counting those that were started and have not registered yet."""
        config = self._settings.now
        self._children = [child for child in self._children if child.returncode is None]
        there = max(len(self.addresses()), len(self._children))
        words = ["filtersrv", "--broker", f"127.0.0.1:{port}"]
        if config.filter_server_file:
            words += ["-c", config.filter_server_file]
        for _ in range(config.filter_server_count - there):
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bolide.cli.main", *words), stdin=asyncio.subprocess.DEVNULL
            )
            log.info("filter server started process=%d", child.pid)
            self._children.append(child)


def is_address(text: str) -> bool:
    """Whether it may go into the routes of all topics: what is there, consumers connect to."""
    try:
        return _ADDRESS.fullmatch(text) is not None and split_address(text)[1] > 0
    except ConfigError:
        return False
