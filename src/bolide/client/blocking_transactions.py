"""Transactions for callers without a loop; every method does what its namesake in `bolide.aio` does."""

from types import TracebackType
from typing import Self, Unpack

from bolide.client import transactions as asynchronous
from bolide.client.background import BackgroundLoop
from bolide.client.blocking import Producer
from bolide.client.checker import Check, Outcome
from bolide.client.options import TransactionOptions, TransactionProducerOptions
from bolide.client.receipt import Receipt
from bolide.model.message import Message


class Transaction:
    """One message whose fate is open; made by `TransactionProducer.transaction`, decided once.

    Left without a decision the block commits; an exception rolls back. Interrupted, nobody can know how far it came:
    then the checker decides.
    """

    def __init__(self, background: BackgroundLoop, core: asynchronous.Transaction) -> None:
        self._background = background
        self._core = core

    def __repr__(self) -> str:
        return repr(self._core)

    @property
    def id(self) -> str:
        """The transaction's id, which is the message's own."""
        return self._core.id

    @property
    def receipt(self) -> Receipt:
        """Where the half message lies."""
        return self._core.receipt

    @property
    def outcome(self) -> Outcome | None:
        """What was decided, if anything was."""
        return self._core.outcome

    def commit(self) -> None:
        """Let consumers have the message."""
        self._background.run(self._core.commit())

    def rollback(self) -> None:
        """Let nobody have it."""
        self._background.run(self._core.rollback())

    def unknown(self) -> None:
        """Leave it to the checker, which is asked later."""
        self._background.run(self._core.unknown())

    def __enter__(self) -> Self:
        self._background.run(self._core.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._background.run(self._core.__aexit__(kind, problem, trace))


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
        self, topic: str | Message, body: bytes = b"", **options: Unpack[TransactionOptions]
    ) -> Transaction:
        """A transaction for `with`: the half message is stored on entering, the end told on leaving.

        Takes what `TransactionOptions` names. `immunity_s` keeps brokers from asking for so long; a broker takes no end
        of ours that comes later than that.
        """
        return Transaction(self._background, self._transactions.transaction(topic, body, **options))
