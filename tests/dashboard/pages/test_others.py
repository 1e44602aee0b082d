"""Clients, sending, delays, transactions, access, settings and the live tail."""

import re
from collections import Counter
from pathlib import Path

import pytest

from bolide import Admin, Consumer, Outcome, Producer, TransactionProducer
from bolide.admin.admin import Admin as AsyncAdmin
from bolide.admin.delays import DelayLevelRow
from bolide.clock import SystemClock
from bolide.dashboard.pages.clients import ClientLine, _marked, in_order
from bolide.dashboard.pages.settings import is_secret
from bolide.testing import cluster
from bolide.testing.blocking import Cluster
from tests.cli.inside import told
from tests.cli.processes import wait_for
from tests.dashboard.site import Site, sign_in, site


def test_everybody_who_is_connected_is_listed_as_the_command_does(rocket: Cluster, pages: Site) -> None:
    rocket.create_topic("Watched", 1)
    with Consumer("watched-cg", "Watched", rocket.namesrv), Producer("watching", rocket.namesrv) as producer:
        producer.send("Watched", b"x")
        pages.wait_for("/clients", lambda text: "watched-cg" in text and "watching" in text)
        (expected,) = told(rocket.namesrv, "clients", "-g", "watched-cg")
        shown = [row for row in pages.rows("/clients") if row["group"] == "watched-cg"]
        assert shown == expected
        assert "watching" not in pages.text("/clients", q="watched-cg")
        pages.wait_for("/clients", lambda text: "watched-cg" in text and " ago</time></td><td><span" in text)
        # A filter asks all groups, not those of one page.
        assert "watched-cg" in pages.text("/clients", q="watched-cg", size="1", page="2")


def test_a_message_is_sent_and_its_receipt_leads_to_it_and_to_another_like_it(rocket: Cluster, changing: Site) -> None:
    rocket.create_topic("Sent", 2)
    form = {"topic": "Sent", "body": "<i>hello</i>", "tags": "t", "keys": "a b", "times": "3"}
    answer = changing.post("/send", properties="colour=red\n", **form)
    assert answer.text.count("SEND_OK") == 3
    href = answer.text.partition('<a class="id" href="')[2].partition('"')[0].replace("&amp;", "&")
    page = changing.content(href).text
    assert "&lt;i&gt;hello&lt;/i&gt;" in page
    assert "colour" in page
    (row, *_) = changing.rows("/messages", topic="Sent")
    again = changing.text("/send", topic="Sent", **{"from": row["id"]})
    assert "colour=red" in again
    assert 'value="a b"' in again


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"topic": ""}, "name the topic"),
        ({"topic": "Sent", "properties": "no equals"}, "is not name=value"),
        ({"topic": "Sent", "properties": "TAGS=x"}, "RocketMQ&#39;s own"),
        ({"topic": "Sent", "delay": "999999999"}, "three days"),
        ({"topic": "has space"}, "It did not work"),
    ],
)
def test_what_cannot_be_sent_is_told(changing: Site, form: dict[str, str], words: str) -> None:
    assert words in changing.post("/send", **{"body": "x", **form}).text


def test_a_file_is_sent_as_its_bytes(rocket: Cluster, changing: Site) -> None:
    rocket.create_topic("Filed", 1)
    form = {"token": changing.token(), "topic": "Filed"}
    headers = {"Origin": "http://127.0.0.1:8082"}
    changing.client.post("/send", data=form, files={"file": ("a.bin", b"\x00\xff")}, headers=headers)
    (row,) = changing.rows("/messages", topic="Filed")
    assert changing.client.get(f"/body/{row['id']}?topic=Filed").content == b"\x00\xff"


def test_what_waits_in_a_level_is_counted_by_when_it_is_due(rocket: Cluster, pages: Site) -> None:
    rocket.create_topic("Later", 1)
    with Producer("later", rocket.namesrv) as producer:
        for _ in range(3):
            producer.send("Later", b"x", delay_level=18)
    text = pages.text("/delayed")
    assert "2 h" in text
    (row,) = [row for row in pages.rows("/delayed")["levels"] if row["level"] == 18]
    assert (row["waiting"], row["topics"]) == (3, {"Later": 3})
    assert row["due"] == {"next minute": 0, "next hour": 0, "next day": 3, "later": 0}


def test_timed_messages_are_counted_by_when_they_are_due(rocket: Cluster, pages: Site) -> None:
    rocket.create_topic("Timely", 1)

    def due() -> Counter[str]:
        rows = pages.rows("/delayed")["timed_due"]
        return Counter({name: count for row in rows for name, count in row["due"].items()})

    before = due()
    with Producer("later", rocket.namesrv) as producer:
        for delay_s in (50, 1800, 1800, 7200, 2 * 86_400):
            producer.send("Timely", b"x", delay=delay_s)
    wanted = Counter({"next minute": 1, "next hour": 2, "next day": 1, "later": 1})
    wait_for(lambda: due() - before == wanted)
    text = pages.text("/delayed")
    assert "first is due" in text
    assert "were not read" not in text


def test_a_timed_message_is_recalled_from_its_receipt_and_from_its_place(rocket: Cluster, changing: Site) -> None:
    rocket.create_topic("Timed", 1)
    receipt = changing.post("/send", topic="Timed", body="x", delay="3600", times="2").text
    handles = re.findall(r'name="handle" value="([^"]+)"', receipt)
    assert len(handles) == 2
    assert "will not be delivered" in changing.post("/recall", handle=handles[0]).text
    assert "is no recall handle" in changing.post("/recall", handle="nonsense").text
    (row, *_) = changing.rows("/messages", topic="rmq_sys_wheel_timer", text="x")
    place = {"topic": "rmq_sys_wheel_timer", "queue": f"{rocket.brokers[0].name}:0", "offset": str(row["offset"])}
    page = changing.text(f"/messages/{row['id']}", **place)
    (handle,) = re.findall(r'name="handle" value="([^"]+)"', page)
    assert handle in handles


