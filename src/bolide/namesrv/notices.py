"""Telling brokers that the smallest id under their name is another's now (request 905, off by default).

It is the only request a name server ever makes, and it goes to brokers, never to clients. One-way and best effort, as
in RocketMQ: a broker that misses it learns the same from its next registration. The queue is short; what does not fit
is dropped with a warning.
"""

import asyncio
import logging
from collections.abc import Callable

from bolide.errors import ClientError, ConfigError
from bolide.namesrv.entries import MinIdNotice
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.headers.registration import NotifyLeastBrokerIdRequest
from bolide.remoting.client import Client

WAITING_MAX = 1000
log = logging.getLogger(__name__)


class Notices:
    """What brokers are still to be told."""

    def __init__(self, timeout_s: Callable[[], float]) -> None:
        self._timeout_s = timeout_s
        self._queue: asyncio.Queue[MinIdNotice] = asyncio.Queue(WAITING_MAX)

    def tell(self, notice: MinIdNotice) -> None:
        try:
            self._queue.put_nowait(notice)
        except asyncio.QueueFull:
            log.warning("notice dropped name=%s min_id=%d: too many wait", notice.name, notice.min_id)

    async def send_forever(self, client: Client) -> None:
        """Send what is in the queue, one broker after another."""
        while True:
            notice = await self._queue.get()
            for address in notice.receivers:
                await self._send(client, address, notice)

    async def _send(self, client: Client, address: str, notice: MinIdNotice) -> None:
        header = NotifyLeastBrokerIdRequest(
            least_broker_id=notice.min_id,
            broker_name=notice.name,
            least_broker_address=notice.min_address,
            offline_broker_address=notice.offline_address or None,
            ha_address=notice.ha_address or None,
        )
        command = Command(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, fields=header.encode())
        try:
            await client.send_oneway(address, command, self._timeout_s())
            log.info("broker told name=%s address=%s min_id=%d", notice.name, address, notice.min_id)
        except (ClientError, ConfigError) as problem:
            log.warning("broker not told name=%s address=%s: %s", notice.name, address, problem)
