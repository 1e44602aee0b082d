"""Exactly once, with a Bolide broker: a task stages its rows, and the commit publishes all tasks' stages at once.

One broker keeps the mark of a query, so all its rows go to that broker: the one that has the topic, or the one that the
option `broker` names where several have it. (Two brokers could not agree on a batch that was published at one of them
before a crash.) A batch that the broker has published already is not staged again; what a task staged and nobody
published is never seen, and goes with the broker's log.
"""

import logging
import time

from bolide.client.outgoing import SendRules, send_command, to_queue
from bolide.client.routes import Route
from bolide.clock import Clock, SystemClock
from bolide.errors import ClientError, ConfigError
from bolide.kernel import lay_items
from bolide.model.message import Message
from bolide.model.queue import MessageQueue
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.staging import (
    STAGE,
    STAGE_QUEUE_COUNT,
    STAGE_TOPIC,
    TARGET_QUEUE,
    TARGET_TOPIC,
    Publish,
    Published,
)
from bolide.spark.cluster import LOST, Cluster
from bolide.spark.connection import Answer
from bolide.spark.options import EXACTLY_ONCE, SinkOptions
from bolide.spark.rows import Bundle
from bolide.spark.sending import Sending, unique_ids

log = logging.getLogger(__name__)

_RETRY_S = 0.2
_FINAL = (
    ResponseCode.MESSAGE_ILLEGAL,
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.INVALID_PARAMETER,
)

Stage = tuple[int, int]


class Staging(Sending):
    """The same sends, to the stage topic of one broker."""

    def __init__(
        self, cluster: Cluster, options: SinkOptions, clock: Clock, query: str, batch: int, partition: int
    ) -> None:
        super().__init__(cluster, options, clock)
        self._options = options
        self._place = query, batch, partition
        self._stage_rules = SendRules(group=options.group, compress_over=1 << 31)
        self._ids = unique_ids(clock)
        self.broker_name: str | None = None
        self.stages: list[Stage] = []
        self.is_published = False

    def route(self, topic: str) -> Route:
        """The topic's queues on the broker that keeps the mark; the first one asked for makes it ready."""
        route = super().route(topic)
        names = sorted({queue.broker_name for queue in route.publish})
        chosen = self._options.broker or (names[0] if len(names) == 1 else None)
        if chosen is None:
            raise ConfigError(
                "broker", None, f"{topic} is on {', '.join(names)}: say which of them keeps what was published"
            )
        if self.broker_name is None:
            self.broker_name = chosen
            query, batch, _ = self._place
            answer = ask_broker(self.cluster, chosen, topic, Publish(query=query, batch=batch), self._options)
            self.is_published = answer.published >= batch
        elif chosen != self.broker_name:
            raise ConfigError("broker", None, f"{topic} is on {chosen}, other topics on {self.broker_name}: name one")
        queues = tuple(queue for queue in route.publish if queue.broker_name == chosen)
        return Route(route.topic, queues, route.subscribe, route.addresses)

    def command(self, bundle: Bundle) -> Command:
        query, batch, partition = self._place
        body = bundle.body if bundle.alone is None else lay_items([bundle.alone], [self._ids.next()])
        labels = {
            STAGE: f"{query}/{batch}/{partition}",
            TARGET_TOPIC: bundle.queue.topic,
            TARGET_QUEUE: str(bundle.queue.queue_id),
        }
        message = Message(STAGE_TOPIC, body, properties=labels)
        queue = MessageQueue(STAGE_TOPIC, bundle.queue.broker_name, partition % STAGE_QUEUE_COUNT)
        return to_queue(send_command(message, self._stage_rules, self.clock.now_ms()), queue)

    def stored(self, bundle: Bundle, answer: Answer) -> None:
        super().stored(bundle, answer)
        self.stages.append((int(answer.fields["queueId"]), int(answer.fields["queueOffset"])))

    def elsewhere(self, bundle: Bundle) -> MessageQueue:
        return bundle.queue


def publish(options: SinkOptions, broker_name: str, topic: str, wanted: Publish) -> None:
    """Have a batch published; asked again until the broker says that it is."""
    with Cluster(options.cluster) as cluster:
        answer = ask_broker(cluster, broker_name, topic, wanted, options)
    assert answer.published >= wanted.batch, "a broker that says yes has published it"


def ask_broker(cluster: Cluster, broker_name: str, topic: str, wanted: Publish, options: SinkOptions) -> Published:
    """The broker's answer; one that is away or busy is asked again for a while."""
    clock = SystemClock()
    until_s = clock.monotonic_s() + options.send_timeout_s
    while True:
        try:
            connection = cluster.of_broker(broker_name, topic)
            (opaque,) = connection.put([Command(RequestCode.PUBLISH_STAGED, body=wanted.encode())])
            answer = connection.take(opaque, options.send_timeout_s)
            problem = ClientError(answer.remark or "refused", answer.code)
        except LOST as lost:
            problem = lost
        else:
            if answer.code == ResponseCode.SUCCESS:
                return Published.decode(bytes(answer.body))
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise ConfigError(
                    "deliveryGuarantee", EXACTLY_ONCE, f"{broker_name} is no Bolide broker; it can do at-least-once"
                )
            if answer.code in _FINAL:
                raise ClientError(f"{broker_name} does not publish batch {wanted.batch}: {answer.remark}", answer.code)
        if clock.monotonic_s() > until_s:
            raise problem
        log.warning("batch not published, asked again batch=%d problem=%s", wanted.batch, problem)
        cluster.forget_broker(broker_name)
        time.sleep(_RETRY_S)
