"""Telling the copies of one transaction in the half queue, the newest first.

A copy says of itself that it is one, so an original ends the search for its transaction, and what is remembered is one
entry for each transaction that was asked about and whose original has not come yet.
"""

from bolide.broker.transactions.ended import MOVED, Ended
from bolide.broker.transactions.halves import Trace, may_be_copy
from bolide.model.halves import TransactionKey, is_copy, transaction_key
from bolide.protocol.properties import decode_properties


class Copies:
    """`found` is the newest place of each transaction whose original has not come."""

    def __init__(self, ended: Ended) -> None:
        self._ended = ended
        self.found: dict[TransactionKey, int] = {}

    def take_in(self, trace: Trace) -> None:
        """The record before those that came already."""
        if not self.found and not may_be_copy(trace):
            return
        properties = decode_properties(trace.encoded_properties)
        key = transaction_key(properties, trace.born_ms)
        if key is None:
            return
        newest = self.found.setdefault(key, trace.queue_offset) if is_copy(properties) else self.found.pop(key, None)
        if newest is not None and newest != trace.queue_offset:
            self._join(trace.queue_offset, newest)

    def _join(self, old: int, newest: int) -> None:
        ended = self._ended
        if ended.how(old):
            ended.mark(newest, MOVED)
        elif ended.how(newest):
            ended.mark(old, MOVED)
        else:
            ended.link(old, newest)
