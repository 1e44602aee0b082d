"""The connecting side: one connection an address, answers by opaque, and what happens when nobody is there."""

import asyncio
import base64
import errno
import hashlib
import hmac
import logging
import random
import socket
import ssl
from collections.abc import Awaitable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.clock import SystemClock
from bolide.errors import ClientError, ConfigError, ConnectError, ConnectionLost, RequestTimeout
from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import ONEWAY_FLAG, Command
from bolide.remoting.address import reason_of
from bolide.remoting.client import Client, backoff_s
from bolide.remoting.config import ConnectConfig
from bolide.remoting.ports import free_port
from bolide.remoting.session import Reply, Request
from bolide.testing import VirtualClock, open_link
from tests.remoting.ends import ECHO, Parked, Table, echo, request_of, served
from tests.remoting.loops import both_loops, eventually, virtual_time


def at(port: int) -> str:
    return f"127.0.0.1:{port}"


def asking(client: Client, address: str, body: bytes = b"", timeout_s: float = 30) -> asyncio.Future[Command]:
    return asyncio.ensure_future(client.request(address, Command(ECHO, body=body), timeout_s=timeout_s))


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (OSError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 9876)"), "Connection refused"),
        (OSError(errno.EHOSTUNREACH, "Connect call failed ('10.0.0.1', 9876)"), "No route to host"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (ssl.SSLError(1, "certificate verify failed"), "certificate verify failed"),
        (OSError("Multiple exceptions: one, two"), "Multiple exceptions: one, two"),
        (TimeoutError(), ""),
    ],
)
def test_a_failed_connection_is_told_in_the_systems_words(problem: OSError, said: str) -> None:
    assert reason_of(problem) == said


@both_loops
async def test_many_requests_share_one_connection_and_get_their_own_answers() -> None:
    async with served(Table()) as server, Client(ConnectConfig(), SystemClock()) as client:
        answers = await asyncio.gather(*(asking(client, at(server.port), b"%d" % n) for n in range(200)))
        assert [answer.body for answer in answers] == [b"%d" % n for n in range(200)]
        assert server.connection_count == 1


@both_loops
async def test_answers_may_come_in_any_order() -> None:
    parked = Parked()
    async with served(Table(parked)) as server, Client(ConnectConfig(), SystemClock()) as client:
        futures = [asking(client, at(server.port), b"%d" % n) for n in range(5)]
        await eventually(lambda: len(parked.waiting) == 5)
        opaques = list(parked.waiting)
        for n in (3, 0, 4, 2, 1):
            parked.let_go(opaques[n])
            assert (await futures[n]).body == b"%d" % n
        assert not any(parked.waiting)


@both_loops
async def test_a_connection_is_made_when_it_is_needed_and_again_after_it_ended() -> None:
    async with Client(ConnectConfig(), SystemClock()) as client:
        async with served(Table(), port=free_port()) as server:
            address = at(server.port)
            assert list(client.sessions()) == []
            await asking(client, address)
            assert len(list(client.sessions())) == 1
        await eventually(lambda: list(client.sessions()) == [])
        async with served(Table(), port=server.port) as server:
            assert (await asking(client, address, b"again")).body == b"again"
            assert server.connection_count == 1


@both_loops
async def test_each_address_has_its_own_connection() -> None:
    async with (
        served(Table()) as one,
        served(Table(), host="::1") as two,
        Client(ConnectConfig(), SystemClock()) as client,
    ):
        for server, address in ((one, at(one.port)), (two, f"::1:{two.port}"), (two, f"[::1]:{two.port}")):
            assert (await asking(client, address, b"x")).body == b"x"
            assert server.connection_count >= 1


@both_loops
async def test_one_command_may_be_sent_to_many_addresses_at_once() -> None:
    async with served(Table()) as one, served(Table()) as two, Client(ConnectConfig(), SystemClock()) as client:
        await asking(client, at(one.port))  # so that the two connections count differently
        command = Command(ECHO, body=b"both")
        answers = await asyncio.gather(*(client.request(at(s.port), command, timeout_s=5) for s in (one, two)))
        assert [answer.body for answer in answers] == [b"both", b"both"]


