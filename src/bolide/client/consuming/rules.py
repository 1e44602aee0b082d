"""How a member of a consumer group consumes."""

from pathlib import Path

import msgspec

from bolide.client.consuming.start_from import StartFrom
from bolide.client.serializers import JSON, Serializer
from bolide.model.allocation import Strategy, averagely

LOCAL_DIRECTORY = Path("~/.rocketmq_offsets")


class PullRules(msgspec.Struct, frozen=True, kw_only=True):
    """How much is asked for at once, and how much may lie unsettled; the defaults are RocketMQ's."""

    batch_count: int = 32
    batch_size: int = 256 * 1024
    suspend_s: float = 15.0
    timeout_s: float = 30.0
    held_count_max: int = 1000
    held_size_max: int = 100 << 20
    span_max: int = 2000
    pause_s: float = 1.0


class SubscriberRules(msgspec.Struct, frozen=True, kw_only=True):
    """How a member consumes."""

    is_broadcasting: bool = False
    is_ordered: bool = False
    start_from: StartFrom = msgspec.field(default_factory=StartFrom.newest)
    strategy: Strategy = averagely
    pull: PullRules = msgspec.field(default_factory=PullRules)
    retry_count_max: int | None = None
    page_count_max: int = 1  # of an ordered queue this many messages may be out at once
    local_directory: Path = LOCAL_DIRECTORY
    serializer: Serializer = JSON  # of `message.value`
    trace: bool | str = False  # whether to tell of every message, or the topic to do it in

    @property
    def needs_lock(self) -> bool:
        """Whether each queue is one member's at a time."""
        return self.is_ordered and not self.is_broadcasting
