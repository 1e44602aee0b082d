"""What the plain kernel leaves: where a complete path in Python stands above a compiled function, it takes nothing.

The path above serves then, one item at a time, and is what the compiled function is held to by tests. A second rule
book in plain Python would be a third, and it was no faster than that path.

The client's writes keep a twin (`plain_client.py`): they are the only way to its frames.
"""

from collections.abc import Mapping

from bolide.kernel.layout import (
    Buffer,
    EncodedOutcomes,
    GrpcAck,
    GrpcReceived,
    GrpcSend,
    Http2Item,
    Outcome,
    PullRequest,
    Read,
    RecordRow,
    Run,
    SendRules,
    Sent,
)


def encode_sends(
    reads: list[Read],
    topics: Mapping[bytes, tuple[str, int]],
    rules: SendRules,
    physical_offset: int,
    store_ms: int,
    next_offsets: Mapping[tuple[str, int], int],
) -> tuple[bytes, list[Run], bytes, Sent]:
    """Take the sends of some reads that need no thought, each read of another connection: records, entries, keys.

    topics is name → name and number of queues. Above it: `broker/sending/send.py`.
    """
    return b"", [], b"", ([(b"", bounds) for _, bounds, _ in reads], [])


def read_outcomes(stream: Buffer, bounds: list[int]) -> tuple[list[Outcome], list[int]]:
    """The one-way ends among the frames of one read, and the bounds of all others.

    Above it: `Outcomes.end` (`broker/transactions/outcomes.py`).
    """
    return [], bounds


def encode_outcomes(
    ends: list[Outcome],
    log: Buffer,
    log_base: int,
    log_end: int,
    entries: Buffer,
    first_entry: int,
    marks: Buffer,
    first_mark: int,
    size_max: int,
    store_host: bytes,
    physical_offset: int,
    store_ms: int,
    next_offsets: Mapping[tuple[str, int], int],
) -> EncodedOutcomes:
    """Carry out ends: the messages that are committed, laid out from physical_offset on, and what is decided thereby.

    log is one segment, which begins at log_base; nothing from log_end on is believed. entries are those of the half
    queue from first_entry on, marks what became of its messages from first_mark on; what lies behind them is undecided.
    The first commit that would make more than size_max bytes of what is read ends the batch, unless it is the first.
    Above it: `Outcomes._finish_slowly`.
    """
    return b"", [], b"", (len(ends), {}, [], ends)


def read_pulls(stream: Buffer, bounds: list[int]) -> list[PullRequest | None]:
    """The pulls among the frames of one read; None stands for any other frame, and for a pull that is not everyday.

    Above it: `Pulls.pull` (`broker/pulling/pull.py`).
    """
    return [None] * (len(bounds) // 2)


def answer_pull(
    codec: int,
    opaque: int,
    version: int,
    suggested_id: int,
    topic: bytes,
    queue_id: int,
    offset: int,
    min_offset: int,
    max_offset: int,
    entries: Buffer,
    tag_hashes: frozenset[int] | None,
    log_min: int,
    near_from: int,
    count_max: int,
    size_max: int,
    near_limits: tuple[int, int],
    far_limits: tuple[int, int],
    log: Buffer,
    log_base: int,
) -> tuple[bytes, int, int, int] | None:
    """The frame that answers a pull with what `select_entries` chooses from the entries at `offset`.

    Returns it with how many records and bytes of them it has, and how many entries were seen. None when nothing was
    chosen, or something that is not in `log`, whose first byte has the physical offset log_base, or is no record of
    this queue at its offset there; and where an entry that points nowhere does not say that it stands for nothing.
    Above it: `Store.read` and `Pulls._answer`, which give a pull in bulk as much as any other.
    """
    return None


def cut_records(buffer: bytes) -> list[RecordRow] | None:
    """Where each record of a pull answer begins, its queue offset and its body; None if one is not everyday.

    Above it: `protocol/records.py`.
    """
    return None


def signing_state(secret: bytes) -> bytes:
    """A secret as `admit_signed` takes it."""
    return b""


def admit_signed(
    stream: Buffer, bounds: list[int], states: Mapping[bytes, bytes], verdicts: Mapping[bytes, bool]
) -> tuple[list[int], list[int]]:
    """The bounds of the frames of one read that are signed rightly and judged before, and of all others.

    states has `signing_state` by access key; verdicts are access key, topic and, of a pull, group, joined by zero
    bytes. Above it: `Door.check` (`access/door.py`).
    """
    return [], bounds


def read_grpc_send(content: bytes, body_size_max: int, properties_size_max: int) -> GrpcSend | None:
    """A request of one plain message within those sizes (0: any); None if it is not everyday.

    Above it: `Sending.send` (`proxy/sending.py`).
    """
    return None


def read_grpc_ack(content: bytes) -> GrpcAck | None:
    """A request that acknowledges one message by a plain handle; None if it is not everyday.

    Above it: `Settling.ack` (`proxy/settling.py`).
    """
    return None


def encode_received(
    records: bytes, topic: bytes, heads: dict[int, bytes], invisible_ms: int
) -> list[GrpcReceived] | None:
    """The messages of a pop as answers to a receive; None if one of them is not everyday.

    heads is queue → handles of its messages, up to the queue's number. Above it: `Receiving` (`proxy/receiving.py`).
    """
    return None


def read_http2_calls(
    data: bytes,
    start: int,
    count_max: int,
    table: list[tuple[bytes, bytes]],
    table_size_max: int,
    table_size_limit: int,
    list_size_max: int,
) -> tuple[list[Http2Item], int, int]:
    """The everyday frames from `start` on, at most so many, where they end, and the size of the table of headers then.

    A request is headers and data that ends it, one behind the other. Its headers by name and their size are None where
    a rule has to be looked up. Raises ValueError. Above it: `Http2Server.receive` (`protocol/http2.py`).
    """
    return [], start, table_size_max
