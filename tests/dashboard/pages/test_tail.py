"""The live tail: so many rows a second, the others counted; filters; and it says when it ends."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from bolide import Admin, Producer
from bolide.admin.searching import Place
from bolide.dashboard.pages.messages import line_of
from bolide.dashboard.pages.tail import DRAWN_A_SECOND, LASTS_S, _Gathered
from bolide.dashboard.streams import _until
from bolide.model.queue import MessageQueue
from bolide.testing.blocking import Cluster
from tests.dashboard.site import Site


@contextmanager
def sending(namesrv: str, topic: str) -> Iterator[None]:
    """Somebody sends numbers, every third for `us`."""
    stop = Event()

    def send() -> None:
        with Producer("tailing", namesrv) as producer:
            number = 0
            while not stop.wait(0.01):
                producer.send(topic, b'{"number": %d}' % number, tags="eu" if number % 3 else "us")
                number += 1

    sender = Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        stop.set()
        sender.join()


def streamed(pages: Site, path: str) -> str:
    with pages.client.stream("GET", path) as answer:
        return "".join(answer.iter_text())


@pytest.mark.parametrize(
    ("fields", "wanted", "unwanted"),
    [
        ("tag=us", ">us<", ">eu<"),
        ("sql=TAGS%3D%27eu%27", ">eu<", ">us<"),
        ("text=%24.number%3D3", "{&#34;number&#34;: 3}", ">eu<"),
    ],
)
def test_what_comes_is_filtered_by_tag_sql_and_text(
    rocket: Cluster, pages: Site, monkeypatch: pytest.MonkeyPatch, fields: str, wanted: str, unwanted: str
) -> None:
    monkeypatch.setattr("bolide.dashboard.pages.tail.LASTS_S", 1.0)
    monkeypatch.setattr("bolide.dashboard.pages.tail._DRAW_INTERVAL_S", 0.05)
    topic = f"Tailed{fields.partition('=')[0]}"
    rocket.create_topic(topic, 1)
    seen = ""
    for _ in range(20):
        with sending(rocket.namesrv, topic):
            seen += streamed(pages, f"/topics/{topic}/tail/events?{fields}")
        if wanted in seen:
            break
    assert wanted in seen
    assert unwanted not in seen


def test_an_expression_that_no_broker_takes_ends_the_stream_with_its_words(rocket: Cluster, pages: Site) -> None:
    rocket.create_topic("TailedBadly", 1)
    assert "event: done" in streamed(pages, "/topics/TailedBadly/tail/events?sql=%3D%3D")


def test_fifty_rows_a_second_are_drawn_and_the_rest_is_counted(rocket: Cluster, pages: Site) -> None:
    rocket.create_topic("Flooded", 1)
    with Producer("flooding", rocket.namesrv) as producer:
        sent = producer.send("Flooded", b"x")
    with Admin(rocket.namesrv) as admin:
        message = admin.messages_by_id("Flooded", sent.msg_id)[0]
    line = line_of(Place(MessageQueue("Flooded", "b", 0), message), hides_bodies=False)
    gathering = _Gathered([])
    for _ in range(DRAWN_A_SECOND + 262):
        gathering.take(line)
    assert (len(gathering.lines), gathering.came, gathering.skipped) == (50, 312, 262)
    template = pages.client.app.state.dashboard.templates.get_template("tail_rows.html")  # type: ignore[attr-defined]
    text = template.render(lines=gathering.lines, total=gathering.came, skipped=gathering.skipped, hides_bodies=False)
    assert "312 came, 262 not drawn" in text
    assert text.count("<tr") == 50


def test_a_stream_ends_at_its_limit_and_says_so() -> None:
    async def endless() -> AsyncIterator[str]:
        yield "data: x\n\n"
        await asyncio.Event().wait()

    async def scene() -> list[bytes]:
        return [event async for event in _until(endless(), 0.05)]

    assert LASTS_S == 30 * 60
    assert asyncio.run(scene())[-1] == b"event: done\ndata: ended\n\n"
