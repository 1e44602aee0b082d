"""Finding messages: by key, time, tag and text, with limits that are told; and one message from all sides."""

from collections.abc import Iterator

import pytest

from bolide import Admin, Consumer, Producer, Receipt
from bolide.admin.searching import SearchResult
from bolide.dashboard.pages.message import SHOWN_SIZE, body_of
from bolide.dashboard.pages.messages import cursor_text, parse_cursor
from bolide.model.queue import MessageQueue
from bolide.protocol.bodies import GroupConfig
from bolide.testing.blocking import Cluster
from tests.cli.inside import told
from tests.dashboard.site import Site, site


@pytest.fixture(scope="module")
def sent(rocket: Cluster) -> Iterator[list[Receipt]]:
    """120 messages in four queues; every tenth is tagged `tenth`."""
    rocket.create_topic("Searched", 4)
    with Producer("searched", rocket.namesrv) as producer:
        yield [
            producer.send("Searched", b'{"number": %d}' % n, keys=[f"key-{n}"], tags="other" if n % 10 else "tenth")
            for n in range(120)
        ]


def test_a_search_by_time_is_newest_first_and_goes_on_where_it_ended(pages: Site, sent: list[Receipt]) -> None:
    rows = pages.rows("/messages", topic="Searched")
    assert [row["id"] for row in rows] == [receipt.msg_id for receipt in reversed(sent)][:50]
    text = pages.text("/messages", topic="Searched")
    assert "all 4 queues" in text
    assert "50 shown, more there" in text
    found = [row["id"] for row in rows]
    while 'rel="next"' in text:
        href = text.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
        answer = pages.client.get(href + "&format=json")
        found += [row["id"] for row in answer.json()]
        text = pages.content(href).text
    assert found == [receipt.msg_id for receipt in reversed(sent)]
    assert "that is all there is" in text


def test_fields_combine_and_the_broker_filters_by_tag(pages: Site, sent: list[Receipt]) -> None:
    rows = pages.rows("/messages", topic="Searched", tag="tenth", text='"number": 5')
    assert [row["body"] for row in rows] == ['{"number": 50}']
    assert pages.rows("/messages", topic="Searched", key="key-7")[0]["id"] == sent[7].msg_id
    assert pages.rows("/messages", topic="Searched", key="key-7", tag="tenth") == []


def test_nothing_found_says_what_was_searched_and_offers_more(pages: Site, sent: list[Receipt]) -> None:
    text = pages.text("/messages", topic="Searched", text="no such words")
    assert "120 read, 0 shown" in text
    assert "a week" in text
    near = pages.text("/messages", topic="Serched")
    assert "There is no topic Serched" in near
    assert ">Searched<" in near


def test_a_wrong_time_is_told(pages: Site) -> None:
    answer = pages.client.get("/messages?topic=Searched&from=yesterday", headers={"HX-Request": "true"})
    assert "is no time" in answer.text


def test_one_message_is_what_the_command_says_by_each_of_its_ids_and_by_its_place(
    rocket: Cluster, pages: Site, sent: list[Receipt]
) -> None:
    receipt = sent[3]
    (expected,) = told(rocket.namesrv, "message", "get", receipt.msg_id, "-t", "Searched")
    place = {"queue": f"{receipt.queue.broker_name}:{receipt.queue.queue_id}", "offset": str(receipt.queue_offset)}
    assert pages.rows(f"/messages/{receipt.msg_id}", topic="Searched") == expected
    assert pages.rows(f"/messages/{receipt.msg_id}", topic="Searched", **place) == expected
    assert pages.rows(f"/messages/{receipt.offset_id}") == expected
    pages.wait_for("/topics", lambda text: ">Searched<" in text, q="Searched")
    assert pages.rows(f"/messages/{receipt.msg_id}") == expected, "no topic was named"


