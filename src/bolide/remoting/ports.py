"""Ports that nobody has, for servers that a program starts and that keep their port over many lives."""

import random
import socket
from collections import deque

from bolide.errors import BolideError

HOST = "127.0.0.1"
BROKER_NEIGHBOURS = (-2, 1)  # a broker's VIP port, and the one its slaves copy from
_PORT_MIN, _PORT_MAX = 20_000, 32_000
_TRIED_MAX = 100
_CLAIMS_MAX = 64
# A test that seeds the chance of everybody would get the ports of the test beside it.
_chance = random.SystemRandom()
# A server that is down has its port no more, and one that was given a port does not have it yet. Until it is up again,
# a datagram socket of the same number tells every process that looks for a port.
_claims: deque[list[socket.socket]] = deque()


class NoFreePort(BolideError):
    """None was found."""


def free_port(*neighbours: int, host: str = HOST) -> int:
    """A port nobody has, and neither any of those that lie so far beside it. Nobody else is given one of them as long
    as this process lives, or until it was given many more.

    It lies below the range from which connections take theirs: otherwise a client that keeps knocking at a server that
    is down might get its port, and even reach itself.
    """
    for _ in range(_TRIED_MAX):
        port = _chance.randrange(_PORT_MIN, _PORT_MAX)
        wanted = [port + distance for distance in (0, *neighbours)]
        if all(is_free(each, host) for each in wanted) and _claim(wanted, host):
            return port
    raise NoFreePort(f"no free port found between {_PORT_MIN} and {_PORT_MAX}")


def _claim(ports: list[int], host: str) -> bool:
    claims: list[socket.socket] = []
    for port in ports:
        claims.append(socket.socket(type=socket.SOCK_DGRAM))
        try:
            claims[-1].bind((host, port))
        except OSError:
            _give_up(claims)
            return False
    _claims.append(claims)
    if len(_claims) > _CLAIMS_MAX:
        _give_up(_claims.popleft())
    return True


def _give_up(claims: list[socket.socket]) -> None:
    for each in claims:
        each.close()


def is_free(port: int, host: str = HOST) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
