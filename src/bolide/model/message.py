"""A message, before it was sent and after it was stored.

Tags, keys, delay and the rest are read from the properties, where RocketMQ keeps them: one truth, so the two classes
cannot disagree with what goes over the wire. The price is that a `Message` is made by arguments that are not all its
fields. Instances do not change; the property map is copied on the way in and is not to be written to.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bolide.errors import ClientError
from bolide.model import properties as names
from bolide.model.host import IPV4_SIZE, IPV6_SIZE, PORT_MAX, Host, unpack_ip
from bolide.model.queue import PhysicalOffset, QueueKey, QueueOffset

KEY_SEPARATOR = " "

_LEVEL_DIGITS_MAX = 9
_PORT_AND_OFFSET_SIZE = 4 + 8
_SHOWN_SIZE = 40


def body_text(body: bytes) -> str:
    """The beginning of a body, as it is written in Python, and how long it is if that was not all."""
    return repr(body) if len(body) <= _SHOWN_SIZE else f"{body[:_SHOWN_SIZE]!r}... ({len(body)} bytes)"


class _Labels:
    """What both kinds of message read from their properties."""

    __slots__ = ()

    properties: Mapping[str, str]

    @property
    def tags(self) -> str | None:
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> list[str]:
        return [key for key in self.properties.get(names.KEYS, "").split(KEY_SEPARATOR) if key]

    @property
    def unique_id(self) -> str | None:
        """The id the producer gave (RocketMQ's UNIQ_KEY); older and foreign producers give none."""
        return self.properties.get(names.UNIQUE_KEY)

    @property
    def delay_level(self) -> int:
        """1 to 18, or 0 for at once; a foreign producer may have written anything."""
        level = self.properties.get(names.DELAY, "")
        return int(level) if level.isdecimal() and len(level) <= _LEVEL_DIGITS_MAX else 0

    @property
    def waits_for_store(self) -> bool:
        """Whether the answer is to wait for flush and replica, where the broker has such; the default is yes."""
        return self.properties.get(names.WAIT, "true").lower() == "true"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Message(_Labels):
    """What a user sends. `flag` is the user's own number: it is delivered untouched and nothing looks at it."""

    topic: str
    body: bytes
    properties: Mapping[str, str]
    flag: int

    def __init__(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        delay_level: int | None = None,
        waits_for_store: bool | None = None,
    ) -> None:
        """What is given by its own argument wins over the same thing in `properties`.

        One text as `keys` is taken as it is: RocketMQ has a space between two keys. In a list each is one key, and a
        space in it is refused, for nobody could find the message by it.
        """
        joined_keys = keys if isinstance(keys, str) else _joined(keys)
        merged = dict(properties or {})
        if joined_keys:
            merged[names.KEYS] = joined_keys
        if tags:
            # By joining: a list would end up as the text of a list.
            merged[names.TAGS] = "".join((tags,))
        if delay_level is not None:
            merged[names.DELAY] = str(delay_level)
        if waits_for_store is not None:
            merged[names.WAIT] = "true" if waits_for_store else "false"
        object.__setattr__(self, "topic", topic)
        object.__setattr__(self, "body", body)
        object.__setattr__(self, "properties", merged)
        object.__setattr__(self, "flag", flag)

    def __repr__(self) -> str:
        tags = f" [{self.tags}]" if self.tags else ""
        keys = f" keys={' '.join(self.keys)}" if self.keys else ""
        return f"<Message {self.topic}{tags}{keys} {body_text(self.body)}>"


def _joined(keys: Iterable[str]) -> str:
    several = list(keys)
    for key in several:
        if KEY_SEPARATOR in key:
            raise ClientError(f"key {key!r} has a space in it, which RocketMQ has between two keys: write it without")
        if not key:
            raise ClientError("a key is empty, and nobody could find the message by it: leave it out")
    return KEY_SEPARATOR.join(several)


@dataclass(frozen=True, slots=True, repr=False)
class StoredMessage(_Labels):
    """A message as one record holds it. Times are milliseconds of the epoch; see `sys_flag` for a compressed body.

    `body_crc` and `store_size` are what the record said; anyone who encodes a record computes them again.
    """

    topic: str
    body: bytes
    queue_id: int
    queue_offset: QueueOffset
    physical_offset: PhysicalOffset
    born_at: int
    born_host: Host
    stored_at: int
    store_host: Host
    properties: Mapping[str, str]
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body_crc: int = 0
    store_size: int = 0

    def __repr__(self) -> str:
        tags = f" [{self.tags}]" if self.tags else ""
        place = f"{self.queue_id}@{self.queue_offset}"
        return f"<StoredMessage {self.topic}{tags} {body_text(self.body)} {place} {self.message_id}>"

    @property
    def queue(self) -> QueueKey:
        return QueueKey(self.topic, self.queue_id)

    @property
    def offset_id(self) -> str:
        """The id the broker gave: where the record lies. A retry has a new one."""
        return encode_offset_id(self.store_host, self.physical_offset)

    @property
    def message_id(self) -> str:
        """The id to show and to search for: the producer's, which survives retries, else the broker's."""
        return self.unique_id or self.offset_id


class OffsetId(NamedTuple):
    """What an offset id says: which broker to ask, and for which byte of its log."""

    host: Host
    physical_offset: PhysicalOffset


def encode_offset_id(host: Host, physical_offset: int) -> str:
    """RocketMQ's offsetMsgId: 32 hex digits with an IPv4 host, 56 with IPv6."""
    return (host.packed() + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()


def parse_offset_id(text: str) -> OffsetId | None:
    """None when the text cannot be an offset id, so that the caller goes on and searches for it as a key.

    A unique id of an IPv4 client has the same length; nearly always its bytes name no possible port, which spares the
    connection to a meaningless address that Java's tools attempt.
    """
    try:
        packed = bytes.fromhex(text)
    except ValueError:
        return None
    ip_size = len(packed) - _PORT_AND_OFFSET_SIZE
    port = int.from_bytes(packed[ip_size : ip_size + 4], "big")
    offset = int.from_bytes(packed[-8:], "big", signed=True)
    if 2 * len(packed) != len(text) or ip_size not in (IPV4_SIZE, IPV6_SIZE) or port > PORT_MAX or offset < 0:
        return None
    return OffsetId(Host(unpack_ip(packed[:ip_size]), port), PhysicalOffset(offset))
