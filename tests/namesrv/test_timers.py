"""What happens by itself: the scan, the expiry, the print, the waiting at the start. In virtual time."""

import asyncio
import itertools
import logging
from pathlib import Path

import pytest

from bolide.testing.loop import VirtualClock
from tests.namesrv.peers import BrokerPeer, running
from tests.remoting.loops import virtual_time


@pytest.mark.feature("F022", "F037")
@virtual_time
async def test_ns3_the_scan_runs_first_after_5_s_and_then_every_10_s(tmp_path: Path) -> None:
    async with running(tmp_path, VirtualClock()) as ns:
        counts = []
        for _ in range(40):
            await asyncio.sleep(1)  # virtual
            counts.append(ns.namesrv.scan_count)
    assert counts[3] == 0
    assert [counts.index(count) + 1 for count in (1, 2, 3, 4)] == [5, 15, 25, 35]


@virtual_time
async def test_ns3_the_interval_of_the_scan_can_be_set_and_changed_while_it_runs(tmp_path: Path) -> None:
    async with running(tmp_path, VirtualClock(), scanNotActiveBrokerInterval="1000") as ns:
        await asyncio.sleep(10.5)  # virtual
        assert ns.namesrv.scan_count == 6
        await ns.ask(318, body=b"scanNotActiveBrokerInterval=30000")
        await asyncio.sleep(29)  # virtual
        assert ns.namesrv.scan_count == 7


@pytest.mark.feature("F023", "F024", "F016")
@virtual_time
async def test_ns20_a_broker_without_heartbeats_is_routed_at_115_s_and_gone_with_its_connection_by_135_s(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, VirtualClock()) as ns, BrokerPeer(ns) as broker:
        await broker.register()
        for _ in range(5):  # the connection is not idle; only heartbeats are missing
            await asyncio.sleep(23)  # virtual
            await broker.ask(206, {})
        assert (await ns.look_up("T1")).code == 0  # 115 s
        assert len(ns.server.sessions) == 2
        await asyncio.sleep(20)  # virtual
        answer = await ns.look_up("T1")
        assert answer.code == 17
        assert "stopped sending heartbeats 13" in (answer.remark or "")
        assert len(ns.server.sessions) == 1


@virtual_time
async def test_ns20_the_connection_of_an_expired_broker_is_closed_by_the_server(tmp_path: Path) -> None:
    async with (
        running(tmp_path, VirtualClock(), serverChannelMaxIdleTimeSeconds="1000") as ns,
        BrokerPeer(ns) as broker,
    ):
        await broker.register(heartbeat_timeout_ms=20_000)
        (session,) = broker.client.sessions()
        await asyncio.sleep(24)  # virtual
        assert session.is_open
        await asyncio.sleep(2)  # virtual
        assert not session.is_open
        assert ns.namesrv.tables.live == {}


@pytest.mark.feature("F020")
@virtual_time
async def test_a_broker_that_registers_every_30_s_stays_for_ever(tmp_path: Path) -> None:
    async with running(tmp_path, VirtualClock()) as ns, BrokerPeer(ns) as broker:
        heard = []
        for _ in range(20):
            await broker.register()
            heard.append(ns.namesrv.tables.live["C1", broker.address].heard_ms)
            await asyncio.sleep(30)  # virtual
        assert {later - earlier for earlier, later in itertools.pairwise(heard)} == {30_000}
        assert (await ns.look_up("T1")).code == 0


@virtual_time
async def test_904_heartbeats_alone_keep_a_broker(tmp_path: Path) -> None:
    async with running(tmp_path, VirtualClock()) as ns, BrokerPeer(ns) as broker:
        await broker.register()
        for _ in range(10):
            await asyncio.sleep(30)  # virtual
            await broker.ask(904, {"clusterName": "C1", "brokerAddr": broker.address, "brokerName": "broker-a"})
        assert (await ns.look_up("T1")).code == 0


@virtual_time
async def test_ns7_a_connection_without_traffic_is_closed_after_120_s_and_its_broker_goes_with_it(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, VirtualClock(), scanNotActiveBrokerInterval="1000000") as ns, BrokerPeer(ns) as broker:
        await broker.register(heartbeat_timeout_ms=10_000_000)
        await asyncio.sleep(119)  # virtual
        assert len(ns.namesrv.tables.live) == 1
        await asyncio.sleep(3)  # virtual
        assert ns.namesrv.tables.live == {}


@virtual_time
async def test_a_jump_of_the_wall_clock_expires_nobody(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with running(tmp_path, clock) as ns, BrokerPeer(ns) as broker:
        await broker.register()
        clock.set_wall(clock.now_ms() + 3_600_000)
        await asyncio.sleep(16)  # virtual
        assert (await ns.look_up("T1")).code == 0


@pytest.mark.feature("F038", "F037")
@virtual_time
async def test_ns4_the_kv_configuration_is_printed_after_1_min_and_then_every_10(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bolide.namesrv.kv")
    clock = VirtualClock()
    printed_s: list[int] = []

    def note_time(record: logging.LogRecord) -> bool:
        if record.getMessage() == "kv entry namespace='ns' key='k' value='v'":
            printed_s.append(round(clock.monotonic_s()))
        return True

    caplog.handler.addFilter(note_time)
    async with running(tmp_path, clock, scanNotActiveBrokerInterval="1000000") as ns:
        await ns.ask(100, {"namespace": "ns", "key": "k", "value": "v"})
        await asyncio.sleep(1300)  # virtual
    assert printed_s == [60, 660, 1260]


@virtual_time
async def test_a_name_server_told_to_wait_denies_no_topic_in_its_first_45_s(tmp_path: Path) -> None:
    async with running(tmp_path, VirtualClock(), needWaitForService="true") as ns, BrokerPeer(ns) as broker:
        answer = await ns.look_up("T1")
        assert answer.code == 1
        assert "name server not ready" in (answer.remark or "")
        await broker.register()
        await asyncio.sleep(44)  # virtual
        assert (await ns.look_up("T1")).code == 1
        assert (await ns.ask(106)).code == 0
        await asyncio.sleep(2)  # virtual
        assert (await ns.look_up("T1")).code == 0
        assert (await ns.look_up("T9")).code == 17
