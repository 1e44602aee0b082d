"""Numbers of popped messages: what is out, what was acknowledged or put off, what came back, and what is given up."""

import asyncio
from pathlib import Path

from bolide.proxy import messages as m
from bolide.testing import VirtualClock
from tests.broker.metering import PROM, Scraped, scrape
from tests.proxy.peer import connected
from tests.proxy.serving import (
    Serving,
    ack,
    consumer_settings,
    message,
    receive,
    resource,
    send,
    serving,
    tell_settings,
)
from tests.remoting.loops import virtual_time

GROUP = {"consumer_group": "G", "topic": "Normal"}
PUT, BACK = "rocketmq_pop_revive_in_message_total", "rocketmq_pop_revive_retry_messages_total"
OUT, DEAD = "bolide_pop_checkpoints", "rocketmq_send_to_dlq_messages_total"


async def page_of(served: Serving) -> Scraped:
    return await scrape(served.broker)


@virtual_time
async def test_what_is_popped_is_counted_while_it_is_out_and_when_it_is_done_or_comes_back(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock(), PROM) as served, connected(served.port) as peer:
        served.add_topic("Normal", queues=1)
        for number in range(3):
            await send(peer, message("Normal", b"%d" % number))
        page = await page_of(served)
        assert [page.value(name) for name in (PUT, BACK, OUT)] == [None, None, 0]
        popped = (await receive(peer, "Normal", "G")).messages
        assert len(popped) == 3
        page = await page_of(served)
        assert (page.value(PUT, revive_message_type="CK", put_status="PUT_OK", **GROUP), page.value(OUT)) == (1, 1)
        assert (await ack(peer, "Normal", "G", popped[0])).status.code == m.Code.OK
        later = m.ChangeInvisibleDurationRequest(
            group=resource("G"),
            topic=resource("Normal"),
            receipt_handle=popped[1].system_properties.receipt_handle,
            message_id=popped[1].system_properties.message_id,
        )
        later.invisible_duration.seconds = 3_000
        answer = await peer.call("ChangeInvisibleDuration", later, m.ChangeInvisibleDurationResponse)
        assert answer.status.code == m.Code.OK
        # One is done; one is out under a record of its own, which settles it in the first; one is still in the first.
        page = await page_of(served)
        put = {kind: page.value(PUT, revive_message_type=kind, **GROUP) for kind in ("CK", "ACK")}
        assert (put, page.value(OUT)) == ({"CK": 2, "ACK": 2}, 2)
        await asyncio.sleep(60)  # virtual
        page = await page_of(served)
        assert (page.value(BACK, put_status="PUT_OK", **GROUP), page.value(OUT)) == (1, 1)
        assert page.value(DEAD) is None


@virtual_time
async def test_a_popped_message_that_is_given_up_is_a_dead_letter_and_did_not_come_back(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock(), PROM) as served, connected(served.port) as peer:
        served.add_group("G", retries=0)
        await send(peer, message("Normal"))
        assert len((await receive(peer, "Normal", "G")).messages) == 1
        await asyncio.sleep(60)  # virtual
        page = await page_of(served)
        assert (page.value(DEAD, **GROUP), page.value(BACK), page.value(OUT)) == (1, None, 0)


@virtual_time
async def test_the_older_exporters_names_count_pops_and_retries_too_each_series_once(tmp_path: Path) -> None:
    names = PROM | {"bolideMetricsNames": "exporter"}
    async with serving(tmp_path, VirtualClock(), names) as served, connected(served.port) as peer:
        served.add_topic("Normal", queues=1)
        served.add_group("G", retries=1)
        await tell_settings(peer, consumer_settings("G", "Normal"))
        for number in range(4):
            await send(peer, message("Normal", b"%d" % number))
        popped = (await receive(peer, "Normal", "G", batch_size=3)).messages
        await ack(peer, "Normal", "G", popped[0])
        await asyncio.sleep(40)  # virtual: two come back
        page = await page_of(served)
        of_group = {"topic": "Normal", "group": "G", "broker": "broker-a"}
        assert 0 < (page.value("rocketmq_producer_tps", topic="Normal") or 0) <= 4
        assert 0 < (page.value("rocketmq_broker_qps") or 0) <= 3
        assert 0 < (page.value("rocketmq_consumer_tps", **of_group) or 0) <= 3
        assert page.value("rocketmq_consumer_offset", **of_group) == 3
        assert 39_000 <= (page.value("rocketmq_group_get_latency_by_storetime", **of_group) or 0) <= 60_000
        assert page.value("rocketmq_group_diff", topic="Normal", group="G") == 1
        assert page.value("rocketmq_topic_retry_offset") == 2
        assert page.value("rocketmq_group_retrydiff", topic="Normal", group="G") == 2
        assert page.value("rocketmq_group_count", group="G") == 1
        assert page.value("rocketmq_topic_dlq_offset") is None
        assert len((await receive(peer, "Normal", "G")).messages) == 3
        await asyncio.sleep(40)  # virtual: two have failed for good, one comes back
        page = await page_of(served)
        assert page.value("rocketmq_topic_dlq_offset") == 2
        assert page.value("rocketmq_group_retrydiff", topic="Normal", group="G") == 1


@virtual_time
async def test_what_came_back_and_is_popped_again_is_counted_under_the_topic_it_was_sent_to(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock(), PROM) as served, connected(served.port) as peer:
        served.add_topic("Normal", queues=1)
        await send(peer, message("Normal"))
        assert len((await receive(peer, "Normal", "G")).messages) == 1
        await asyncio.sleep(60)  # virtual
        again = (await receive(peer, "Normal", "G")).messages
        assert len(again) == 1
        assert (await ack(peer, "Normal", "G", again[0])).status.code == m.Code.OK
        page = await page_of(served)
        assert {labels["topic"] for name, labels, _ in page.series if name in (PUT, BACK)} == {"Normal"}
        assert page.value(PUT, revive_message_type="CK", **GROUP) == 2
        assert page.value(BACK, **GROUP) == 1
