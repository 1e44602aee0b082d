"""Pure functions on bytes, a batch at a time: cut, read, write, hash.

The only place that chooses between the two kernels. `plain.py` is the meaning and runs everywhere; `compiled.pyx` is
the same function with types; the store's part is `plain_records.py` and `compiled_records.pyx`, that of sends
`plain_sends.py` and `compiled_sends.pyx`, that of pulls `plain_pulls.py` and `compiled_pulls.pyx`, that of transactions
`plain_ends.py` and `compiled_ends.pyx`, that of filters `plain_filter.py` and `compiled_filter.pyx`, that of what waits
`plain_waits.py` and `compiled_waits.pyx`, the client's `plain_client.py` and `compiled_client.pyx`, that of what
pipelines read `plain_columns.py` and `compiled_columns.pyx`, and of what they write `plain_rows.py` and
`compiled_rows.pyx`. BOLIDE_KERNEL=plain or =compiled decides, otherwise compiled is taken where it was built.
"""

import os
from typing import TYPE_CHECKING

NAME: str

if TYPE_CHECKING:
    from bolide.kernel.plain import answer_routes as answer_routes
    from bolide.kernel.plain import cut_frames as cut_frames
    from bolide.kernel.plain import header_from_json as header_from_json
    from bolide.kernel.plain import java_hash as java_hash
    from bolide.kernel.plain import read_headers as read_headers
    from bolide.kernel.plain import write_frames as write_frames

    # the client's
    from bolide.kernel.plain_client import cut_records as cut_records
    from bolide.kernel.plain_client import lay_items as lay_items
    from bolide.kernel.plain_client import read_receipts as read_receipts
    from bolide.kernel.plain_client import unique_ids as unique_ids
    from bolide.kernel.plain_client import write_ends as write_ends
    from bolide.kernel.plain_client import write_sends as write_sends

    # the pipeline's
    from bolide.kernel.plain_columns import spread_records as spread_records

    # the broker's, for ends of transactions
    from bolide.kernel.plain_ends import lay_ends as lay_ends
    from bolide.kernel.plain_ends import read_ends as read_ends
    from bolide.kernel.plain_ends import without_place as without_place

    # the store's, for pages that cannot be read
    from bolide.kernel.plain_faults import fault_count as fault_count
    from bolide.kernel.plain_faults import forget_span as forget_span
    from bolide.kernel.plain_faults import guard_map as guard_map
    from bolide.kernel.plain_faults import map_again as map_again
    from bolide.kernel.plain_faults import patched_span as patched_span
    from bolide.kernel.plain_faults import touch as touch
    from bolide.kernel.plain_faults import unguard_map as unguard_map

    # the filters'
    from bolide.kernel.plain_filter import match_entries as match_entries

    # the broker's, for pulls
    from bolide.kernel.plain_pulls import answer_pull as answer_pull
    from bolide.kernel.plain_pulls import read_pulls as read_pulls

    # the store's
    from bolide.kernel.plain_records import body_crc as body_crc
    from bolide.kernel.plain_records import count_entries as count_entries
    from bolide.kernel.plain_records import find_record as find_record
    from bolide.kernel.plain_records import fitting_entries as fitting_entries
    from bolide.kernel.plain_records import heading_records as heading_records
    from bolide.kernel.plain_records import key_hash as key_hash
    from bolide.kernel.plain_records import lay_records as lay_records
    from bolide.kernel.plain_records import put_keys as put_keys
    from bolide.kernel.plain_records import scan_records as scan_records
    from bolide.kernel.plain_records import seal_records as seal_records
    from bolide.kernel.plain_records import select_entries as select_entries
    from bolide.kernel.plain_records import walk_records as walk_records

    # the pipeline's
    from bolide.kernel.plain_rows import lay_rows as lay_rows

    # the broker's, for sends
    from bolide.kernel.plain_sends import lay_sends as lay_sends

    # the broker's, for what waits
    from bolide.kernel.plain_waits import due_drafts as due_drafts
    from bolide.kernel.plain_waits import lay_units as lay_units
    from bolide.kernel.plain_waits import relay_records as relay_records
    from bolide.kernel.plain_waits import walk_units as walk_units
