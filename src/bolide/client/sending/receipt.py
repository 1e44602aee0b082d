"""What a send returns."""

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from itertools import count, repeat
from typing import NamedTuple, Protocol

from bolide.client.access import failure_of
from bolide.model.queue import MessageQueue
from bolide.protocol.codes import ResponseCode


class SendStatus(Enum):
    """How safe a stored message is; all four are stored, so none is sent again by default."""

    SEND_OK = int(ResponseCode.SUCCESS)
    FLUSH_DISK_TIMEOUT = int(ResponseCode.FLUSH_DISK_TIMEOUT)
    SLAVE_NOT_AVAILABLE = int(ResponseCode.SLAVE_NOT_AVAILABLE)
    FLUSH_SLAVE_TIMEOUT = int(ResponseCode.FLUSH_SLAVE_TIMEOUT)


_STORED = {status.value: status for status in SendStatus}


class Receipt(NamedTuple):
    """Where a message landed. `msg_id` is the producer's id, which consumers see; `offset_id` is the broker's.

    A timed message has a `recall_handle`, by which it can be taken back before it is due.
    """

    queue: MessageQueue
    queue_offset: int
    msg_id: str
    offset_id: str
    status: SendStatus = SendStatus.SEND_OK
    recall_handle: str | None = None

    @property
    def is_ok(self) -> bool:
        """Stored and as safe as the broker was told to make it."""
        return self.status is SendStatus.SEND_OK


class Answered(Protocol):
    """What a receipt is read from: an answer, however it came."""

    @property
    def code(self) -> int: ...

    @property
    def remark(self) -> str | None: ...

    @property
    def fields(self) -> Mapping[str, str]: ...


def receipt_of(answer: Answered, queue: MessageQueue, msg_id: str) -> Receipt:
    """The receipt in a broker's answer; ClientError with the broker's code when it did not store the message."""
    status = _STORED.get(answer.code)
    if status is None:
        raise failure_of(answer)
    fields = answer.fields
    stored_in = MessageQueue(queue.topic, queue.broker_name, int(fields["queueId"]))
    handle = fields.get("recallHandle")
    return Receipt(stored_in, int(fields["queueOffset"]), msg_id, fields["msgId"], status, handle)


def batch_receipts(answer: Answered, queue: MessageQueue, msg_ids: list[str]) -> list[Receipt]:
    """The receipts of a batch."""
    whole = receipt_of(answer, queue, "")
    return receipts_of(whole.queue, whole.queue_offset, whole.offset_id, msg_ids, whole.status)


# What `Receipt._make` does, without its steps in Python: a batch has many.
_receipt_of_row: Callable[[tuple[object, ...]], Receipt] = partial(tuple.__new__, Receipt)


def receipts_of(
    queue: MessageQueue,
    queue_offset: int,
    offset_ids: str,
    msg_ids: list[str],
    status: SendStatus = SendStatus.SEND_OK,
) -> list[Receipt]:
    """Receipts of messages that lie together: one queue, consecutive offsets, the broker's ids joined by commas."""
    split = offset_ids.split(",")
    if len(split) != len(msg_ids):
        split = [offset_ids] * len(msg_ids)  # a broker that gives one id for all
    rows = zip(repeat(queue), count(queue_offset), msg_ids, split, repeat(status), repeat(None), strict=False)
    return list(map(_receipt_of_row, rows))
