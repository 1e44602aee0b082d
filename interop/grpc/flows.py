"""What RocketMQ's Python client does over gRPC; each claim that held or did not is a line of JSON."""

import json
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

POLL_INTERVAL_S = 0.02
ENDPOINT = sys.argv[1]
KEYS: list[str] = []  # a name and its secret, where they are asked for


def config() -> Any:
    return ClientConfiguration(ENDPOINT, Credentials(*KEYS), request_timeout=10)


def message(topic: str, body: str, **given: Any) -> Any:
    made = Message()
    made.topic, made.body = topic, body.encode()
    for name, value in given.items():
        setattr(made, name, value)
    return made


def drain(consumer: Any, count: int, limit_s: float) -> list[str]:
    found: list[str] = []
    until = time.time() + limit_s
    while len(found) < count and time.time() < until:
        for each in consumer.receive(16, 20) or []:
            found.append(each.body.decode())
            consumer.ack(each)
    return sorted(found)


def until(condition: Callable[[], bool], limit_s: float) -> None:
    deadline = time.time() + limit_s
    while not condition() and time.time() < deadline:
        time.sleep(POLL_INTERVAL_S)


def started(kind: Any, *given: Any) -> Any:
    made = kind(config(), *given)
    made.startup()
    return made


def simple() -> object:
    producer = started(Producer, ("PNormal",))
    consumer = started(SimpleConsumer, "p-simple", {"PNormal": FilterExpression()}, 10)
    sent = producer.send(message("PNormal", "one", tag="A", keys="k1"))
    (first,) = consumer.receive(1, 15)
    same = (first.message_id, first.tag, first.body) == (sent.message_id, "A", b"one")
    consumer.change_invisible_duration(first, 30)
    consumer.ack(first)
    began = time.time()
    threading.Timer(0.5, lambda: producer.send(message("PNormal", "wake"))).start()
    woken = drain(consumer, 1, 20)
    quick = time.time() - began < 5
    consumer.shutdown()
    producer.shutdown()
    return "ok" if same and quick and woken == ["wake"] else (same, quick, woken)


def kinds() -> object:
    producer = started(Producer, ("PFifo", "PDelay"))
    ordered = started(SimpleConsumer, "p-fifo", {"PFifo": FilterExpression()}, 10)
    later = started(SimpleConsumer, "p-delay", {"PDelay": FilterExpression("A")}, 10)
    for number in range(5):
        producer.send(message("PFifo", f"g.{number}", message_group="g"))
    due = int(time.time()) + 4
    producer.send(message("PDelay", "later", tag="A", delivery_timestamp=due))
    producer.send(message("PDelay", "unwanted", tag="B", delivery_timestamp=due))
    in_order = [each.body.decode() for each in ordered.receive(16, 20)]
    found = drain(later, 1, 30)
    is_late = time.time() >= due
    for each in (ordered, later, producer):
        each.shutdown()
    wanted = [f"g.{number}" for number in range(5)]
    return "ok" if in_order == wanted and found == ["later"] and is_late else (in_order, found, is_late)


class Checker(TransactionChecker):  # type: ignore[misc]
    def check(self, message: Any) -> Any:
        return TransactionResolution.COMMIT


def transactions() -> object:
    producer = Producer(config(), ("PTransaction",), Checker())
    producer.startup()
    consumer = started(SimpleConsumer, "p-transaction", {"PTransaction": FilterExpression()}, 10)
    for body in ("kept", "dropped", "forgotten"):
        transaction = producer.begin_transaction()
        producer.send(message("PTransaction", body), transaction)
        if body == "kept":
            transaction.commit()
        elif body == "dropped":
            transaction.rollback()
    found = drain(consumer, 2, 60)
    consumer.shutdown()
    producer.shutdown()
    return "ok" if found == ["forgotten", "kept"] else found


class Listener(MessageListener):  # type: ignore[misc]
    def __init__(self) -> None:
        self.seen: list[str] = []

    def consume(self, message: Any) -> Any:
        self.seen.append(message.body.decode())
        is_first = message.body == b"bad" and self.seen.count("bad") == 1
        return ConsumeResult.FAILURE if is_first else ConsumeResult.SUCCESS


