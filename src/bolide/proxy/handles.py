"""Receipt handles: what a client acknowledges a message by, and how they are kept alive for it.

A handle is RocketMQ's: the eight tokens of a POP_CK and the physical offset, so any proxy and broker understands it. A
push consumer does not say how long it needs; its messages are hidden for a minute and for longer before that is over,
in growing steps, until it settles them or is gone. Each change makes another handle and the old one worthless, while
the client holds the first: so the newest is remembered under the first.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from bolide.clock import Clock
from bolide.errors import Refusal
from bolide.protocol.headers.poptext import PopHandle, build_handle, parse_handle
from bolide.proxy import messages as m
from bolide.proxy.config import ProxyConfig
from bolide.proxy.statuses import Denied

_TOKENS = 8
_STEPS_MS = [60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000]  # the last one for ever
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Receipt:
    """A handle that was read: where the message is out, and where it lies (-1 if that was not said)."""

    pop: PopHandle
    physical_offset: int

    @property
    def text(self) -> str:
        return f"{build_handle(self.pop)} {self.physical_offset}"

    @property
    def expires_ms(self) -> int:
        return self.pop.popped_ms + self.pop.invisible_ms


def read_receipt(text: str) -> Receipt:
    """Parse a client's handle; raises Denied."""
    tokens = text.split(" ")
    try:
        pop = parse_handle(" ".join(tokens[:_TOKENS]))
        return Receipt(pop, int(tokens[-1]) if len(tokens) > _TOKENS else -1)
    except (Refusal, ValueError):
        raise Denied(m.Code.INVALID_RECEIPT_HANDLE, f"{text[:80]!r} is no receipt handle") from None


class Held(NamedTuple):
    """Whose message it is; `first` is the handle the client has."""

    client_id: str
    group: str
    topic: str
    first: str


class Renewal:
    """A message that is kept hidden for a client."""

    __slots__ = ("began_ms", "failure_count", "is_changing", "receipt", "step")

    def __init__(self, receipt: Receipt, began_ms: int) -> None:
        self.receipt = receipt
        self.began_ms = began_ms
        self.step = 0
        self.failure_count = 0
        self.is_changing = False


# Hide a message for longer: whose, its newest handle, for how long, and who hears the handle after it.
Change = Callable[[Held, Receipt, int, Callable[[Receipt | None], None]], None]


class Renewals:
    """All messages that are kept hidden, by client."""

    def __init__(self, config: ProxyConfig, clock: Clock, change: Change, backoff_ms: Callable[[str], int]) -> None:
        """`backoff_ms` is how long a message of a group waits after its first failure."""
        self._config = config
        self._clock = clock
        self._change = change
        self._backoff_ms = backoff_ms
        self._by_client: dict[str, dict[Held, Renewal]] = {}
        self.count = 0

    def add(self, held: Held, receipt: Receipt) -> None:
        """Keep a message hidden from now on."""
        if self.count < self._config.renewed_max:
            self._by_client.setdefault(held.client_id, {})[held] = Renewal(receipt, self._clock.now_ms())
            self.count += 1

    def newest(self, held: Held) -> Receipt | None:
        """The handle that is good now, if the message is kept hidden."""
        renewal = self._by_client.get(held.client_id, {}).get(held)
        return None if renewal is None else renewal.receipt

    def take(self, held: Held) -> Renewal | None:
        """Stop keeping it: it is being settled. `put_back` if that fails."""
        renewals = self._by_client.get(held.client_id, {})
        renewal = renewals.pop(held, None)
        if renewal is not None:
            self.count -= 1
            if not renewals:
                del self._by_client[held.client_id]
        return renewal

    def put_back(self, held: Held, renewal: Renewal | None) -> None:
        if renewal is not None and renewal.receipt.expires_ms > self._clock.now_ms():
            self._by_client.setdefault(held.client_id, {})[held] = renewal
            self.count += 1

    def release(self, client_id: str) -> None:
        """The client is gone: others get its messages soon."""
        renewals = self._by_client.pop(client_id, {})
        self.count -= len(renewals)
        for held, renewal in renewals.items():
            self._change(held, renewal.receipt, self._config.released_ms, lambda _: None)

    def release_all(self) -> None:
        """The server stops."""
        for client_id in list(self._by_client):
            self.release(client_id)

    async def run_forever(self) -> None:
        """Look every few seconds for those whose time is nearly over."""
        while True:
            await asyncio.sleep(self._config.renew_interval_ms / 1000)
            self.renew()

    def renew(self) -> None:
        soon_ms = self._clock.now_ms() + self._config.renew_ahead_ms
        due = [
            (held, renewal)
            for renewals in self._by_client.values()
            for held, renewal in renewals.items()
            if renewal.receipt.expires_ms <= soon_ms and not renewal.is_changing
        ]
        for held, renewal in due:
            self._renew(held, renewal)

    def _renew(self, held: Held, renewal: Renewal) -> None:
        invisible_ms = _STEPS_MS[min(renewal.step, len(_STEPS_MS) - 1)]
        is_last = self._clock.now_ms() - renewal.began_ms >= self._config.renew_max_ms
        if is_last:
            invisible_ms = self._backoff_ms(held.group)
            self.take(held)

        def changed(receipt: Receipt | None) -> None:
            renewal.is_changing = False
            if receipt is not None:
                renewal.receipt, renewal.step, renewal.failure_count = receipt, renewal.step + 1, 0
                return
            renewal.failure_count += 1
            if renewal.failure_count >= self._config.renew_failures_max:
                log.info("a message is not kept hidden any more client=%s group=%s", held.client_id, held.group)
                self.take(held)

        renewal.is_changing = True
        self._change(held, renewal.receipt, invisible_ms, changed)
