"""What a user writes into `.option(...)`, as one value that was checked.

The names are those of Spark's Kafka source, so that a query moves over by its address; those of Apache's rocketmq-spark
are aliases. Spark hands the names over in lower case, so case counts nowhere. An unknown name is refused with the
nearest right one, and so are two options that contradict each other: an option without effect is a bug that shows late.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bolide.client.config import Credentials, client_config
from bolide.errors import ClientError, ConfigError
from bolide.remoting.config import ConnectConfig
from bolide.spark.source.offsets import Assignment, Position, parse_assignment, parse_position

AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"
TOOLS_GROUP = "TOOLS_CONSUMER"  # every broker is born with it, so reading needs no group of one's own
SINK_GROUP = "bolide-spark"
TAG, SQL = "TAG", "SQL92"

# Each name as it is written, and its aliases.
_SHARED: dict[str, tuple[str, ...]] = {
    "bolide.bootstrap.servers": ("nameServer", "rocketmq.namesrv.addr", "namesrv", "kafka.bootstrap.servers"),
    "accessKey": ("bolide.access.key",),
    "secretKey": ("bolide.secret.key",),
    "securityToken": ("bolide.security.token",),
    "useTLS": ("bolide.use.tls",),
    "tls.client.authServer": (),
    "tls.client.trustCertPath": (),
    "tls.client.certPath": (),
    "tls.client.keyPath": (),
    "tls.client.keyPassword": (),
    "requestTimeoutMs": ("bolide.request.timeout.ms",),
}
_KNOWN_ELSEWHERE = tuple(key for key in _SHARED if key not in ("bolide.bootstrap.servers", "requestTimeoutMs"))
_SOURCE: dict[str, tuple[str, ...]] = {
    "subscribe": ("topic", "topics"),
    "subscribePattern": (),
    "assign": (),
    "subExpression": (),
    "expressionType": (),
    "startingOffsets": (),
    "endingOffsets": (),
    "startingTimestamp": (),
    "endingTimestamp": (),
    "maxOffsetsPerTrigger": (),
    "maxBytesPerTrigger": (),
    "minPartitions": (),
    "failOnDataLoss": (),
    "includeProperties": ("includeHeaders",),
    "columns": (),
    "group": ("kafka.group.id",),
    "pullTimeoutMs": (),
    "pullBatchSize": (),
    "pollTimeoutMs": (),
    "routeIntervalMs": (),
}
_SINK: dict[str, tuple[str, ...]] = {
    "topic": (),
    "deliveryGuarantee": (),
    "broker": (),
    "group": ("kafka.group.id", "producerGroup"),
    "sendTimeoutMs": (),
    # Spark's own: it passes them on to every sink.
    "checkpointLocation": (),
    "path": (),
    "queryName": (),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """Where the cluster is, and who we are to it."""

    namesrv: tuple[str, ...]
    credentials: Credentials | None = None
    connect: ConnectConfig = field(default_factory=ConnectConfig)
    request_timeout_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Which queues are read, and which of their messages: exactly one of topics, pattern and assigned is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Assignment | None = None
    expression: str = "*"
    expression_type: str = TAG

    @property
    def is_filtered(self) -> bool:
        return self.expression != "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """A source."""

    cluster: ClusterOptions
    subscription: Subscription
    starting: Position | None = None
    ending: Position | None = None
    offsets_per_trigger_max: int | None = None
    bytes_per_trigger_max: int | None = None
    partitions_min: int = 0
    fails_on_loss: bool = True
    columns: tuple[str, ...] | None = None
    has_properties: bool = True
    group: str | None = None
    pull_timeout_s: float = 60.0
    pull_count_max: int | None = None
    poll_timeout_s: float = 0.5
    route_interval_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """A sink. `broker` keeps the mark of an exactly-once query."""

    cluster: ClusterOptions
    topic: str | None = None
    is_exactly_once: bool = False
    broker: str | None = None
    group: str = SINK_GROUP
    send_timeout_s: float = 60.0


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of `spark.read` and `spark.readStream`."""
    given = GivenOptions(options, _SHARED | _SOURCE)
    offsets_max = given.number("maxOffsetsPerTrigger", 1)
    bytes_max = given.number("maxBytesPerTrigger", 1)
    if offsets_max is not None and bytes_max is not None:
        raise given.contradiction("maxOffsetsPerTrigger", "maxBytesPerTrigger", "a micro-batch has one limit")
    return SourceOptions(
        cluster=_cluster(given),
        subscription=_subscription(given),
        starting=_position(given, "startingOffsets", "startingTimestamp"),
        ending=_position(given, "endingOffsets", "endingTimestamp"),
        offsets_per_trigger_max=offsets_max,
        bytes_per_trigger_max=bytes_max,
        partitions_min=given.number("minPartitions", 1) or 0,
        fails_on_loss=given.switch("failOnDataLoss", True),
        columns=None if given.text("columns") is None else given.words("columns"),
        has_properties=given.switch("includeProperties", True),
        group=given.text("group"),
        pull_timeout_s=(given.number("pullTimeoutMs", 1) or 60_000) / 1000,
        pull_count_max=given.number("pullBatchSize", 1),
        poll_timeout_s=(given.number("pollTimeoutMs", 0, 500) or 0) / 1000,
        route_interval_s=(given.number("routeIntervalMs", 0, 10_000) or 0) / 1000,
    )


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of `df.write` and `df.writeStream`."""
    given = GivenOptions(options, _SHARED | _SINK)
    guarantee = (given.text("deliveryGuarantee") or AT_LEAST_ONCE).lower()
    if guarantee not in (AT_LEAST_ONCE, EXACTLY_ONCE):
        raise ConfigError("deliveryGuarantee", guarantee, f"must be {AT_LEAST_ONCE} or {EXACTLY_ONCE}")
    is_exactly_once = guarantee == EXACTLY_ONCE
    broker = given.text("broker")
    if broker is not None and not is_exactly_once:
        raise ConfigError("broker", broker, f"only deliveryGuarantee={EXACTLY_ONCE} sends to one broker")
    return SinkOptions(
        cluster=_cluster(given),
        topic=given.text("topic"),
        is_exactly_once=is_exactly_once,
        broker=broker,
        group=given.text("group") or SINK_GROUP,
        send_timeout_s=(given.number("sendTimeoutMs", 1) or 60_000) / 1000,
    )


class GivenOptions:
    """The options by their right names."""

    def __init__(self, options: Mapping[str, str], known: Mapping[str, tuple[str, ...]]) -> None:
        names = {alias.lower(): name for name, aliases in known.items() for alias in (name, *aliases)}
        self._values: dict[str, str] = {}
        self._written: dict[str, str] = {}
        for key, value in options.items():
            name = names.get(key.lower())
            if name is None:
                raise _unknown(key, value, {alias: names[alias.lower()] for alias in _spellings(known)})
            if name in self._values and self._values[name] != value:
                raise ConfigError(key, value, f"is another word for {self._written[name]}, which says otherwise")
            self._values[name] = value
            self._written[name] = key

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        return None if value is None or not value.strip() else value.strip()

    def number(self, name: str, least: int, default: int | None = None) -> int | None:
        text = self.text(name)
        if text is None:
            return default
        if not re.fullmatch("[0-9]{1,18}", text) or int(text) < least:
            raise ConfigError(name, text, f"must be a whole number, at least {least}")
        return int(text)

    def switch(self, name: str, default: bool) -> bool:
        text = (self.text(name) or str(default)).lower()
        if text not in ("true", "false"):
            raise ConfigError(name, text, "must be true or false")
        return text == "true"

    def words(self, name: str) -> tuple[str, ...]:
        """The parts of a list between commas."""
        return tuple(word.strip() for word in (self.text(name) or "").split(",") if word.strip())

    def parsed(self, name: str, parse: Callable[[str], Any]) -> Any:
        text = self.text(name)
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError as problem:
            raise ConfigError(name, text, str(problem)) from None

    def contradiction(self, one: str, other: str, why: str) -> ConfigError:
        return ConfigError(one, self._values[one], f"stands beside {other}={self._values[other]!r}: {why}")


def _spellings(known: Mapping[str, tuple[str, ...]]) -> list[str]:
    return [spelling for name, aliases in known.items() for spelling in (name, *aliases)]


def _unknown(key: str, value: str, names: Mapping[str, str]) -> ConfigError:
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(key.lower(), by_lower, n=1, cutoff=0.5)
    advice = f"did you mean {by_lower[near[0]]}?" if near else f"known are {', '.join(sorted(set(names.values())))}"
    return ConfigError(key, value, f"is no option here; {advice}")


def _cluster(given: GivenOptions) -> ClusterOptions:
    """What was written, and what environment or profile say where nothing was."""
    written = {key: text for key in _KNOWN_ELSEWHERE if (text := given.text(key)) is not None}
    try:
        known = client_config(given.text("bolide.bootstrap.servers"), over=written)
    except ClientError:
        raise ConfigError(
            "bolide.bootstrap.servers", None, 'is needed: the name servers, as "host:9876;host:9876"'
        ) from None
    timeout_s = (given.number("requestTimeoutMs", 1) or 5_000) / 1000
    return ClusterOptions(
        namesrv=known.namesrv, credentials=known.credentials, connect=known.connect, request_timeout_s=timeout_s
    )


def _subscription(given: GivenOptions) -> Subscription:
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if given.text(name) is not None]
    if not chosen:
        raise ConfigError("subscribe", None, "one of subscribe, subscribePattern and assign is needed")
    if len(chosen) > 1:
        raise given.contradiction(chosen[0], chosen[1], "one of them decides what is read")
    pattern: str | None = given.parsed("subscribePattern", _checked_pattern)
    expression = given.text("subExpression") or "*"
    kind = (given.text("expressionType") or _kind_of(expression)).upper()
    if kind not in (TAG, SQL):
        raise ConfigError("expressionType", kind, f"must be {TAG} or {SQL}")
    return Subscription(
        topics=tuple(dict.fromkeys(given.words("subscribe"))),
        pattern=pattern,
        assigned=given.parsed("assign", parse_assignment),
        expression=expression,
        expression_type=kind,
    )


def _checked_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as problem:
        raise ValueError(f"is no regular expression: {problem}") from None
    return text


def _kind_of(expression: str) -> str:
    """Tags are words between `||`; whatever has an operator of SQL in it is SQL."""
    is_sql = re.search(r"[=<>()']|\b(IS|IN|BETWEEN|AND|OR|NOT|CONTAINS|TRUE|FALSE)\b", expression, re.IGNORECASE)
    return SQL if is_sql else TAG


def _position(given: GivenOptions, offsets: str, timestamp: str) -> Position | None:
    if given.text(offsets) is not None and given.text(timestamp) is not None:
        raise given.contradiction(offsets, timestamp, "one of them decides where it is")
    at_ms = given.number(timestamp, 0)
    if at_ms is not None:
        return Position(time_ms=at_ms)
    position: Position | None = given.parsed(offsets, parse_position)
    return position
