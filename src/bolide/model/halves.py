"""Which half messages are copies of one transaction: plain functions on their properties."""

from collections.abc import Mapping

from bolide.model import properties as names

TransactionKey = tuple[str, str, int]


def transaction_key(properties: Mapping[str, str], born_ms: int) -> TransactionKey | None:
    """What all copies of a half message share; None if it has no id, then its copies cannot be told.

    The id alone will not do: a client that passes a message on sends it with the id it came with, at another moment.
    """
    unique_id = properties.get(names.UNIQUE_KEY) or properties.get(names.TRANSACTION_ID)
    return (unique_id, properties.get(names.PRODUCER_GROUP, ""), born_ms) if unique_id else None


def is_copy(properties: Mapping[str, str]) -> bool:
    """Whether a broker stored it when the same half message lay in the queue already.

    One that was given up and is taken up again has zero checks: it begins again, whatever became of the earlier ones.
    """
    return names.PREPARED_QUEUE_OFFSET in properties or properties.get(names.TRANSACTION_CHECK_TIMES, "0") != "0"
