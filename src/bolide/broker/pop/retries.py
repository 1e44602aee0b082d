"""A message given again: a new record in the retry topic, the same but for its count and where it came from.

One that failed too often is such a record too, among the dead letters.
"""

from bolide.broker.pop.checkpoints import Checkpoint
from bolide.broker.sending.dead_letters import dead_properties
from bolide.errors import Refusal
from bolide.model import properties as names
from bolide.model.message import StoredMessage
from bolide.model.topics import DEAD_LETTER_PREFIX
from bolide.protocol.properties import encode_properties
from bolide.store.record import Draft


def retry_draft(message: StoredMessage, checkpoint: Checkpoint, topic: str, host: bytes) -> Draft:
    """The record for one that was not acknowledged in time; one that was only put off is not counted."""
    properties = dict(message.properties)
    properties.setdefault(names.RETRY_TOPIC, message.topic)
    if message.reconsume_times == 0 or names.FIRST_POP_AT not in properties:
        properties[names.FIRST_POP_AT] = str(checkpoint.key.popped_ms)
    properties[names.ORIGIN_GROUP] = checkpoint.key.lane.group
    if topic.startswith(DEAD_LETTER_PREFIX):
        properties = dead_properties(properties, message.topic, message.message_id)
    try:
        text = encode_properties(properties)
    except Refusal:
        text = encode_properties(message.properties)  # no room for what we would add: the message counts for more
    return Draft(
        topic,
        0,
        message.body,
        text,
        message.flag,
        message.sys_flag,
        message.born_at,
        host,
        message.reconsume_times + (0 if checkpoint.is_suspended else 1),
    )
