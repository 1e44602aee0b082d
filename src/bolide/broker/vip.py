"""The broker's second port, for what RocketMQ calls VIP channels: all but what waits."""

from collections.abc import Awaitable

from bolide.errors import Refusal
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.remoting.owner import Owner, Reply, Request
from bolide.remoting.session import Session

VIP_DISTANCE = 2  # the second port of a broker lies so far below its first
_WAITING_CODES = frozenset(
    (
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
    )
)


class VipOwner(Owner):
    """Serves what the broker serves but for what waits: that belongs to the first port."""

    def __init__(self, broker: Owner) -> None:
        self._broker = broker

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        code = request.command.code
        if code in _WAITING_CODES:
            remark = f"request {code} is not served on this port, but on the one {VIP_DISTANCE} above it"
            raise Refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        return self._broker.serve(request)

    def on_answer(self, request: Request, answer: Command) -> None:
        self._broker.on_answer(request, answer)

    def closed(self, session: Session, why: str) -> None:
        self._broker.closed(session, why)
