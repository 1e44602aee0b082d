"""How a member of a consumer group consumes."""

from dataclasses import dataclass, field
from pathlib import Path

from bolide.client.consuming.pulling import PullRules
from bolide.client.consuming.start_from import StartFrom
from bolide.model.allocation import Strategy, averagely

LOCAL_DIRECTORY = Path("~/.rocketmq_offsets")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberRules:
    """How a member consumes."""

    is_broadcasting: bool = False
    is_ordered: bool = False
    start_from: StartFrom = field(default_factory=StartFrom.newest)
    strategy: Strategy = averagely
    pull: PullRules = field(default_factory=PullRules)
    retry_count_max: int | None = None
    page_count_max: int = 1  # of an ordered queue so many messages may be out at once
    local_directory: Path = LOCAL_DIRECTORY
    trace: bool | str = False  # whether to tell of every message, or the topic to do it in
