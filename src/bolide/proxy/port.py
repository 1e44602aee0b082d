"""What the connections of a gRPC port share: its settings, its methods, and room for requests on their way."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from bolide.clock import Clock
from bolide.protocol.http2 import Limits
from bolide.proxy.call_times import CallTimes
from bolide.proxy.calls import Call
from bolide.proxy.config import PortConfig

LIMITS = Limits(streams_max=1_000, headers_size_max=16 * 1024, stream_window=1 << 20, connection_window=4 << 20)
_ACKNOWLEDGE_WITHIN_S = 0.002  # with the next answer if it comes sooner: Go's clients ping after each one


class Method(NamedTuple):
    """How a path is served: with the whole request, or with each message of a stream of them."""

    serve: Callable[[Call, bytes], None]
    is_streaming: bool = False


class Unwhole:
    """Bytes of messages that are not whole, over all connections of a port."""

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        self.size = 0


class LateWrites:
    """Who has something to say that may wait for an answer to go with it: one timer for all connections."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def add(self, write: Callable[[], None]) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_later(_ACKNOWLEDGE_WITHIN_S, self._end)
        self._waiting.append(write)

    def _end(self) -> None:
        waiting, self._waiting = self._waiting, []
        for write in waiting:
            write()


class Backlog:
    """Connections that sent more than a turn serves: each turn of the loop goes on with one, however many there are."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    def add(self, go_on: Callable[[], None]) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        self._waiting.append(go_on)

    def _turn(self) -> None:
        go_on = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        go_on()


@dataclass(frozen=True, slots=True)
class Port:
    """What the connections of a port share."""

    config: PortConfig
    methods: Mapping[str, Method]
    unwhole: Unwhole
    clock: Clock
    times: CallTimes | None = None  # where metrics are shown
    late: LateWrites = field(default_factory=LateWrites)
    backlog: Backlog = field(default_factory=Backlog)
