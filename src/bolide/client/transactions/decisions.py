"""A transaction from its receipt to its outcome, for both faces: how the receipt is waited for is theirs."""

from collections.abc import Callable
from typing import Generic, TypeVar

from bolide.client.sending.receipt import Receipt, SendStatus
from bolide.client.transactions.checker import Outcome
from bolide.errors import ClientError
from bolide.protocol.codes import ResponseCode

# Python 3.11 looks a member up in two steps of Python's own, and every transaction asks for these.
_STORED, _COMMIT = SendStatus.SEND_OK, Outcome.COMMIT

T = TypeVar("T")  # what sending gives: a receipt, or an awaitable of one


class Deciding(Generic[T]):
    """Begins once, is decided once, and tells how."""

    __slots__ = ("_receipt", "_send", "_send_again", "_tell", "outcome")

    def __init__(
        self,
        send: Callable[[], T],
        send_again: Callable[[Receipt], T],
        tell: Callable[[Receipt, Outcome], None],
    ) -> None:
        """`send_again` is given the receipt of a half message that is not safe, and gives that of a better one."""
        self.outcome: Outcome | None = None  # what was decided, if anything was
        self._send = send
        self._send_again = send_again
        self._tell = tell
        self._receipt: Receipt | None = None

    def __repr__(self) -> str:
        name = self._receipt.msg_id if self._receipt else "not begun"
        return f"<Transaction {name} {self.outcome.name if self.outcome else 'open'}>"

    @property
    def id(self) -> str:
        """The transaction's id, which is the message's own."""
        return self.receipt.msg_id

    @property
    def receipt(self) -> Receipt:
        """Where the half message lies."""
        if self._receipt is None:
            raise ClientError("the transaction has not begun: use it inside its `with` block")
        return self._receipt

    def _check_new(self) -> None:
        if self._receipt is not None:
            raise ClientError(f"transaction {self.id} has begun before; ask the producer for another")

    def _begin(self, receipt: Receipt) -> None:
        """The half message is stored; where that did not succeed in full, nothing is left."""
        self._receipt = receipt
        if receipt.status is not _STORED:
            # One whose replicas are late may lie nowhere by now, and another message in its place: nothing is told.
            self._decide(Outcome.UNKNOWN if receipt.status is SendStatus.FLUSH_SLAVE_TIMEOUT else Outcome.ROLLBACK)
            raise ClientError(
                f"the half message was stored, but not as safely as the broker should ({receipt.status.name}); the "
                "transaction is rolled back",
                ResponseCode(receipt.status.value),
            )

    def _decide(self, outcome: Outcome) -> None:
        receipt = self.receipt
        if self.outcome is not None:
            raise ClientError(f"transaction {self.id} was decided before: {self.outcome.name}")
        self.outcome = outcome
        self._tell(receipt, outcome)

    def _leave(self, problem: BaseException | None) -> None:
        """The block was left. Cancelled or interrupted, nobody can know how far it came: then the checker decides."""
        receipt = self._receipt
        if self.outcome is not None or receipt is None:
            return
        if problem is None:
            self.outcome = _COMMIT
        else:
            self.outcome = Outcome.ROLLBACK if isinstance(problem, Exception) else Outcome.UNKNOWN
        self._tell(receipt, self.outcome)
