"""Route answers that lie ready: one body for each topic and form, encoded when first asked for.

Clients ask for the same routes every 30 seconds and routes hardly ever change, so the encoded body is kept, in the two
forms clients read: integer keys in quotes (standard JSON, 4.9.4 and later) and bare (fastjson's, before). The look-ups
of one socket read are then answered by one kernel call from two dicts. A change of the tables drops the bodies of the
topics it touched and no others.

Rule: a body is here only while it is what the tables would answer. Memory is bounded by dropping everything once it
is full: with 64 MiB for bodies of some 300 bytes that takes more topics than a name server can be registered.
"""

from collections.abc import Iterable

from bolide import kernel
from bolide.kernel.layout import Buffer
from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.command import VERSION

SIZE_MAX = 64 * 1024 * 1024


class Answers:
    """Ready bodies by topic."""

    def __init__(self, size_max: int = SIZE_MAX) -> None:
        self._quoted: dict[bytes, bytes] = {}
        self._bare: dict[bytes, bytes] = {}
        self._size = 0
        self._size_max = size_max

    def __len__(self) -> int:
        return len(self._quoted) + len(self._bare)

    @property
    def size(self) -> int:
        """Bytes of the bodies at hand."""
        return self._size

    def answer(self, stream: Buffer, bounds: list[int]) -> tuple[bytes, list[int]]:
        """Answer the look-ups of one read that are ready; returns the replies and the bounds of all the rest."""
        return kernel.answer_routes(stream, bounds, self._quoted, self._bare, VERSION)

    def keep(self, topic: str, route: TopicRoute, *, is_quoted: bool) -> bytes:
        """Encode a route in one form and have it ready from now on."""
        body = route.encode() if is_quoted else route.encode_bare()
        bodies = self._quoted if is_quoted else self._bare
        key = topic.encode("utf-8")
        if self._size + len(body) > self._size_max:
            self.clear()
        self._size += len(body) - len(bodies.get(key, b""))
        bodies[key] = body
        return body

    def forget(self, topics: Iterable[str]) -> None:
        """Drop the answers of topics whose routes have changed."""
        if not self:
            return
        for topic in topics:
            key = topic.encode("utf-8")
            self._size -= len(self._quoted.pop(key, b"")) + len(self._bare.pop(key, b""))

    def clear(self) -> None:
        self._quoted.clear()
        self._bare.clear()
        self._size = 0
