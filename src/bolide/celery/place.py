"""Where a URL of Celery's leads: `bolide://access:secret@host:9876/namespace`, and the options beside it."""

from dataclasses import dataclass
from typing import Any, TypedDict

from bolide.celery.names import GROUP, group_of, topic_of
from bolide.client.careless import nearest
from bolide.client.config import Credentials
from bolide.errors import ConfigError
from bolide.remoting.config import ConnectConfig

PORT = 9876
VISIBILITY_S = 60.0
QUEUE_COUNT = 8
_OPTIONS = ("namesrv", "group", "visibility_timeout", "queue_count")


class Reached(TypedDict):
    """How servers are reached, as every client takes it."""

    credentials: Credentials | None
    connect: ConnectConfig | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A cluster, a namespace in it, and how workers behave there."""

    namesrv: str
    namespace: str = ""
    credentials: Credentials | None = None
    is_tls: bool = False
    group: str = GROUP
    visibility_s: float = VISIBILITY_S
    queue_count: int = QUEUE_COUNT

    def topic(self, queue: str) -> str:
        return topic_of(queue, self.namespace)

    def options(self) -> Reached:
        return {"credentials": self.credentials, "connect": ConnectConfig(is_tls=True) if self.is_tls else None}


def place_of(client: Any) -> Place:
    """The place of a `kombu.Connection`; raises ConfigError for options that were misspelt."""
    given: dict[str, Any] = dict(client.transport_options)
    for name in given.keys() - _OPTIONS:  # Celery and kombu add options of their own
        if meant := nearest(name, _OPTIONS):
            raise ConfigError(f"broker_transport_options[{name!r}]", given[name], f"there is no such option{meant}")
    visibility_s = float(given.get("visibility_timeout", VISIBILITY_S))
    if not 1 <= visibility_s <= 86_400:
        raise ConfigError("visibility_timeout", visibility_s, "must be 1 to 86400 seconds")
    namespace = (client.virtual_host or "").strip("/")
    has_name = client.userid is not None and client.password is not None
    return Place(
        namesrv=given.get("namesrv") or f"{client.hostname or '127.0.0.1'}:{client.port or PORT}",
        namespace=namespace,
        credentials=Credentials(access_key=client.userid, secret_key=client.password) if has_name else None,
        is_tls=bool(client.ssl),
        group=group_of(given.get("group", GROUP), namespace),
        visibility_s=visibility_s,
        queue_count=int(given.get("queue_count", QUEUE_COUNT)),
    )
