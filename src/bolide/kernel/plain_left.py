"""What the plain kernel leaves: where a complete path in Python stands above a compiled function, it takes nothing.

The path above serves then, one item at a time, and is what the compiled function is held to by tests. A second rule
book in plain Python would be a third, and it was no faster than that path.

Two keep a twin, because nothing above them makes the same bytes: the client's writes (`plain_client.py`), which are the
only way to its frames, and pulls (`plain_pulls.py`), whose odd requests the compiled function hands to the plain one
and whose answers the general path gives in pieces.
"""

from collections.abc import Mapping

from bolide.kernel.layout import Buffer, EncodedOutcomes, Outcome, Read, RecordRow, Run, SendRules, Sent


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