@both_loops
async def test_one_way_requests_arrive_and_nobody_waits() -> None:
    owner = Table()
    async with served(owner) as server, Client(ConnectConfig(), SystemClock()) as client:
        for _ in range(3):
            await client.send_oneway(at(server.port), Command(ECHO))
        await asking(client, at(server.port))
        assert len(owner.served) == 4
        assert len(set(owner.served)) == 4


@both_loops
async def test_a_one_way_request_just_before_the_end_is_still_sent() -> None:
    owner = Table()
    async with served(owner) as server:
        async with Client(ConnectConfig(), SystemClock()) as client:
            await client.send_oneway(at(server.port), Command(ECHO))
        await eventually(lambda: len(owner.served) == 1)


# When nobody answers


@virtual_time
async def test_a_request_that_is_not_answered_in_time_fails_and_its_late_answer_is_dropped() -> None:
    clock = VirtualClock()
    parked = Parked()
    owner = Table(lambda request: parked(request) if request.command.body == b"late" else request.command.answer(0))
    async with served(owner, clock) as server, Client(ConnectConfig(), clock) as client:
        await asking(client, at(server.port))
        (session,) = client.sessions()
        late = asking(client, at(server.port), b"late", timeout_s=3)
        await eventually(lambda: bool(parked.waiting))
        await asking(client, at(server.port))  # the peer is alive, so the connection stays
        with pytest.raises(RequestTimeout, match="within 3 s"):
            await late
        assert clock.monotonic_s() == pytest.approx(3)
        parked.let_go()
        await asking(client, at(server.port))
        assert list(client.sessions()) == [session]
        assert len(session.pending) == 0


