"""The master's side, against peers that speak raw bytes: what they are sent, and what they cannot do."""

import asyncio
import logging
import random
import socket
from pathlib import Path
from typing import Any

import pytest

from bolide.errors import ConfigError
from bolide.ha.acks import Count
from bolide.ha.frames import Epoch, Greeting, Head, greeting, head, plain_head, plain_report, report, welcome
from bolide.ha.leading import first_offset
from tests.ha.brokers import FILE_SIZE, Peer, broker, connected, taken, turns
from tests.remoting.loops import both_loops, eventually, virtual_time, within

HEARTBEAT_SIZE = 12


def test_a_slave_begins_where_its_log_ends_and_an_empty_one_at_a_file() -> None:
    assert first_offset(5_000, 0, 50_000, FILE_SIZE, begins_at_last_file=True) == 5_000
    assert first_offset(0, FILE_SIZE, 50_000, FILE_SIZE, begins_at_last_file=True) == 3 * FILE_SIZE
    assert first_offset(0, FILE_SIZE, 50_000, FILE_SIZE, begins_at_last_file=False) == FILE_SIZE
    assert first_offset(0, 0, 0, FILE_SIZE, begins_at_last_file=True) == 0


@pytest.mark.feature("F192")
@virtual_time
async def test_the_master_listens_on_a_port_of_its_own_and_says_if_it_cannot(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken_port:
        port = taken_port.getsockname()[1]
        with pytest.raises(BaseExceptionGroup) as caught:
            async with broker(tmp_path / "a", ha={"port": port}):
                pass
        problem = caught.value.exceptions[0]
        assert isinstance(problem, ConfigError)
        assert (problem.key, problem.value) == ("haListenPort", port)
    async with broker(tmp_path / "b", ha={"port": port}) as master, connected(f"127.0.0.1:{port}"):
        assert master.replication.port == port


@virtual_time
async def test_nothing_is_sent_before_the_first_report(tmp_path: Path) -> None:
    async with broker(tmp_path) as master, connected(master.address) as peer:
        master.put(10)
        with pytest.raises(TimeoutError):
            await within(15, peer.hear(1))
        assert master.replication.acks.ends == []


@pytest.mark.feature("F194")
@both_loops
async def test_a_slave_is_sent_the_log_from_its_report_on_and_again_after_a_reconnect(tmp_path: Path) -> None:
    async with broker(tmp_path) as master:
        end = master.put(20)
        for start in (1, 219, 875, end - 1):
            async with connected(master.address) as peer:
                peer.say(plain_report(start))
                _, log = await taken(peer, start, end)
                assert log == master.log(start)


@virtual_time
async def test_an_empty_slave_gets_the_last_file_only(tmp_path: Path) -> None:
    async with broker(tmp_path) as master, connected(master.address) as peer:
        end = master.put(300)
        peer.say(plain_report(0))
        heads, log = await taken(peer, end - end % FILE_SIZE, end)
        assert heads[0].offset == 3 * FILE_SIZE
        assert log == master.log(3 * FILE_SIZE)


@virtual_time
async def test_frames_cross_no_end_of_a_file_and_padding_is_sent_too(tmp_path: Path) -> None:
    async with broker(tmp_path) as master, connected(master.address) as peer:
        end = master.put(300, size=700)
        peer.say(plain_report(1))
        heads, log = await taken(peer, 1, end)
        assert log == master.log(1)
        assert all(each.offset % FILE_SIZE + each.size <= FILE_SIZE for each in heads)
        assert {each.offset % FILE_SIZE for each in heads} == {0, 1}


@virtual_time
async def test_frames_are_no_larger_than_asked_for(tmp_path: Path) -> None:
    async with broker(tmp_path, ha={"frame_size_max": 4_096}) as master, connected(master.address) as peer:
        end = master.put(1, size=10_000)
        peer.say(plain_report(0))
        heads, _ = await taken(peer, 0, end)
        assert [each.size for each in heads] == [4_096, 4_096, end - 8_192]


@virtual_time
async def test_appends_of_one_turn_are_one_frame(tmp_path: Path) -> None:
    async with broker(tmp_path) as master, connected(master.address) as peer:
        peer.say(plain_report(0))
        await turns(lambda: bool(master.replication.acks.ends))
        end = master.put(50)
        heads, _ = await taken(peer, 0, end)
        assert [each.size for each in heads] == [end]


@virtual_time
async def test_a_push_that_reaches_the_end_of_the_log_looks_at_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker(tmp_path) as master, connected(master.address) as peer:
        end = master.put(1)
        peer.say(plain_report(end))
        await eventually(lambda: master.replication.acks.ends == [end])
        looked: list[int] = []
        log_view = master.store.log_view

        def counted(offset: int, size_max: int) -> memoryview | None:
            looked.append(offset)
            return log_view(offset, size_max)

        monkeypatch.setattr(master.store, "log_view", counted)
        more = master.put(10)
        _, log = await taken(peer, end, more)
        assert looked == [end]
        assert log == master.log(end)


@virtual_time
async def test_an_idle_line_has_a_heartbeat_every_five_seconds(tmp_path: Path) -> None:
    async with broker(tmp_path) as master, connected(master.address) as peer:
        end = master.put(4)
        peer.say(plain_report(end))
        loop = asyncio.get_running_loop()
        for second in (5, 10, 15):
            assert await peer.hear(HEARTBEAT_SIZE) == plain_head(Head(end, 0))
            assert loop.time() == pytest.approx(second, abs=0.1)
            peer.say(plain_report(end))


@virtual_time
async def test_a_slave_that_says_nothing_for_twenty_seconds_is_dropped(tmp_path: Path) -> None:
    async with broker(tmp_path) as master, connected(master.address) as silent, connected(master.address) as stranger:
        silent.say(plain_report(0))
        stranger.say(b"\0\0\0")  # no report: bytes that never become one are silence too
        await within(25, silent.is_ended())
        await within(25, stranger.is_ended())
        assert asyncio.get_running_loop().time() == pytest.approx(20, abs=0.5)
        assert master.replication.slaves == []


@pytest.mark.feature("F199")
@both_loops
async def test_a_slave_that_ends_its_stream_is_dropped_at_once(tmp_path: Path) -> None:
    async with broker(tmp_path) as master, connected(master.address) as peer:
        peer.say(plain_report(0))
        await eventually(lambda: len(master.replication.acks.ends) == 1)
        peer.writer.write_eof()  # its other half stays open
        await eventually(lambda: master.replication.slaves == [])
        assert master.replication.acks.ends == []


@pytest.mark.feature("F196")
@both_loops
async def test_each_slave_has_a_connection_of_its_own(tmp_path: Path) -> None:
    async with broker(tmp_path) as master, connected(master.address) as one, connected(master.address) as other:
        end = master.put(5)
        one.say(plain_report(0))
        other.say(plain_report(end))
        _, log = await taken(one, 0, end)
        assert log == master.log()
        await eventually(lambda: [each.is_in_transfer for each in master.replication.slaves] == [True, True])
        assert sorted(each.acked_end for each in master.replication.slaves) == [0, end]


@pytest.mark.parametrize("reported", [1, 10**15, (1 << 63) - 1, -1, -(1 << 63)])
@virtual_time
async def test_a_slave_that_has_more_than_we_is_refused_and_counts_for_nothing(
    tmp_path: Path, reported: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with broker(tmp_path) as master:
        end = master.put(5)
        master.replication.acks.policy = Count(1)
        waiter = master.replication.acks.wait(end)
        async with connected(master.address) as peer:
            peer.say(plain_report(reported if reported != 1 else end + 1))
            assert await peer.is_ended()
        assert not waiter.done()
        assert (master.replication.acks.reached, master.replication.slaves) == (0, [])
    assert "log" in caplog.text
    assert str(end) in caplog.text


@virtual_time
async def test_a_later_report_of_more_than_we_have_is_refused_too(tmp_path: Path) -> None:
    async with broker(tmp_path) as master, connected(master.address) as peer:
        end = master.put(5)
        master.replication.acks.policy = Count(1)
        waiter = master.replication.acks.wait(end)
        peer.say(plain_report(0) + plain_report(1 << 50))
        assert await peer.is_ended()
        assert not waiter.done()
        assert master.replication.acks.reached == 0


@virtual_time
async def test_a_slave_below_our_first_file_is_told_off_and_the_operator_told_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with broker(tmp_path, log_size_max=FILE_SIZE) as master, connected(master.address) as peer:
        master.put(400)
        master.store.flush()
        master.store.clean()
        assert master.store.log_start > 875
        peer.say(plain_report(875))
        assert await peer.is_ended()
        assert master.replication.slaves == []
    assert "replace its store by a copy of this one" in caplog.text


@virtual_time
async def test_a_slave_that_is_too_slow_for_retention_is_told_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    slow = {"is_rate_limited": True, "bytes_per_s_max": 1_024}
    async with broker(tmp_path, ha=slow, log_size_max=FILE_SIZE) as master, connected(master.address) as peer:
        master.put(400)
        master.store.flush()
        peer.say(plain_report(100))
        await turns(lambda: bool(master.replication.acks.ends))
        master.store.clean()
        assert await peer.is_ended()
    assert "Raise fileReservedTime" in caplog.text


@virtual_time
async def test_a_rate_that_was_asked_for_is_kept(tmp_path: Path) -> None:
    limit = {"is_rate_limited": True, "bytes_per_s_max": 2_000, "frame_size_max": 1_024}
    async with broker(tmp_path, ha=limit) as master, connected(master.address) as peer:
        end = master.put(60)
        peer.say(plain_report(0))
        await taken(peer, 0, end)
        assert asyncio.get_running_loop().time() >= end / 2_048 - 1


@both_loops
async def test_bytes_of_chance_harm_nobody_and_count_for_nothing(tmp_path: Path) -> None:
    chance = random.Random(3015)
    async with broker(tmp_path) as master:
        end = master.put(5)
        master.replication.acks.policy = Count(1)
        waiter = master.replication.acks.wait(end)
        for _ in range(20):
            async with connected(master.address) as peer:
                peer.say(b"\x7f" + chance.randbytes(chance.randrange(8, 3_000)))
                assert await peer.is_ended()
        for text in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"):
            async with connected(master.address) as peer:
                peer.say(text)
                assert await peer.is_ended()
        assert not waiter.done()
        async with connected(master.address) as slave:
            slave.say(plain_report(end))
            await within(30, waiter)


@virtual_time
async def test_more_connections_than_allowed_are_turned_away(tmp_path: Path) -> None:
    async with broker(tmp_path, ha={"links_max": 1}) as master, connected(master.address) as first:
        first.say(plain_report(0))
        await turns(lambda: len(master.replication.slaves) == 1)
        async with connected(master.address) as second:
            assert await second.is_ended()
        assert len(master.replication.slaves) == 1


@both_loops
async def test_a_slave_that_reads_nothing_keeps_nobody_waiting_and_costs_no_memory(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"segment_size": 1 << 22, "body_size_max": 1 << 20}
    async with broker(tmp_path, **settings) as master, connected(master.address) as stuck:
        stuck.writer.transport.pause_reading()  # type: ignore[attr-defined]
        stuck.say(plain_report(0))
        await eventually(lambda: len(master.replication.acks.ends) == 1)
        start = master.store.log_end
        for _ in range(40):
            master.put(1, size=1_000_000)
            await asyncio.sleep(0)
        end = master.store.log_end
        async with connected(master.address) as healthy:
            healthy.say(plain_report(end - end % (1 << 22)))
            _, log = await taken(healthy, end - end % (1 << 22), end)
            assert log == master.log(end - end % (1 << 22))
        (status,) = [each for each in master.replication.slaves if each.sent_end < end]
        assert start <= status.sent_end < start + (16 << 20), "what the system's buffers hold, and one frame"


@virtual_time
async def test_a_slave_that_takes_nothing_for_twenty_seconds_is_dropped_though_it_reports(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"segment_size": 1 << 22, "body_size_max": 1 << 20}
    async with broker(tmp_path, **settings) as master, connected(master.address) as stuck:
        stuck.writer.transport.pause_reading()  # type: ignore[attr-defined]
        stuck.say(plain_report(0))
        await turns(lambda: len(master.replication.acks.ends) == 1)
        for _ in range(40):
            master.put(1, size=1_000_000)
            await asyncio.sleep(0)
        for _ in range(7):
            await asyncio.sleep(4)  # virtual
            stuck.say(plain_report(0))
        assert master.replication.slaves == []


@virtual_time
async def test_the_status_of_a_slave_tells_its_lag(tmp_path: Path) -> None:
    async with broker(tmp_path) as master, connected(master.address) as peer:
        end = master.put(3)
        peer.say(plain_report(0))
        await turns(lambda: len(master.replication.acks.ends) == 1)
        await asyncio.sleep(2)  # virtual
        (behind,) = master.replication.slaves
        assert (behind.acked_end, behind.sent_end, behind.lag_size, behind.lag_ms) == (0, end, end, 2_000)
        peer.say(plain_report(end))
        await turns(lambda: master.replication.slaves[0].acked_end == end)
        (level,) = master.replication.slaves
        assert (level.lag_size, level.lag_ms, level.is_in_transfer, level.slave_id) == (0, 0, True, None)
        assert level.caught_up_s == pytest.approx(2, abs=0.1)


@virtual_time
async def test_a_slave_that_is_a_report_behind_all_the_time_was_caught_up_a_moment_ago(tmp_path: Path) -> None:
    async with broker(tmp_path) as master, connected(master.address) as peer:
        peer.say(plain_report(0))
        await turns(lambda: len(master.replication.acks.ends) == 1)
        before = 0
        for _ in range(30):
            end = master.put(1)
            await asyncio.sleep(1)  # virtual
            peer.say(plain_report(before))
            before = end
        await asyncio.sleep(0.1)  # virtual
        assert master.replication.slaves[0].caught_up_s >= 25


# AutoSwitch


async def greeted(peer: Peer, slave_id: int = 2, begins_at_last_file: bool = False) -> bytes:
    peer.say(greeting(Greeting(slave_id, begins_at_last_file)))
    opening = await peer.hear(20)
    return opening + await peer.hear(int.from_bytes(opening[4:8], "big"))


@virtual_time
async def test_a_slave_is_welcomed_with_all_epochs_and_then_sent_the_log(tmp_path: Path) -> None:
    async with broker(tmp_path, epochs=[(1, 0)]) as master, connected(master.address) as peer:
        end = master.put(3)
        assert await greeted(peer) == welcome(end, [Epoch(1, 0)])
        peer.say(report(0))
        confirmed = master.store.visible_end
        assert await peer.hear(36) == head(Head(0, end, 1, 0, confirmed))
        assert await peer.hear(end) == master.log()
        assert master.replication.slaves[0].slave_id == 2


@virtual_time
async def test_an_empty_slave_gets_the_first_file_or_the_last_if_it_asks(tmp_path: Path) -> None:
    async with broker(tmp_path, epochs=[(1, 0)]) as master:
        master.put(300)
        for begins_at_last_file, offset in ((False, 0), (True, 3 * FILE_SIZE)):
            async with connected(master.address) as peer:
                await greeted(peer, begins_at_last_file=begins_at_last_file)
                peer.say(report(0))
                assert int.from_bytes((await peer.hear(36))[8:16], "big") == offset


@virtual_time
async def test_frames_cross_no_end_of_an_epoch_and_have_the_label_of_their_own(tmp_path: Path) -> None:
    async with broker(tmp_path, epochs=[(1, 0)]) as master, connected(master.address) as peer:
        assert master.epochs is not None
        first = master.put(3)
        master.epochs.record(2, first)  # nothing was written in it
        master.epochs.record(3, first)
        second = master.put(3)
        master.epochs.record(4, second)
        end = master.put(3)
        await greeted(peer)
        peer.say(report(0))
        found: list[tuple[int, int, int, int]] = []
        log = b""
        while len(log) < end:
            raw = await peer.hear(36)
            size, offset, epoch = (int.from_bytes(raw[a:b], "big") for a, b in ((4, 8), (8, 16), (16, 20)))
            found.append((offset, size, epoch, int.from_bytes(raw[20:28], "big")))
            log += await peer.hear(size)
        assert found == [(0, first, 1, 0), (first, second - first, 3, first), (second, end - second, 4, second)]
        assert log == master.log()


@virtual_time
async def test_a_log_from_before_the_first_epoch_is_sent_up_to_its_start(tmp_path: Path) -> None:
    async with broker(tmp_path, epochs=[]) as master:
        assert master.epochs is not None
        start = master.put(3)
        master.epochs.record(7, start)
        end = master.put(3)
        async with connected(master.address) as peer:
            await greeted(peer)
            peer.say(report(0))
            raw = await peer.hear(36)
            assert raw == head(Head(0, start, 7, start, master.store.visible_end))
            await peer.hear(start)
            assert await peer.hear(36) == head(Head(start, end - start, 7, start, master.store.visible_end))


@pytest.mark.parametrize(
    "said",
    [
        report(0),  # before the handshake
        plain_report(0),
        greeting(Greeting(2)) + greeting(Greeting(3)),
        greeting(Greeting(2)) + report(1 << 50),
        greeting(Greeting(2)) + report(-1),
        (3).to_bytes(4, "big") + bytes(12),
    ],
)
@virtual_time
async def test_a_slave_that_leaves_the_order_of_the_stream_is_dropped(tmp_path: Path, said: bytes) -> None:
    async with broker(tmp_path, epochs=[(1, 0)]) as master, connected(master.address) as peer:
        peer.say(said)
        assert await within(1, peer.is_ended())
        assert master.replication.acks.ends == []


@virtual_time
async def test_a_handshake_that_comes_again_is_answered_once(tmp_path: Path) -> None:
    async with broker(tmp_path, epochs=[(1, 0)]) as master, connected(master.address) as peer:
        await greeted(peer)
        peer.say(greeting(Greeting(2)) + report(0))
        end = master.put(1)
        raw = await peer.hear(36)
        assert (raw[:4], int.from_bytes(raw[4:8], "big")) == (b"\0\0\0\2", end)


@virtual_time
async def test_the_newer_connection_of_a_slave_replaces_the_older(tmp_path: Path) -> None:
    async with (
        broker(tmp_path, epochs=[(1, 0)]) as master,
        connected(master.address) as old,
        connected(master.address) as new,
    ):
        for peer in (old, new):
            await greeted(peer, slave_id=5)
            peer.say(report(0))
            await turns(lambda: master.replication.acks.ends == [0])
        assert await within(1, old.is_ended())
        assert [each.slave_id for each in master.replication.slaves] == [5]


@virtual_time
async def test_a_slave_that_has_nothing_coming_hears_at_once_that_more_is_confirmed(tmp_path: Path) -> None:
    async with broker(tmp_path, epochs=[(1, 0)]) as master, connected(master.address) as peer:
        master.store.confirm(0)
        end = master.put(1)
        await greeted(peer)
        peer.say(report(0))
        await peer.hear(36 + end)
        master.store.confirm(end)
        master.replication.nudge()
        assert await within(0.1, peer.hear(36)) == head(Head(end, 0, 1, 0, end))
        master.replication.nudge()
        with pytest.raises(TimeoutError):
            await within(1, peer.hear(1))  # it knows


@virtual_time
async def test_a_broker_that_does_not_lead_turns_slaves_away(tmp_path: Path) -> None:
    async with broker(tmp_path, epochs=[(1, 0)]) as master:
        async with connected(master.address) as peer:
            await greeted(peer)
            master.replication.follow(None)
            assert await within(1, peer.is_ended())
        async with connected(master.address) as peer:
            assert await within(1, peer.is_ended())


@virtual_time
async def test_a_change_of_roles_closes_everything_and_fails_all_who_wait(tmp_path: Path) -> None:
    async with broker(tmp_path) as master, connected(master.address) as peer:
        end = master.put(1)
        peer.say(plain_report(0))
        await turns(lambda: len(master.replication.acks.ends) == 1)
        master.replication.acks.policy = Count(1)
        waiter = master.replication.acks.wait(end)
        await master.replication.pause()
        assert waiter.cancelled()
        assert await within(1, peer.is_ended())
        assert master.replication.slaves == []
        async with connected(master.address) as early:
            assert await within(1, early.is_ended())
        master.replication.lead()
        async with connected(master.address) as late:
            late.say(plain_report(0))
            await turns(lambda: len(master.replication.acks.ends) == 1)
