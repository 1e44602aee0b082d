"""Finding messages: by key, time, tag and text, with limits that are told; and one message from all sides."""

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from bolide import Admin, Consumer, Credentials, Handler, Producer, Receipt, listening
from bolide.admin.admin import ProgressRow
from bolide.admin.searching import SearchResult
from bolide.admin.traces import MessageTrace, Step
from bolide.dashboard.pages.message import SHOWN_SIZE, _consumption, body_of, rows_of
from bolide.dashboard.pages.messages import cursor_text, parse_cursor
from bolide.dashboard.walk import Snapshot, Walk
from bolide.model.queue import MessageQueue
from bolide.protocol.bodies import GroupConfig
from bolide.testing.blocking import Cluster
from tests.cli.inside import told
from tests.cli.processes import wait_for
from tests.dashboard.site import Site, sign_in, site

DEAD = SimpleNamespace(properties={"DLQ_REASON": "card declined"}, reconsume_times=16)


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


def test_a_message_is_found_by_its_id_with_and_without_its_topic_and_the_other_fields_still_count(
    pages: Site, sent: list[Receipt]
) -> None:
    for found in (sent[7].msg_id, sent[7].offset_id):
        assert [row["id"] for row in pages.rows("/messages", topic="Searched", id=found)] == [sent[7].msg_id]
    assert [row["id"] for row in pages.rows("/messages", id=sent[7].offset_id, **{"from": "-1s"})] == [sent[7].msg_id]
    assert pages.rows("/messages", topic="Searched", id=sent[7].msg_id, tag="tenth") == []
    assert pages.rows("/messages", topic="Searched", id=sent[7].msg_id, key="key-8") == []
    text = pages.text("/messages", topic="Searched", id="C" * 32)
    assert f"There is no message {'C' * 32}" in text
    assert 'name="key"' in text, "the form stays"


def test_by_key_too_tags_and_sql_are_those_of_a_subscription(pages: Site, sent: list[Receipt]) -> None:
    by_key = {"topic": "Searched", "key": "key-7"}
    for fields in ({"tag": "tenth || other"}, {"sql": "TAGS = 'other'"}, {"sql": "KEYS IS NOT NULL"}):
        assert [row["id"] for row in pages.rows("/messages", **by_key, **fields)] == [sent[7].msg_id], fields
    assert pages.rows("/messages", **by_key, sql="TAGS = 'tenth'") == []
    for fields in ({"sql": "TAGS ="}, {"sql": "TAGS = 'a'", "tag": "a"}, {"tag": "||"}):
        assert pages.content("/messages", **by_key, **fields).status_code == 502, fields


def test_a_path_into_json_is_compared_with_what_is_there(pages: Site, sent: list[Receipt]) -> None:
    assert [row["body"] for row in pages.rows("/messages", topic="Searched", text="$.number = 5")] == ['{"number": 5}']
    assert len(pages.rows("/messages", topic="Searched", tag="tenth", text="$.number")) == 12


def test_nothing_found_says_what_was_searched_and_offers_more(pages: Site, sent: list[Receipt]) -> None:
    text = pages.text("/messages", topic="Searched", text="no such words")
    assert "120 read, 0 shown" in text
    assert "a week" in text
    assert "The oldest message of the topic was stored" in text
    near = pages.wait_for("/messages", lambda text: ">Searched<" in text, topic="Serched")  # names are of the last walk
    assert "There is no topic Serched" in near


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
    with Producer("untraced", rocket.namesrv) as producer:
        other = producer.send("Traced", b"y")
    assert "No record of this message was found" in pages.text(f"/messages/{other.msg_id}", topic="Traced", tab="trace")


