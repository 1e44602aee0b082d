"""The general path with OpenTelemetry looking on: a span around each send, whose context is in the message."""

from bolide.client.sending.receipt import Receipt
from bolide.client.sending.retry_path import RetryPath
from bolide.client.sending.shipment import Shipment
from bolide.client.telemetry import Telemetry


class WatchedPath(RetryPath):
    """A path that tells of each send; what it does is the other's."""

    def __init__(self, path: RetryPath, telemetry: Telemetry, client_id: str) -> None:
        self.__dict__.update(path.__dict__)
        self._telemetry = telemetry
        self._client_id = client_id

    async def send(self, shipment: Shipment) -> list[Receipt]:
        """The receipts, after as many attempts as are needed: one span."""
        with self._telemetry.sending(shipment.messages, self._client_id) as messages:
            receipts = await super().send(shipment._replace(messages=messages))
            self._telemetry.placed(receipts[0].queue, receipts[0].offset_id)
            return receipts

    async def send_oneway(self, shipment: Shipment) -> None:
        """Without an answer."""
        with self._telemetry.sending(shipment.messages, self._client_id) as messages:
            await super().send_oneway(shipment._replace(messages=messages))
