"""Addresses that ACL 1.0 lets in without asking, in RocketMQ's patterns.

`*`, `192.168.0.1`, `192.168.0.1,192.168.0.2`, `192.168.0.{1,2}`, `192.168.0.*`, `192.168.0.10-20`, `192.168.1-100.*`,
and the same for IPv6 (`5::7:6:1-200:*`). The first part with a star decides: what follows it is not looked at.
"""

import re
from collections.abc import Callable, Iterable
from ipaddress import IPv6Address, ip_address

_EVERYBODY = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_BRACES = re.compile(r"(?P<head>[^{}]*[.:])\{(?P<choices>[^{}]+)\}")

Test = Callable[[str], bool]


class WhiteList:
    """Some patterns, ready to be asked; raises ValueError for one that is none."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(pattern.strip() for pattern in patterns if pattern.strip())
        self.is_everybody = any(pattern in _EVERYBODY for pattern in self.patterns)
        self._tests = [test for pattern in self.patterns for test in _tests(pattern)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WhiteList) and other.patterns == self.patterns

    def __hash__(self) -> int:
        return hash(self.patterns)

    def has(self, host: str) -> bool:
        """Whether a peer's address (without its port) is let in."""
        return self.is_everybody or any(test(host) for test in self._tests)


def _tests(pattern: str) -> list[Test]:
    if pattern in _EVERYBODY:
        return []
    if found := _BRACES.fullmatch(pattern):
        return [_test(found["head"] + choice.strip()) for choice in found["choices"].split(",")]
    return [_test(part.strip()) for part in pattern.split(",")]


def _test(pattern: str) -> Test:
    """Of one pattern without lists."""
    if "*" not in pattern and "-" not in pattern:
        address = _exploded(pattern)
        if address is None:
            raise ValueError(f"{pattern!r} is no address")
        return lambda host: _exploded(host) == address
    separator, base, count = (":", 16, 8) if ":" in pattern else (".", 10, 4)
    parts = _parts(pattern, separator, count)
    if parts is None:
        raise ValueError(f"{pattern!r} has not {count} parts: write 10.*.*.*, not 10.*")
    ranges = []
    for at, part in enumerate(parts):
        if part == "*":
            if at == 0:
                raise ValueError(f"{pattern!r} begins with a star: name the first part, or write * for everybody")
            break
        ranges.append(_range(part, base, pattern))
    return lambda host: _fits(host, separator, base, ranges)


def _parts(pattern: str, separator: str, count: int) -> list[str] | None:
    """All parts; in IPv6 `::` stands for as many zeros as are missing."""
    head, gap, tail = pattern.partition("::") if separator == ":" else (pattern, "", "")
    parts = [part for part in head.split(separator) if part or not gap]
    if gap:
        behind = [part for part in tail.split(separator) if part]
        parts += ["0"] * (count - len(parts) - len(behind)) + behind
    return parts if len(parts) == count else None


def _range(part: str, base: int, pattern: str) -> tuple[int, int]:
    low, dash, high = part.partition("-")
    try:
        first = int(low, base)
        last = int(high, base) if dash else first
    except ValueError:
        raise ValueError(f"{pattern!r}: {part!r} is neither a number nor a range like 1-100") from None
    if not 0 <= first <= last < (256 if base == 10 else 65_536):
        raise ValueError(f"{pattern!r}: {part!r} is not a range of an address")
    return first, last


def _fits(host: str, separator: str, base: int, ranges: list[tuple[int, int]]) -> bool:
    exploded = _exploded(host)
    if exploded is None or (separator == ":") != (":" in exploded):
        return False
    numbers = [int(part, base) for part in exploded.split(separator)]
    return all(low <= number <= high for number, (low, high) in zip(numbers, ranges, strict=False))


def _exploded(text: str) -> str | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.exploded
