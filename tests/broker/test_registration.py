"""This broker at its name servers: who hears what, when, and what happens to those that do not answer."""

import asyncio
import itertools
import logging
import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from bolide import kernel
from bolide.broker import registration as room
from bolide.broker.config import read_config
from bolide.broker.members.filter_servers import FilterServers
from bolide.broker.registration import Registration, encoded, name_servers, own_address
from bolide.clock import Clock, SystemClock
from bolide.errors import ConfigError
from bolide.protocol.bodies.registration import decode_registration
from bolide.protocol.bodies.topics import TopicConfig, TopicTable
from bolide.protocol.command import Command
from bolide.protocol.headers.filters import RegisterFilterServerRequest
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.remoting.session import Request
from bolide.store.store import Store
from bolide.testing.link import open_link
from bolide.testing.loop import VirtualClock
from tests.broker.noting import noting, topics_of
from tests.broker.open_tables import Tables, tables
from tests.broker.whole import SMALL
from tests.namesrv.peers import Running, route_of, running
from tests.remoting.loops import REAL_WAIT_S, both_loops, eventually, virtual_time

PORT = 10911


def filter_servers_of(command: Command) -> list[str]:
    return decode_registration(command.body, False, command.version).filter_server_list


class Registered:
    """A broker without a port: its tables, and its registration as it runs."""

    def __init__(
        self,
        kept: Tables,
        registration: Registration,
        client: Client,
        servers: FilterServers,
        task: "asyncio.Task[None]",
    ) -> None:
        self.kept = kept
        self.topics = kept.topics
        self.registration = registration
        self.client = client
        self.filter_servers = servers
        self._task = task

    async def stop(self) -> None:
        """As a broker stops: nothing is told any more, then leave is taken."""
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.registration.unregister()


@asynccontextmanager
async def registering(
    root: Path, clock: Clock, *namesrvs: str, port: int = PORT, **settings: str
) -> AsyncIterator[Registered]:
    settings = {"namesrvAddr": ";".join(namesrvs)} | settings
    async with (
        tables(root, clock, **SMALL | settings) as kept,
        Client(ConnectConfig(), clock) as client,
        asyncio.TaskGroup() as background,
    ):
        with Store.open(kept.settings.now.store, clock) as store:
            servers = FilterServers(kept.settings, clock)
            registration = Registration(kept.state(store), client, kept.file_thread, servers)
        address = own_address(kept.settings.now, port)
        task = background.create_task(registration.run_forever(address, 10912), name="test.registration")
        yield Registered(kept, registration, client, servers, task)
        task.cancel()


def topic(name: str, count: int = 4) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=count, write_queue_nums=count)


def live(ns: Running) -> set[tuple[str, str]]:
    return set(ns.namesrv.tables.live)


@pytest.mark.feature("F017")
@virtual_time
async def test_br6_three_name_servers_know_the_broker_within_a_second_of_its_start(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(running(tmp_path / str(n), clock)) for n in range(3)]
        addresses = [ns.address for ns in servers]
        broker = await stack.enter_async_context(registering(tmp_path / "store", clock, *addresses))
        assert await broker.registration.told(timeout_s=1)
        assert [live(ns) for ns in servers] == [{("C1", "127.0.0.1:10911")}] * 3
        for ns in servers:
            assert route_of(await ns.look_up("TBW102"))["queueDatas"][0]["writeQueueNums"] == 8


