"""How far each group has come in each queue: the offset of the next message it wants.

Truth is in memory, so that a commit is one store into a dict; the file follows within a second, a large one every few
seconds as in RocketMQ, and at the stop. After a crash a group sees again what it settled since, and misses nothing.

The file is never ahead of the log. A pop moves its group on because a checkpoint in the log will bring the messages
back; if a power cut took the checkpoint and left the offset, nobody would. So the text waits until the log is durable
as it was then, and where replicas count, until they have it. Where that cannot be, the older file stays, and a group
sees something twice. A master that is replaced may have the end of its log cut off: it goes back to its file.

The file is consumerOffset.json as Java writes it, `topic@group` → queue → offset with the queue ids bare, and may come
from a Java broker of either version. What 5.x derives from it (`groupTopicMap`) is not written: nobody reads it. Its
text is made a slice at a time on the loop: a hundred thousand offsets would hold everybody up for a while, and offsets
need not be of the same moment, for each stands alone.

Where an operator put a group is another matter: it is in the file before he is told so (`kept`).

An offset that Java could not read does not enter the table: not by a request, and not from a file that has one.

A reset puts a group elsewhere while its members still commit where they were. Until the next pull takes it, it is what
`get` answers, and what they commit is not heard.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec

from bolide.broker.tables.places import OFFSET_MAX
from bolide.broker.tables.table_files import Pace, TableWriter
from bolide.clock import Clock
from bolide.errors import Refusal, StoreError
from bolide.files import read_whole
from bolide.model.names import shown
from bolide.protocol.bodies import ConsumerOffsets, DataVersion
from bolide.protocol.bodies.body import read
from bolide.protocol.codes import ResponseCode

OffsetTable = dict[str, dict[int, int]]
FILE_NAME = "consumerOffset.json"
_SOON_S = 1.0
_SLICE_COUNT = 500
_QUEUE_ID_MAX = (1 << 31) - 1
_SHOWN_COUNT = 8
_NO_OFFSETS: Mapping[int, int] = {}
# A text passes as it is; an integer that begins an entry is a key without its quotes.
_BARE_KEY = re.compile(r'("(?:[^"\\]|\\.)*")|(?<=[{,])(\s*)(-?\d+)(?=\s*:)')
log = logging.getLogger(__name__)


async def _at_once() -> bool:
    return True


class Offsets:
    """The offsets of all groups, under `topic@group`.

    `is_log_kept` waits until nothing can take back what is in the log now, and says whether that is so.
    """

    def __init__(
        self,
        directory: Path,
        table_writer: TableWriter,
        clock: Clock,
        is_log_kept: Callable[[], Awaitable[bool]] = _at_once,
    ) -> None:
        self._is_log_kept = is_log_kept
        self._path = directory / FILE_NAME
        self._table_writer = table_writer
        self._clock = clock
        self._is_changed = False
        self._is_adopted = False
        self._is_slicing = False
        self._slicing = asyncio.Lock()
        self._resets: OffsetTable = {}
        self._on_reset: list[Callable[[str, str, int], None]] = []
        self._pulled: OffsetTable = {}
        content = read_whole(self._path, parse, ConsumerOffsets())
        self.table: OffsetTable = sound(content.offset_table, self._path)
        # When the file that was read was written; what came later is not in it.
        self.written_ms = content.data_version.timestamp if content.data_version is not None else 0
        self.version = content.data_version or DataVersion(timestamp=clock.now_ms())

    def listen(self, on_reset: Callable[[str, str, int], None]) -> None:
        """Have it told the group, the topic and the queue whenever a group was put elsewhere in one."""
        self._on_reset.append(on_reset)

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the group goes on; None for a queue it never settled anything in."""
        queues = self.table.get(f"{topic}@{group}")
        return None if queues is None else queues.get(queue_id)

    def settled(self, group: str, topic: str) -> Mapping[int, int]:
        """Queue id → where the group goes on, not to be kept; nothing while it has a reset to be told of."""
        key = f"{topic}@{group}"
        return _NO_OFFSETS if self._resets and key in self._resets else self.table.get(key, _NO_OFFSETS)

    def put(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note how far the group has come, be it backwards; while a reset waits to be taken, nothing is noted."""
        if not 0 <= offset <= OFFSET_MAX:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"offset {offset} is not one of a queue: 0 to {OFFSET_MAX}")
        key = f"{topic}@{group}"
        if self._resets and queue_id in self._resets.get(key, ()):
            return
        queues = self.table.get(key)
        if queues is None:
            queues = self.table[key] = {}
        queues[queue_id] = offset
        self._is_changed = True
        self._is_adopted = False

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Put the group elsewhere; its next pull is to be told (`take_reset`)."""
        assert 0 <= offset <= OFFSET_MAX, "it was found in the queue"
        key = f"{topic}@{group}"
        self._resets.setdefault(key, {})[queue_id] = offset
        self.table.setdefault(key, {})[queue_id] = offset
        self._is_changed = True
        for tell in self._on_reset:
            tell(group, topic, queue_id)

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        return bool(self._resets) and queue_id in self._resets.get(f"{topic}@{group}", ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset of a reset nobody was told of yet; it is forgotten, and commits count again."""
        if not self._resets:
            return None
        key = f"{topic}@{group}"
        queues = self._resets.get(key)
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._resets[key]
        return offset

    def get_pulled(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the group's last pull ended; known since the start only."""
        return self.pulls_of(group, topic).get(queue_id)

    def pulls_of(self, group: str, topic: str) -> Mapping[int, int]:
        """Queue id → where the group's last pull ended."""
        return self._pulled.get(f"{topic}@{group}", _NO_OFFSETS)

    def put_pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note where a pull ended, which is ahead of what is settled."""
        key = f"{topic}@{group}"
        queues = self._pulled.get(key)
        if queues is None:
            queues = self._pulled[key] = {}
        queues[queue_id] = offset

    def queues_of(self, group: str, topic: str) -> dict[int, int]:
        """Queue id → offset, a copy."""
        return dict(self.table.get(f"{topic}@{group}", ()))

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have an offset in the topic."""
        start = topic + "@"
        return [key[len(start) :] for key in self.table if key.startswith(start)]

    def topics_of(self, group: str) -> list[str]:
        """The topics in which the group has an offset."""
        end = "@" + group
        return [key[: -len(end)] for key in self.table if key.endswith(end)]

    def remove_topic(self, topic: str) -> None:
        """Forget how far anybody was in a topic."""
        start = topic + "@"
        self._remove(lambda key: key.startswith(start))

    def remove_group(self, group: str) -> None:
        """Forget how far a group was anywhere."""
        end = "@" + group
        self._remove(lambda key: key.endswith(end))

    def clone(self, source: str, destination: str, topic: str) -> None:
        """Let a group be where another is in a topic."""
        queues = self.queues_of(source, topic)
        if queues:
            self.table[f"{topic}@{destination}"] = queues
            self._resets.pop(f"{topic}@{destination}", None)  # of a reset before it nobody need hear
            self._is_changed = True

    def _remove(self, is_meant: Callable[[str], bool]) -> None:
        for table in (self.table, self._resets, self._pulled):
            for key in [key for key in table if is_meant(key)]:
                del table[key]
                self._is_changed = True

    # Of another broker

    def forget(self) -> None:
        """Another broker leads, and the end of our log may be cut off: what the file says lies before that."""
        self._is_slicing = self._is_changed = False
        self._resets.clear()
        self._pulled.clear()
        content = read_whole(self._path, parse, ConsumerOffsets())
        self.table.clear()
        self.table.update(sound(content.offset_table, self._path))

    def adopt(self, told: ConsumerOffsets) -> None:
        """A slave has its master's offsets; of groups that the master does not know, it keeps its own."""
        if told.data_version is not None and told.data_version == self.version:
            return
        for key, queues in sound(told.offset_table, self._path).items():
            self.table[key] = dict(queues)
        if told.data_version is not None:
            self.version, self.written_ms = told.data_version, told.data_version.timestamp
        self._is_adopted = self._is_changed = True

    def cut(self, end_of: Callable[[str, int], int]) -> int:
        """The log is shorter than it was, or begins later: nobody is beyond the end of a queue. How many were.

        What is stored there from now on would be passed over. RocketMQ leaves them where they are.
        """
        count = 0
        for table in (self.table, self._resets):
            for key, queues in table.items():
                topic = key.partition("@")[0]
                for queue_id, offset in queues.items():
                    if offset > (end := end_of(topic, queue_id)):
                        queues[queue_id] = end
                        count += 1
        self._pulled.clear()
        if count:
            self._is_changed = True
            log.warning("offsets beyond the end of their queue, brought back to it: count=%d", count)
        return count

    def bring_home(self, told: ConsumerOffsets, end_of: Callable[[str, int], int]) -> int:
        """A master that was away takes what groups committed to its slave; returns how many offsets moved.

        The larger offset of each queue counts, but none beyond the end of our queue. A slave that took no commit of its
        own since it last copied our table knows nothing new: its older offsets would undo what was reset here. A master
        that never wrote its table knows nothing itself.
        """
        version = told.data_version
        own_version = (self.version.timestamp, self.version.counter) if self.written_ms else (0, 0)
        if version is not None and (version.timestamp, version.counter) <= own_version:
            return 0
        moved = 0
        for key, queues in sound(told.offset_table, self._path).items():
            topic, own = key.partition("@")[0], self.table.setdefault(key, {})
            for queue_id, offset in queues.items():
                offset = min(offset, end_of(topic, queue_id))
                if offset > own.get(queue_id, -1):
                    own[queue_id] = offset
                    moved += 1
        self._is_changed = self._is_changed or moved > 0
        return moved

    # The file

    async def save_forever(self, interval_s: Callable[[], float]) -> None:
        """Have the file follow the table: within a second of a change, or where it is large, at the given interval."""
        pace = Pace(self._clock, _SOON_S)
        while True:
            await asyncio.sleep(pace.pause_s(interval_s()))
            if self._is_changed:
                with pace.timed(), suppress(StoreError):  # the disk is late; the next time is soon
                    await self._save_in_slices()

    async def stop(self) -> None:
        """Have everything written; a save that is being made in slices is overtaken."""
        if self._is_changed or self._is_slicing:
            self._is_slicing = False
            self._step()
            lines = self._lines(self.table)
            await self._write(self.version, lines)

    async def kept(self) -> None:
        """Wait until all that is noted is in the file; raises Refusal where it cannot be written."""
        try:
            await self._save_in_slices()
            await self._table_writer.flush()
        except StoreError as problem:
            remark = f"the offsets are changed, but not on disk, and a crash may undo it: {problem}; then do it again"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark) from None

    async def _save_in_slices(self) -> None:
        async with self._slicing:
            await self._slice()

    async def _slice(self) -> None:
        self._step()
        self._is_slicing = True
        version = self.version
        keys = iter(list(self.table))
        lines: list[str] = []
        while part := list(islice(keys, _SLICE_COUNT)):
            lines += self._lines({key: self.table[key] for key in part if key in self.table})
            await asyncio.sleep(0)
            if not self._is_slicing:
                return
        self._is_slicing = False
        await self._write(version, lines)

    async def _write(self, version: DataVersion, lines: list[str]) -> None:
        """Have the file written once the log is durable as far as these lines speak of it; if it is not, later."""
        try:
            is_kept = await self._is_log_kept()
        except Refusal as problem:
            self._is_changed = True
            raise StoreError(f"the log is not durable: {problem.remark}") from None
        if not is_kept:
            self._is_changed = True
            raise StoreError("the log is not durable in time, here or at the replicas")
        self._table_writer.save(self._path, lambda: _text(version, lines))

    def _lines(self, table: OffsetTable) -> list[str]:
        """Entries of the file; one that cannot be written is left out, and the others are kept all the same."""
        lines: list[str] = []
        for key, queues in table.items():
            with self._table_writer.mishaps.passing_over("broker.offsets", partial(str, key[:200])):
                lines.append(_line(key, queues))
        return lines

    def _step(self) -> None:
        """A new version for what changed here; what was copied keeps the version it came with."""
        self._is_changed = False
        if self._is_adopted:
            self._is_adopted = False
            return
        self.version = msgspec.structs.replace(
            self.version, counter=self.version.counter + 1, timestamp=self._clock.now_ms()
        )


def parse(text: str) -> ConsumerOffsets:
    """What a file says; raises ValueError."""
    return read(ConsumerOffsets, quote_keys(text).encode())


def sound(table: OffsetTable, path: Path) -> OffsetTable:
    """The table without what cannot be an offset of a queue: to ask for one would be answered with an error."""
    kept: OffsetTable = {}
    dropped: list[str] = []
    for key, queues in table.items():
        bad = {queue_id for queue_id, offset in queues.items() if not _is_sound(queue_id, offset)}
        dropped += [f"queue {shown(str(queue_id))} of {shown(key)}" for queue_id in bad]
        kept[key] = {queue_id: queues[queue_id] for queue_id in queues if queue_id not in bad} if bad else queues
    if dropped:
        some = ", ".join(dropped[:_SHOWN_COUNT])
        log.warning("offsets dropped, which are out of range: count=%d path=%s: %s", len(dropped), path, some)
    return kept


def _is_sound(queue_id: int, offset: int) -> bool:
    return 0 <= queue_id <= _QUEUE_ID_MAX and 0 <= offset <= OFFSET_MAX


def quote_keys(text: str) -> str:
    """The text of a file with quotes around integers that are keys, which fastjson leaves bare."""
    return _BARE_KEY.sub(lambda found: found[1] or f'{found[2]}"{found[3]}"', text)


def _line(key: str, queues: dict[int, int]) -> str:
    """An entry of the file, the way Java's writer indents it."""
    name = msgspec.json.encode(key).decode()
    if not queues:
        return f"\t\t{name}:{{}}"
    # Queue ids are the only texts inside, so their quotes are the only ones.
    entries = msgspec.json.encode(queues).decode().replace('"', "")
    return f"\t\t{name}:{entries[:-1]}\n\t\t}}"


def _text(version: DataVersion, lines: list[str]) -> str:
    table = "{\n" + ",\n".join(lines) + "\n\t}" if lines else "{}"
    return (
        f'{{\n\t"dataVersion":{{\n\t\t"counter":{version.counter},\n\t\t"stateVersion":{version.state_version},\n'
        f'\t\t"timestamp":{version.timestamp}\n\t}},\n\t"offsetTable":{table}\n}}'
    )
