"""Which failures of a send are worth another attempt."""

from bolide.client.instance import BROKER_NOT_IN_ROUTE, GO_AWAY
from bolide.errors import AccessRefused, ClientError, NoAnswer
from bolide.protocol.codes import ResponseCode

# Another broker may take what this one refused; any other code would be the same everywhere.
_RETRIED_CODES = frozenset(
    (
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        204,
        205,
        GO_AWAY,
        BROKER_NOT_IN_ROUTE,
    )
)
# What a broker says that does not lead, or may not store because its replicas are away; RocketMQ has no codes for it.
_WITHOUT_LEAD = ("[REJECTREQUEST]", "in-sync replicas not enough")
_BUSY_CODES = frozenset((ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, GO_AWAY))


def is_worth_another(failure: ClientError) -> bool:
    """Whether another broker may take what this one did not."""
    return failure.retriable or (failure.code in _RETRIED_CODES and not isinstance(failure, AccessRefused))


def is_network(failure: ClientError | None) -> bool:
    """Whether the broker was not reached, or did not answer."""
    return isinstance(failure, NoAnswer)


def is_busy(failure: ClientError) -> bool:
    """Whether the same broker may take it in a moment."""
    return failure.code in _BUSY_CODES


def is_without_lead(failure: ClientError) -> bool:
    """Whether the group of the broker has no master that may store: nothing was stored, and one is elected soon."""
    if failure.code in (ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR):
        return any(words in str(failure) for words in _WITHOUT_LEAD)
    return failure.code == BROKER_NOT_IN_ROUTE
