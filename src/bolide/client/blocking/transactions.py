"""Transactions for callers without a loop; every method does what its namesake in `bolide.aio` does.

As a send does, a half message first tries a connection that the calling thread writes and reads itself, and its end
leaves on one too; what cannot goes through the loop.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Self, Unpack

from bolide.client.blocking.producer import Producer
from bolide.client.options import TransactionProducerOptions
from bolide.client.sending.parts import Parts
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
        receipt = self._send()
        self._begin(receipt if receipt.is_ok else self._send_again(receipt))
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
        self._make = partial(asynchronous.TransactionProducer, group, namesrv, checker=checker, **options)
        self._stand_before(self._make(), options.get("clock"))

    @property
    def _transactions(self) -> asynchronous.TransactionProducer:
        assert isinstance(self._core, asynchronous.TransactionProducer)
        return self._core

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
        parts = asynchronous.half_parts(Parts(topic, body, tags, keys, properties, flag), immunity_s)
        send_again = partial(self._send_half_again, parts, shard, queue, self._transactions.until_s())
        return Transaction(partial(self._send_half, parts, shard, queue), send_again, self._tell_end)

    def _send_half(self, parts: Parts, shard: str | None, queue: MessageQueue | None) -> Receipt:
        self._follow_fork()
        return self._direct.send(self._transactions.half_pipeline, parts, shard, queue)

    def _send_half_again(
        self, parts: Parts, shard: str | None, queue: MessageQueue | None, until_s: float, receipt: Receipt
    ) -> Receipt:
        return self._background.run(self._transactions.send_half_again(parts, shard, queue, until_s, receipt))

    def _tell_end(self, receipt: Receipt, outcome: Outcome) -> None:
        self._background.check()
        if not (self._transactions.ends_may_pass_loop and self._direct.tell_end(receipt, outcome)):
            # Waited for: else what this thread does next, on a connection of its own, might arrive before.
            self._background.run(self._transactions.tell_end_now(receipt, outcome))
