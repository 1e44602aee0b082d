"""An address as records and ids hold it: 4 or 16 bytes, then the port as int32.

An IPv4 address that arrives in IPv6 clothes (`::ffff:10.0.0.1`, as a dual-stack socket shows it) is IPv4 here, in text
and in bytes: Java does the same, and a record that stored the long form would change its own length. Few addresses
recur in very many records, so both directions are remembered; the memory is bounded because peers choose the input.
"""

import struct
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

IPV4_SIZE = 4
IPV6_SIZE = 16
PORT_MAX = 0xFFFF

_REMEMBERED_COUNT_MAX = 4096
_PORT = struct.Struct(">i")


class Host(NamedTuple):
    """Where a message was born or is stored; `ip` is a numeric address, never a name."""

    ip: str
    port: int

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"

    def packed(self) -> bytes:
        """8 bytes for IPv4, 20 for IPv6."""
        return pack_ip(self.ip) + _PORT.pack(self.port)


@lru_cache(maxsize=_REMEMBERED_COUNT_MAX)
def pack_ip(ip: str) -> bytes:
    """The address in 4 or 16 bytes; ValueError when it is not a numeric address."""
    address = ip_address(ip)
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped.packed
    return address.packed


@lru_cache(maxsize=_REMEMBERED_COUNT_MAX)
def unpack_ip(packed: bytes) -> str:
    """The text of an address of 4 or 16 bytes."""
    address = ip_address(packed)
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(address)
