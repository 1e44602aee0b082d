"""What a connection from this machine is."""

import asyncio

import pytest

from bolide.protocol.command import Command
from bolide.remoting.address import is_same_machine
from bolide.remoting.handlers import Handlers
from bolide.remoting.operators import demand_local
from bolide.remoting.owner import Request
from tests.remoting.ends import Peer, Table, served
from tests.remoting.loops import both_loops


@pytest.mark.parametrize(
    ("peer", "local", "is_here"),
    [
        ("127.0.0.1:5", "127.0.0.1:9876", True),
        ("127.0.0.9:5", "127.0.0.1:9876", True),
        ("::1:5", "::1:9876", True),
        ("10.0.0.5:5", "10.0.0.5:9876", True),
        ("10.0.0.6:5", "10.0.0.5:9876", False),
        ("10.0.0.6:5", "127.0.0.1:9876", False),
        ("fe80::1:5", "fe80::1:9876", True),
        ("fe80::2:5", "fe80::1:9876", False),
        ("", "", False),
    ],
)
def test_a_machine_reaches_itself_by_loopback_or_by_the_address_it_is_reached_at(
    peer: str, local: str, is_here: bool
) -> None:
    assert is_same_machine(peer, local) == is_here


def answer(request: Request) -> Command:
    return request.command.answer(0)


@pytest.mark.parametrize(
    ("claimed", "codes"),
    [
        (b"", [0, 0, 0]),
        (b"PROXY TCP4 127.0.0.1 127.0.0.1 5 9876\r\n", [0, 0, 0]),
        (b"PROXY TCP4 10.0.0.6 127.0.0.1 5 9876\r\n", [16, 0, 16]),  # a proxy here, for somebody elsewhere
        (b"PROXY TCP4 10.0.0.6 10.0.0.6 5 9876\r\n", [16, 0, 16]),  # what it says of our own end is not believed
    ],
)
@both_loops
async def test_what_a_proxy_claims_makes_nobody_local(claimed: bytes, codes: list[int]) -> None:
    handlers = Handlers(dict.fromkeys((25, 26, 999_999), answer), gate=demand_local)
    async with served(Table(handlers.serve)) as server:
        peer = await Peer.connect(server.port)
        peer.writer.write(claimed)
        answers = [await asyncio.wait_for(peer.ask(Command(code, opaque=1)), 30) for code in (25, 26, 999_999)]
        assert [one.code for one in answers] == codes
        for one in answers:
            assert one.code == 0 or "--admin-from anywhere" in (one.remark or "")
        peer.leave()
