"""The filter server: who may upload, what a filter may do, and what consumers get through it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from bolide import aio, kernel
from bolide.clock import SystemClock
from bolide.errors import ClientError, ConfigError, ConnectError
from bolide.filtersrv import server as server_module
from bolide.filtersrv.config import read_config, shown
from bolide.filtersrv.process import FilterFailed, FilterLimits, FilterProcess, FilterSource
from bolide.filtersrv.server import FilterServer, check_absence, chosen, serve
from bolide.protocol.bodies import TopicRoute
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.consume import PullMessageAnswer, PullMessageRequest
from bolide.protocol.headers.filters import RegisterFilterClassRequest
from bolide.protocol.headers.routes import GetRouteRequest
from bolide.protocol.records import decode_records
from bolide.protocol.signature import ACCESS_KEY, SIGNATURE, sign
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.testing import AsyncCluster
from tests.broker.metering import PROM, Scraped
from tests.broker.metering import ask as page_at
from tests.client.scenes import collecting, on_uvloop, stage
from tests.remoting.loops import eventually
from tests.tidy.source import ROOT

KEYS = {"accessKey": "ak", "secretKey": "secret-of-tests"}
GROUP, TOPIC, LIMIT_S = "G", "T", 60
EVEN = "def match(message, context):\n    return int(message.body) % 2 == 0\n"
CLASS = """
class Filter:
    def match(self, message, context):
        return message.properties.get("a") == context.group