@virtual_time
async def test_a_peer_that_was_wholly_silent_is_taken_for_half_open(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    async with (
        served(Table(), clock) as server,
        open_link(at(server.port)) as link,
        Client(ConnectConfig(), clock) as client,
    ):
        await asking(client, link.address)
        link.freeze()
        first, second = asking(client, link.address, timeout_s=3), asking(client, link.address, timeout_s=20)
        with pytest.raises(RequestTimeout):
            await first
        with pytest.raises(ConnectionLost, match="half-open"):
            await second
        assert clock.monotonic_s() == pytest.approx(3)
        link.heal()
        await asking(client, link.address)  # over a new connection
    assert len([record for record in caplog.records if "nor send anything else" in record.getMessage()]) == 1


@virtual_time
async def test_a_silent_peer_is_kept_when_the_setting_says_so() -> None:
    clock = VirtualClock()
    parked = Parked()
    config = ConnectConfig(is_silence_fatal=False)
    async with served(Table(parked), clock) as server, Client(config, clock) as client:
        first, second = asking(client, at(server.port), timeout_s=3), asking(client, at(server.port), timeout_s=20)
        with pytest.raises(RequestTimeout):
            await first
        parked.let_go()
        assert (await second).code == 0


@both_loops
async def test_everybody_in_flight_is_told_when_the_connection_is_cut() -> None:
    parked = Parked()
    async with (
        served(Table(parked)) as server,
        open_link(at(server.port)) as link,
        Client(ConnectConfig(), SystemClock()) as client,
    ):
        futures = [asking(client, link.address) for _ in range(10)]
        await eventually(lambda: len(parked.waiting) == 10)
        link.cut()
        for future in futures:
            with pytest.raises(ConnectionLost):
                await future
        assert ConnectionLost.retriable


@both_loops
async def test_a_link_cut_in_the_middle_of_an_answer_loses_that_answer_only() -> None:
    parked = Parked()
    async with (
        served(Table(lambda request: parked(request) if request.command.body else echo(request))) as server,
        open_link(at(server.port)) as link,
        Client(ConnectConfig(), SystemClock()) as client,
    ):
        await asking(client, link.address)
        (session,) = client.sessions()
        future = asking(client, link.address, bytes(5_000))
        await eventually(lambda: bool(parked.waiting))
        link.halve()
        parked.let_go()
        await eventually(lambda: session.held_size > 0 and session.read_count == 2)
        link.cut()
        with pytest.raises(ConnectionLost):
            await future
        link.heal()
        assert (await asking(client, link.address)).code == 0


@virtual_time
async def test_an_address_without_an_answer_fails_after_the_connect_timeout() -> None:
    clock = VirtualClock()
    loop = asyncio.get_running_loop()

    async def hang(*_: object, **__: object) -> None:
        await loop.create_future()

    loop.create_connection = hang  # type: ignore[method-assign, assignment]
    async with Client(ConnectConfig(), clock) as client:
        with pytest.raises(ConnectError, match="3000 ms"):
            await client.request("192.0.2.1:9876", Command(ECHO), timeout_s=10)
        assert clock.monotonic_s() == pytest.approx(3)
        await asyncio.sleep(10)  # virtual
        with pytest.raises(ConnectError, match="within 1 s"):
            await client.request("192.0.2.1:9876", Command(ECHO), timeout_s=1)
        assert clock.monotonic_s() == pytest.approx(14)


@virtual_time
async def test_after_a_failure_requests_fail_at_once_until_the_back_off_is_over() -> None:
    clock = VirtualClock()
    port = free_port()
    attempts: list[float] = []
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def count(*args: object, **more: object) -> object:
        attempts.append(clock.monotonic_s())
        return await connect(*args, **more)  # type: ignore[call-overload]

    loop.create_connection = count  # type: ignore[method-assign, assignment]
    config = ConnectConfig(backoff_first_ms=100, backoff_max_ms=1_000)
    async with Client(config, clock, chance=random.Random(7)) as client:
        while clock.monotonic_s() < 20:
            with pytest.raises(ConnectError, match=str(port)):
                await client.request(at(port), Command(ECHO), timeout_s=3)
            await asyncio.sleep(0.01)  # virtual
        pauses = [after - before for before, after in pairwise(attempts)]
        assert 0.05 <= pauses[0] <= 0.12
        assert all(0.5 <= pause <= 1.02 for pause in pauses[5:])
        assert len({round(pause, 2) for pause in pauses[5:]}) > 3  # by chance, not in step
        async with served(Table(), clock, port=port):
            await asyncio.sleep(1)  # virtual
            assert (await client.request(at(port), Command(ECHO), timeout_s=3)).code == 0


@given(count=st.integers(1, 10_000), chance=st.floats(0, 1))
def test_a_back_off_grows_to_its_limit_and_chance_takes_at_most_a_half(count: int, chance: float) -> None:
    config = ConnectConfig(backoff_first_ms=100, backoff_max_ms=5_000)
    full_s = min(0.1 * 2 ** min(count - 1, 20), 5)
    assert full_s / 2 <= backoff_s(count, config, chance) <= full_s


@virtual_time
async def test_addresses_that_failed_are_forgotten_once_their_rest_is_long_over() -> None:
    clock = VirtualClock()
    port = free_port()
    config = ConnectConfig(backoff_first_ms=1_000, backoff_max_ms=1_000)
    async with served(Table(), clock) as server, Client(config, clock) as client:
        await asking(client, at(server.port))
        for n in range(2, 202):
            with pytest.raises(ConnectError, match="Connection refused"):
                await asking(client, f"127.0.0.{n}:{port}")
            await asyncio.sleep(0.1)  # virtual
            with pytest.raises(ConnectError, match="next attempt"):  # it rests for half a second at least
                await asking(client, f"127.0.0.{n}:{port}")
            assert len(client._lines) < 40
        assert [session.is_open for session in client.sessions()] == [True]


@both_loops
async def test_a_port_that_hangs_up_without_a_word_is_backed_off_too() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    address = at(server.sockets[0].getsockname()[1])
    async with Client(ConnectConfig(backoff_first_ms=60_000, backoff_max_ms=60_000), SystemClock()) as client:
        with pytest.raises(ConnectionLost):
            await asking(client, address)
        await eventually(lambda: not list(client.sessions()))
        with pytest.raises(ConnectError, match="without a word"):
            await asking(client, address)
    server.close()


@both_loops
async def test_concurrent_requests_share_one_attempt_to_connect() -> None:
    port = free_port()
    async with Client(ConnectConfig(), SystemClock()) as client:
        outcomes = await asyncio.gather(*(asking(client, at(port)) for _ in range(20)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {ConnectError}
        assert client._lines[at(port)].failure_count == 1


@pytest.mark.parametrize("address", ["nonsense", "host:port", ":9876"])
@both_loops
async def test_what_is_no_address_is_a_mistake_of_the_caller(address: str) -> None:
    async with Client(ConnectConfig(), SystemClock()) as client:
        with pytest.raises(ConfigError):
            await asking(client, address)


# Limits


@virtual_time
async def test_an_idle_connection_is_closed_after_120_s_and_made_again() -> None:
    clock = VirtualClock()
    owner = Table()
    async with served(owner, clock, idle_max_s=10_000) as server, Client(ConnectConfig(), clock) as client:
        await asking(client, at(server.port))
        await asyncio.sleep(100)  # virtual
        await asking(client, at(server.port))
        await asyncio.sleep(119)  # virtual
        assert not owner.gone
        await asyncio.sleep(3)  # virtual
        assert len(owner.gone) == 1
        assert (await asking(client, at(server.port), b"new")).body == b"new"


@both_loops
async def test_requests_in_flight_are_bounded() -> None:
    parked = Parked()
    owner = Table(parked)
    async with served(owner) as server, Client(ConnectConfig(requests_max=8), SystemClock()) as client:
        futures = [asking(client, at(server.port)) for _ in range(50)]
        while not all(future.done() for future in futures):
            await eventually(lambda: bool(parked.waiting))
            assert len(parked.waiting) <= 8
            parked.let_go()
            await asyncio.sleep(0)
            if len(owner.served) == 50 and not parked.waiting:
                break
        assert len(await asyncio.gather(*futures)) == 50


@virtual_time
async def test_a_caller_waits_for_a_server_that_does_not_read_instead_of_filling_memory() -> None:
    clock = VirtualClock()
    parked = Parked()
    config = ConnectConfig(unsent_size_high=100_000)
    async with served(Table(parked), clock, in_flight_max=1) as server, Client(config, clock) as client:
        futures = [asking(client, at(server.port), bytes(1_000_000), timeout_s=9) for _ in range(100)]
        await eventually(lambda: bool(parked.waiting))
        (session,) = client.sessions()
        await asyncio.sleep(5)  # virtual
        assert session.unsent_size < 30_000_000
        with pytest.raises(ConnectError, match="took no bytes"):
            await client.send_oneway(at(server.port), Command(ECHO), timeout_s=1)
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} <= {RequestTimeout, ConnectionLost}
        assert RequestTimeout in {type(outcome) for outcome in outcomes}


@both_loops
async def test_a_request_beyond_the_frame_limit_is_refused_before_it_is_sent() -> None:
    async with served(Table()) as server, Client(ConnectConfig(frame_size_max=2048), SystemClock()) as client:
        with pytest.raises(ClientError, match="2048"):
            await asking(client, at(server.port), bytes(3000))
        assert (await asking(client, at(server.port), b"small")).body == b"small"


@both_loops
async def test_a_cancelled_request_leaves_no_trace() -> None:
    parked = Parked()
    async with served(Table(parked)) as server, Client(ConnectConfig(), SystemClock()) as client:
        future = asking(client, at(server.port))
        await eventually(lambda: bool(parked.waiting))
        future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future
        (session,) = client.sessions()
        assert len(session.pending) == 0
        parked.let_go()
        later = asking(client, at(server.port), b"next")
        await eventually(lambda: bool(parked.waiting))
        parked.let_go()
        assert (await later).body == b"next"


# Hooks, handlers, the end


class Signing:
    """Signs as RocketMQ's ACL does (the access key, then HMAC-SHA1 over sorted values and body)."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int]] = []

    def before(self, address: str, command: Command) -> None:
        command.fields["AccessKey"] = "AK1"
        values = "".join(command.fields[key] for key in sorted(command.fields) if key != "Signature")
        digest = hmac.digest(b"secret12345", values.encode() + command.body, hashlib.sha1)
        command.fields["Signature"] = base64.b64encode(digest).decode()

    def after(self, address: str, command: Command, answer: Command) -> None:
        self.seen.append((address, command.code, answer.code))


@both_loops
async def test_hooks_see_every_request_before_it_leaves_and_every_answer() -> None:
    signed: list[str] = []

    def answer(request: Request) -> Reply:
        signed.append(request.command.fields["Signature"])
        return request.command.answer(ResponseCode.SUCCESS)

    hook = Signing()
    async with (
        served(Table(answer)) as server,
        Client(ConnectConfig(), SystemClock(), hooks=[hook]) as client,
    ):
        command = Command(ECHO, fields={"topic": "T1"})
        for _ in range(2):  # a command that is sent again is signed again
            await client.request(at(server.port), command, timeout_s=5)
        await client.send_oneway(
            at(server.port), Command(ECHO, fields={"a": "PG", "b": "T1", "k": "false"}, body=b"hello")
        )
        await eventually(lambda: len(signed) == 3)
    assert signed == ["6OIgoUGzDi0wNNc6jkxUONAbC3Q="] * 2 + ["P3YUL5bKI1Wu+QFsAI9h4aKd+LU="]
    assert hook.seen == [(at(server.port), ECHO, 0)] * 2


@both_loops
async def test_requests_of_the_peer_reach_their_handlers() -> None:
    async def slowly(request: Request) -> Reply:
        await asyncio.sleep(0)
        return request.command.answer(0, body=b"slow")

    def quickly(request: Request) -> Reply | Awaitable[Reply]:
        return request.command.answer(0, body=b"quick")

    async with (
        Client(ConnectConfig(), SystemClock(), handlers={220: quickly, 307: slowly}) as client,
        served(Table()) as server,
    ):
        await asking(client, at(server.port))
        (session,) = server.sessions
        assert (await session.request(Command(220), timeout_s=5)).body == b"quick"
        assert (await session.request(Command(307), timeout_s=5)).body == b"slow"
        refused = await session.request(Command(999), timeout_s=5)
        assert refused.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "999" in (refused.remark or "")
        session.send(request_of(0, code=999, flag=ONEWAY_FLAG))  # silence, also for what is not known
        assert (await asking(client, at(server.port))).code == 0


@both_loops
async def test_a_closed_client_tells_who_waits_and_connects_no_more() -> None:
    parked = Parked()
    async with served(Table(parked)) as server:
        async with Client(ConnectConfig(), SystemClock()) as client:
            future = asking(client, at(server.port), timeout_s=20)
            await eventually(lambda: bool(parked.waiting))
        with pytest.raises(ConnectionLost, match="client was closed"):
            await future
        with pytest.raises(ConnectError, match="closed"):
            await asking(client, at(server.port))
        await eventually(lambda: server.connection_count == 0)


@both_loops
async def test_an_address_can_be_let_go() -> None:
    owner = Table()
    async with served(owner) as server, Client(ConnectConfig(), SystemClock()) as client:
        await asking(client, at(server.port))
        client.close(at(server.port))
        client.close("127.0.0.1:1")  # nobody there, nothing to do
        await eventually(lambda: len(owner.gone) == 1)
        assert (await asking(client, at(server.port), b"again")).body == b"again"


@pytest.mark.parametrize("turn_count", range(4))
@both_loops
async def test_an_address_let_go_while_its_connection_is_made_is_connected_by_the_next_request(turn_count: int) -> None:
    async with served(Table()) as server, Client(ConnectConfig(), SystemClock()) as client:
        first = asking(client, at(server.port), timeout_s=20)
        for _ in range(1 + turn_count):  # after one turn the connecting task was made and has not begun
            await asyncio.sleep(0)
        client.close(at(server.port), "let go")
        assert (await asking(client, at(server.port), b"next", timeout_s=5)).body == b"next"
        with pytest.raises((ConnectError, ConnectionLost), match="let go"):
            await first
        assert len(list(client.sessions())) == 1
        assert (await asking(client, at(server.port), b"later")).body == b"later"


@both_loops
async def test_a_server_that_speaks_http_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def answer_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer_http, "127.0.0.1", 0)
    async with Client(ConnectConfig(), SystemClock()) as client:
        with pytest.raises(ConnectionLost, match="an HTTP answer"):
            await asking(client, at(server.sockets[0].getsockname()[1]))
    server.close()
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
