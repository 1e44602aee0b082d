"""Pure functions on bytes, a batch at a time: cut, read, write, hash.

The only place that chooses between the two kernels. `plain.py` and its neighbours are the meaning and run everywhere;
`compiled.pyx` is the same functions with types, one library of many parts. `layout.py` has the tables and types of
both. BOLIDE_KERNEL=plain or =compiled decides, otherwise compiled is taken where it was built.
"""

import importlib
import os
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

NAME: str

if TYPE_CHECKING:
    from bolide.kernel.plain import answer_routes as answer_routes
    from bolide.kernel.plain import cut_frames as cut_frames
    from bolide.kernel.plain import header_from_json as header_from_json
    from bolide.kernel.plain import java_hash as java_hash
    from bolide.kernel.plain import read_headers as read_headers
    from bolide.kernel.plain import write_frames as write_frames

    # the client's
    from bolide.kernel.plain_client import encode_items as encode_items
    from bolide.kernel.plain_client import read_receipts as read_receipts
    from bolide.kernel.plain_client import unique_ids as unique_ids
    from bolide.kernel.plain_client import write_outcomes as write_outcomes
    from bolide.kernel.plain_client import write_sends as write_sends

    # the pipeline's
    from bolide.kernel.plain_columns import spread_records as spread_records

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

    # the proxy's
    from bolide.kernel.plain_hpack import decode_headers as decode_headers

    # the broker's, for what waits
    from bolide.kernel.plain_later import due_drafts as due_drafts
    from bolide.kernel.plain_later import encode_units as encode_units
    from bolide.kernel.plain_later import redeliver_records as redeliver_records
    from bolide.kernel.plain_later import walk_units as walk_units

    # what the plain kernel leaves to the paths above
    from bolide.kernel.plain_left import admit_signed as admit_signed
    from bolide.kernel.plain_left import answer_pull as answer_pull
    from bolide.kernel.plain_left import cut_records as cut_records
    from bolide.kernel.plain_left import encode_outcomes as encode_outcomes
    from bolide.kernel.plain_left import encode_received as encode_received
    from bolide.kernel.plain_left import encode_sends as encode_sends
    from bolide.kernel.plain_left import read_grpc_ack as read_grpc_ack
    from bolide.kernel.plain_left import read_grpc_send as read_grpc_send
    from bolide.kernel.plain_left import read_http2_calls as read_http2_calls
    from bolide.kernel.plain_left import read_outcomes as read_outcomes
    from bolide.kernel.plain_left import read_pulls as read_pulls
    from bolide.kernel.plain_left import signing_state as signing_state

    # the store's
    from bolide.kernel.plain_records import body_crc as body_crc
    from bolide.kernel.plain_records import count_entries as count_entries
    from bolide.kernel.plain_records import encode_records as encode_records
    from bolide.kernel.plain_records import find_record as find_record
    from bolide.kernel.plain_records import fitting_entries as fitting_entries
    from bolide.kernel.plain_records import heading_records as heading_records
    from bolide.kernel.plain_records import key_hash as key_hash
    from bolide.kernel.plain_records import put_keys as put_keys
    from bolide.kernel.plain_records import scan_records as scan_records
    from bolide.kernel.plain_records import seal_records as seal_records
    from bolide.kernel.plain_records import select_entries as select_entries
    from bolide.kernel.plain_records import walk_records as walk_records

    # the pipeline's
    from bolide.kernel.plain_rows import encode_rows as encode_rows

__all__ = [
    "NAME",
    "admit_signed",
    "answer_pull",
    "answer_routes",
    "body_crc",
    "count_entries",
    "cut_frames",
    "cut_records",
    "decode_headers",
    "due_drafts",
    "encode_items",
    "encode_outcomes",
    "encode_received",
    "encode_records",
    "encode_rows",
    "encode_sends",
    "encode_units",
    "fault_count",
    "find_record",
    "fitting_entries",
    "forget_span",
    "guard_map",
    "header_from_json",
    "heading_records",
    "java_hash",
    "key_hash",
    "map_again",
    "match_entries",
    "patched_span",
    "put_keys",
    "read_grpc_ack",
    "read_grpc_send",
    "read_headers",
    "read_http2_calls",
    "read_outcomes",
    "read_pulls",
    "read_receipts",
    "redeliver_records",
    "scan_records",
    "seal_records",
    "select_entries",
    "signing_state",
    "spread_records",
    "touch",
    "unguard_map",
    "unique_ids",
    "walk_records",
    "walk_units",
    "write_frames",
    "write_outcomes",
    "write_sends",
]
# Asked of one item at a time: the plain function serves both kernels. Each with the part that has it.
_OF_ONE_ITEM = {"due_drafts": "plain_later", "header_from_json": "plain", "key_hash": "plain_records"}
_FUNCTIONS = frozenset(__all__) - {"NAME"}
# The modules of the plain kernel.
PARTS = (
    "plain",
    "plain_client",
    "plain_columns",
    "plain_faults",
    "plain_filter",
    "plain_hpack",
    "plain_left",
    "plain_records",
    "plain_rows",
    "plain_later",
)


def _functions_of(part: str) -> dict[str, Callable[..., Any]]:
    found = vars(importlib.import_module(f"{__name__}.{part}"))
    return {name: function for name, function in found.items() if name in _FUNCTIONS}


def _chosen(wanted: str) -> tuple[str, dict[str, Callable[..., Any]]]:
    """The name of the kernel and its functions; beside the compiled one only those plain parts that serve both."""
    if wanted not in ("auto", "plain", "compiled"):
        raise ImportError(f"BOLIDE_KERNEL is {wanted!r}: it may be auto, plain or compiled")
    if wanted != "plain":
        try:
            compiled = importlib.import_module(f"{__name__}.compiled")
        except ImportError:
            if wanted == "compiled":
                raise  # asked for by name: falling back would hide the answer
        else:
            return "compiled", _compiled_functions(compiled)
    return "plain", {name: function for part in PARTS for name, function in _functions_of(part).items()}


def _compiled_functions(compiled: ModuleType) -> dict[str, Callable[..., Any]]:
    missing = sorted(_FUNCTIONS - vars(compiled).keys() - _OF_ONE_ITEM.keys())
    if missing:  # silence would cost speed that nobody sees go
        raise ImportError(f"{compiled.__file__} was built from other sources: make build (it has no {missing[0]})")
    plain = {name: _functions_of(part)[name] for name, part in _OF_ONE_ITEM.items()}
    return plain | {name: vars(compiled)[name] for name in _FUNCTIONS - _OF_ONE_ITEM.keys()}


if not TYPE_CHECKING:
    NAME, _functions = _chosen(os.environ.get("BOLIDE_KERNEL", "auto"))
    globals().update(_functions)