@pytest.mark.feature("F018", "F053")
@virtual_time
async def test_every_name_server_hears_from_us_every_30_s_on_one_connection(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with (
        noting(clock) as first,
        noting(clock) as second,
        registering(tmp_path, clock, first.address, second.address),
    ):
        await asyncio.sleep(301)  # virtual
        for ns in (first, second):
            times = [at for at, _ in ns.heard]
            assert len(times) == 11
            assert {round(later - earlier, 3) for earlier, later in itertools.pairwise(times)} == {30.0}
            assert len(ns.server.sessions) == 1


@pytest.mark.parametrize(("given_ms", "kept_s"), [("1000", 10), ("600000", 60), ("45000", 45)])
@virtual_time
async def test_br6_the_interval_is_kept_between_10_and_60_s(tmp_path: Path, given_ms: str, kept_s: int) -> None:
    clock = VirtualClock()
    async with noting(clock) as ns, registering(tmp_path, clock, ns.address, registerNameServerPeriod=given_ms):
        await asyncio.sleep(4 * kept_s + 1)  # virtual
        times = [round(at - ns.heard[0][0]) for at, _ in ns.heard]
    assert times == [0, kept_s, 2 * kept_s, 3 * kept_s, 4 * kept_s]


@pytest.mark.feature("F019")
@virtual_time
async def test_br8_a_registration_says_who_and_where_we_are_and_all_topics(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with noting(clock) as ns, registering(tmp_path, clock, ns.address, brokerId="0") as broker:
        await broker.registration.told(timeout_s=1)
        (_, command), *_ = ns.heard
        assert (
            command.fields.items()
            >= {
                "brokerName": "broker-a",
                "brokerAddr": "127.0.0.1:10911",
                "clusterName": "C1",
                "haServerAddr": "127.0.0.1:10912",
                "brokerId": "0",
                "compressed": "false",
                "enableActingMaster": "false",
                "bodyCrc32": str(kernel.body_crc(command.body)),
            }.items()
        )
        assert topics_of(command).topic_config_table == broker.topics.table
        assert topics_of(command).data_version == broker.topics.version


@pytest.mark.feature("F005", "F061")
@both_loops
async def test_br11_a_new_topic_is_routed_as_soon_as_it_is_told(tmp_path: Path) -> None:
    clock = SystemClock()
    async with running(tmp_path, clock) as ns:
        assert (await ns.look_up("Orders")).code == 17
        async with registering(tmp_path, clock, ns.address) as broker:
            assert await broker.registration.told(REAL_WAIT_S)
            assert (await ns.look_up("Orders")).code == 17
            broker.topics.for_send("Orders", "TBW102", 4, 0)
            assert await broker.registration.told(REAL_WAIT_S)
            (row,) = route_of(await ns.look_up("Orders"))["queueDatas"]
            assert (row["brokerName"], row["readQueueNums"], row["writeQueueNums"], row["perm"]) == (
                "broker-a",
                4,
                4,
                6,
            )


@pytest.mark.feature("F071")
@virtual_time
async def test_a_change_of_queue_counts_is_in_the_route_at_once(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with running(tmp_path, clock) as ns, registering(tmp_path, clock, ns.address) as broker:
        for read_count, write_count in ((8, 4), (4, 8)):
            config = msgspec.structs.replace(topic("T"), read_queue_nums=read_count, write_queue_nums=write_count)
            broker.topics.update(config)
            await broker.registration.told(timeout_s=1)
            (row,) = route_of(await ns.look_up("T"))["queueDatas"]
            assert (row["readQueueNums"], row["writeQueueNums"]) == (read_count, write_count)


@virtual_time
async def test_br11_after_a_change_only_the_touched_topics_are_sent_and_the_heartbeat_stays_on_time(
    tmp_path: Path,
) -> None:
    clock = VirtualClock()
    async with noting(clock) as ns, registering(tmp_path, clock, ns.address) as broker:
        await asyncio.sleep(12)  # virtual
        broker.topics.update(topic("A"))
        broker.topics.update(topic("B"))
        await broker.registration.told(timeout_s=1)
        await asyncio.sleep(19)  # virtual
        whole, touched, again = ns.tables()
        assert set(touched.topic_config_table) == {"A", "B"}
        assert touched.data_version == broker.topics.version
        assert again.topic_config_table == broker.topics.table
        assert len(whole.topic_config_table) == len(again.topic_config_table) - 2
        assert [round(at) for at, _ in ns.heard] == [0, 12, 30]


@virtual_time
async def test_ten_thousand_topics_made_one_by_one_are_few_small_registrations(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with noting(clock) as ns, registering(tmp_path, clock, ns.address) as broker:
        await broker.registration.told(timeout_s=1)
        for number in range(10_000):
            broker.topics.for_send(f"T{number}", "TBW102", 4, 0)
            if number % 100 == 99:
                await asyncio.sleep(0.001)  # virtual
        assert await broker.registration.told(timeout_s=1)
        touched = ns.tables()[1:]
        assert len(touched) <= 15, "0.1 s of changes, told every 0.01 s"
        told = [name for table in touched for name in table.topic_config_table]
        assert sorted(told) == sorted(f"T{number}" for number in range(10_000))


@pytest.mark.feature("F056")
@pytest.mark.parametrize("compressed", ["false", "true"])
@both_loops
async def test_ten_thousand_topics_are_registered_and_their_size_is_logged(
    tmp_path: Path, compressed: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bolide.broker.registration")
    clock = SystemClock()
    async with tables(tmp_path, clock) as kept:
        kept.topics.update_all(topic(f"T{number}") for number in range(10_000))
    async with (
        running(tmp_path, clock) as ns,
        registering(tmp_path, clock, ns.address, compressedRegister=compressed) as broker,
    ):
        assert await broker.registration.told(REAL_WAIT_S)
        assert len(ns.namesrv.tables.topics) == len(broker.topics.table) > 10_000
    size = int(caplog.text.partition("size=")[2].split()[0])
    assert (size < 200_000) if compressed == "true" else (size > 1_000_000)


def test_a_body_too_large_for_a_frame_is_compressed_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    table = TopicTable(topic_config_table={f"T{number}": topic(f"T{number}") for number in range(1000)})
    assert encoded(table, 6, False)[1] is False
    monkeypatch.setattr(room, "PLAIN_SIZE_MAX", 50_000)
    body, is_compressed = encoded(table, 6, False)
    assert is_compressed
    assert (
        decode_registration(body, True, room.COMPRESSED_VERSION).topics.topic_config_table == table.topic_config_table
    )


@virtual_time
async def test_a_compressed_registration_is_in_the_form_of_4_9_and_says_so(tmp_path: Path) -> None:
    """Name servers of 4.9 do not read the form of 5.x, those of 5.x read both."""
    clock = VirtualClock()
    async with noting(clock) as ns, registering(tmp_path, clock, ns.address, compressedRegister="true") as broker:
        broker.topics.update(msgspec.structs.replace(topic("T"), attributes={"message.type": "FIFO"}))
        await broker.registration.told(timeout_s=1)
        (_, command), *_ = ns.heard
        assert command.version == 401
        assert command.fields["bodyCrc32"] == str(kernel.body_crc(command.body))
        assert b"T 4 4 6 SINGLE_TAG\x00" in zlib.decompress(command.body) + b"\x00"
        assert topics_of(command).topic_config_table.keys() == broker.topics.table.keys()


@virtual_time
async def test_br7_a_name_server_that_is_down_or_silent_delays_no_other(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with noting(clock) as silent, noting(clock) as gone:
        silent.answer = lambda command: None
        nobody = gone.address
        gone.server.close()
        async with (
            running(tmp_path, clock) as ns,
            registering(tmp_path, clock, nobody, silent.address, ns.address) as broker,
        ):
            await eventually(lambda: bool(live(ns)), limit_s=1)
            await asyncio.sleep(100)  # virtual
            broker.topics.update(topic("A"))
            started_s = clock.monotonic_s()
            assert await broker.registration.told(timeout_s=5), "who does not answer is not waited for"
            assert clock.monotonic_s() - started_s < 0.1
            assert (await ns.look_up("A")).code == 0


@virtual_time
async def test_a_name_server_that_is_not_there_yet_is_named_once_and_told_when_it_appears(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "bolide.broker.registration")
    clock = VirtualClock()
    async with running(tmp_path, clock) as ns, open_link(ns.address) as link:
        link.is_down = True
        async with registering(tmp_path, clock, link.address) as broker:
            assert await broker.registration.told(timeout_s=5), "a broker comes up without its name server"
            await asyncio.sleep(60)  # virtual
            assert [record.levelname for record in caplog.records] == ["WARNING"]
            assert link.address in caplog.text
            broker.topics.update(topic("Meanwhile"))
            link.is_down = False
            await eventually(lambda: bool(live(ns)), limit_s=15)
            assert (await ns.look_up("Meanwhile")).code == 0


@pytest.mark.feature("F032")
@virtual_time
async def test_a_name_server_whose_connection_ended_hears_everything_anew_without_waiting_for_a_heartbeat(
    tmp_path: Path,
) -> None:
    clock = VirtualClock()
    async with (
        running(tmp_path, clock) as ns,
        open_link(ns.address) as link,
        registering(tmp_path, clock, link.address) as broker,
    ):
        await broker.registration.told(timeout_s=1)
        await asyncio.sleep(5)  # virtual
        (before,) = ns.namesrv.tables.live.values()
        link.cut()
        await asyncio.sleep(1)  # virtual
        (after,) = ns.namesrv.tables.live.values()
        assert after.connection is not before.connection
        assert len(ns.namesrv.tables.topics) == len(broker.topics.table)


@pytest.mark.feature("F025", "F135")
@virtual_time
async def test_br13_a_clean_stop_takes_leave_of_every_name_server(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with (
        noting(clock) as noted,
        running(tmp_path, clock) as ns,
        registering(tmp_path, clock, noted.address, ns.address) as broker,
    ):
        await broker.registration.told(timeout_s=1)
        assert (await ns.look_up("TBW102")).code == 0
        await broker.stop()
        assert (await ns.look_up("TBW102")).code == 17
        assert noted.codes == [103, 104]
        assert (
            noted.heard[-1][1].fields.items()
            >= {
                "brokerName": "broker-a",
                "brokerAddr": "127.0.0.1:10911",
                "clusterName": "C1",
                "brokerId": "0",
            }.items()
        )


@virtual_time
async def test_a_stop_does_not_wait_long_for_a_name_server_that_is_silent(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with noting(clock) as ns, registering(tmp_path, clock, ns.address) as broker:
        await broker.registration.told(timeout_s=1)
        ns.answer = lambda command: None
        started_s = clock.monotonic_s()
        await broker.stop()
        assert clock.monotonic_s() - started_s <= room.UNREGISTER_LIMIT_S + 0.1


@virtual_time
async def test_br10_without_force_a_name_server_that_knows_our_version_is_only_asked(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with noting(clock) as ns, registering(tmp_path, clock, ns.address, forceRegister="false") as broker:
        ns.answer = lambda command: command.answer(0, fields={"changed": "false"})
        await asyncio.sleep(65)  # virtual
        assert ns.codes == [103, 322, 322]
        assert ns.heard[-1][1].body == broker.topics.version.encode()
        ns.answer = lambda command: command.answer(0, fields={"changed": "true"})
        await asyncio.sleep(30)  # virtual
        assert ns.codes == [103, 322, 322, 322, 103]


@virtual_time
async def test_a_change_that_comes_while_all_topics_are_being_told_is_told_right_after_them(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with noting(clock) as ns, registering(tmp_path, clock, ns.address) as broker:
        header = RegisterFilterServerRequest(address="10.0.0.1:30001")
        register = Request(Command(301, fields=header.encode()), cast(Any, object()), 0.0)

        def change_and_answer(command: Command) -> Command:
            if not broker.filter_servers.addresses():
                broker.filter_servers.register(register)  # the body that holds none is on its way
            return command.answer(0)

        ns.answer = change_and_answer
        await asyncio.sleep(1)  # virtual
        assert [filter_servers_of(command) for _, command in ns.heard] == [[], ["10.0.0.1:30001"]]
        await asyncio.sleep(28)  # virtual
        assert len(ns.heard) == 2, "once is enough"


@virtual_time
async def test_a_change_that_the_version_does_not_show_is_told_without_force_too(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with noting(clock) as ns, registering(tmp_path, clock, ns.address, forceRegister="false") as broker:
        ns.answer = lambda command: command.answer(0, fields={"changed": "false"})
        await broker.registration.told(timeout_s=1)
        broker.registration.tell_again()
        await asyncio.sleep(1)  # virtual
        assert ns.codes == [103, 103]


@virtual_time
async def test_br9_no_topic_is_told_to_allow_what_the_broker_does_not(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with running(tmp_path, clock) as ns, registering(tmp_path, clock, ns.address) as broker:
        broker.topics.update(topic("T"))
        await broker.registration.told(timeout_s=1)
        assert route_of(await ns.look_up("T"))["queueDatas"][0]["perm"] == 6
        broker.kept.set(brokerPermission="4")
        broker.topics.touch()
        await broker.registration.told(timeout_s=1)
        assert route_of(await ns.look_up("T"))["queueDatas"][0]["perm"] == 4
        assert broker.topics.table["T"].perm == 6
        broker.topics.update(topic("U"))
        await broker.registration.told(timeout_s=1)
        assert route_of(await ns.look_up("U"))["queueDatas"][0]["perm"] == 4


@virtual_time
async def test_br12_topics_declared_as_ordered_at_the_name_server_are_ordered_here(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with running(tmp_path, clock) as ns:
        for name in ("T", "NotHere"):
            await ns.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": name, "value": "broker-a:4"})
        async with registering(tmp_path, clock, ns.address) as broker:
            broker.topics.update(topic("T"))
            broker.topics.update(topic("U"))
            await asyncio.sleep(31)  # virtual
            assert broker.topics.table["T"].order is True
            assert broker.topics.table["U"].order is False
            assert "NotHere" not in broker.topics.table


@virtual_time
async def test_a_refused_change_is_followed_by_everything(tmp_path: Path) -> None:
    """A name server of 5.x refuses one topic of a broker it does not know."""
    clock = VirtualClock()
    async with noting(clock) as ns, registering(tmp_path, clock, ns.address) as broker:
        await broker.registration.told(timeout_s=1)
        ns.answer = lambda command: command.answer(1 if len(topics_of(command).topic_config_table) == 1 else 0)
        broker.topics.update(topic("A"))
        await asyncio.sleep(2)  # virtual
        assert [len(table.topic_config_table) == 1 for table in ns.tables()] == [False, True, False]
        assert "A" in ns.tables()[-1].topic_config_table


@pytest.mark.parametrize("body", [b"nonsense", b"[]", b'{"table":3}'])
@virtual_time
async def test_an_answer_that_cannot_be_read_is_a_failure_and_not_the_end(tmp_path: Path, body: bytes) -> None:
    clock = VirtualClock()
    async with noting(clock) as ns, registering(tmp_path, clock, ns.address) as broker:
        ns.answer = lambda command: command.answer(0, body=body)
        await asyncio.sleep(5)  # virtual
        ns.answer = lambda command: command.answer(0)
        broker.topics.update(topic("A"))
        await asyncio.sleep(12)  # virtual
        assert "A" in ns.tables()[-1].topic_config_table


@pytest.mark.feature("F007", "F063")
@virtual_time
async def test_a_topic_on_two_brokers_is_routed_to_both_and_one_made_on_one_to_that_one(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with (
        running(tmp_path, clock) as ns,
        registering(tmp_path / "a", clock, ns.address) as one,
        registering(tmp_path / "b", clock, ns.address, port=20911, brokerName="broker-b") as two,
    ):
        for broker in (one, two):
            broker.topics.update(topic("Both"))
        one.topics.update(topic("One"))
        for broker in (one, two):
            await broker.registration.told(timeout_s=1)
        both = route_of(await ns.look_up("Both"))
        assert {row["brokerName"]: row["writeQueueNums"] for row in both["queueDatas"]} == {
            "broker-a": 4,
            "broker-b": 4,
        }
        assert [row["brokerName"] for row in route_of(await ns.look_up("One"))["queueDatas"]] == ["broker-a"]
        clusters = route_of(await ns.ask(106))
        assert sorted(clusters["clusterAddrTable"]["C1"]) == ["broker-a", "broker-b"]
        assert clusters["brokerAddrTable"]["broker-b"]["brokerAddrs"] == {"0": "127.0.0.1:20911"}


@virtual_time
async def test_a_broker_without_name_servers_has_nobody_to_tell(tmp_path: Path) -> None:
    async with registering(tmp_path, VirtualClock()) as broker:
        broker.topics.update(topic("A"))
        assert await broker.registration.told(timeout_s=1)
        await broker.stop()


@virtual_time
async def test_who_waits_for_a_silent_name_server_hears_when_time_is_up(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with noting(clock) as ns, registering(tmp_path, clock, ns.address) as broker:
        ns.answer = lambda command: None
        assert not await broker.registration.told(timeout_s=1)
        assert clock.monotonic_s() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("settings", "advertised", "address"),
    [
        ({}, "", "10.0.0.7:10911"),
        ({"bindAddress": "::"}, "", "10.0.0.7:10911"),
        ({"bindAddress": "192.168.1.5"}, "", "192.168.1.5:10911"),
        ({"brokerIP1": "broker.example.org"}, "", "broker.example.org:10911"),
        ({"brokerIP1": "1.2.3.4", "bindAddress": "127.0.0.1"}, "", "1.2.3.4:10911"),
        ({"brokerIP1": "1.2.3.4"}, "5.6.7.8:30000", "5.6.7.8:30000"),
    ],
)
def test_our_address_is_the_named_one_or_the_one_that_was_seen_to_work(
    settings: dict[str, str], advertised: str, address: str
) -> None:
    assert own_address(read_config(settings), PORT, advertised)("10.0.0.7") == address


def test_name_servers_are_separated_by_semicolons_and_a_wrong_one_stops_the_start() -> None:
    assert name_servers(" a:1 ;b:2;;a:1; ") == ["a:1", "b:2"]
    assert name_servers("") == []
    with pytest.raises(ConfigError, match="must be host:port"):
        name_servers("a:1;b")
