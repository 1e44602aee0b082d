"""Transactions for callers without a loop; every method does what its namesake in `bolide.aio` does.

As a send does, a half message first tries a connection that the calling thread writes and reads itself, and its end
leaves on one too; what cannot goes through the loop.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Self, Unpack

from bolide.client.blocking.faces import Producer
from bolide.client.options import TransactionProducerOptions
from bolide.client.sending.receipt import Receipt
from bolide.client.transactions import producer as asynchronous
from bolide.client.transactions.checker import Check, Outcome
from bolide.client.transactions.decisions import Deciding
from bolide.model.message import Message
from bolide.model.queue import MessageQueue


class Transaction(Deciding[Receipt]):
    """One message whose fate is open; made by `TransactionProducer.transaction`, decided once.

    Left without a decision the block commits; an exception rolls back. Interrupted, nobody can know how far it came:
    then the checker decides.
    """

    __slots__ = ()

    def commit(self) -> None:
        """Let consumers have the message."""
        self._decide(Outcome.COMMIT)

    def rollback(self) -> None:
        """Let nobody have it."""
        self._decide(Outcome.ROLLBACK)

    def unknown(self) -> None:
        """Leave it to the checker, which is asked later."""
        self._decide(Outcome.UNKNOWN)

    def __enter__(self) -> Self:
        self._check_new()
        self._begin(self._send())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(problem)


class TransactionProducer(Producer):
    """A producer that also sends transactions, and answers for those of its group. Threads may share it."""

    def __init__(
        self,
        group: str,
        namesrv: str | None = None,
        *,
        checker: Check,
        **options: Unpack[TransactionProducerOptions],
    ) -> None:
        """`checker` is given a message and says how its transaction ended, in a thread of its own; it may be asked
        about transactions that another member of the group began.

        A member is asked by the brokers it knows: those that create topics by themselves, those of the topics it has
        sent to, and those of `topics`. The other options are those of `TransactionProducerOptions`.
        """
        self._transactions = asynchronous.TransactionProducer(group, namesrv, checker=checker, **options)
        self._stand_before(self._transactions, options.get("clock"))

    def transaction(
        self,
        topic: str | Message,
        body: bytes = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        shard: str | None = None,
        queue: MessageQueue | None = None,
        immunity_s: int | None = None,
    ) -> Transaction:
        """A transaction for `with`: the half message is stored on entering, the end told on leaving.

        `immunity_s` keeps brokers from asking for so long; a broker takes no end of ours that comes later than that.
        """
        if immunity_s is not None:
            properties = asynchronous.with_immunity(properties, immunity_s)
        send = partial(self._send_half, topic, body, tags, keys, properties, flag, shard, queue)
        return Transaction(send, self._tell_end)

    def _send_half(
        self,
        topic: str | Message,
        body: bytes,
        tags: str | None,
        keys: str | Iterable[str],
        properties: Mapping[str, str] | None,
        flag: int,
        shard: str | None,
        queue: MessageQueue | None,
    ) -> Receipt:
        core = self._transactions
        self._background.check()
        started_s = self._clock.monotonic_s()
        short = core.short_half(topic, body, tags, keys, properties, flag) if core.may_pass_loop else None
        if short is None:

            async def send() -> Receipt:
                return await core.send_half(topic, body, tags, keys, properties, flag, shard, queue)

            return self._background.run(send())
        receipt, unsent, last_broker = self._direct.send_short(*short, shard, queue, core.timeout_s, core.half_rules)
        if receipt is not None or unsent is None:
            assert receipt is not None, "an attempt has a receipt or leaves its message"
            return receipt
        left_s = max(core.timeout_s - (self._clock.monotonic_s() - started_s), 0.001)
        return self._background.run(core.send_half_slowly(unsent, shard, queue, left_s, last_broker))

    def _tell_end(self, receipt: Receipt, outcome: Outcome) -> None:
        self._background.check()
        if not (self._transactions.ends_may_pass_loop and self._direct.tell_end(receipt, outcome)):
            self._background.loop.call_soon_threadsafe(self._transactions.tell_end, receipt, outcome)
