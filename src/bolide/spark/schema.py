"""The columns of a message, and which of them a query reads.

Spark prunes no columns for sources in Python, so a query that needs few says so: by a schema of its own or by the
option `columns`. Both may only name columns that there are, with the types they have.
"""

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bolide.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

# Name and Spark's type, in the order in which they are shown.
TYPES = {
    "topic": "string",
    "broker_name": "string",
    "queue_id": "int",
    "queue_offset": "bigint",
    "physical_offset": "bigint",
    "msg_id": "string",
    "keys": "string",
    "tags": "string",
    "properties": "map<string,string>",
    "born_ts": "timestamp",
    "store_ts": "timestamp",
    "flag": "int",
    "sys_flag": "int",
    "reconsume_times": "int",
    "body": "binary",
    "body_size": "int",
}
COLUMNS = tuple(name for name in TYPES if name != "body_size")  # of a topic
STORE_COLUMNS = tuple(TYPES)  # of store files


def ddl(names: Sequence[str]) -> str:
    """The schema in Spark's own words."""
    return ", ".join(f"{name} {TYPES[name]}" for name in names)


def checked_names(names: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """The names in their order; ConfigError for one that is no column or stands there twice."""
    for name in names:
        if name not in known:
            raise ConfigError("columns", name, f"is no column; {_nearest(name, known)}")
    if not names or len(set(names)) < len(names):
        raise ConfigError("columns", ",".join(names), "name each column once, and at least one")
    return tuple(names)


def checked(schema: "StructType", known: Sequence[str]) -> "StructType":
    """A user's schema, which may leave out some of our columns and change none."""
    for field in schema.fields:
        if field.name not in known:
            raise ConfigError("schema", field.name, f"is no column; {_nearest(field.name, known)}")
        kind, found = TYPES[field.name], field.dataType.simpleString()
        if found != kind:
            raise ConfigError("schema", f"{field.name} {found}", f"the column is of type {kind}; cast it after load()")
    return schema


def _nearest(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


def arrow_schema(schema: "StructType") -> "pa.Schema":
    """The same columns in Arrow, to the letter as Spark compares them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
