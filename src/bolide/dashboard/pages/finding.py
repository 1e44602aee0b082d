"""A message by its id: the producer's or the broker's, with its place where that is known; or why it is not there."""

from bolide.admin.calls import gathered
from bolide.admin.walking import TOOLS_GROUP
from bolide.dashboard.page import Visit
from bolide.errors import BolideError, ClientError
from bolide.model.message import StoredMessage, parse_offset_id
from bolide.model.queue import MessageQueue
from bolide.protocol.codes import ResponseCode

TOPICS_ASKED_MAX = 200


async def find(visit: Visit, wanted: str) -> tuple[list[StoredMessage], str]:
    """The message under an id: at its place, where that is given; by the broker's id; or by the producer's."""
    topic, queue = visit.asked("topic"), visit.asked("queue")
    broker, _, number = queue.rpartition(":")
    offset = visit.asked("offset")
    if topic and broker and number.isdigit() and offset.isdigit():
        async with visit.admin.puller(TOOLS_GROUP) as consumer:
            pulled = await consumer.pull(MessageQueue(topic, broker, int(number)), int(offset), 1)
        here = [each.stored for each in pulled.messages if each.queue_offset == int(offset)]
        if here:
            return here, broker
        if int(offset) < pulled.min_offset:
            raise gone(
                f"queue {number} of {topic} on {broker} begins at {pulled.min_offset}: it was deleted by retention"
            )
    if topic:
        found = await visit.admin.messages_by_id(topic, wanted)
        if found:
            return found, ""
    place = parse_offset_id(wanted)
    if place is not None:
        try:
            return [await visit.admin.message_at(wanted)], ""
        except BolideError as problem:
            raise gone(await _why_absent(visit, str(place.host), place.physical_offset, problem)) from problem
    return await _in_all_topics(visit, wanted), ""


def gone(sentence: str) -> ClientError:
    return ClientError(sentence, ResponseCode.QUERY_NOT_FOUND)


async def _why_absent(visit: Visit, host: str, offset: int, problem: BolideError) -> str:
    """Whether the id's broker is known, and whether its log begins later."""
    snapshot = await visit.seen()
    for look in snapshot.brokers:
        if look.row.address == host:
            first = look.status.get("commitLogMinOffset", "")
            if first.isdigit() and offset < int(first):
                return f"the log of {look.row.name} begins at {first}, and this id says {offset}: deleted by retention"
            return f"broker {look.row.name} ({host}) has no message at {offset}: {problem}"
    return f"the id names a broker at {host}, which is none of this cluster: {problem}"


async def _in_all_topics(visit: Visit, wanted: str) -> list[StoredMessage]:
    """A producer's id does not say its topic: each is asked, as far as that is bearable."""
    topics = sorted((await visit.seen()).topic_names)
    asked = {topic: visit.admin.messages_by_id(topic, wanted) for topic in topics[:TOPICS_ASKED_MAX]}
    for messages in (await gathered(asked)).values():
        if isinstance(messages, list) and messages:
            return messages
    left = (
        f" ({len(topics) - TOPICS_ASKED_MAX} more were not asked: name the topic)"
        if len(topics) > TOPICS_ASKED_MAX
        else ""
    )
    raise gone(f"no topic has a message {wanted}{left}; it may have expired, or its broker may be away")
