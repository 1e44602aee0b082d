"""Who lives in an instance: producers and consumers, as it sees them."""

from collections.abc import Iterable
from typing import Protocol

from bolide.client.callbacks import AskedConsumer
from bolide.protocol.bodies.clients import ConsumerMember


class Member(Protocol):
    """A producer or consumer that lives in an instance."""

    group: str

    def topics(self) -> Iterable[str]:
        """The topics whose routes it needs."""
        ...

    def route_changed(self, topic: str) -> None:
        """A route it needs is another than before."""
        ...


class ConsumingMember(Member, AskedConsumer, Protocol):
    """A consumer tells brokers what it wants."""

    def heartbeat(self) -> ConsumerMember: ...
