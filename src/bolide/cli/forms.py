"""An answer for programs: JSON on one line, YAML, or CSV.

Times are written in one form, as people read them in tables too (`model/texts.py`). Control characters do nothing in
any of the forms.
"""

import io
import re
from collections.abc import Mapping, Sequence

from bolide.model.texts import UNPRINTABLE as UNPRINTABLE
from bolide.model.texts import json_text as json_text
from bolide.model.texts import printable as printable
from bolide.model.texts import with_times as with_times

_PLAIN_WORD = r"[A-Za-z_][A-Za-z0-9_ /.-]*"


def yaml_text(value: object) -> str:
    """YAML: rows one below the other, everything inside a row as JSON, which YAML contains."""
    if isinstance(value, Mapping):
        return "\n".join(f"{_yaml_key(key)}: {json_text(inner)}" for key, inner in value.items()) or "{}"
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return json_text(value)
    items = []
    for item in value:
        first, *rest = yaml_text(item).split("\n")
        items.append("\n".join([f"- {first}", *(f"  {line}" for line in rest)]))
    return "\n".join(items)


def _yaml_key(key: object) -> str:
    text = str(key)
    return text if re.fullmatch(_PLAIN_WORD, text) else json_text(text)


def csv_lines(rows: Sequence[Mapping[str, object]], *, is_headed: bool) -> str:
    """Lines of CSV; lists and objects inside a row as JSON."""
    import csv  # a table does without

    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    if is_headed and rows:
        writer.writerow(rows[0])
    writer.writerows([_csv_cell(value) for value in row.values()] for row in rows)
    return written.getvalue().rstrip("\n")


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) else json_text(value)
