"""Exactly once, with a Bolide broker: a task stages its rows, and the commit publishes all tasks' stages at once.

One broker keeps the mark of a query, so all its rows go to that broker. (Two could not agree on a batch that was
published at one of them before a crash.) The option `broker` names it, and a stream must have it: anyone who starts the
query again has to come back to the same broker, and the route does not tell which that was. The one that is alone in it
today may have been the other one yesterday, which is down. Where the broker that is named does not know the query, the
others that have the topic are asked, and one that knows it is the one to name. A batch write is never begun again under
its name, so there the only broker that has the topic will do.

A batch that the broker has published already is not staged again; what a task staged and nobody published is never
seen, and goes with the broker's log.
"""

import logging
import time
from collections.abc import Sequence

from bolide.client.access import failure_of
from bolide.client.blocking.connection import Answer
from bolide.client.routes import Route
from bolide.client.sending.message import SendRules, send_command, to_queue
from bolide.clock import Clock, SystemClock
from bolide.errors import ClientError, ConfigError, NoAnswer
from bolide.model.message import Message
from bolide.model.queue import MessageQueue
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.staging import (
    NOTHING,
    STAGE,
    STAGE_QUEUE_COUNT,
    STAGE_TOPIC,
    TARGET_QUEUE,
    TARGET_TOPIC,
    Publish,
    Published,
)
from bolide.spark.cluster import Cluster
from bolide.spark.options import EXACTLY_ONCE, SinkOptions
from bolide.spark.sink.rows import Bundle
from bolide.spark.sink.sending import Sending

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
        self.broker_name: str | None = None
        self.stages: list[Stage] = []
        self.is_published = False

    def route(self, topic: str) -> Route:
        """The topic's queues on the broker that keeps the mark; the first one asked for makes it ready."""
        found = self._routes.get(topic)
        if found is not None:
            return found
        route, names = self._awaited(topic)
        chosen = chosen_broker(self._options.broker, topic, names)
        if self.broker_name is None:
            self._prepare(chosen, topic, [name for name in names if name != chosen])
        elif chosen != self.broker_name:
            raise ConfigError("broker", None, f"{topic} is on {chosen}, other topics on {self.broker_name}: name one")
        queues = tuple(queue for queue in route.publish if queue.broker_name == chosen)
        self._routes[topic] = Route(route.topic, queues, route.subscribe, route.addresses)
        return self._routes[topic]

    def _prepare(self, chosen: str, topic: str, others: Sequence[str]) -> None:
        """Make the broker ready, unless the query is another's: there its last batch would be published again."""
        query, batch, _ = self._place
        wanted = Publish(query=query, batch=batch)
        answer = ask_broker(self.cluster, chosen, topic, wanted, self._options)
        for name in others if answer.published == NOTHING else ():
            published = last_published(self.cluster, name, topic, wanted)
            if published != NOTHING:
                why = f"{name} has published batch {published} of this query: name it again, or take a new checkpoint"
                raise ConfigError("broker", chosen, why)
        self.broker_name, self.is_published = chosen, answer.published >= batch

    def _awaited(self, topic: str) -> tuple[Route, list[str]]:
        """The route and the brokers in it; the one that was named may be starting, and is waited for."""
        until_s = self.clock.monotonic_s() + self._options.send_timeout_s
        while True:
            route = self.cluster.route(topic)
            names = sorted({queue.broker_name for queue in route.publish}) if route is not None else []
            wanted, is_late = self._options.broker, self.clock.monotonic_s() > until_s
            if route is not None and (wanted in (None, *names) or is_late):
                return route, names
            # No first message makes the topic here, for it is the broker that sends it.
            if route is None and (is_late or wanted is None or wanted in self.cluster.broker_names()):
                why = f"does not exist, and an exactly-once write makes none: `bolide topic create {topic}`"
                raise ClientError(f"topic {topic!r} {why}", ResponseCode.TOPIC_NOT_EXIST)
            time.sleep(_RETRY_S)

    def command(self, bundle: Bundle) -> Command:
        query, batch, partition = self._place
        labels = {
            STAGE: f"{query}/{batch}/{partition}",
            TARGET_TOPIC: bundle.queue.topic,
            TARGET_QUEUE: str(bundle.queue.queue_id),
        }
        message = Message(STAGE_TOPIC, bundle.body, properties=labels)
        queue = MessageQueue(STAGE_TOPIC, bundle.queue.broker_name, partition % STAGE_QUEUE_COUNT)
        return to_queue(send_command(message, self._stage_rules, self.clock.now_ms()), queue)

    def stored(self, bundle: Bundle, answer: Answer) -> None:
        super().stored(bundle, answer)
        self.stages.append((int(answer.fields["queueId"]), int(answer.fields["queueOffset"])))

    def elsewhere(self, bundle: Bundle) -> MessageQueue:
        return bundle.queue


def chosen_broker(wanted: str | None, topic: str, names: Sequence[str]) -> str:
    """The broker that keeps the mark, among those in the topic's route."""
    if wanted is None and len(names) == 1:
        return names[0]
    if wanted is None:
        raise ConfigError(
            "broker", None, f"{topic} is on {', '.join(names)}: say which of them keeps what was published"
        )
    if wanted not in names:
        raise ClientError(
            f"{topic} is on {', '.join(names)} and not on {wanted}, which keeps what was published; start it"
        )
    return wanted


def publish(options: SinkOptions, broker_name: str, topic: str, wanted: Publish) -> None:
    """Have a batch published; asked again until the broker says that it is."""
    with Cluster(options.cluster) as cluster:
        answer = ask_broker(cluster, broker_name, topic, wanted, options)
    assert answer.published >= wanted.batch, "a broker that says yes has published it"


def last_published(cluster: Cluster, broker_name: str, topic: str, wanted: Publish) -> int:
    """The last batch of a query that a broker has published; NOTHING also where it does not answer, or is Apache's."""
    try:
        answer = cluster.of_broker(broker_name, topic).ask(Command(RequestCode.PUBLISH_STAGED, body=wanted.encode()))
    except NoAnswer:
        cluster.forget_broker(broker_name)
        return NOTHING
    return Published.decode(bytes(answer.body)).published if answer.code == ResponseCode.SUCCESS else NOTHING


def ask_broker(cluster: Cluster, broker_name: str, topic: str, wanted: Publish, options: SinkOptions) -> Published:
    """The broker's answer; one that is away or busy is asked again for a while."""
    clock = SystemClock()
    until_s = clock.monotonic_s() + options.send_timeout_s
    while True:
        try:
            connection = cluster.of_broker(broker_name, topic)
            (opaque,) = connection.put([Command(RequestCode.PUBLISH_STAGED, body=wanted.encode())])
            answer = connection.take(opaque, options.send_timeout_s)
            problem = failure_of(answer)
        except NoAnswer as lost:
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