def test_an_unknown_id_says_whether_its_broker_is_known(pages: Site, sent: list[Receipt]) -> None:
    strange = pages.content("/messages/0A00000100002A9F00000000000000FF")
    assert strange.status_code == 404
    assert "none of this cluster" in strange.text
    late = sent[0].offset_id[:-8] + "7FFFFFFF"
    known = pages.content(f"/messages/{late}")
    assert known.status_code == 404
    assert "has no message at" in known.text


def test_the_tabs_tell_who_passed_it_why_there_is_no_trace_and_its_bytes(
    rocket: Cluster, pages: Site, sent: list[Receipt]
) -> None:
    with Admin(rocket.namesrv) as admin:
        for group, offset in (("passed-cg", 20), ("waiting-cg", 0)):
            admin.set_group(GroupConfig(group_name=group))
            admin.reset_group(group, "Searched", offset=offset)
    receipt = sent[3]
    path = f"/messages/{receipt.msg_id}"
    text = pages.text(path, topic="Searched", tab="consumption")
    assert ">passed<" in text
    assert ">not yet<" in text
    assert "Tracing is off" in pages.text(path, topic="Searched", tab="trace")
    assert receipt.offset_id in pages.text(path, topic="Searched", tab="raw")
    assert "7b 22 6e 75" in pages.text(path, topic="Searched", view="hex")


def test_a_traced_message_shows_each_step_on_one_axis(rocket: Cluster, pages: Site) -> None:
    rocket.create_topic("Traced", 1)
    with (
        Producer("traced", rocket.namesrv, trace=True) as producer,
        Consumer("traced-cg", "Traced", rocket.namesrv, trace=True) as consumer,
    ):
        receipt = producer.send("Traced", b"x")
        for message in consumer:
            message.ack()
            break

    def is_whole(text: str) -> bool:
        return text.count("<rect") == 2 and text.index("<td>sent") < text.index("<td>consumed")

    pages.wait_for(f"/messages/{receipt.msg_id}", is_whole, topic="Traced", tab="trace")
    (expected,) = told(rocket.namesrv, "trace", receipt.msg_id)
    assert pages.rows(f"/messages/{receipt.msg_id}", topic="Traced", tab="trace") == expected


def test_bodies_are_hidden_where_that_was_asked_for(rocket: Cluster, sent: list[Receipt]) -> None:
    with site(rocket.namesrv, hides_bodies=True) as pages:
        for path in ("/messages?topic=Searched", f"/messages/{sent[0].msg_id}?topic=Searched"):
            answer = pages.client.get(path, headers={"HX-Request": "true"})
            assert "&#34;number&#34;" not in answer.text
            assert "idden" in answer.text
            assert all(row["body"] is None for row in pages.client.get(f"{path}&format=json").json())
        assert pages.client.get(f"/body/{sent[0].msg_id}?topic=Searched").status_code == 403


def test_a_body_is_downloaded_whole_as_bytes(pages: Site, sent: list[Receipt]) -> None:
    answer = pages.client.get(f"/body/{sent[9].msg_id}?topic=Searched")
    assert answer.content == b'{"number": 9}'
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    ("body", "view"),
    [(b'{"a": 1}', "json"), (b"plain", "text"), (b"\x00\x01\x02\xff", "hex"), (b"{not json", "text"), (b"", "text")],
)
def test_a_viewer_is_chosen_by_the_bytes(body: bytes, view: str) -> None:
    assert body_of(body, "").view == view
    assert body_of(body, "hex").view == "hex"
    assert body_of(body, "nonsense").view == view


def test_a_large_body_is_cut_where_it_is_shown() -> None:
    body = body_of(b"x" * (SHOWN_SIZE + 1), "")
    assert body.is_cut
    assert len(body.text) == SHOWN_SIZE


def test_a_cursor_is_read_back_and_nonsense_is_not() -> None:
    cursor = {MessageQueue("T", "broker-a:1", 3): 41, MessageQueue("T", "b", 0): 7}
    assert parse_cursor("T", cursor_text(SearchResult(cursor=cursor))) == cursor
    assert parse_cursor("T", "x,1:2,:::,a:b:c") is None
