"""Times of gRPC calls on the pages of a broker and of a proxy: each call once, under its method and how it ended."""

from pathlib import Path

import pytest

from bolide.metrics.values import Histogram
from bolide.proxy import messages as m
from bolide.proxy.call_times import CallTimes
from bolide.proxy.calls import GrpcStatus
from bolide.testing import VirtualClock
from tests.broker.metering import PROM, scrape
from tests.proxy.peer import connected
from tests.proxy.serving import message, receive_request, send, serving
from tests.remoting.loops import eventually, virtual_time

NAME = "bolide_grpc_call_latency_milliseconds"


def ended_count(times: CallTimes) -> int:
    ((_, samples),) = times.families()
    counts = [value.counts for _, value in filter(None, samples) if isinstance(value, Histogram)]
    return sum(map(sum, counts))


@virtual_time
@pytest.mark.feature("X20")
async def test_each_call_is_timed_under_its_method_until_its_answer_is_written(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock(), PROM) as served, connected(served.port) as peer:
        for _ in range(3):
            await send(peer, message("Normal"))
        wait = receive_request("Fifo", "G", long_polling_timeout={"seconds": 5})
        await peer.stream("ReceiveMessage", wait, m.ReceiveMessageResponse, grpc_timeout="60S")
        page = await scrape(served.broker)
        sends = {"protocol_type": "grpc", "method": "SendMessage", "grpc_status": "ok", "node_id": "broker-a"}
        assert page.value(f"{NAME}_count", **sends) == 3
        assert page.value(f"{NAME}_bucket", le="1.0", **sends) == 3
        assert page.value(f"{NAME}_count", method="ReceiveMessage", grpc_status="ok") == 1
        assert 4_000 <= (page.value(f"{NAME}_sum", method="ReceiveMessage") or 0) <= 6_000


@virtual_time
async def test_calls_that_are_refused_left_or_cut_off_are_told_apart_and_strange_paths_are_one(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock(), PROM) as served:
        async with connected(served.port) as peer:
            for path in ("/some/Path", "/another/Path"):
                call = peer.open("", m.Resource(), path=path)
                await peer.until(lambda: call.is_over)  # noqa: B023 - waited for before the next one
            wait = receive_request("Fifo", "G", long_polling_timeout={"seconds": 30})
            left = peer.begin("ReceiveMessage")
            peer.send(left, bytes(5), ends=False)
            peer.frames.reset_stream(left)
            peer.flush()
            late = peer.open("ReceiveMessage", wait, grpc_timeout="1S")
            await peer.until(lambda: late.is_over)
            assert late.status in (GrpcStatus.OK, GrpcStatus.DEADLINE_EXCEEDED)
            peer.open("ReceiveMessage", wait, grpc_timeout="60S")
            await send(peer, message("Normal"))
        times = served.proxy.times
        assert times is not None
        await eventually(lambda: ended_count(times) == 6, 30)
        page = await scrape(served.broker)
        assert page.value(f"{NAME}_count", method="unknown", grpc_status="unimplemented") == 2
        assert page.value(f"{NAME}_count", method="ReceiveMessage", grpc_status="cancelled") == 2
        assert page.value(f"{NAME}_count", method="ReceiveMessage") == 3


@virtual_time
async def test_without_the_setting_no_call_is_timed(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        await send(peer, message("Normal"))
        assert served.proxy.times is None