"""
HANGS = "def match(message, context):\n    while True:\n        pass\n"
THROWS = "def match(message, context):\n    return 1 / (int(message.body) - 3)\n"
GREEDY = "def match(message, context):\n    return bool(bytearray(1 << 30))\n"
FORKS = "import os\ndef match(message, context):\n    return os.fork() or os._exit(0)\n"
DIES = "import os\ndef match(message, context):\n    os._exit(3)\n"


@dataclass
class Scene:
    """A cluster with a filter server beside its broker, and somebody who asks it."""

    rocket: AsyncCluster
    server: FilterServer
    address: str
    client: Client

    async def ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> Command:
        return await self.client.request(self.address, Command(code, fields=fields, body=body), LIMIT_S)

    async def upload(self, source: str, secret: str | None = KEYS["secretKey"], crc: int | None = None) -> Command:
        body = source.encode()
        header = RegisterFilterClassRequest(
            consumer_group=GROUP, topic=TOPIC, class_name="Filter", crc=kernel.body_crc(body) if crc is None else crc
        )
        fields = header.encode()
        if secret is not None:
            fields[ACCESS_KEY] = KEYS["accessKey"]
            fields[SIGNATURE] = sign(fields, body, secret)
        return await self.ask(RequestCode.REGISTER_MESSAGE_FILTER_CLASS, fields, body)

    async def pull(self, offset: int = 0, **changes: Any) -> Command:
        fields: dict[str, Any] = {
            "consumer_group": GROUP,
            "topic": TOPIC,
            "queue_id": 0,
            "queue_offset": offset,
            "message_count_max": 32,
            "sys_flag": 8,
            "commit_offset": 0,
            "suspend_timeout_ms": 0,
            "subscription_version": 0,
        }
        return await self.ask(RequestCode.PULL_MESSAGE, fields=PullMessageRequest(**fields | changes).encode())

    async def send(self, *bodies: bytes, **properties: str) -> None:
        async with aio.Producer("pg", self.rocket.namesrv) as producer:
            for body in bodies:
                await producer.send(TOPIC, body, properties=properties)

    async def filter_servers(self) -> dict[str, list[str]]:
        """What the name server tells of them."""
        command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields=GetRouteRequest(topic=TOPIC).encode())
        answer = await self.client.request(self.rocket.namesrv, command, LIMIT_S)
        return TopicRoute.decode(answer.body).filter_server_table


@asynccontextmanager
async def scene(**settings: str) -> AsyncIterator[Scene]:
    """Where nothing is said of it, a filter has as long as a busy machine keeps it waiting."""
    given = {**KEYS, "bindAddress": "127.0.0.1", "bolideFilterTimeMax": str(LIMIT_S * 1000), **settings}
    async with stage(TOPIC, 1) as rocket, Client(ConnectConfig(), SystemClock()) as client:
        config = read_config(given | {"connectWhichBroker": rocket.brokers[0].address})
        async with serve(config, SystemClock()) as (owner, server):
            yield Scene(rocket, owner, f"127.0.0.1:{server.port}", client)


def bodies_of(answer: Command) -> list[bytes]:
    return [message.body for message in decode_records(answer.body)]


@pytest.mark.feature("F274", "F275", "F278")
@on_uvloop
async def test_a_pull_through_the_filter_brings_what_it_lets_through_and_goes_past_the_rest() -> None:
    async with scene() as here:
        await here.send(*[b"%d" % i for i in range(10)])
        assert (await here.upload(EVEN)).code == ResponseCode.SUCCESS
        answer = await here.pull()
        assert (answer.code, bodies_of(answer)) == (ResponseCode.SUCCESS, [b"0", b"2", b"4", b"6", b"8"])
        assert PullMessageAnswer.decode(answer.fields).next_offset == 10
        nothing = await here.pull(9)
        assert nothing.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert PullMessageAnswer.decode(nothing.fields).next_offset == 10
        assert (await here.pull(10)).code == ResponseCode.PULL_NOT_FOUND
        moved = await here.pull(99)
        assert moved.code == ResponseCode.PULL_OFFSET_MOVED
        assert PullMessageAnswer.decode(moved.fields).next_offset == 10


@pytest.mark.feature("F277")
@on_uvloop
async def test_a_source_is_compiled_once_and_again_when_it_changed() -> None:
    async with scene() as here:
        await here.send(*[b"%d" % i for i in range(4)])
        unknown = await here.pull()
        assert unknown.code == ResponseCode.SYSTEM_ERROR
        assert "upload it first" in str(unknown.remark)
        await here.upload(EVEN)
        first = here.server.filters[TOPIC, GROUP]
        pid = first.process_id
        await here.upload(EVEN)
        assert here.server.filters[TOPIC, GROUP] is first
        assert first.process_id == pid
        await here.upload(EVEN.replace("== 0", "== 1"))
        assert bodies_of(await here.pull()) == [b"1", b"3"]
        assert not first.is_running
        wrong = await here.upload(EVEN, crc=7)
        assert wrong.code == ResponseCode.SYSTEM_ERROR
        assert "CRC" in str(wrong.remark)
        assert bodies_of(await here.pull()) == [b"1", b"3"], "what was there stays"


@on_uvloop
async def test_only_who_has_the_key_may_upload_and_without_a_key_nobody() -> None:
    async with scene() as here:
        for secret in (None, "guessed", ""):
            refused = await here.upload(EVEN, secret)
            assert refused.code == ResponseCode.NO_PERMISSION
        assert here.server.filters == {}
    async with scene(accessKey="", secretKey="") as here:
        refused = await here.upload(EVEN)
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "accessKey and secretKey" in str(refused.remark)
    async with scene(clientUploadFilterClassEnable="false") as here:
        assert (await here.upload(EVEN)).code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def match(:\n", "SyntaxError"),
        ("x = 1 / 0\n", "ZeroDivisionError"),
        ("def other(message, context):\n    return True\n", "no function `match"),
        ("raise SystemExit(3)\n", "SystemExit"),
    ],
)
@on_uvloop
async def test_what_is_no_filter_is_refused_with_the_reason(source: str, why: str) -> None:
    async with scene() as here:
        refused = await here.upload(source)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert why in str(refused.remark)
        assert here.server.filters == {}


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (HANGS, "longer than 0.5 s"),
        (THROWS, "ZeroDivisionError"),
        (GREEDY, "MemoryError"),
        (FORKS, "temporarily unavailable"),
        (DIES, "ended in the middle"),
    ],
)
@on_uvloop
async def test_a_filter_that_hangs_throws_wants_too_much_or_dies_is_an_error_and_harms_nobody(
    source: str, why: str
) -> None:
    async with scene() as here:
        patient = here.server.limits
        if source == HANGS:
            here.server.limits = patient._replace(time_s=0.5)
        await here.send(*[b"%d" % i for i in range(6)])
        assert (await here.upload(source)).code == ResponseCode.SUCCESS
        for _ in range(2):
            failed = await here.pull()
            assert failed.code == ResponseCode.SYSTEM_ERROR
            assert why in str(failed.remark)
            assert failed.body == b""
        here.server.limits = patient
        await here.upload(EVEN)
        assert bodies_of(await here.pull()) == [b"0", b"2", b"4"]


@on_uvloop
async def test_a_filter_may_be_a_class_and_is_told_its_group() -> None:
    async with scene() as here:
        await here.send(b"ours", a=GROUP)
        await here.send(b"others", a="H")
        assert (await here.upload(CLASS)).code == ResponseCode.SUCCESS
        assert bodies_of(await here.pull()) == [b"ours"]


@on_uvloop
async def test_a_filter_cannot_write_files_or_take_what_it_prints_for_an_answer(tmp_path) -> None:
    noisy = f"""
