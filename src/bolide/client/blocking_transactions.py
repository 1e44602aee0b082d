"""Transactions for callers without a loop; every method does what its namesake in `bolide.aio` does."""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from bolide.client import transactions as asynchronous
from bolide.client.background import BackgroundLoop
from bolide.client.blocking import Producer
from bolide.client.checker import Check, Outcome
from bolide.client.config import Credentials
from bolide.client.hooks import SendHook
from bolide.client.receipt import Receipt
from bolide.clock import Clock, SystemClock
from bolide.model.message import Message
from bolide.model.queue import MessageQueue
from bolide.remoting.config import ConnectConfig


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
        check_concurrency: int = 1,
        topics: Iterable[str] = (),
        timeout_s: float = 3.0,
        retry_count: int = 2,
        compress_over: int = 4096,
        compression: str = "zlib",
        body_size_max: int = 4 << 20,
        instance_name: str = "",
        credentials: Credentials | None = None,
        connect: ConnectConfig | None = None,
        hooks: Sequence[SendHook] = (),
        trace: bool | str = False,
        clock: Clock | None = None,
    ) -> None:
        """`checker` is given a message and says how its transaction ended, in a thread of its own; it may be asked
        about transactions that another member of the group began.

        A member is asked by the brokers it knows: those that create topics by themselves, those of the topics it has
        sent to, and those of `topics`.
        """
        clock = clock or SystemClock()
        self._transactions = asynchronous.TransactionProducer(
            group,
            namesrv,
            checker=checker,
            check_concurrency=check_concurrency,
            topics=topics,
            timeout_s=timeout_s,
            retry_count=retry_count,
            compress_over=compress_over,
            compression=compression,
            body_size_max=body_size_max,
            instance_name=instance_name,
            credentials=credentials,
            connect=connect,
            hooks=hooks,
            trace=trace,
            clock=clock,
        )
        is_direct = not hooks and not trace and not (connect is not None and connect.is_tls)
        self._stand_before(self._transactions, clock, is_direct=is_direct)

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
        core = self._transactions.transaction(
            topic,
            body,
            tags=tags,
            keys=keys,
            properties=properties,
            flag=flag,
            shard=shard,
            queue=queue,
            immunity_s=immunity_s,
        )
        return Transaction(self._background, core)
