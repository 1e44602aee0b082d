"""Exactly-once writes: what a writer stages at a broker, and the request that publishes it. Bolide's own.

A writer lays the messages for one queue together as the body of a batch (`batch.py`) and sends it as one message to the
broker's stage topic; where it is meant for, and by which query, batch and partition, stand in properties. The request
PUBLISH_STAGED has all in its body, JSON:

    {"query": "…", "batch": 7}                               prepare: the stage topic is there when this is answered
    {"query": "…", "batch": 7, "stages": [[0, 12], [0, 13]]} publish these: queue and offset in the stage topic

and is answered with the last batch of the query that is published, or -1:

    {"published": 7}
"""

import msgspec

from bolide.model.names import shown
from bolide.model.topics import MARK_TOPIC

__all__ = [
    "IDENTITY",
    "MARK_TOPIC",
    "NAME_SIZE_MAX",
    "NOTHING",
    "STAGE",
    "STAGES_MAX",
    "STAGE_QUEUE_COUNT",
    "STAGE_TOPIC",
    "TARGET_QUEUE",
    "TARGET_TOPIC",
    "Done",
    "Publish",
    "Published",
    "read_note",
]
STAGE_TOPIC = "rmq_sys_BOLIDE_STAGE"
STAGE_QUEUE_COUNT = 4
STAGE = "BOLIDE_STAGE"  # query/batch/partition
TARGET_TOPIC = "BOLIDE_TOPIC"
TARGET_QUEUE = "BOLIDE_QUEUE"
IDENTITY = "BOLIDE_TXN"  # query/batch/partition/number, on every message
STAGES_MAX = 100_000
NAME_SIZE_MAX = 200
NOTHING = -1
NUMBER_MAX = (1 << 63) - 1


class Publish(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of the request, and of the record by which a broker notes that it has begun to carry it out.

    `user` is for that record alone: who asked, where access is checked.
    """

    query: str
    batch: int
    stages: list[tuple[int, int]] | None = None
    user: str = ""

    @classmethod
    def decode(cls, data: bytes) -> "Publish":
        """Raises ValueError for what is no such request."""
        try:
            found = msgspec.json.decode(data, type=cls)
        except RecursionError:
            raise ValueError("what it holds is nested too deeply") from None
        if not 0 < len(found.query.encode()) <= NAME_SIZE_MAX or "/" in found.query or not found.query.isprintable():
            raise ValueError(
                f"a query is named by 1 to {NAME_SIZE_MAX} bytes without a slash, not {shown(found.query)}"
            )
        if not 0 <= found.batch <= NUMBER_MAX:
            raise ValueError(f"batches are numbered from 0 to {NUMBER_MAX}, found {found.batch}")
        if found.stages is not None and len(found.stages) > STAGES_MAX:
            raise ValueError(f"{len(found.stages)} stages in one batch, at most {STAGES_MAX} are published at once")
        for place in found.stages or ():
            if not (0 <= place[0] < STAGE_QUEUE_COUNT and 0 <= place[1] <= NUMBER_MAX):
                raise ValueError(f"a stage at queue {place[0]}, offset {place[1]}: there is no such place")
        return found

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """The answer."""

    published: int

    @classmethod
    def decode(cls, data: bytes) -> "Published":
        return msgspec.json.decode(data, type=cls)

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The record by which a broker notes that a batch is published."""

    query: str
    done: int

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


def read_note(data: bytes) -> Publish | Done:
    """A record of the mark topic; raises ValueError."""
    try:
        return msgspec.json.decode(data, type=Done)
    except (msgspec.ValidationError, RecursionError):
        return Publish.decode(data)