def test_an_open_transaction_says_whether_somebody_is_there_to_ask_and_one_given_up_is_asked_again() -> None:
    quick = {"transactionCheckInterval": 50, "transactionTimeOut": 20, "transactionCheckMax": 2}
    answers = [Outcome.UNKNOWN]
    with cluster(settings=quick) as here, site(here.namesrv, allows_changes=True) as pages:
        with TransactionProducer("transfers", here.namesrv, checker=lambda _: answers[-1]) as producer:
            with producer.transaction("Transfers", b"x", keys="t-1") as transaction:
                transaction.unknown()
            text = pages.wait_for("/transactions", lambda text: "Ask again" in text)
            assert "somebody is there" in text
            (row,) = pages.rows("/transactions")["given_up"]
            assert (row["topic"], row["group"], row["keys"]) == ("Transfers", "transfers", "t-1")
            answers.append(Outcome.COMMIT)
            found = re.search(r'name="id" value="([^"]+)"><button>Ask again', text)
            assert found is not None
            assert pages.post("/transactions/resume", id=found[1]).status_code == 303
            pages.wait_for("/messages", lambda text: "1 shown" in text, topic="Transfers", key="t-1")
            assert "resume transaction" in pages.text("/settings")
            with producer.transaction("Transfers", b"y", keys="t-2") as transaction:
                answers.append(Outcome.UNKNOWN)
                transaction.unknown()
            pages.wait_for("/transactions", lambda text: "t-2" in text or "Ask again" in text)
        pages.wait_for("/transactions", lambda text: "nobody of the group" in text)


def test_what_is_overdue_is_red_and_said_first(pages: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = SystemClock().now_ms()
    late = DelayLevelRow("broker-0", 3, 10_000, 2, now_ms - 90_000, (2, 0, 0, 0), {"Orders": 2})
    fine = DelayLevelRow("broker-0", 18, 7_200_000, 1, now_ms + 3_600_000, (0, 0, 1, 0), {"Orders": 1})

    async def levels(*_: object) -> list[DelayLevelRow]:
        return [late, fine]

    monkeypatch.setattr(AsyncAdmin, "delay_levels", levels)
    text = pages.text("/delayed")
    assert "<strong>Late:</strong> the first message of level 3 on broker-0 was due 1 min 3" in text
    assert text.count(">overdue<") == 1
    assert text.count('<td class="bad"><time') == 1
    assert re.search(r"in 59 min|in 1 h", text)


def test_who_differs_and_who_is_there_twice_comes_first() -> None:
    lines = [
        ClientLine("fine", "10.0.0.1:1", "PYTHON", 1, "a-cg", "consumes", None, None, ""),
        ClientLine("same", "10.0.0.1:2", "JAVA", 1, "b-cg", "consumes", None, None, ""),
        ClientLine("same", "10.0.0.2:2", "JAVA", 1, "b-cg", "consumes", None, None, ""),
        ClientLine("torn", "10.0.0.3:2", "GO", 1, "c-cg", "consumes", None, None, "it wants another tag"),
    ]
    shown = in_order(_marked(lines))
    assert [(line.client_id, line.is_twice) for line in shown] == [
        ("torn", False),
        ("same", True),
        ("same", True),
        ("fine", False),
    ]


def test_transactions_and_access_say_that_there_is_nothing(pages: Site) -> None:
    assert "all are committed or rolled back" in pages.text("/transactions")
    assert "Access control is off" in pages.text("/access")
    assert pages.rows("/access")["access_control"] is False


def test_settings_have_changed_ones_first_no_secret_and_are_changed(rocket: Cluster, changing: Site) -> None:
    text = changing.text("/settings")
    assert text.index("changed</span>") < text.index("the same")
    name = changing.rows("/")["brokers"][0]["broker"]
    server = f"broker {name}"
    done = changing.post("/settings", server=server, key="flushDelayOffsetInterval", value="12000")
    assert done.status_code == 303
    with Admin(rocket.namesrv) as admin:
        assert admin.broker_settings(rocket.brokers[0].address)["flushDelayOffsetInterval"] == "12000"
    refused = changing.post("/settings", server=server, key="listenPort", value="1")
    assert refused.status_code == 502
    audit = changing.text("/settings", q="flushDelayOffsetInterval")
    assert "change setting" in audit
    assert "12000" in audit
    assert "failed" in audit


def test_a_secret_that_is_refused_is_in_no_audit(guarded: Cluster, tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    with site(guarded.namesrv, allows_changes=True, audit_file=audit) as found:
        assert sign_in(found, "root", "root-secret").status_code == 303
        name = found.rows("/")["brokers"][0]["broker"]
        for key, value in (("initAuthenticationUser", "not-json-s3cret"), ("tls.server.keyPassword", "key-s3cret")):
            found.post("/settings", server=f"broker {name}", key=key, value=value)
        shown = found.text("/settings") + str(found.rows("/settings"))
    assert "initAuthenticationUser" in audit.read_text()
    assert "s3cret" not in audit.read_text() + shown
    assert "root-secret" not in shown


def test_secrets_of_a_broker_never_reach_a_page() -> None:
    for key in (
        "secretKey",
        "initAuthenticationUser",
        "innerClientAuthenticationCredentials",
        "tls.server.keyPassword",
    ):
        assert is_secret(key), key
    assert not is_secret("flushDiskType")
