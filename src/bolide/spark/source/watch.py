"""Waiting for a message on any of many queues: a pull parked at the end of each, and the first answer ends the wait.

The pulls stay parked between two waits, at the broker and for as long as it keeps them; what a wait costs when nothing
comes is one sleep. A broker that fails is left alone for this wait: whether it is back is found out elsewhere.
"""

import select
from collections.abc import Mapping

from bolide.client.blocking.connection import Connection
from bolide.clock import Clock
from bolide.errors import NoAnswer
from bolide.model.queue import MessageQueue
from bolide.protocol.codes import ResponseCode
from bolide.spark.cluster import Cluster
from bolide.spark.options import ClusterOptions
from bolide.spark.source.pulls import watch_command

_NOTHING = ResponseCode.PULL_NOT_FOUND
_PARKED_MS = 15_000  # how long a broker keeps such a pull; then it is parked again


class Watch:
    """The parked pulls of one query, on connections of their own."""

    def __init__(self, options: ClusterOptions, group: str | None, clock: Clock) -> None:
        self._cluster = Cluster(options)
        self._group = group
        self._clock = clock
        self._parked: dict[MessageQueue, tuple[Connection, int, int]] = {}  # connection, number, offset

    def close(self) -> None:
        self._cluster.close()
        self._parked.clear()

    def wait(self, ends: Mapping[MessageQueue, int], addresses: Mapping[str, str], timeout_s: float) -> bool:
        """Wait until a message comes to the end of one of the queues; false when none did in time."""
        self._cluster.addresses.update(addresses)
        until_s = self._clock.monotonic_s() + timeout_s
        while True:
            self._park(ends)
            connections = {id(connection): connection for connection, _, _ in self._parked.values()}
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0:
                return False
            ready = [each for each in connections.values() if each.has_pending] or select.select(
                list(connections.values()), [], [], left_s
            )[0]
            taken = [self._take(connection) for connection in ready]  # all of them: the rest is parked again
            if any(taken):
                return True

    def _park(self, ends: Mapping[MessageQueue, int]) -> None:
        missing: dict[str, list[MessageQueue]] = {}
        for queue, offset in ends.items():
            parked = self._parked.get(queue)
            if parked is None or parked[2] != offset:
                missing.setdefault(queue.broker_name, []).append(queue)
        for broker_name, queues in missing.items():
            try:
                connection = self._cluster.of_broker(broker_name, queues[0].topic)
                opaques = connection.put([watch_command(each, ends[each], self._group, _PARKED_MS) for each in queues])
            except NoAnswer:
                self._lose(broker_name)
                continue
            for queue, opaque in zip(queues, opaques, strict=True):
                self._parked[queue] = connection, opaque, ends[queue]

    def _take(self, connection: Connection) -> bool:
        """Take one answer; whether it says that there is something to read."""
        try:
            answer = connection.next()
        except NoAnswer:
            for queue, (its_connection, _, _) in list(self._parked.items()):
                if its_connection is connection:
                    self._lose(queue.broker_name)
            return True  # what is up is for the next question to find out
        for queue, (its_connection, opaque, _) in self._parked.items():
            if its_connection is connection and opaque == answer.opaque:
                del self._parked[queue]
                return answer.code != _NOTHING
        return False

    def _lose(self, broker_name: str) -> None:
        self._cluster.forget_broker(broker_name)
        self._parked = {queue: parked for queue, parked in self._parked.items() if queue.broker_name != broker_name}
