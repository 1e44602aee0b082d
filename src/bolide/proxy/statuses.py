"""How it went, in the codes of the gRPC protocol; and what a broker's answer means in them."""

from bolide.errors import BolideError, NoAnswer
from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import Command
from bolide.proxy import messages as m

_OF_BROKER: dict[int, m.Code] = {
    ResponseCode.SUCCESS: m.Code.OK,
    ResponseCode.SYSTEM_BUSY: m.Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: m.Code.NOT_IMPLEMENTED,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: m.Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.TOPIC_NOT_EXIST: m.Code.TOPIC_NOT_FOUND,
    ResponseCode.NO_PERMISSION: m.Code.FORBIDDEN,
    ResponseCode.POLLING_FULL: m.Code.TOO_MANY_REQUESTS,
    ResponseCode.FLUSH_DISK_TIMEOUT: m.Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: m.Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: m.Code.HA_NOT_AVAILABLE,
}
# What these say of a handle is that its message is not out any more: a client that hears so stops repeating itself.
_OF_HANDLE: dict[int, m.Code] = {
    ResponseCode.NO_MESSAGE: m.Code.INVALID_RECEIPT_HANDLE,
    ResponseCode.MESSAGE_ILLEGAL: m.Code.INVALID_RECEIPT_HANDLE,
    ResponseCode.INVALID_PARAMETER: m.Code.INVALID_RECEIPT_HANDLE,
}


class Denied(Exception):
    """A call that is answered with this code."""

    def __init__(self, code: m.Code, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


_OK_CODE = m.Code.OK


def ok() -> m.Status:
    return m.Status(code=_OK_CODE, message="OK")


def set_status(told: m.Status, denial: Denied | None) -> None:
    """Say in a status of an answer that it went well, or why not."""
    told.code, told.message = (_OK_CODE, "OK") if denial is None else (denial.code, denial.text[:1024])


def status(code: m.Code, text: str) -> m.Status:
    """A status with a text that fits a line."""
    return m.Status(code=code, message=text[:1024])


def denial_of(answer: Command | BolideError, *, is_about_handle: bool = False) -> Denied | None:
    """What a broker's answer means that is no success; None if it is one."""
    if isinstance(answer, Command):
        if answer.code == ResponseCode.SUCCESS:
            return None
        table = {**_OF_BROKER, **_OF_HANDLE} if is_about_handle else _OF_BROKER
        code = table.get(answer.code)
        return Denied(code or m.Code.INTERNAL_SERVER_ERROR, answer.remark or f"the broker answered {answer.code}")
    if isinstance(answer, NoAnswer):
        return Denied(m.Code.PROXY_TIMEOUT, str(answer))
    return Denied(m.Code.INVALID_RECEIPT_HANDLE if is_about_handle else m.Code.BAD_REQUEST, str(answer))
