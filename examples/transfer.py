"""Money moves in a database, and others must hear of it: exactly if it moved. A message in a transaction does that.

python examples/transfer.py

The half message is stored first, then the money moves, then the message is committed. Three transfers go three ways:
one succeeds, one is refused, and with one the process "dies" after the database's commit, so that nobody tells the
broker. It asks, and the checker looks into the database, where the transfer stands under the id it has in its key.
"""

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import bolide

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
BANK = Path(tempfile.mkdtemp()) / "bank.db"


def open_bank() -> sqlite3.Connection:
    bank = sqlite3.connect(BANK)
    bank.execute("CREATE TABLE IF NOT EXISTS account (name TEXT PRIMARY KEY, cents INTEGER CHECK (cents >= 0))")
    bank.execute("CREATE TABLE IF NOT EXISTS transfer (id TEXT PRIMARY KEY)")
    bank.execute("INSERT OR IGNORE INTO account VALUES ('ada', 1000), ('bob', 0)")
    bank.commit()
    return bank


def move(bank: sqlite3.Connection, transfer: str, cents: int) -> None:
    """Both accounts and the note of it, or nothing: SQLite refuses a balance below zero."""
    with bank:
        bank.execute("UPDATE account SET cents = cents - ? WHERE name = 'ada'", (cents,))
        bank.execute("UPDATE account SET cents = cents + ? WHERE name = 'bob'", (cents,))
        bank.execute("INSERT INTO transfer VALUES (?)", (transfer,))


def was_it_done(message: bolide.StoredMessage) -> bolide.Outcome:
    """Asked by a broker that was told nothing; in a thread of its own, so it opens the database itself."""
    with closing(open_bank()) as bank:
        found = bank.execute("SELECT 1 FROM transfer WHERE id = ?", (message.keys[0],)).fetchone()
    print(f"{message.keys[0]}: the broker asks, and it was {'done' if found else 'not done'}")
    return bolide.Outcome.COMMIT if found else bolide.Outcome.ROLLBACK


def main() -> None:
    with (
        closing(open_bank()) as bank,
        bolide.TransactionProducer("bank", NAMESRV, checker=was_it_done) as producer,
    ):
        for transfer, cents in (("t-1", 300), ("t-2", 5000), ("t-3", 200)):
            try:
                with producer.transaction("Transfers", str(cents).encode(), keys=transfer) as transaction:
                    move(bank, transfer, cents)
                    if transfer == "t-3":
                        transaction.unknown()  # as if we had died here: the money has moved, and nobody knows
            except sqlite3.IntegrityError:
                print(f"{transfer}: not enough money, rolled back")
        heard = []
        oldest = bolide.StartFrom.oldest()
        with bolide.Consumer("statements", "Transfers", NAMESRV, start_from=oldest) as consumer:
            for message in consumer:  # the third comes when the broker has asked: within a minute by default
                heard.append(f"{message.keys[0]} {int(message.body)}")
                if len(heard) == 2:
                    break
        ((cents,),) = bank.execute("SELECT cents FROM account WHERE name = 'bob'")
        heard.sort()  # two queues may be read in any order
        print(f"bob has {cents} and heard of {', '.join(heard)}")
        assert heard == ["t-1 300", "t-3 200"]


if __name__ == "__main__":
    main()
