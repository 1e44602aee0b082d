"""White lists of ACL 1.0: RocketMQ's patterns, and what is none."""

import pytest

from bolide.access.whitelist import WhiteList


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("", [], ["127.0.0.1"]),
        ("*", ["127.0.0.1", "5::1"], []),
        ("*.*.*.*", ["10.0.0.1"], []),
        ("192.168.0.1", ["192.168.0.1", "::ffff:192.168.0.1"], ["192.168.0.11", "192.168.1.1", "::1"]),
        ("192.168.0.1,192.168.0.2", ["192.168.0.2"], ["192.168.0.3"]),
        ("192.168.0.{1,2}", ["192.168.0.1", "192.168.0.2"], ["192.168.0.12"]),
        ("192.168.0.*", ["192.168.0.200", "::ffff:192.168.0.7"], ["192.168.1.1"]),
        ("192.168.*.*", ["192.168.9.9"], ["192.169.0.1"]),
        ("192.*.0.1", ["192.7.7.7"], ["193.0.0.1"]),
        ("192.168.0.10-20", ["192.168.0.10", "192.168.0.20"], ["192.168.0.9", "192.168.0.21"]),
        ("192.168.1-100.*", ["192.168.1.5", "192.168.100.0"], ["192.168.101.0"]),
        ("5::7:6:1-200:*", ["5::7:6:1:9", "5::7:6:200:0"], ["5::7:6:201:0", "6::7:6:1:9"]),
        ("::1", ["0:0:0:0:0:0:0:1", "::1"], ["::2", "127.0.0.1"]),
    ],
)
def test_a_pattern_has_the_addresses_that_rocketmq_lets_in(pattern: str, inside: list[str], outside: list[str]) -> None:
    white = WhiteList([pattern])
    assert [host for host in inside if not white.has(host)] == []
    assert [host for host in outside if white.has(host)] == []


@pytest.mark.parametrize(
    "pattern", ["10.*", "1.2.3", "1.2.3.4.5", "host", "1.2.3.9-2", "1.2.3.1-300", "*.1.2.3", "1.x.*.*"]
)
def test_what_is_no_pattern_is_refused_by_its_text(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"'.*'"):
        WhiteList([pattern])
