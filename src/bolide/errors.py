"""Everything Bolide raises on purpose.

`Refusal` answers and the connection lives on; `ProtocolError` hangs up. Facts are attributes, and the sentence says
what was found and what to do. What may go better the next time is a `NoAnswer`: a retry loop catches that one class
and keeps no list of its own. `retriable` tells the same of any error.
"""

from typing import ClassVar

_TOLD_LENGTH_MAX = 200  # of what somebody gave us, in a sentence


class BolideError(Exception):
    """The root of what Bolide raises on purpose. `code` is RocketMQ's, where the other side gave one."""

    retriable: ClassVar[bool] = False
    code: int | None = None


class Refusal(BolideError):
    """A request that was understood and declined; `code` is a RocketMQ response code.

    A remark may repeat what was asked, and a stranger may ask for a megabyte: it has an end.
    """

    remark_length_max: ClassVar[int] = 2000

    code: int

    def __init__(self, code: int, remark: str) -> None:
        if len(remark) > self.remark_length_max:
            remark = f"{remark[: self.remark_length_max]}..."
        super().__init__(remark)
        self.code = int(code)
        self.remark = remark


class ProtocolError(BolideError):
    """The peer broke the rules of the wire; the connection is closed."""


class StoreError(BolideError):
    """The files said something unexpected, or could not be written."""


class CorruptRecord(StoreError):
    """Bytes of the log that are not what was written."""


class CopyGap(StoreError):
    """Bytes of another log that do not go on where ours ends."""

    def __init__(self, offset: int, end: int) -> None:
        super().__init__(f"bytes from {offset} on do not follow a log that ends at {end}")
        self.offset = offset
        self.end = end


class ConfigError(BolideError):
    """A setting that cannot be honoured."""

    def __init__(self, key: str, value: object, why: str) -> None:
        told = repr(value)
        told = told if len(told) <= _TOLD_LENGTH_MAX else f"{told[:_TOLD_LENGTH_MAX]}..."
        super().__init__(f"{key[:_TOLD_LENGTH_MAX]} = {told}: {why}")
        self.key = key
        self.value = value
        self.why = why


class ClientError(BolideError):
    """A call that could not be carried out at the other side; `code` is RocketMQ's where there is one."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class AccessRefused(ClientError):
    """A server does not know us, or does not let us do what we asked; its own words are in the sentence."""


class NoAnswer(ClientError):
    """The other side was not reached, or did not answer: the same call may succeed there later, or elsewhere now."""

    retriable = True


class ConnectError(NoAnswer):
    """Nobody answered at the address."""


class RequestTimeout(NoAnswer):
    """The answer did not come in time; whether the request was carried out is not known."""


class ReplyTimeout(RequestTimeout):
    """No reply to a request came in time; `is_sent` tells whether a broker had confirmed the request."""

    def __init__(self, message: str, code: int | None = None, *, is_sent: bool) -> None:
        super().__init__(message, code)
        self.is_sent = is_sent


class ConnectionLost(NoAnswer):
    """The connection ended between request and answer."""
