"""Records into Arrow, one at a time."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from bolide.model.message import StoredMessage
from bolide.protocol.batch import unwrap
from bolide.protocol.records import decode_records, inflate

_READ: dict[str, Callable[[StoredMessage, str], Any]] = {
    "topic": lambda m, b: m.topic,
    "broker_name": lambda m, b: b,
    "queue_id": lambda m, b: m.queue_id,
    "queue_offset": lambda m, b: m.queue_offset,
    "physical_offset": lambda m, b: m.physical_offset,
    "msg_id": lambda m, b: m.unique_id,
    "keys": lambda m, b: m.properties.get("KEYS"),
    "tags": lambda m, b: m.tags,
    "properties": lambda m, b: list(m.properties.items()),
    "born_ts": lambda m, b: m.born_at * 1000,
    "store_ts": lambda m, b: m.stored_at * 1000,
    "flag": lambda m, b: m.flag,
    "sys_flag": lambda m, b: m.sys_flag,
    "reconsume_times": lambda m, b: m.reconsume_times,
    "body": lambda m, b: m.body,
}


def batch_of(records: Any, broker_name: str, schema: pa.Schema) -> pa.RecordBatch:
    rows = [inflate(m) for r in decode_records(records) for m in unwrap(r)]
    arrays = [pa.array([_READ[n](m, broker_name) for m in rows], type=schema.field(n).type) for n in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
