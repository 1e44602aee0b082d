"""What becomes of a message that failed: tried again here, taken back by its broker, or put among the dead letters.

    group          not done (nack, or an exception)                 given up (dead_letter)
    unordered      back to the broker, which delivers it later      to the dead letters
    ordered        again here, before the next of its queue;        to the dead letters
                   after `retry_count_max` retries as if given up
    broadcasting   logged and lost: there are no retries            likewise

Where no broker takes it, it stays here and is handed out again after five seconds; it is not settled meanwhile, so a
crash cannot lose it.
"""

import asyncio
import logging
from collections.abc import Callable

from bolide.client.consuming.inflight import InFlight
from bolide.client.consuming.received import Received, Verdict
from bolide.client.consuming.rules import SubscriberRules
from bolide.client.consuming.send_back import Failure, SendBack
from bolide.remoting.isolated_tasks import IsolatedTasks

SUSPEND_S = 1.0
LOCAL_RETRY_S = 5.0
log = logging.getLogger(__name__)


class Returns:
    """Failed messages of one member. `on_ready` hears of a queue that has something to hand out again."""

    def __init__(
        self,
        send_back: SendBack,
        guests: IsolatedTasks,
        on_ready: Callable[[InFlight], None],
        rules: SubscriberRules,
    ) -> None:
        self._send_back = send_back
        self._guests = guests
        self._on_ready = on_ready
        self._is_ordered = rules.is_ordered
        self._is_broadcasting = rules.is_broadcasting
        self._retry_count_max = rules.retry_count_max
        self._under_way: set[asyncio.Task[None]] = set()

    def take(
        self, home: InFlight, message: Received, verdict: Verdict, delay_s: float | None, reason: str | None
    ) -> None:
        """A message was not done, or given up."""
        home.returning_count += 1
        if self._is_broadcasting:
            log.warning("message failed, and a broadcasting group has no retries: %r reason=%s", message, reason)
            self.settle(home, message)
        elif self._is_ordered and verdict is Verdict.NACK and not self._is_given_up(message):
            self._hand_out_later(home, message, SUSPEND_S if delay_s is None else delay_s)
        else:
            is_dead = verdict is Verdict.DEAD or self._is_ordered
            if is_dead:
                log.info("message given up, to the dead letters: %r reason=%s", message, reason)
            returning = self._return(home, message, Failure(delay_s, reason or "", is_dead))
            task = self._guests.start(returning, name="consumer.sendback")
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def finish(self, limit_s: float) -> None:
        """Wait until brokers have what is on its way to them, so that it counts as settled; not for ever."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=limit_s)

    def _is_given_up(self, message: Received) -> bool:
        """In an ordered group a message is tried again here, without an end unless one was asked for."""
        return self._retry_count_max is not None and message.attempt > self._retry_count_max

    def settle(self, home: InFlight, message: Received) -> None:
        """It is done with; an ordered queue goes on."""
        home.returning_count -= 1
        home.settle(message)
        if self._is_ordered and home.has_ready:
            self._on_ready(home)

    async def _return(self, home: InFlight, message: Received, failure: Failure) -> None:
        if await self._send_back.send(message, failure):
            self.settle(home, message)
        else:
            self._hand_out_later(home, message, LOCAL_RETRY_S if failure.delay_s is None else failure.delay_s)

    def _hand_out_later(self, home: InFlight, message: Received, delay_s: float) -> None:
        home.resting_count += 1
        if home.is_leaving:
            self._hand_out_again(home, message)  # by anyone who has the queue next, who need not wait for it
            return
        asyncio.get_running_loop().call_later(delay_s, self._hand_out_again, home, message)

    def _hand_out_again(self, home: InFlight, message: Received) -> None:
        home.returning_count -= 1
        home.resting_count -= 1
        if not home.is_dropped:  # at the end all are dropped
            home.put_back(message)
            self._on_ready(home)
