"""The KV configuration: namespace → key → value, the one thing a name server keeps on disk.

Rule: what `get` shows is on disk. A change is made on a copy, the copy is written, and only then does it become the
table; the one who is told of success will find it after a crash, and a full disk leaves everything as it was. The cost
is one fsync a change, which nobody feels: operators change a handful of keys a year. `put` and `delete` block and are
called from the one thread that owns the file (`server.py`), the reading methods from anywhere.

The file is RocketMQ's kvConfig.json, `{"configTable":{namespace:{key:value}}}`, and may come from a Java name server.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from bolide.errors import Refusal
from bolide.files import read_whole, write_whole
from bolide.protocol import fastjson
from bolide.protocol.codes import ResponseCode

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
SIZE_MAX = 4 * 1024 * 1024  # a namespace has to fit into one answer
_SHOWN_MAX = 1000
_NOTHING: Mapping[str, str] = MappingProxyType({})
log = logging.getLogger(__name__)

KvTable = dict[str, dict[str, str]]


class KvConfig:
    """The table and its file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: KvTable = read_whole(path, parse_table, {})

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, _NOTHING).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """All of one namespace; None when there is no such namespace."""
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        if not namespace or not key:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "namespace and key must not be empty")
        if self.get(namespace, key) == value:
            return
        self._become({**self._table, namespace: {**self._table.get(namespace, {}), key: value}})

    def delete(self, namespace: str, key: str) -> None:
        """Remove a key; that it was not there is no error, for operators tell every name server."""
        if self.get(namespace, key) is None:
            return
        rest = {name: value for name, value in self._table[namespace].items() if name != key}
        self._become({**self._table, namespace: rest})

    def _become(self, table: KvTable) -> None:
        text = json.dumps({"configTable": table}, ensure_ascii=False, separators=(",", ":"))
        if len(text) > SIZE_MAX:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the KV configuration would exceed {SIZE_MAX} characters")
        write_whole(self._path, text)
        self._table = table

    def print(self) -> None:
        """Write everything to the log, as RocketMQ does every ten minutes."""
        entries = [(space, key, value) for space, keys in self._table.items() for key, value in keys.items()]
        log.info("kv configuration namespaces=%d keys=%d", len(self._table), len(entries))
        for space, key, value in entries[:_SHOWN_MAX]:
            log.info("kv entry namespace=%.200r key=%.200r value=%.200r", space, key, value)
        if len(entries) > _SHOWN_MAX:
            log.info("kv entries not shown count=%d", len(entries) - _SHOWN_MAX)


def parse_table(text: str) -> KvTable:
    """Read a kvConfig.json of ours or of Java's; raises ValueError."""
    document = fastjson.loads(text)
    table = document.get("configTable") if isinstance(document, dict) else None
    if table is None and isinstance(document, dict):
        table = {}
    if not isinstance(table, dict):
        raise ValueError("no configTable in it")
    return {namespace: _texts(namespace, keys) for namespace, keys in table.items()}


def _texts(namespace: str, keys: object) -> dict[str, str]:
    if not isinstance(keys, dict):
        raise ValueError(f"namespace {namespace!r} is not a table")
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in keys.items()}
