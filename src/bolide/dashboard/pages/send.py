"""`/send`: a message from the browser, from nothing or from another one."""

from dataclasses import dataclass
from urllib.parse import urlencode

from bolide.client.sending.receipt import Receipt
from bolide.dashboard.page import Action, Answer, Form, Page, Visit
from bolide.errors import ClientError
from bolide.model import properties as names

TIMES_MAX = 100
_GROUP = "bolide-dashboard"
_DELAY_MAX_S = 3 * 86_400


@dataclass(frozen=True, slots=True)
class SendView:
    """The form, filled from a message or empty."""

    topic: str
    body: str
    is_text: bool
    tags: str
    keys: str
    shard: str
    properties: str
    times_max: int
    topics: list[str]


async def load(visit: Visit) -> Answer:
    topic, body, tags, keys, shard, properties, is_text = visit.asked("topic"), "", "", "", "", "", True
    if visit.asked("from"):
        found = await visit.admin.messages_by_id(topic, visit.asked("from"))
        if not found:
            raise ClientError(f"no message {visit.asked('from')} is in {topic}", 22)
        message = found[0]
        tags, keys = message.tags or "", " ".join(message.keys)
        shard = message.properties.get(names.SHARDING_KEY, "")
        own = {name: value for name, value in message.properties.items() if name not in names.RESERVED_NAMES}
        properties = "\n".join(f"{name}={value}" for name, value in own.items())
        if not visit.config.hides_bodies:
            try:
                body = message.body.decode()
            except UnicodeDecodeError:
                is_text = False
    topics = sorted((await visit.seen()).topic_names)[:2000]
    view = SendView(topic, body, is_text, tags, keys, shard, properties, TIMES_MAX, topics)
    return Answer("send.html", view, {"topic": topic})


@dataclass(frozen=True, slots=True)
class SentView:
    """Where the messages landed."""

    topic: str
    receipts: list[tuple[Receipt, str]]

    @property
    def has_handles(self) -> bool:
        return any(receipt.recall_handle for receipt, _ in self.receipts)


async def send(visit: Visit, form: Form) -> Answer:
    topic = form.text("topic").strip()
    if not topic:
        raise ClientError("name the topic to send to")
    body = await form.content("file") or form.text("body").encode()
    times = min(max(form.number("times") or 1, 1), TIMES_MAX)
    delay = form.number("delay") or 0
    if delay > _DELAY_MAX_S:
        raise ClientError(f"a delay of {delay} s is more than RocketMQ's three days")
    when = {"delay": float(delay)} if delay else {}
    receipts = []
    async with visit.admin.producer(_GROUP) as producer:
        for _ in range(times):
            receipt = await producer.send(
                topic,
                body,
                tags=form.text("tags").strip() or None,
                keys=form.text("keys").split(),
                properties=_properties(form.text("properties")),
                shard=form.text("shard").strip() or None,
                **when,  # type: ignore[arg-type]
            )
            queue = f"{receipt.queue.broker_name}:{receipt.queue.queue_id}"
            fields = {"topic": topic} | ({} if delay else {"queue": queue, "offset": receipt.queue_offset})
            receipts.append((receipt, f"/messages/{receipt.msg_id}?{urlencode(fields)}"))
    visit.note("send", topic, after=f"{times} × {len(body)} bytes, first {receipts[0][0].msg_id}")
    rows = [
        {"id": receipt.msg_id, "offset_id": receipt.offset_id, "queue": receipt.queue.queue_id}
        for receipt, _ in receipts
    ]
    return Answer("sent.html", SentView(topic, receipts), rows, title="Sent")


async def recall(visit: Visit, form: Form) -> Answer:
    """Take a timed message back before it is due."""
    async with visit.admin.producer(_GROUP) as producer:
        taken_back = await producer.recall(form.text("handle").strip())
    visit.note("recall", taken_back)
    words = f"{taken_back} will not be delivered, if it was still waiting."
    return Answer("told.html", ("Recalled", words), {"id": taken_back}, title="Recalled")


def _properties(text: str) -> dict[str, str]:
    found = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if not line.strip():
            continue
        if not equals or not name.strip():
            raise ClientError(f"the property {line[:80]!r} is not name=value")
        if name.strip() in names.RESERVED_NAMES:
            raise ClientError(f"{name.strip()} is RocketMQ's own; give it in its field")
        found[name.strip()] = value
    return found


PAGES = [Page("/send", "Send", load)]
ACTIONS = [Action("/send", send), Action("/recall", recall)]
