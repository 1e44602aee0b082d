"""Orders whose steps must be seen in order: all steps of an order share a queue, and one worker has it at a time.

python examples/ordered_orders.py
"""

import os
from collections import defaultdict

import bolide

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
STEPS = ("created", "paid", "packed", "shipped")
ORDER_COUNT = 5


def send_steps() -> None:
    with bolide.Producer("shops", NAMESRV) as producer:
        for step in STEPS:
            for number in range(ORDER_COUNT):
                # The same shard, the same queue: what is sent one after the other is stored one after the other.
                producer.send("OrderSteps", step.encode(), keys=f"order-{number}", shard=f"order-{number}")


def follow_orders() -> dict[str, list[str]]:
    seen: dict[str, list[str]] = defaultdict(list)
    oldest = bolide.StartFrom.oldest()
    with bolide.Consumer("warehouse", "OrderSteps", NAMESRV, ordered=True, start_from=oldest) as consumer:
        for message in consumer:
            (order,) = message.keys
            step = message.body.decode()
            if step == "packed" and message.attempt == 1:
                message.nack(delay=0.1)  # out of tape: tried again before anything that follows it
                continue
            seen[order].append(step)
            print(f"{order}: {step}")
            if sum(map(len, seen.values())) == ORDER_COUNT * len(STEPS):
                break
    return dict(seen)


def main() -> None:
    send_steps()
    seen = follow_orders()
    assert all(tuple(steps) == STEPS for steps in seen.values())
    print(f"{len(seen)} orders, each in its order")


if __name__ == "__main__":
    main()
