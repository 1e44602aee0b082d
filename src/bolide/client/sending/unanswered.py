"""Messages that were submitted and have no answer when the program ends, because nobody closed their producer.

A blocking producer's are sent while there is time: its loop lives in a thread that is there until the last moment. With
asyncio the loop is gone by then, so all that is left is to say how many they were.
"""

import atexit
import logging
import warnings
from typing import Protocol
from weakref import WeakSet

log = logging.getLogger(__name__)


class Unclosed(Protocol):
    """A producer's messages under way."""

    def end(self) -> None:
        """The program ends; must not raise."""
        ...


kept: set[Unclosed] = set()  # those that can still send
watched: WeakSet[Unclosed] = WeakSet()


def say(group: str, lost_count: int, count: int) -> None:
    """This many of those that had no answer when the program ended were not stored, as far as anybody knows."""
    text = f"producer {group} was not closed before the program ended"
    if lost_count:
        text += f": {lost_count} of the {count} submitted messages that were under way may not have been stored"
        log.warning("%s; call close() or flush(), or use its `with` block", text)
    warnings.warn(text, ResourceWarning, stacklevel=2)


@atexit.register
def _end_all() -> None:
    for unclosed in (*kept, *watched):
        unclosed.end()
