"""What every page says when there is nothing, when one may not, and when a call fails; and what is on all of them."""

import re
from collections.abc import Iterator

import pytest

from bolide import Admin, Credentials, Producer
from bolide.admin.admin import Admin as AsyncAdmin
from bolide.admin.doctor.findings import Finding, Severity
from bolide.dashboard.desks import Diagnosis
from bolide.errors import NoAnswer
from bolide.protocol.bodies import GroupConfig
from bolide.testing import cluster
from bolide.testing.blocking import Cluster
from tests.dashboard.site import Site, every_path, sign_in, site

ROOT = Credentials(access_key="root", secret_key="root-secret")
# Where nothing is, what a page says of it; the others have a form, or name what is not there.
NOTHING = {
    "/": "Every group is at the end of its queues",
    "/messages": "Name a topic, or the id",
    "/groups": "bolide consume TOPIC --group NAME",
    "/dead": "No dead letters",
    "/topics": "bolide send TOPIC hello",
    "/clients": "Nobody is connected now",
    "/delayed": "No message waits in a delay level",
    "/transactions": "all are committed or rolled back",
    "/access": "bolide user create NAME",
    "/settings": "None yet.",
    "/search?q=no-such-thing": "Nothing here is called",
    "/messages?topic=None": "There is no topic None",
}


@pytest.fixture(scope="module")
def bare() -> Iterator[Site]:
    with cluster() as rocket, site(rocket.namesrv) as found:
        yield found


@pytest.mark.parametrize(("path", "words"), NOTHING.items())
def test_where_nothing_is_a_page_says_so_and_what_to_do(bare: Site, path: str, words: str) -> None:
    assert words in bare.content(path).text


def test_what_is_not_there_is_told_by_every_page_of_it(bare: Site) -> None:
    for path in every_path(topic="None", group="none", id="0A" * 16):
        answer = bare.content(path)
        assert answer.status_code in (200, 404), f"{path}: {answer.text}"
        assert answer.status_code == 200 or "bolide" in answer.text, path


def test_who_may_nothing_is_told_by_every_page_and_sees_nothing_of_others(guarded: Cluster) -> None:
    with Admin(guarded.namesrv, credentials=ROOT) as admin:
        admin.create_topic("Salaries", 1)
        admin.create_user("nobody", "nobody-secret")
    with site(guarded.namesrv, allows_changes=True) as found:
        assert sign_in(found, "nobody", "nobody-secret").status_code == 303
        refused = 0
        for path in every_path(topic="Salaries", group="pay-cg", id="0A" * 16):
            answer = found.content(path)
            assert answer.status_code in (200, 403, 404, 502), f"{path}: {answer.status_code}"
            refused += answer.status_code == 403
            assert "Traceback" not in answer.text
        assert refused > 3
        told = found.content("/topics/Salaries").text
    assert "You may not see this" in told
    assert "Salaries" in told
    assert "code 16" in told
    assert "bolide acl check" in told


def test_a_call_that_fails_is_told_with_its_address_and_the_parts_that_worked_stay(
    rocket: Cluster, pages: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    rocket.create_topic("Parted", 1)
    with Admin(rocket.namesrv) as admin:
        admin.set_group(GroupConfig(group_name="parted-cg"))
        admin.reset_group("parted-cg", "Parted", offset=0)

    async def silent(_: AsyncAdmin, group: str) -> None:
        raise NoAnswer(f"127.0.0.1:10911 did not answer request 203 for {group} within 3 s")

    monkeypatch.setattr(AsyncAdmin, "members", silent)
    text = pages.text("/groups/parted-cg")
    assert "connections: No answer." in text
    assert "127.0.0.1:10911 did not answer request 203" in text
    assert ">Parted<" in text, "the queues stay"
    assert 'title="127.0.0.1:10911 did not answer' in pages.wait_for(
        "/groups", lambda text: "parted-cg" in text, q="parted"
    )


def test_each_page_says_when_it_asked_how_often_and_how_long_that_took(pages: Site) -> None:
    for path in ("/", "/messages", "/groups", "/topics", "/dead", "/clients", "/delayed", "/settings"):
        foot = re.search(
            r'<footer class="asked">asked at <time datetime="([^"]+)".*?, (\d+) calls?, (\d+) ms', pages.text(path)
        )
        assert foot is not None, path


def test_beside_every_id_place_and_key_is_a_button_that_copies_it(rocket: Cluster, pages: Site) -> None:
    rocket.create_topic("Copied", 1)
    with Producer("copying", rocket.namesrv) as producer, Admin(rocket.namesrv) as admin:
        sent = producer.send("Copied", b"x", keys=["k1", "k2"])
        admin.set_group(GroupConfig(group_name="copied-cg"))
        admin.reset_group("copied-cg", "Copied", offset=0)
    place = f"{sent.queue.broker_name}:{sent.queue.queue_id}@{sent.queue_offset}"
    assert copied(pages.text("/messages", topic="Copied")) == [sent.msg_id, place, "k1 k2"]
    page = copied(pages.text(f"/messages/{sent.msg_id}", topic="Copied"))
    assert {sent.msg_id, sent.offset_id, "k1 k2"} <= set(page)
    assert copied(pages.text("/groups/copied-cg")) == ["copied-cg", "0", "1"]
    assert copied(pages.text("/topics/Copied"))[:3] == ["Copied", "0", "1"]


def copied(text: str) -> list[str]:
    return re.findall(r'class="copy" data-copy="([^"]*)"', text)


def test_what_calls_for_attention_is_counted_beside_its_page(rocket: Cluster) -> None:
    bad = [Finding("D04", Severity.ERROR, "torn", "", ""), Finding("D05", Severity.ERROR, "twice", "", "")]
    with site(rocket.namesrv) as pages:
        pages.text("/topics")
        dashboard = pages.client.app.state.dashboard  # type: ignore[attr-defined]
        assert pages.client.portal is not None
        desk = pages.client.portal.call(dashboard.desks.desk_of, None)
        desk.diagnosis = Diagnosis(1, (*bad, Finding("N01", Severity.NOTE, "", "", "")))
        frame = pages.frame("/messages").text
    counts = dict(re.findall(r'<span class="count" title="([^"]+)">(\d+)<', frame))
    assert counts["findings of the doctor"] == "2"
    assert counts["groups whose members subscribe differently"] == "1"
    assert counts["client ids that two members share"] == "1"


def test_the_frame_names_the_cluster_and_the_name_server(rocket: Cluster, pages: Site) -> None:
    pages.text("/topics")
    frame = pages.frame("/messages").text
    assert f'<span title="name server">{rocket.namesrv}</span>' in frame
    assert re.search(r'<strong title="cluster">\w+</strong>', frame)
