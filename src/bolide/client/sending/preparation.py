"""Stage two: from parts to what can be sent: a message with its id, or an item for the kernel. For any thread."""

from functools import lru_cache

from bolide.client.sending.message import EXTRA_SIZE_MAX, SendRules, check_message, check_user_properties, with_id
from bolide.client.sending.parts import Given, Parts
from bolide.kernel.layout import Item
from bolide.model import properties as names
from bolide.model.message import Message
from bolide.protocol.ids import UniqueIds
from bolide.protocol.properties import encode_properties


class Preparation:
    """That of one producer."""

    def __init__(self, rules: SendRules, ids: UniqueIds, *, is_fast: bool) -> None:
        """Without `is_fast` every message is one that needs a thought."""
        self.rules = rules
        self.ids = ids
        self._item_size = rules.short_size if is_fast else 0  # a body below it may be an item

    def item(self, parts: Given) -> Item | None:
        """A message for the fast path, whose id comes later; None if the general path has to look at it."""
        topic, body, tags, keys, properties, flag, waits_for_store = parts
        if type(body) is not bytes or not 0 < len(body) < self._item_size:
            return None
        if waits_for_store is not None or isinstance(topic, Message):
            return None
        if not keys and not properties and not flag:
            return body, _tags_alone(tags) if tags else b"", 0
        if properties:
            check_user_properties(properties)
        if not -(1 << 31) <= flag < 1 << 31:
            return None
        message = Message("", body, tags=tags, keys=keys, properties=properties)
        extra = encode_properties(message.properties)
        return (body, extra, flag) if len(extra) <= EXTRA_SIZE_MAX else None

    def message(self, parts: Parts) -> Message:
        """A message that may be sent, with its id."""
        return self.checked(parts.message())

    def checked(self, message: Message) -> Message:
        """The same of a whole message."""
        check_message(message, self.rules.body_size_max)
        return with_id(message, self.ids.next())


@lru_cache(maxsize=1024)
def _tags_alone(tags: str) -> bytes:
    return encode_properties({names.TAGS: tags})
