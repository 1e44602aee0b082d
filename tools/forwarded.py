"""Names that are made by an assignment, for the reference: `clusters = forward(Admin.clusters)` is a method, too.

An extension of Griffe's, which reads sources and runs nothing of them, so it sees an attribute without a word.
"""

import re
from typing import Any

import griffe

_FORWARDED = re.compile(r"forward\w*\((?:\w+\.)*(\w+)\.(\w+)\)")


class Forwarded(griffe.Extension):
    """Says of each forwarded name whose it is."""

    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        found = _FORWARDED.fullmatch(str(attr.value))
        if found and attr.docstring is None:
            text = f"What `{found[1]}.{found[2]}` of `bolide.aio` does, without `await`."
            attr.docstring = griffe.Docstring(text, parent=attr)
            attr.value = None
