"""A page of a long list: names first, details only for what is shown."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bolide.dashboard.page import Visit

SIZE, SIZE_MAX = 50, 500


@dataclass(frozen=True, slots=True)
class Slice:
    """Some items of a list, and the addresses of those before and after."""

    items: Sequence[Any]
    total: int
    first: int
    before: str
    after: str

    @property
    def last(self) -> int:
        return self.first + len(self.items)


def sliced(visit: Visit, items: Sequence[Any]) -> Slice:
    """The part of a list that `?page=` and `?size=` ask for."""
    size = max(1, visit.number("size", SIZE, SIZE_MAX))
    last_page = max(1, -(-len(items) // size))
    page = min(max(1, visit.number("page", 1)), last_page)
    first = (page - 1) * size
    return Slice(
        items=items[first : first + size],
        total=len(items),
        first=first,
        before=visit.address_with(page=page - 1 if page > 2 else "") if page > 1 else "",
        after=visit.address_with(page=page + 1) if page < last_page else "",
    )