else:
    from bolide.kernel import plain as active
    from bolide.kernel import plain_client as client
    from bolide.kernel import plain_columns as columns
    from bolide.kernel import plain_ends as transactions
    from bolide.kernel import plain_faults as faults
    from bolide.kernel import plain_filter as filters
    from bolide.kernel import plain_pulls as pulls
    from bolide.kernel import plain_records as records
    from bolide.kernel import plain_rows as rows
    from bolide.kernel import plain_sends as sends
    from bolide.kernel import plain_waits as waits

    # These have no compiled twin.
    due_drafts = waits.due_drafts
    header_from_json = active.header_from_json
    key_hash = records.key_hash
    without_place = transactions.without_place

    _wanted = os.environ.get("BOLIDE_KERNEL", "auto")
    if _wanted not in ("auto", "plain", "compiled"):
        raise ImportError(f"BOLIDE_KERNEL is {_wanted!r}: it may be auto, plain or compiled")
    if _wanted != "plain":
        try:
            from bolide.kernel import (
                compiled,
                compiled_client,
                compiled_columns,
                compiled_ends,
                compiled_filter,
                compiled_pulls,
                compiled_records,
                compiled_rows,
                compiled_sends,
                compiled_waits,
            )
        except ImportError:
            if _wanted == "compiled":
                raise  # asked for by name: falling back would hide the answer
        else:
            active, records, sends, pulls = compiled, compiled_records, compiled_sends, compiled_pulls
            transactions, rows = compiled_ends, compiled_rows
            client, columns, filters, waits = compiled_client, compiled_columns, compiled_filter, compiled_waits
        try:
            from bolide.kernel import compiled_faults as faults  # needs signals of its own, and the others do not
        except ImportError:
            if _wanted == "compiled":
                raise

    NAME = active.__name__.rpartition(".")[2]
    answer_routes = active.answer_routes
    cut_frames = active.cut_frames
    java_hash = active.java_hash
    read_headers = active.read_headers
    write_frames = active.write_frames

    # the client's
    cut_records = client.cut_records
    lay_items = client.lay_items
    read_receipts = client.read_receipts
    unique_ids = client.unique_ids
    write_ends = client.write_ends
    write_sends = client.write_sends

    # the pipeline's
    lay_rows = rows.lay_rows
    spread_records = columns.spread_records

    # the broker's, for ends of transactions
    lay_ends = transactions.lay_ends
    read_ends = transactions.read_ends

    # the filters'
    match_entries = filters.match_entries

    # the broker's, for pulls
    answer_pull = pulls.answer_pull
    read_pulls = pulls.read_pulls

    # the store's
    body_crc = records.body_crc
    count_entries = records.count_entries
    find_record = records.find_record
    fitting_entries = records.fitting_entries
    heading_records = records.heading_records
    lay_records = records.lay_records
    put_keys = records.put_keys
    scan_records = records.scan_records
    seal_records = records.seal_records
    select_entries = records.select_entries
    walk_records = records.walk_records

    # the store's, for pages that cannot be read
    fault_count = faults.fault_count
    forget_span = faults.forget_span
    guard_map = faults.guard_map
    map_again = faults.map_again
    patched_span = faults.patched_span
    touch = faults.touch
    unguard_map = faults.unguard_map

    # the broker's, for sends
    lay_sends = sends.lay_sends

    # the broker's, for what waits
    lay_units = waits.lay_units
    relay_records = waits.relay_records
    walk_units = waits.walk_units

__all__ = [
    "NAME",
    "answer_pull",
    "answer_routes",
    "body_crc",
    "count_entries",
    "cut_frames",
    "cut_records",
    "due_drafts",
    "fault_count",
    "find_record",
    "fitting_entries",
    "forget_span",
    "guard_map",
    "header_from_json",
    "heading_records",
    "java_hash",
    "key_hash",
    "lay_ends",
    "lay_items",
    "lay_records",
    "lay_rows",
    "lay_sends",
    "lay_units",
    "map_again",
    "match_entries",
    "patched_span",
    "put_keys",
    "read_ends",
    "read_headers",
    "read_pulls",
    "read_receipts",
    "relay_records",
    "scan_records",
    "seal_records",
    "select_entries",
    "spread_records",
    "touch",
    "unguard_map",
    "unique_ids",
    "walk_records",
    "walk_units",
    "without_place",
    "write_ends",
    "write_frames",
    "write_sends",
]
