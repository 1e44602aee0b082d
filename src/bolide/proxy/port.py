"""What the connections of a gRPC port share: its settings, its methods, and room for requests on their way."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from bolide.clock import Clock
from bolide.proxy.calls import Call
from bolide.proxy.config import PortConfig


class Method(NamedTuple):
    """How a path is served: with the whole request, or with each message of a stream of them."""

    serve: Callable[[Call, bytes], None]
    is_streaming: bool = False


class Unwhole:
    """Bytes of messages that are not whole, over all connections of a port."""

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        self.size = 0


class Port(NamedTuple):
    """What the connections of a port share."""

    config: PortConfig
    methods: Mapping[str, Method]
    unwhole: Unwhole
    clock: Clock
