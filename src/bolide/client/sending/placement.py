"""Stage three: the route of a topic, and the queue that takes the next message.

The topics that were sent to are remembered: brokers must know a producer before they ask it back, so its heartbeat goes
to the brokers of all of them.
"""

from bolide.client import this_process
from bolide.client.instance import NO_ROUTE, Instance
from bolide.client.routes import Route
from bolide.client.sending.attempts import routed_in_time
from bolide.client.sending.failures import is_network
from bolide.client.sending.message import SendRules
from bolide.client.sending.selection import Selection, shard_queue
from bolide.errors import ClientError
from bolide.model.queue import MessageQueue


class Placement:
    """That of one producer."""

    def __init__(self, instance: Instance, rules: SendRules, *, avoids_slow: bool) -> None:
        self.topics: dict[str, None] = {}
        self._instance = instance
        self._rules = rules
        self._selection = Selection(instance.chance, avoids_slow=avoids_slow)
        self.next_queue = self._selection.next  # in turn, and nothing else
        self._avoids_slow = avoids_slow

    def known(self, topic: str) -> Route | None:
        """The route of a topic that was sent to before; any thread may ask. In a fork there is none."""
        if topic not in self.topics or self._instance.process_id != this_process.process_id:
            return None
        route = self._instance.known_route(topic)
        return route if route is not None and route.publish else None

    async def route(self, topic: str) -> Route:
        """The route of any topic."""
        instance = self._instance
        instance.check_process(f"producer {self._rules.group}")
        is_new = topic not in self.topics
        route = await instance.route(topic, self._rules.queue_count)
        if is_new:
            self.topics[topic] = None
            # Brokers must know us before they ask us back; a topic in use already has been told of by the timer.
            await instance.heartbeat()
        return route

    async def route_in_time(self, topic: str, timeout_s: float) -> Route:
        """The same within a limit; servers that were there before are waited for."""
        return await routed_in_time(
            self._instance, topic, self.route, timeout_s, is_patient=self._rules.retry_count > 0
        )

    def choose(self, route: Route, shard: str | None = None, last_broker: str | None = None) -> MessageQueue:
        """The queue for the next message."""
        if not route.publish:
            raise ClientError(
                f"topic {route.topic} has no queue that takes messages: it is read-only, or its master is gone",
                NO_ROUTE,
            )
        if shard is not None:
            return shard_queue(route.publish, shard)
        if last_broker is None and not self._avoids_slow:
            return self.next_queue(route.topic, route.publish)
        return self._selection.choose(route.topic, route.publish, self._instance.clock.monotonic_s(), last_broker)

    def note(self, queue: MessageQueue, begun_s: float, failure: ClientError | None) -> None:
        """Remember what an attempt showed of its broker."""
        now_s = self._instance.clock.monotonic_s()
        has_failed = failure is not None
        is_reachable = not is_network(failure)
        self._selection.note(
            queue.broker_name, (now_s - begun_s) * 1000, now_s, has_failed=has_failed, is_reachable=is_reachable
        )
