"""The dashboard before Apache's own cluster: every page opens, and has messages, groups, a dead letter and delays."""

from collections.abc import Iterator

import pytest

from bolide import Admin, Consumer, Producer, StartFrom
from interop.cluster import Station, java_station
from interop.release import SERVER_RELEASES
from tests.dashboard.letters import bury
from tests.dashboard.site import Site, site

COUNT = 12
NOT_LOADED = ("It did not work", "did not answer")


@pytest.fixture(scope="module", params=SERVER_RELEASES)
def station(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    with java_station(tmp_path_factory.mktemp("dashboard"), request.param) as station:
        for topic in ("Orders", "Doomed"):
            station.make_topic(topic)
        with Producer("shop", station.name_servers) as producer:
            for n in range(COUNT):
                producer.send("Orders", b'{"order": %d}' % n, keys=[f"order-{n}"], tags="eu", properties={"shop": "x"})
            producer.send("Orders", b"later", delay_level=18)
        bury(station.name_servers, "doomed-cg", "Doomed", {"dead-1": "card declined"})
        yield station


@pytest.fixture(scope="module")
def pages(station: Station) -> Iterator[Site]:
    with site(station.name_servers, allows_changes=True) as found:
        yield found


@pytest.fixture(scope="module", autouse=True)
def readers(station: Station) -> Iterator[None]:
    """A group that is online and has read some."""
    with Consumer("readers-cg", "Orders", station.name_servers, start_from=StartFrom.oldest()) as consumer:
        for _, message in zip(range(5), consumer, strict=False):
            message.ack()
        yield


PAGES = {
    "/": "reached from here",
    "/messages?topic=Orders&from=-1d": f"{COUNT} shown",
    "/messages?topic=Orders&key=order-3&from=-1d": "1 shown",
    "/messages?topic=Orders&key=order-3&sql=shop%3D%27x%27&from=-1d": "1 shown",
    "/messages?topic=Orders&text=%24.order%3D3&from=-1d": "1 shown",
    "/groups": "readers-cg",
    "/groups/readers-cg": "Members",
    "/groups/readers-cg/reset?topic=Orders&to=earliest": "What will happen",
    "/dead": "doomed-cg",
    "/dead/doomed-cg": "dead-1",
    "/topics": "Orders",
    "/topics?all=1": "%DLQ%doomed-cg",
    "/topics/Orders": "readers-cg",
    "/topics/Orders/edit?queues=2&read=2": "What will happen",
    "/topics/Orders/delete": "readers-cg",
    "/topics/create": "Create",
    "/topics/Orders/tail": "Live",
    "/clients": "readers-cg",
    "/send?topic=Orders": "Orders",
    "/delayed": "2 h",
    "/transactions": "Open",
    "/access": "Access control is off",
    "/settings": "brokerName",
}


@pytest.mark.parametrize(("path", "shown"), PAGES.items())
def test_every_page_opens_and_shows_what_is_there(pages: Site, path: str, shown: str) -> None:
    text = pages.wait_for(path, lambda found: shown in found)
    assert not [words for words in NOT_LOADED if words in text], text
    assert pages.client.get(path, params=None).status_code == 200


def test_one_message_has_its_body_its_readers_and_its_bytes(pages: Site, station: Station) -> None:
    (row,) = pages.rows("/messages", topic="Orders", key="order-3", **{"from": "-1d"})
    for tab, shown in (("message", "order"), ("consumption", "readers-cg"), ("trace", "race"), ("raw", "order-3")):
        assert shown in pages.text(f"/messages/{row['id']}", topic="Orders", tab=tab)
    assert "order-3" in pages.text(f"/messages/{row['offset_id']}")
    for found in (row["id"], row["offset_id"]):
        assert [each["id"] for each in pages.rows("/messages", topic="Orders", id=found)] == [row["id"]]


def test_the_walk_counts_what_is_behind_and_what_died(pages: Site, station: Station) -> None:
    pages.wait_for("/groups", lambda text: "doomed-cg" in text)
    rows = {row["group"]: row for row in pages.rows("/groups")}
    assert rows["readers-cg"]["members"] == 1
    assert rows["doomed-cg"]["dead_letters"] == 1


def test_a_topic_is_created_changed_and_deleted_and_a_setting_changed(pages: Site, station: Station) -> None:
    name = pages.rows("/")["brokers"][0]["broker"]
    form = {"name": "Made", "queues": "4", "permission": "6", "type": "NORMAL", "broker": name}
    assert pages.post("/topics/create", **form).status_code == 303
    assert pages.post("/topics/Made/edit", queues="2", read="2", permission="6").status_code == 303
    with Admin(station.name_servers) as admin:
        assert len(admin.topic_queues("Made")) == 2
    assert pages.post("/topics/Made/delete", typed="Made").status_code == 303
    done = pages.post("/settings", server=f"broker {name}", key="maxTransferCountOnMessageInMemory", value="33")
    assert done.status_code == 303


def test_a_group_is_reset_and_a_dead_letter_sent_again(pages: Site) -> None:
    moved = pages.post("/groups/doomed-cg/reset", topic="Doomed", to="earliest", typed="doomed-cg")
    assert moved.status_code == 303, moved.text
    assert "1 letter would be sent" in pages.post("/dead/doomed-cg/dry", which="all", to="group", rate="10").text
