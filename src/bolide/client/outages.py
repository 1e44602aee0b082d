"""What is said while brokers cannot be reached: a line when one goes, a line when it is back, and nothing in between.

A consumer asks once a second for each of its queues; without this each of them would say so each time.
"""

import logging

import msgspec

from bolide.clock import Clock

log = logging.getLogger(__name__)


class _Outage(msgspec.Struct):
    subject: str
    since_s: float
    failure_count: int = 0


class Outages:
    """Of one client. A key is what fails as a whole: a broker's address, or one of its queues."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[object, _Outage] = {}

    def __bool__(self) -> bool:
        return bool(self._running)

    def failed(self, key: object, subject: str, problem: BaseException) -> None:
        """Said the first time, counted from then on."""
        outage = self._running.get(key)
        if outage is None:
            outage = self._running[key] = _Outage(subject, self._clock.monotonic_s())
            found = str(problem).partition("; next attempt in")[0]
            log.warning("%s fails, and is tried until it works problem=%s", subject, found)
        outage.failure_count += 1

    def worked(self, key: object) -> None:
        """Whatever was wrong with it is over."""
        outage = self._running.pop(key, None)
        if outage is not None:
            lasted_s = self._clock.monotonic_s() - outage.since_s
            log.warning("%s works again after %.1f s and %d failures", outage.subject, lasted_s, outage.failure_count)

    def forget(self, key: object) -> None:
        """It is not our business any more."""
        self._running.pop(key, None)
