"""An order that is cancelled unless it is paid in time: a message to come later, taken back when the money is there.

python examples/payment_deadline.py

The broker must allow recalls: bolide up --set recallMessageEnable=true
"""

import os
import time

import bolide

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
DEADLINE_S = 2


class Shop:
    """Two tables: what was ordered, and the handle by which its deadline can be taken back."""

    def __init__(self, producer: bolide.Producer) -> None:
        self._producer = producer
        self._deadlines: dict[str, str] = {}
        self.states: dict[str, str] = {}

    def order(self, number: str) -> None:
        """The reminder is sent with the order, so it comes even if this program dies."""
        self.states[number] = "open"
        receipt = self._producer.send("Deadlines", number.encode(), keys=number, delay=DEADLINE_S)
        assert receipt.recall_handle is not None
        self._deadlines[number] = receipt.recall_handle

    def pay(self, number: str) -> None:
        self.states[number] = "paid"
        self._producer.recall(self._deadlines.pop(number))

    def deadline_passed(self, number: str) -> None:
        """A recall may come too late by a moment: what counts is the state."""
        if self.states[number] == "open":
            self.states[number] = "cancelled"


def main() -> None:
    with bolide.Producer("shop", NAMESRV) as producer:
        shop = Shop(producer)
        for number in ("o-1", "o-2", "o-3"):
            shop.order(number)
        shop.pay("o-2")
        ends_s = time.monotonic() + DEADLINE_S + 30
        with bolide.Consumer("deadlines", "Deadlines", NAMESRV, start_from=bolide.StartFrom.oldest()) as consumer:
            while "open" in shop.states.values() and time.monotonic() < ends_s:
                for message in consumer.receive(16, timeout_s=1):
                    shop.deadline_passed(message.body.decode())
                    message.ack()
        print(", ".join(f"{number} {state}" for number, state in shop.states.items()))


if __name__ == "__main__":
    main()
