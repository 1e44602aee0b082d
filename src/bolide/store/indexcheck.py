"""Whether index files are what they were, by cheap looks at a start.

From the first file on that is not, the index is made again from the log: where a file's keys end and the next one's
begin is a matter of counting, so those behind a bad file are given up with it.

At a start the header of each file is compared with the roster and with what it speaks of: its first and last entry, and
the store times of the records they lead to.
"""

from collections.abc import Callable, Mapping

from bolide.store.index import DAMAGED, Index, IndexFile, IndexHeader
from bolide.store.record import store_ms_of

RecordAt = Callable[[int], memoryview | None]


def first_doubt(
    index: Index, known: Mapping[str, bytes], is_exact: bool, log_start: int, at: RecordAt
) -> tuple[str, str]:
    """The name of the first file that is missing or not as it was, and what is odd; ("", "") if all is well."""
    names = [file.path.name for file in index.files]
    gone = (name for name in sorted(known) if name not in names)
    missing = next((name for name in gone if IndexHeader.read(known[name]).end_physical >= log_start), "")
    end_physical = -1
    for file in index.files:
        name, header = file.path.name, file.header()
        if missing and missing < name:
            break
        odd = _oddity(file, header, at) if known.get(name) != DAMAGED else "a search found it damaged"
        if not odd and header.next_entry > 1 and header.begin_physical < end_physical:
            odd = f"it begins at {header.begin_physical}, before the end of the file before it"
        if not odd and name in known and (is_exact or file.is_full) and known[name] != file.encoded_header():
            was_full = IndexHeader.read(known[name]).next_entry == header.next_entry
            odd = "its header is not as it was" if is_exact or was_full else ""
        if not odd and is_exact and name not in known:
            odd = "nobody knows of it"
        if odd:
            return name, odd
        end_physical = max(end_physical, header.end_physical)
    return (missing, "it is missing") if missing else ("", "")


def _oddity(file: IndexFile, header: IndexHeader, at: RecordAt) -> str:
    """What the header says that cannot be, or that its edges do not say."""
    if not 1 <= header.next_entry <= file.entry_count_max:
        return f"it counts {header.next_entry - 1} keys of at most {file.entry_count_max - 1}"
    if not 0 <= header.used_slots <= min(header.next_entry - 1, file.slot_count):
        return f"it counts {header.used_slots} slots in use for {header.next_entry - 1} keys"
    if header.next_entry == 1:
        return ""
    for what, number, place, time_ms in (
        ("first", 1, header.begin_physical, header.begin_ms),
        ("last", header.next_entry - 1, header.end_physical, header.end_ms),
    ):
        if file.entry(number)[1] != place:
            return f"its {what} key is not that of the record at {place}"
        record = at(place)
        if record is not None and store_ms_of(record) != time_ms:
            return f"its {what} key is of {time_ms}, the record at {place} of {store_ms_of(record)}"
    return ""
