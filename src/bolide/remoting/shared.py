"""What all connections of a server share: buffers to read into, room for unfinished frames, time to work.

A server with a second port shares it there too, so that the bounds are those of the process. Who connects shares his
buffers among his own connections, and bounds nothing: he chose whom to ask.
"""

from typing import TYPE_CHECKING, Self

from bolide.clock import Clock
from bolide.remoting.dozing import Dozing
from bolide.remoting.endings import Endings
from bolide.remoting.slack import Slack, found_trim

if TYPE_CHECKING:
    from bolide.remoting.listen_config import ListenConfig
    from bolide.remoting.serving import Serving
    from bolide.remoting.slow_work import SlowWork
    from bolide.remoting.unfinished import Unfinished


class Shared:
    """Given to each session; `of_server` has the bounds too."""

    __slots__ = ("dozing", "endings", "serving", "slack", "slow_work", "spare", "unfinished")

    def __init__(
        self,
        unfinished: "Unfinished | None" = None,
        slow_work: "SlowWork | None" = None,
        serving: "Serving | None" = None,
    ) -> None:
        self.spare: list[memoryview] = []
        self.slack = Slack(self.spare)
        self.endings = Endings()
        self.dozing = Dozing()
        self.unfinished = unfinished
        self.slow_work = slow_work
        self.serving = serving

    @classmethod
    def of_server(cls, config: "ListenConfig", clock: Clock) -> Self:
        from bolide.remoting.serving import Serving  # who only connects bounds nobody, and does without
        from bolide.remoting.slow_work import SlowWork
        from bolide.remoting.unfinished import Unfinished

        found_trim()
        return cls(Unfinished(config, clock), SlowWork(clock), Serving(clock))
