"""The sends of one task: several batches in flight, and each again until a broker has stored it.

What was sent and not answered may be stored or not; it is sent again, so a message can be there twice but never not at
all. A broker that is busy or away is tried again until `send_timeout_s` have passed without an answer, and its batches
may go to another; what a broker refuses for good ends the task.
"""

import logging
import os
import random
import time
from collections import deque
from collections.abc import Iterable

from bolide.client.access import failure_of
from bolide.client.blocking.connection import Answer
from bolide.client.routes import Route
from bolide.client.sending.message import SendRules, batch_fields, send_command, to_queue
from bolide.clock import Clock
from bolide.errors import ClientError, NoAnswer
from bolide.model.message import Message
from bolide.model.queue import MessageQueue
from bolide.protocol.batch import split_batch
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.ids import UniqueIds
from bolide.spark.cluster import Cluster
from bolide.spark.options import SinkOptions
from bolide.spark.sink.rows import Bundle

log = logging.getLogger(__name__)

_IN_FLIGHT_MAX = 8
_RETRY_S = 0.2
STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
_LATER = (
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.TOPIC_NOT_EXIST,
)


def unique_ids(clock: Clock) -> UniqueIds:
    """Ids of this process: Spark forks its workers, and each has its own number."""
    return UniqueIds(b"", os.getpid(), random.getrandbits(32), clock)


class Sending:
    """Sends bundles; `finish` waits for what is in flight. An answer is given to `stored` with what it is for."""

    def __init__(self, cluster: Cluster, options: SinkOptions, clock: Clock) -> None:
        self.cluster = cluster
        self.clock = clock
        self.rules = SendRules(group=options.group)
        self._timeout_s = options.send_timeout_s
        self._routes: dict[str, Route] = {}
        self._flying: deque[tuple[Bundle, int]] = deque()
        self._answered_s = clock.monotonic_s()
        self.count = 0

    def route(self, topic: str) -> Route:
        """Where a topic's messages go."""
        route = self._routes.get(topic)
        if route is None:
            route = self._routes[topic] = self.cluster.route_to_send(topic)
        return route

    def send(self, bundles: Iterable[Bundle]) -> None:
        """Send, and take answers while too much is in flight."""
        for bundle in bundles:
            while len(self._flying) >= _IN_FLIGHT_MAX:
                self._settle()
            self._put(bundle)

    def finish(self) -> int:
        """Wait for the rest; returns how many messages were stored."""
        while self._flying:
            self._settle()
        return self.count

    def command(self, bundle: Bundle) -> Command:
        """The request for a bundle."""
        born_ms, queue = self.clock.now_ms(), bundle.queue
        if bundle.is_delayed:
            (item,) = split_batch(bundle.body)
            message = Message(queue.topic, item.body, properties=item.properties)
            return to_queue(send_command(message, self.rules, born_ms), queue)
        fields = batch_fields(queue.topic, self.rules, born_ms, queue)
        return Command(RequestCode.SEND_BATCH_MESSAGE, fields=fields, body=bundle.body)

    def stored(self, bundle: Bundle, answer: Answer) -> None:
        self.count += bundle.row_count

    def elsewhere(self, bundle: Bundle) -> MessageQueue:
        """Another queue for what could not be sent; the same where order matters or there is no other."""
        topic, broker_name = bundle.queue.topic, bundle.queue.broker_name
        self._routes.pop(topic, None)
        others = [] if bundle.is_sharded else [q for q in self.route(topic).publish if q.broker_name != broker_name]
        return random.choice(others) if others else bundle.queue

    def _put(self, bundle: Bundle) -> None:
        while True:
            try:
                connection = self.cluster.of_broker(bundle.queue.broker_name, bundle.queue.topic)
                (opaque,) = connection.put([self.command(bundle)])
            except NoAnswer as problem:
                bundle = self._moved(bundle, problem)
            else:
                self._flying.append((bundle, opaque))
                return

    def _settle(self) -> None:
        """Take the oldest answer; what it does not confirm is sent again."""
        bundle, opaque = self._flying[0]
        try:
            connection = self.cluster.of_broker(bundle.queue.broker_name, bundle.queue.topic)
            answer = connection.take(opaque)
        except NoAnswer as problem:
            self._send_again(bundle.queue.broker_name, problem)
            return
        self._flying.popleft()
        if answer.code in STORED:
            self._answered_s = self.clock.monotonic_s()
            self.stored(bundle, answer)
        elif answer.code in _LATER:
            self._put(self._moved(bundle, failure_of(answer)))
        else:
            what = f"{bundle.queue.broker_name} refuses messages for {bundle.queue.topic}: code {answer.code}"
            raise failure_of(answer, what)

    def _send_again(self, broker_name: str, problem: ClientError) -> None:
        """The connection to a broker is gone, and with it the answers to all that was in flight there."""
        flying, self._flying = self._flying, deque()
        lost = [bundle for bundle, _ in flying if bundle.queue.broker_name == broker_name]
        self._flying.extend(pair for pair in flying if pair[0].queue.broker_name != broker_name)
        first = self._moved(lost[0], problem)
        for bundle in (first, *lost[1:]):
            self._put(bundle)

    def _moved(self, bundle: Bundle, problem: ClientError) -> Bundle:
        if self.clock.monotonic_s() - self._answered_s > self._timeout_s:
            raise problem
        log.warning("messages not stored, tried again topic=%s problem=%s", bundle.queue.topic, problem)
        self.cluster.forget_broker(bundle.queue.broker_name)
        time.sleep(_RETRY_S)
        try:
            return bundle._replace(queue=self.elsewhere(bundle))
        except NoAnswer:
            return bundle