def test_where_there_is_no_trace_topic_that_is_told_apart(guarded: Cluster) -> None:
    root = Credentials(access_key="root", secret_key="root-secret")
    with Admin(guarded.namesrv, credentials=root) as admin:
        admin.create_topic("NeverTraced", 1)
    with Producer("never", guarded.namesrv, credentials=root) as producer:
        found = producer.send("NeverTraced", b"x").msg_id
    with site(guarded.namesrv) as pages:
        sign_in(pages, "root", "root-secret")
        assert "is missing" in pages.text(f"/messages/{found}", topic="NeverTraced", tab="trace")


def test_a_member_consumes_a_message_by_hand_and_how_it_went_is_told(rocket: Cluster, changing: Site) -> None:
    rocket.create_topic("Handed", 1)
    given: list[bytes] = []
    handler = Handler(function=lambda message: given.append(message.body), group="handed-cg", topics={"Handed": "*"})
    with Producer("handing", rocket.namesrv) as producer, listening(rocket.namesrv, [handler]):
        receipt = producer.send("Handed", b"take me")
        wait_for(lambda: given == [b"take me"])
        path = f"/messages/{receipt.msg_id}?topic=Handed&tab=consumption"
        page = changing.wait_for(path, lambda text: "Give it by hand" in text)
        member = re.search(r'<option value="(handed-cg\n[^"]+)"', html.unescape(page))
        assert member is not None
        done = changing.post(f"/messages/{receipt.offset_id}/give", topic="Handed", member=member[1])
        assert "CR_SUCCESS" in done.text
        wait_for(lambda: len(given) == 2)
    assert "consume directly" in changing.text("/settings")


def test_what_was_compressed_is_shown_as_it_was_sent(rocket: Cluster, pages: Site) -> None:
    rocket.create_topic("Squeezed", 1)
    body = b'{"words": "' + b"again and again " * 1000 + b'"}'
    with Producer("squeezing", rocket.namesrv) as producer:
        receipt = producer.send("Squeezed", body)
    (row,) = pages.rows("/messages", topic="Squeezed", text="$.words")
    assert row["body"] == body.decode()
    assert "again and again" in pages.text(f"/messages/{receipt.msg_id}", topic="Squeezed", view="text")
    assert pages.client.get(f"/body/{receipt.msg_id}?topic=Squeezed").content == body


def test_an_id_before_the_first_byte_of_its_broker_was_deleted_by_retention(
    pages: Site, sent: list[Receipt], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Walk.first

    async def later(self: Walk, limit_s: float = 10.0) -> Snapshot:
        seen = await whole(self, limit_s)
        looks = [replace(look, status={**look.status, "commitLogMinOffset": "1000000"}) for look in seen.brokers]
        return replace(seen, brokers=tuple(looks))

    monkeypatch.setattr(Walk, "first", later)
    answer = pages.content(f"/messages/{sent[0].offset_id[:-8]}000000FF")
    assert answer.status_code == 404
    assert "begins at 1000000, and this id says 255: deleted by retention" in answer.text


@pytest.mark.parametrize(
    ("retried", "died", "verdict"), [([], [], "passed"), (["x"], [], "retried"), (["x"], [DEAD], "dead")]
)
def test_what_a_group_made_of_a_message(retried: list[object], died: list[object], verdict: str) -> None:
    queue = MessageQueue("T", "b", 0)
    message = SimpleNamespace(topic="T", queue_id=0, queue_offset=5)
    told = _consumption("g", [ProgressRow(queue, 9, 7, 0)], message, "b", retried, died)  # type: ignore[arg-type]
    assert (told.verdict, told.is_bad) == (verdict, verdict == "dead")
    assert verdict != "dead" or "after 16 tries card declined" in told.detail


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


def test_each_step_of_a_trace_lies_on_the_axis_however_short_it_is() -> None:
    steps = [Step("sent", 0, "p", "c", "success", 0), Step("consumed", 6_999, "g", "c", "success", 1)]
    first, last = rows_of(MessageTrace("id", steps=steps))
    assert (first.left, first.width) == (0, 8)
    assert (last.left, last.width) == (992, 8)
