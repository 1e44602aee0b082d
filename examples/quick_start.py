"""Send a message and consume it. Start `bolide up` first; NAMESRV_ADDR says where, this machine if it is not set.

python examples/quick_start.py
"""

import os

import bolide

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


def main() -> None:
    with bolide.Producer("greeters", NAMESRV) as producer:
        receipt = producer.send("Greetings", b"Hello, Bolide", tags="hello", keys="greeting-1")
        print(f"sent {receipt.msg_id} to queue {receipt.queue.queue_id}, where it is number {receipt.queue_offset}")

    with bolide.Consumer("readers", {"Greetings": "hello"}, NAMESRV) as consumer:
        for message in consumer:
            print(f"got {message.body.decode()!r}, sent at {message.born_at}")
            break  # a service would go on; leaving the block tells how far it came


if __name__ == "__main__":
    main()
