"""Whether a client tells of its messages in the trace topic, and what may have become of one. Most clients do not."""

from typing import TYPE_CHECKING

from bolide.client.config import ClientConfig
from bolide.clock import Clock

if TYPE_CHECKING:
    from bolide.client.tracing import Tracing

SUCCESS, TIMEOUT, EXCEPTION, FAILED = 0, 1, 2, 4
OUTCOMES = {SUCCESS: "", TIMEOUT: "timeout", EXCEPTION: "exception", FAILED: "failed"}


def tracing_of(group: str, trace: str | bool, config: ClientConfig, clock: Clock) -> "Tracing | None":
    """`trace` as users give it: whether to, or the topic to use."""
    if not trace:
        return None
    from bolide.client.tracing import Tracing

    return Tracing(group, trace, config, clock)
