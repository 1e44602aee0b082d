"""Stage one: what a user gives to be sent."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bolide.client.sending.message import check_user_properties, replace_properties
from bolide.model.message import Message


class Parts(NamedTuple):
    """The parts of a message, or a whole one in place of the topic; then the others say nothing."""

    topic: str | Message
    body: bytes = b""
    tags: str | None = None
    keys: str | Iterable[str] = ()
    properties: Mapping[str, str] | None = None
    flag: int = 0
    waits_for_store: bool | None = None

    @property
    def topic_name(self) -> str:
        return self.topic.topic if isinstance(self.topic, Message) else self.topic

    def message(self) -> Message:
        """All of it as a message; properties of the user's own are checked."""
        topic, body, tags, keys, properties, flag, waits_for_store = self
        if isinstance(topic, Message):
            return topic
        if properties:
            check_user_properties(properties)
        return Message(
            topic, body, tags=tags, keys=keys, properties=properties, flag=flag, waits_for_store=waits_for_store
        )

    def with_properties(self, more: Mapping[str, str]) -> "Parts":
        """The same with properties that are ours and need no check."""
        message = self.message()
        return Parts(replace_properties(message, {**message.properties, **more}))


# The same without names: what takes the fast path never needs them, and to give them costs as much as to queue it.
Given = tuple[str | Message, bytes, str | None, str | Iterable[str], Mapping[str, str] | None, int, bool | None]