import sys
def match(message, context):
    print("noise " * 1000)
    sys.stdout.flush()
    try:
        with open({str(tmp_path / "x")!r}, "w") as file:
            file.write("x" * 100)
    except OSError:
        return True
    return False
"""
    async with scene() as here:
        await here.send(b"1")
        await here.upload(noisy)
        answer = await here.pull()
        assert bodies_of(answer) == [b"1"]
        assert (tmp_path / "x").stat().st_size == 0


@pytest.mark.feature("F276", "F133", "F044")
@on_uvloop
async def test_filter_servers_are_in_the_route_as_long_as_they_are_there() -> None:
    async with scene() as here:
        broker = here.rocket.brokers[0].address
        settings = KEYS | {"bindAddress": "127.0.0.1", "connectWhichBroker": broker}
        async with serve(read_config(settings), SystemClock()) as (_, second):
            both = {here.address, f"127.0.0.1:{second.port}"}

            async def known() -> set[str]:
                return set((await here.filter_servers()).get(broker, []))

            await until(lambda: known(), both)
        await until(lambda: known(), {here.address})


async def until(ask: Any, wanted: set[str]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while await ask() != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0)


@on_uvloop
async def test_a_filter_server_whose_broker_is_not_there_says_so_and_ends() -> None:
    config = read_config(KEYS | {"connectWhichBroker": "127.0.0.1:1", "bindAddress": "127.0.0.1"})
    with pytest.raises(BaseExceptionGroup) as ended:
        async with serve(config, SystemClock()):
            raise AssertionError("it must not be served")
    assert ended.group_contains(
        ClientError, match="no broker answers at 127.0.0.1:1 .*; start it there, with bolide up"
    )


@on_uvloop
async def test_a_filter_server_is_known_again_when_its_broker_is_back(monkeypatch) -> None:
    monkeypatch.setattr(server_module, "REGISTER_INTERVAL_S", 0.01)
    monkeypatch.setattr(server_module, "REGISTER_AGAIN_S", 0.01)
    absences: list[ClientError] = []
    async with scene() as here:
        here.server.on_absence = absences.append
        await here.upload(EVEN)
        broker = here.rocket.brokers[0]
        await broker.stop()
        await eventually(lambda: len(absences) > 1, LIMIT_S)
        await broker.start()
        await until_routed(here)
        await here.send(b"1", b"2")
        assert bodies_of(await here.pull()) == [b"2"]


def test_a_filter_server_whose_broker_stays_away_ends_and_says_so() -> None:
    check_absence("b:1", 60.0, ConnectError("nobody"))
    with pytest.raises(ClientError, match="b:1 is gone for more than 60 s"):
        check_absence("b:1", 60.1, ConnectError("nobody"))


@pytest.mark.feature("F277", "F269")
@on_uvloop
async def test_our_consumer_uploads_its_filter_and_pulls_through_it() -> None:
    async with scene() as here:
        await until_routed(here)
        await here.send(*[b"%d" % i for i in range(8)])
        credentials = aio.Credentials(access_key=KEYS["accessKey"], secret_key=KEYS["secretKey"])
        wanted = {TOPIC: aio.ClassFilter(EVEN)}
        async with collecting(GROUP, wanted, here.rocket.namesrv, credentials=credentials) as found:
            await eventually(lambda: len(found.taken) == 4, LIMIT_S)
            await here.send(b"8", b"9", b"10")
            await eventually(lambda: len(found.taken) == 6, LIMIT_S)
            assert sorted(map(int, found.bodies)) == [0, 2, 4, 6, 8, 10]
        unsigned = aio.Consumer("H", wanted, here.rocket.namesrv)
        with pytest.raises(ClientError, match="not signed"):
            await unsigned.start()


async def until_routed(here: Scene) -> None:
    broker = here.rocket.brokers[0].address

    async def known() -> set[str]:
        return set((await here.filter_servers()).get(broker, []))

    await until(known, {here.address})


def test_the_source_of_a_function_is_taken_as_it_stands() -> None:
    def match(message: Any, context: Any) -> bool:
        return bool(message.body)

    assert aio.ClassFilter.of(match).source.startswith("def match(message: Any, context: Any) -> bool:\n")
    with pytest.raises(ClientError, match="called match"):
        aio.ClassFilter.of(lambda message, context: True)


def test_verdicts_that_do_not_fit_the_messages_are_refused() -> None:
    with pytest.raises(Exception, match="1 verdicts"):
        chosen(b"\x00\x00\x00\x08\x00\x00\x00\x00", b"\x01")


def test_settings_are_checked_and_the_secret_is_never_shown() -> None:
    config = read_config(KEYS | {"filterClassRepertoryUrl": "x"})
    assert "secretKey" not in shown(config)
    assert config.ignored == {"filterClassRepertoryUrl": "x"}
    for wrong in (
        {"accessKey": "a"},
        {"bolideFilterTimeMax": "1"},
        {"connectWhichBroker": "nowhere"},
        {"noSuchKey": "1"},
    ):
        with pytest.raises(ConfigError):
            read_config(wrong)


@on_uvloop
async def test_a_process_that_is_not_needed_is_ended_and_started_again() -> None:
    process = FilterProcess(FilterSource(GROUP, TOPIC, "Filter", 0, EVEN.encode()), FilterLimits(5.0, 256))
    await process.check()
    first = process.process_id
    process.rest()
    assert not process.is_running
    assert await process.decide(b"") == b""
    assert process.process_id not in (None, first)
    process.close()
    with pytest.raises(FilterFailed, match="replaced"):
        await process.decide(b"")


@pytest.mark.feature("F279")
def test_the_page_says_when_a_filter_server_pays() -> None:
    page = (ROOT / "docs" / "filtering.md").read_text("utf-8")
    assert "a filter server beside the broker, in a process of its own" in page
    assert "The broker does nothing for it but tell where it is" in " ".join(page.split())


@on_uvloop
async def test_its_page_counts_the_filters_that_are_kept_and_times_uploads() -> None:
    async with scene(**PROM) as here:
        await here.send(b"0", b"1")
        pages = here.server.pages
        assert pages is not None
        assert Scraped((await page_at(pages.addresses[0]))[1]).value("bolide_filtersrv_filters") == 0
        for source in (EVEN, EVEN.replace("== 0", "== 1")):
            assert (await here.upload(source)).code == ResponseCode.SUCCESS
        page = Scraped((await page_at(pages.addresses[0]))[1])
        assert page.value("bolide_filtersrv_filters", node_type="filterserver") == 1
        uploads = {"request_code": "register_message_filter_class", "response_code": "success"}
        assert page.value("rocketmq_rpc_latency_milliseconds_count", **uploads) == 2
