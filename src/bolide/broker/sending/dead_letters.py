"""What a dead letter says of itself, whichever way it died: sent back once too often, given up, or never acknowledged.

Beside all that the message said: the topic it was sent to and the id it had there. RocketMQ's proxy shows these two
(DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID), though its broker never writes them. Where the consumer told why it gave the
message up, that stands in DLQ_REASON.
"""

from collections.abc import Mapping

from bolide.errors import Refusal
from bolide.model import properties as names
from bolide.protocol.properties import encode_properties

_REASON_SIZE_MAX = 1024


def dead_properties(properties: Mapping[str, str], topic: str, message_id: str, reason: str = "") -> dict[str, str]:
    """The properties of a dead letter. `topic` counts where they do not say it: of a message that failed at once."""
    kept = {name: value for name, value in properties.items() if name != names.DEAD_LETTER_REASON}
    kept.setdefault(names.RETRY_TOPIC, topic)
    added = {
        names.DEAD_LETTER_ORIGIN_TOPIC: kept[names.RETRY_TOPIC],
        names.DEAD_LETTER_ORIGIN_MESSAGE_ID: message_id,
    }
    if text := plain_reason(reason or properties.get(names.DEAD_LETTER_REASON, "")):
        added[names.DEAD_LETTER_REASON] = text
    return kept | added if _fits(kept | added) else kept  # the message counts for more than what we would add


def plain_reason(reason: str) -> str:
    """A reason as a property can hold it: on one line, and not too long."""
    text = "".join(character if character.isprintable() else " " for character in reason)
    return text.strip().encode(errors="replace")[:_REASON_SIZE_MAX].decode(errors="ignore")


def _fits(properties: Mapping[str, str]) -> bool:
    try:
        encode_properties(properties)
    except Refusal:
        return False
    return True
