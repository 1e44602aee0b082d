"""Ask by a message and get the answer: a shop that asks a price service, and a service that may be slow.

python examples/price_service.py

The service is a handler whose return value is the reply. Several of them in one group share the requests; a request
that nobody answers in time raises, and says whether it was sent.
"""

import os

import bolide

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
PRICES = {b"tea": b"3.50", b"cake": b"4.20"}


def price(message: bolide.Received) -> bytes | None:
    """The reply; None is no reply, and the shop waits in vain."""
    return PRICES.get(message.body)


def main() -> None:
    with bolide.Admin(NAMESRV) as admin:
        admin.create_topic("PriceRequests")
    service = bolide.Handler(
        function=price,
        group="price-service",
        topics={"PriceRequests": "*"},
        start_from=bolide.StartFrom.oldest(),
    )
    with bolide.listening(NAMESRV, [service]), bolide.Producer("shop", NAMESRV) as shop:
        for item in (b"tea", b"cake"):
            reply = shop.request("PriceRequests", item, timeout_s=10)
            print(f"{item.decode()} costs {reply.body.decode()}")
        try:
            shop.request("PriceRequests", b"a unicorn", timeout_s=1)
        except bolide.ReplyTimeout as problem:
            print(f"no price for a unicorn (request sent: {problem.is_sent})")


if __name__ == "__main__":
    main()
