"""Addresses as RocketMQ writes them: `host:port`, split at the last colon, so a bare IPv6 address is a host too."""

import ipaddress
import os
import socket
import ssl
from typing import Any

from bolide.errors import ConfigError


def split_address(text: str) -> tuple[str, int]:
    """`host:port` → host and port; brackets around an IPv6 host are taken off."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ConfigError("address", text, "must be host:port")
    if host[0] == "[" and host[-1] == "]":
        host = host[1:-1]
    return host, int(port)


def reason_of(problem: OSError) -> str:
    """Why there is no connection, in the system's words: loops put its number and the address around them."""
    if problem.errno is None or isinstance(problem, ssl.SSLError | socket.gaierror):
        return problem.strerror or str(problem)
    return os.strerror(problem.errno)


def join_address(sockaddr: Any) -> str:
    """What a socket calls an address → `host:port`; an IPv4 address inside IPv6 is shown as the IPv4 it is."""
    if not isinstance(sockaddr, tuple) or len(sockaddr) < 2:
        return str(sockaddr)
    host, port = sockaddr[0], sockaddr[1]
    if ":" in host:
        address = ipaddress.IPv6Address(host.partition("%")[0])
        host = str(address.ipv4_mapped or address)
    return f"{host}:{port}"


def is_same_machine(peer: str, local: str) -> bool:
    """Whether both ends (`host:port`) of a connection are here.

    A machine that reaches itself does so by loopback, or by the very address it is reached at: the system chooses the
    one as source that is the destination. No other machine can have it.
    """
    host = peer.rpartition(":")[0]
    try:
        is_loopback = ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
    return is_loopback or host == local.rpartition(":")[0]
