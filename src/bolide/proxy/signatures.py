"""Who a gRPC client is: the header `authorization`, checked by the users and accounts of the broker.

A client signs the time of its call (`x-mq-date-time`) with its secret. What it asks then goes to the broker in its
name, signed as a remoting client signs, and through the same door: there is one table of who may do what. A client id
belongs to the first name that used it, for what waits is asked later in that name. One who is not let in is no client.

The time that is signed is not compared with ours, as in Apache's proxy: clients whose clocks are wrong would be locked
out, and one who can read the header can read everything else too; only TLS prevents that (`docs/security.md`).
"""

import asyncio
import hmac
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

from bolide.access.door import Door
from bolide.protocol.command import Command
from bolide.protocol.signature import ACCESS_KEY, SIGNATURE, sign
from bolide.proxy import messages as m
from bolide.proxy.calls import Call
from bolide.proxy.clients import Clients, client_id_of
from bolide.proxy.statuses import Denied
from bolide.remoting.sparse import Sparse

_HEADER = re.compile(r"MQv2-HMAC-SHA1 Credential=([^,/]*)[^,]*, *SignedHeaders=[^,]*, *Signature=([0-9a-fA-F]*)")
_WHY = "the signature is missing or wrong; give the client the access key and the secret of a user (docs/security.md)"
_NAMELESS = ""  # who comes from an address that needs no name
_TOO_MANY_S = 10.0  # for who guesses on and on
log = logging.getLogger(__name__)
log.addFilter(Sparse())


class Signatures:
    """The gate in front of every method."""

    def __init__(self, door: Door, clients: Clients) -> None:
        self._door = door
        self._clients = clients

    def enter(self, call: Call, request: Any) -> Awaitable[None] | None:
        """None for a call that is signed; raises Denied, or returns a wait after which it is."""
        host = call.carrier.origin.strip("[]")
        name = _NAMELESS if self._door.is_white(host) else self._proven(call)
        if name is None:
            log.info("[AUTHENTICATION] refused path=%s from=%s", call.path, call.carrier.peer)
            delay_s = self._door.guess_delay_s(host)
            if delay_s == 0:
                raise Denied(m.Code.UNAUTHORIZED, _WHY)
            return _late(_TOO_MANY_S if delay_s is None else delay_s)
        known = self._clients.find(client_id_of(call))
        if known is not None and known.access_key != name:
            raise Denied(m.Code.UNAUTHORIZED, "this client id is another user's; use one of your own")
        client = self._clients.of(call)
        client.access_key = name
        client.sign = None if name == _NAMELESS else self._signing(name)
        return None

    def _proven(self, call: Call) -> str | None:
        """The name that signed, if it did."""
        match = _HEADER.match(call.header("authorization"))
        secret = self._door.secret_of(match[1]) if match is not None and match[1] else None
        if match is None or secret is None:
            return None
        told = call.header("x-mq-date-time").encode()
        wanted = hmac.digest(secret.encode(), told, "sha1").hex()
        return match[1] if told and hmac.compare_digest(wanted, match[2].lower()) else None

    def _signing(self, name: str) -> Callable[[Command], None]:
        def signed(command: Command) -> None:
            secret = self._door.secret_of(name)
            if secret is not None:  # else it was taken away, and the door says so
                command.fields[ACCESS_KEY] = name
                command.fields[SIGNATURE] = sign(command.fields, command.body, secret)

        return signed


async def _late(delay_s: float) -> None:
    await asyncio.sleep(delay_s)
    raise Denied(m.Code.UNAUTHORIZED, _WHY)
