"""What RocketMQ calls the versions that clients tell: a label of connections."""

_FIRST = {
    4: 213,
    5: 413,
}  # of each major version: from there a minor one is 20, a patch 2, a snapshot the odd one before
_HIGHEST = 612


def version_name(number: int) -> str:
    """`v5_3_2` for 477; a number that no release has is told as it is."""
    if number >= _HIGHEST:
        return "higher_version"
    major = max((major for major, first in _FIRST.items() if number >= first - 1), default=0)
    if not major:
        return str(number)
    distance = number - _FIRST[major]
    snapshot = "_snapshot" if distance % 2 else ""
    distance += distance % 2
    return f"v{major}_{distance // 20}_{distance % 20 // 2}{snapshot}"
