"""Entries from before this start are compared with the log when they are first read, and put right on the spot.

A bad page in the middle of a queue file is not seen at a start, and reading every entry then would take minutes. So a
queue asks here before it hands out a block of old entries for the first time: each must be what its record makes of it,
place, size and tag, and the record must be of this queue and offset. Where the tag lies in an extension file, that one
is asked, and an entry whose unit is missing or says another tag gets its tag itself. Entries of this life are not asked
about: they come from records that were just laid out. Nor does a pull ask that takes all messages as they come: it
compares each with its entry while it copies it, and comes here only where one does not fit.

What does not fit is made again from the log between the nearest entries that do. Where that has no record for an
offset, the entry becomes blank, and readers go on behind it. Anyone who reads waits meanwhile; with thousands of busy
queues the stretch of log can be long, which is better than a message that nobody gets.
"""

import logging

from bolide import kernel
from bolide.kernel.layout import ENTRY, ENTRY_SIZE, PRE_BLANK
from bolide.model.topics import SCHEDULE_TOPIC
from bolide.store.commitlog import CommitLog
from bolide.store.config import StoreConfig, delays_ms_of
from bolide.store.consumequeue import ConsumeQueue
from bolide.store.derived import walk
from bolide.store.disk import Disk
from bolide.store.dispatch import Dispatch
from bolide.store.extension import QueueExtension
from bolide.store.indexmend import IndexMending

log = logging.getLogger(__name__)
_TAG_AT = 12
_TAG_MIN = -(2**31)  # less is the address of a tag in an extension file
_ADDRESS_MARK = 0x80  # the first byte of an address
_NO_TAG = 1 << 62  # no hash of anything


class EntryCheck:
    """Compares and mends entries of any queue of one store."""

    def __init__(self, config: StoreConfig, commitlog: CommitLog) -> None:
        self._config = config
        self._log = commitlog
        self._delays_ms = delays_ms_of(config.delay_levels)

    def check(self, queue: ConsumeQueue, first: int, end: int) -> None:
        """See that entries from first to end are those of their records; they lie in one file."""
        raw = queue.raw(first, end - first)
        if raw is None:
            return
        entries, at, count = self._with_tags(queue, bytes(raw)), 0, len(raw) // ENTRY_SIZE
        while (at := at + self._fitting_count(queue, first + at, entries[at * ENTRY_SIZE :])) < count:
            past = at
            while past < count and not self._fits(queue, first + past, _entry(entries, past)):
                past += 1
            if past > at:
                self._mend(queue, first + at, first + past)
            at = past + 1  # that one fits, though it could not be told with the others

    def _with_tags(self, queue: ConsumeQueue, entries: bytes) -> bytes:
        """Entries with tags where they have addresses in an extension file; one that leads nowhere becomes no tag."""
        if _ADDRESS_MARK not in entries[_TAG_AT::ENTRY_SIZE]:
            return entries
        directory = self._config.root / "consumequeue_ext" / queue.topic / str(queue.queue_id)
        extension = QueueExtension(directory, self._config.extension_file_size)
        tagged = bytearray(extension.resolve(memoryview(entries)))
        for at in range(0, len(tagged), ENTRY_SIZE):
            place, size, tag = ENTRY.unpack_from(tagged, at)
            ENTRY.pack_into(tagged, at, place, size, _NO_TAG if tag < _TAG_MIN else tag)
        return bytes(tagged)

    def _fitting_count(self, queue: ConsumeQueue, first: int, entries: bytes) -> int:
        """How many of the first entries are right: told by the kernel, for those in the file of the log that has the
        first of them."""
        if not entries:
            return 0
        place, _, _ = ENTRY.unpack_from(entries)
        segment = self._log.segments.find(place) if self._log.start <= place < self._log.end else None
        if segment is None:
            return 0
        records = segment.view[: self._log.end - segment.base]
        has_tags = queue.topic != SCHEDULE_TOPIC
        return kernel.fitting_entries(entries, records, segment.base, queue.name, queue.queue_id, first, has_tags)

    def _fits(self, queue: ConsumeQueue, offset: int, entry: bytes) -> bool:
        place, size, tag = ENTRY.unpack(entry)
        if entry == PRE_BLANK:
            return True  # the log has lost this message
        segment = self._log.segments.find(place) if self._log.start <= place < self._log.end else None
        if segment is None or not 0 < size <= min(segment.base + segment.size, self._log.end) - place:
            return False
        at = place - segment.base
        runs, *_ = kernel.walk_records(segment.view, at, at + size, segment.base, False, self._delays_ms)
        if len(runs) != 1 or runs[0][:3] != (queue.topic, queue.queue_id, offset):
            return False
        # The tag of a message that is delayed is the time when it is due, by the levels of that day.
        has_other_tag = tag < _TAG_MIN or queue.topic == SCHEDULE_TOPIC
        return runs[0][3] == entry or (has_other_tag and runs[0][3][:_TAG_AT] == entry[:_TAG_AT])

    def _mend(self, queue: ConsumeQueue, first: int, end: int) -> None:
        low, high = self._end_before(queue, first), self._place_after(queue, end)
        found = bytearray(PRE_BLANK * (end - first))
        for runs in walk(self._log, self._config, low, high):
            for topic, queue_id, offset, entries in runs:
                if (topic, queue_id) != (queue.topic, queue.queue_id):
                    continue
                for number in range(max(first - offset, 0), min(end - offset, len(entries) // ENTRY_SIZE)):
                    at = (offset + number - first) * ENTRY_SIZE
                    found[at : at + ENTRY_SIZE] = entries[number * ENTRY_SIZE : (number + 1) * ENTRY_SIZE]
        queue.rewrite(first, bytes(found))
        lost_count = sum(entry == ENTRY.unpack(PRE_BLANK) for entry in ENTRY.iter_unpack(found))
        log.warning(
            "entries of a queue did not fit the log and were made again topic=%s queue=%d from=%d to=%d lost=%d",
            *(queue.topic, queue.queue_id, first, end, lost_count),
        )

    def _end_before(self, queue: ConsumeQueue, offset: int) -> int:
        """Where the record of the nearest good entry before this one ends."""
        while (offset := offset - 1) >= queue.min_offset:
            raw = queue.raw(offset, 1)
            if raw is not None and raw != PRE_BLANK and self._fits(queue, offset, bytes(raw)):
                place, size, _ = ENTRY.unpack(raw)
                return int(place + size)
        return self._log.start

    def _place_after(self, queue: ConsumeQueue, offset: int) -> int:
        """Where the record of the nearest good entry from this one on begins."""
        for following in range(offset, queue.next_offset):
            raw = queue.raw(following, 1)
            if raw is not None and raw != PRE_BLANK and self._fits(queue, following, bytes(raw)):
                return int(ENTRY.unpack(raw)[0])
        return self._log.end


def _entry(entries: bytes, number: int) -> bytes:
    return entries[number * ENTRY_SIZE : (number + 1) * ENTRY_SIZE]


def watch(disk: Disk, config: StoreConfig, commitlog: CommitLog, dispatch: Dispatch) -> None:
    """From here on what is read of queues and index is checked against the log."""
    check = EntryCheck(config, commitlog).check
    dispatch.check = check
    for queue in dispatch.queues.values():
        queue.check_with(check)
    dispatch.index.mending = IndexMending(disk, config, commitlog, dispatch.index, dispatch.roster)