def push() -> object:
    listener = Listener()
    producer = started(Producer, ("PPush",))
    consumer = PushConsumer(config(), "p-push", listener, {"PPush": FilterExpression()})
    consumer.startup()
    for number in range(20):
        producer.send(message("PPush", f"m{number}"))
    producer.send(message("PPush", "bad"))
    until(lambda: len(listener.seen) >= 22, 60)
    consumer.shutdown()
    producer.shutdown()
    wanted = sorted([*(f"m{number}" for number in range(20)), "bad", "bad"])
    return "ok" if sorted(listener.seen) == wanted else listener.seen


def refusals() -> object:
    producer = started(Producer, ("PNormal",))
    found = []
    for wrong in (
        message("PNormal", "x", message_group="g"),
        message("PMissing", "x"),
        message("PNormal", "x" * (5 << 20)),
    ):
        try:
            producer.send(wrong)
            found.append("nothing")
        except Exception:
            found.append("refused")
    producer.shutdown()
    return "ok" if found == ["refused"] * 3 else found


def load(topic: str = "PLoad") -> None:
    """Send until somebody ends the process, whatever happens to the broker; say what was acknowledged."""
    producer = started(Producer, (topic,))
    number = 0
    while True:
        number += 1
        try:
            producer.send(message(topic, f"m{number}"))
            say(event="sent", body=f"m{number}")
        except Exception as problem:
            say(event="failed", why=str(problem)[:200])


def settle(count: int, topic: str = "PLoad", group: str = "p-load") -> None:
    """Receive and acknowledge so many, whatever happens; say what was received, and which acks were answered."""
    consumer = started(SimpleConsumer, group, {topic: FilterExpression()}, 5)
    found = 0
    while found < count:
        for each in attempt(lambda: consumer.receive(16, 10)) or []:
            found += 1
            say(event="received", body=each.body.decode())
            if attempt(partial(acknowledge, consumer, each)):
                say(event="acked", body=each.body.decode())


def acknowledge(consumer: Any, received: Any) -> bool:
    consumer.ack(received)
    return True


def attempt(step: Callable[[], Any]) -> Any:
    try:
        return step()
    except Exception as problem:
        say(event="failed", why=str(problem)[:200])
        return None


def offer(topic: str) -> None:
    """Send a message of each kind, and say which the topic takes."""
    producer = started(Producer, (topic,))
    kinds: dict[str, dict[str, Any]] = {
        "NORMAL": {},
        "FIFO": {"message_group": "g"},
        "DELAY": {"delivery_timestamp": int(time.time()) + 1},
    }
    for kind, given in kinds.items():
        receipt = attempt(partial(producer.send, message(topic, "x", **given)))
        say(event="offered", kind=kind, taken=receipt is not None)
    producer.shutdown()


def send_guarded(topic: str) -> object:
    producer = started(Producer, (topic,))
    producer.send(message(topic, "guarded"))
    producer.shutdown()
    return "ok"


def receive_guarded(topic: str) -> object:
    consumer = started(SimpleConsumer, f"{topic}-cg", {topic: FilterExpression()}, 10)
    found = drain(consumer, 1, 20)
    consumer.shutdown()
    return "ok" if found == ["guarded"] else "nothing"


def say(**event: object) -> None:
    print(json.dumps(event), flush=True)


def main() -> None:
    if sys.argv[2:3] == ["load"]:
        load(*sys.argv[3:])
    if sys.argv[2:3] == ["offer"]:
        offer(sys.argv[3])
        say(event="done")
        return
    if sys.argv[2:3] == ["settle"]:
        settle(int(sys.argv[3]), *sys.argv[4:])
        say(event="done")
        return
    flows: dict[str, Callable[[], object]] = {
        "simple": simple,
        "order, delay and tags": kinds,
        "transactions": transactions,
        "push with a failure": push,
        "refusals": refusals,
    }
    if sys.argv[2:3] == ["guarded"]:
        topic, *KEYS[:] = sys.argv[3:]
        flows = {"send": partial(send_guarded, topic), "receive": partial(receive_guarded, topic)}
    for name, flow in flows.items():
        try:
            found = flow()
        except Exception as problem:
            traceback.print_exc()
            found = repr(problem)
        say(event="claim", name=name, found=str(found))
    say(event="done")


main()
