"""Addresses in records and ids."""

from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.model.host import Host, pack_ip, unpack_ip


@given(st.ip_addresses())
def test_addresses_survive_packing(ip: object) -> None:
    text = unpack_ip(pack_ip(str(ip)))
    assert pack_ip(text) == pack_ip(str(ip))
    if not (isinstance(ip, IPv6Address) and ip.ipv4_mapped):
        assert text == str(ip)


def test_gotcha_35_ipv4_in_ipv6_clothes_is_ipv4() -> None:
    assert pack_ip("::ffff:10.0.0.1") == bytes([10, 0, 0, 1])
    assert unpack_ip(bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 1])) == "10.0.0.1"


def test_the_zone_of_a_link_local_address_is_not_packed() -> None:
    assert pack_ip("fe80::1%eth0") == pack_ip("fe80::1")


def test_a_name_is_not_an_address() -> None:
    with pytest.raises(ValueError, match="broker-a"):
        pack_ip("broker-a")


def test_hosts_are_shown_as_people_type_them() -> None:
    assert str(Host("10.0.0.1", 10911)) == "10.0.0.1:10911"
    assert str(Host("2001:db8::1", 10911)) == "[2001:db8::1]:10911"
    assert Host("10.0.0.1", 10911) == ("10.0.0.1", 10911)
