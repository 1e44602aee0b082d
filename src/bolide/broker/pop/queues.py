"""All queues of a topic, in every broker that has it: what an assignment shares out.

Our own are in our table. The others' are what the name servers say, asked one after the other until one answers, and
kept for half a minute: members ask for their assignment every 20 seconds, each for every topic.
"""

import logging
from collections.abc import Callable

from bolide.broker.registration import name_servers
from bolide.broker.state import BrokerState
from bolide.broker.tables.topics import PERM_READ
from bolide.errors import ClientError, Refusal
from bolide.model.queue import MessageQueue
from bolide.model.topics import QUEUE_COUNT_MAX
from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.routes import GetRouteRequest
from bolide.remoting.client import Client

_KEPT_S = 30.0
_KEPT_MAX = 10_000
_TIMEOUT_S = 3.0
log = logging.getLogger(__name__)


class TopicQueues:
    """The queues of topics; `client` is what name servers are asked with."""

    def __init__(self, state: BrokerState, client: Client) -> None:
        self._settings = state.settings
        self._topics = state.topics
        self._clock = state.clock
        self._client = client
        self._elsewhere: dict[str, tuple[float, list[MessageQueue]]] = {}

    async def find(self, topic: str) -> list[MessageQueue] | None:
        """All queues that may be read; None if nobody knows the topic."""
        own_name = self._settings.now.name
        config = self._topics.find(topic)
        own: list[MessageQueue] = []
        if config is not None and config.perm & PERM_READ:
            own = [MessageQueue(topic, own_name, i) for i in range(min(config.read_queue_nums, QUEUE_COUNT_MAX))]
        queues = own + await self._others(topic, lambda broker: broker != own_name)
        return sorted(queues) if queues or config is not None else None

    async def _others(self, topic: str, is_other: Callable[[str], bool]) -> list[MessageQueue]:
        known = self._elsewhere.get(topic)
        if known is not None and self._clock.monotonic_s() - known[0] < _KEPT_S:
            return known[1]
        route = await self.route(topic)
        if route is None:
            return known[1] if known is not None else []
        queues = [
            MessageQueue(topic, data.broker_name, i)
            for data in route.queue_datas
            if data.perm & PERM_READ and is_other(data.broker_name)
            for i in range(min(data.read_queue_nums, QUEUE_COUNT_MAX))
        ]
        self._elsewhere.pop(topic, None)
        if len(self._elsewhere) >= _KEPT_MAX:
            del self._elsewhere[next(iter(self._elsewhere))]
        self._elsewhere[topic] = self._clock.monotonic_s(), queues
        return queues

    async def route(self, topic: str) -> TopicRoute | None:
        """What the first name server that answers says; None if none does."""
        fields = GetRouteRequest(topic=topic, is_standard_json=True).encode()
        for address in name_servers(self._settings.now.namesrv):
            try:
                command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields=dict(fields))
                answer = await self._client.request(address, command, _TIMEOUT_S)
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    return TopicRoute()
                if answer.code == ResponseCode.SUCCESS:
                    return TopicRoute.decode(answer.body)
                problem = answer.remark or str(answer.code)
            except (ClientError, Refusal) as failure:
                problem = str(failure)
            log.debug("no route from a name server topic=%s namesrv=%s problem=%s", topic, address, problem)
        return None
