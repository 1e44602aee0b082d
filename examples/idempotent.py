"""A message may come twice: after a crash, after a hand-over, after a send that was in doubt. Do its work once.

python examples/idempotent.py

The work and the note that it is done are one transaction of the database: whoever finds the note skips the work. The
key is the business's own, because a producer that sends again after a crash gives a new message id.
"""

import os
import sqlite3
from contextlib import closing

import bolide

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


def open_accounts() -> sqlite3.Connection:
    accounts = sqlite3.connect(":memory:")
    accounts.execute("CREATE TABLE balance (customer TEXT PRIMARY KEY, cents INTEGER NOT NULL)")
    accounts.execute("CREATE TABLE done (payment TEXT PRIMARY KEY)")
    return accounts


def book(accounts: sqlite3.Connection, payment: str, customer: str, cents: int) -> bool:
    """Book a payment, once; false when it was booked before."""
    with accounts:
        fresh = accounts.execute("INSERT OR IGNORE INTO done VALUES (?)", (payment,)).rowcount == 1
        if fresh:
            accounts.execute(
                "INSERT INTO balance VALUES (?, ?) ON CONFLICT (customer) DO UPDATE SET cents = cents + excluded.cents",
                (customer, cents),
            )
    return fresh


def main() -> None:
    with bolide.Producer("tills", NAMESRV) as producer:
        for payment in ("p-1", "p-2", "p-2", "p-3", "p-1"):  # two of them were sent again
            producer.send("Payments", b"500", keys=payment, properties={"customer": "ada"})

    oldest = bolide.StartFrom.oldest()
    with (
        closing(open_accounts()) as accounts,
        bolide.Consumer("accounting", "Payments", NAMESRV, start_from=oldest) as consumer,
    ):
        for count, message in enumerate(consumer, 1):
            (payment,) = message.keys
            is_booked = book(accounts, payment, message.properties["customer"], int(message.body))
            print(f"{payment}: {'booked' if is_booked else 'seen before'}")
            if count == 5:
                break
        ((cents,),) = accounts.execute("SELECT cents FROM balance WHERE customer = 'ada'")
        print(f"ada paid {cents}")
        assert cents == 1500


if __name__ == "__main__":
    main()
