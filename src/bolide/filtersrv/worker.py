"""The process a filter runs in. It reads frames (length, content) from its standard input and answers each with one.

The first frame is the source, each after it the records of one pull; an answer begins with a byte that says whether it
went well, followed by a byte for each message (1: it passes) or by why not. Before the source is compiled the process
gives up what a filter has no business with: memory beyond its bound, writing files, more than a few open ones,
children. It is told nothing but records, and can tell nothing but verdicts. Who runs on is killed by the one who waits.

Nothing here is meant to hold a filter whose author wants to break out: only users who proved who they are may upload
one. It holds the mistakes of the others.
"""

import contextlib
import ctypes
import os
import resource
import struct
import sys
from collections.abc import Callable
from typing import NamedTuple

from bolide.model.message import StoredMessage
from bolide.protocol.records import decode_records, inflate

DONE, FAILED = b"\x01", b"\x00"
FRAME_SIZE_MAX = 64 << 20
_TEXT_MAX = 2000
_OPEN_FILES_MAX = 64
_NOBODY = 65534
_CAPABILITIES_VERSION = 0x2008_0522


class Context(NamedTuple):
    """What a filter is told beside the message."""

    group: str
    topic: str


Match = Callable[[StoredMessage, Context], object]


def main(arguments: list[str]) -> None:
    """Serve until the input ends. Arguments: group, topic, name of the class, megabytes, seconds of CPU a batch."""
    group, topic, class_name, memory_mb, cpu_s = arguments
    inbox, outbox = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)  # what a filter prints must not be taken for a verdict
    source = _read(inbox)
    if source is None:
        return
    _give_up(int(memory_mb))
    context = Context(group, topic)
    try:
        match = find_match(source, class_name)
    except BaseException as problem:
        _write(outbox, FAILED + _told(problem))
        return
    _write(outbox, DONE)
    while (records := _read(inbox)) is not None:
        _allow(int(cpu_s))
        try:
            answer = DONE + verdicts(match, records, context)
        except BaseException as problem:
            answer = FAILED + _told(problem)
        _write(outbox, answer)


def find_match(source: bytes, class_name: str) -> Match:
    """The function `match` of a source, or that of the class it names; raises whatever is wrong with it."""
    space: dict[str, object] = {"__name__": "filter"}
    exec(compile(source, f"<{class_name}>", "exec"), space)
    found = space.get("match")
    if found is None:
        kind = space.get(class_name.rpartition(".")[2])
        if isinstance(kind, type):
            found = getattr(kind(), "match", None)
    if not callable(found):
        raise LookupError(f"the source has no function `match(message, context)`, and no class {class_name} with one")
    return found


def verdicts(match: Match, records: bytes, context: Context) -> bytes:
    """A byte for each record: 1 if it passes."""
    return bytes(bool(match(inflate(message), context)) for message in decode_records(records))


def _give_up(memory_mb: int) -> None:
    if os.geteuid() == 0:
        _be_less_than_root()
    limits = {
        resource.RLIMIT_AS: memory_mb << 20,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: _OPEN_FILES_MAX,
        resource.RLIMIT_NPROC: 0,
    }
    for kind, limit in limits.items():
        resource.setrlimit(kind, (limit, limit))


def _be_less_than_root() -> None:
    """Root has as many children as it likes, whatever its limit: be counted as another, and without its privileges.

    What root owns can still be read, our own packages among it.
    """
    with contextlib.suppress(OSError):  # a root that may not even change its name is held by what holds it
        os.setresuid(_NOBODY, 0, 0)
    ctypes.CDLL(None).capset(struct.pack("=Ii", _CAPABILITIES_VERSION, 0), bytes(24))


def _allow(cpu_s: int) -> None:
    """So much CPU for the next batch: a backstop, should nobody be there any more to kill us."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + cpu_s + 1, hard))


def _told(problem: BaseException) -> bytes:
    return f"{type(problem).__name__}: {problem}"[:_TEXT_MAX].encode("utf-8", "replace")


def _read(inbox: int) -> bytes | None:
    head = _read_exactly(inbox, 4)
    return None if head is None else _read_exactly(inbox, int.from_bytes(head, "big"))


def _read_exactly(inbox: int, size: int) -> bytes | None:
    content = bytearray()
    while len(content) < size:
        part = os.read(inbox, min(size - len(content), 1 << 20))
        if not part:
            return None
        content += part
    return bytes(content)


def _write(outbox: int, content: bytes) -> None:
    left = memoryview(len(content).to_bytes(4, "big") + content)
    while left:
        left = left[os.write(outbox, left) :]


if __name__ == "__main__":
    main(sys.argv[1:])
