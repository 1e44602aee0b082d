"""The columns of a topic, and which of them a query reads.

Spark prunes no columns for sources in Python, so a query that needs few says so: by a schema of its own or by the
option `columns`. Both may only name columns that there are, with the types they have.
"""

import difflib
from typing import TYPE_CHECKING

from bolide.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

# Name and Spark's type, in the order in which they are shown.
COLUMNS = {
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
}


def ddl(columns: tuple[str, ...] | None, has_properties: bool = True) -> str:
    """The schema of a source as Spark reads it: all columns, or those named in `columns`."""
    if columns is None:
        names = [name for name in COLUMNS if has_properties or name != "properties"]
    else:
        names = list(columns)
        for name in names:
            if name not in COLUMNS:
                raise ConfigError("columns", name, f"is no column; {_nearest(name)}")
        if not names or len(set(names)) < len(names):
            raise ConfigError("columns", ",".join(names), "name each column once, and at least one")
    return ", ".join(f"{name} {COLUMNS[name]}" for name in names)


def checked(schema: "StructType") -> "StructType":
    """A user's schema; refused where its columns are not ours."""
    for field in schema.fields:
        kind = COLUMNS.get(field.name)
        found = field.dataType.simpleString()
        if kind is None:
            raise ConfigError("schema", field.name, f"is no column of a topic; {_nearest(field.name)}")
        if found != kind:
            raise ConfigError("schema", f"{field.name} {found}", f"the column is of type {kind}; cast it after load()")
    return schema


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), COLUMNS, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(COLUMNS)}"


def arrow_schema(schema: "StructType") -> "pa.Schema":
    """The same columns in Arrow, to the letter as Spark compares them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
