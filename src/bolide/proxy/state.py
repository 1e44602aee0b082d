"""What every part of the gRPC face is given: settings, time, brokers, clients."""

from dataclasses import dataclass

from bolide.clock import Clock
from bolide.model.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from bolide.proxy import messages as m
from bolide.proxy.back import Back, TopicRoute
from bolide.proxy.clients import Clients
from bolide.proxy.config import ProxyConfig
from bolide.proxy.statuses import Denied


@dataclass(frozen=True, slots=True)
class ProxyState:
    """Passive things only."""

    config: ProxyConfig
    clock: Clock
    back: Back
    clients: Clients

    def route(self, topic: str) -> TopicRoute:
        """Where a topic is; raises Denied if there is none. No call makes one."""
        route = self.back.route(topic)
        if route is None:
            advice = f"create it: bolide topic create {topic} --type NORMAL"
            if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
                advice = "brokers make it when its group first needs it"
            text = f"there is no topic {topic!r}; {advice}"
            raise Denied(m.Code.TOPIC_NOT_FOUND, text)
        return route
