"""Topics that a member waits for: said once of each, and not of one whose first message has just made it."""

import logging
from math import inf

from bolide.model.topics import RETRY_PREFIX

PATIENCE_S = 0.5  # name servers hear of a new topic a moment after its first message was taken
log = logging.getLogger(__name__)


class Absences:
    """The topics of a group that have no route."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._since_s: dict[str, float] = {}  # by topic; infinity once it was said

    def note(self, topic: str, now_s: float) -> None:
        """It was looked for and has no route; retry topics come when a group needs them."""
        if now_s - self._since_s.setdefault(topic, now_s) >= PATIENCE_S and not topic.startswith(RETRY_PREFIX):
            self._since_s[topic] = inf
            log.warning("topic has no route, waiting for it: topic=%s group=%s", topic, self._group)

    def end(self, topic: str) -> None:
        """It has one."""
        self._since_s.pop(topic, None)
