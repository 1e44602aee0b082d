"""What fails comes again; what cannot be done lies with the dead letters until somebody helps, and is sent again.

python examples/dead_letters.py

One payment fails because the bank does not answer: it is put off and booked at the next attempt. One names an account
that is not there: no retry helps, so it is given up with a reason. A person reads the reason, opens the account and has
the dead letter sent again; in a shell that is `bolide dlq show accounting`, then `bolide dlq resend accounting --all`.
"""

import os

import bolide

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
GROUP, TOPIC = "accounting-desk", "DeskPayments"


class Bank:
    """Does not answer the first call."""

    def __init__(self) -> None:
        self.accounts = {"ada": 0}
        self._is_awake = False

    def book(self, customer: str, cents: int) -> None:
        if not self._is_awake:
            self._is_awake = True
            raise TimeoutError("the bank does not answer")
        self.accounts[customer] += cents


def consume(bank: Bank, count: int) -> None:
    """Take so many deliveries, the repeated ones among them."""
    with bolide.Consumer(GROUP, TOPIC, NAMESRV, start_from=bolide.StartFrom.oldest()) as consumer:
        for number, message in enumerate(consumer, 1):
            customer = message.keys[0]
            try:
                bank.book(customer, int(message.body))
                print(f"{customer}: booked at attempt {message.attempt}")
            except TimeoutError as problem:
                message.nack(delay=1, reason=str(problem))  # it will be better in a moment
                print(f"{customer}: {problem}, again in a second")
            except KeyError:
                message.dead_letter(f"no account of {customer}")  # it will not
                print(f"{customer}: given up")
            if number == count:
                break


def main() -> None:
    bank = Bank()
    with bolide.Producer("tills", NAMESRV) as producer:
        producer.send(TOPIC, b"500", keys="ada")
        producer.send(TOPIC, b"700", keys="bob")
    consume(bank, 3)

    with bolide.Admin(NAMESRV) as admin:
        for letter in admin.dead_letters(GROUP):
            print(f"dead: {letter.message.keys[0]}, because {letter.reason}")
            bank.accounts[letter.message.keys[0]] = 0  # what was missing
        told = admin.resend_dead_letters(GROUP)
        print(f"{told.sent_count} sent again")
    consume(bank, 1)
    print(f"ada has {bank.accounts['ada']} and bob has {bank.accounts['bob']}")


if __name__ == "__main__":
    main()
