"""Looking changes nothing, and where bodies are hidden no page has one."""

import re
import threading
from collections.abc import Iterator

import pytest

from bolide import Producer
from bolide.dashboard.pages import tail
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.remoting.client import Client
from bolide.testing.blocking import Cluster
from tests.dashboard.letters import bury
from tests.dashboard.site import Site, every_path, site

SECRET = "letter 0"  # the body of the first letter
ASKS = re.compile(
    r"GET_|QUERY_|VIEW_|SEARCH_|PULL_MESSAGE|LITE_PULL|AUTH_(GET|LIST)|CONTROLLER_GET|HEART_BEAT|UNREGISTER_C"
)
OF_BROKERS = {"REGISTER_BROKER", "BROKER_HEARTBEAT", "CHECK_CLIENT_CONFIG"}  # servers of the same process talk, too


@pytest.fixture(scope="module")
def paths(rocket: Cluster) -> list[str]:
    """An address of every page, with something to show; and what is kept of it as files."""
    rocket.create_topic("Walked", 1)
    bury(rocket.namesrv, "walked-cg", "Walked", {"walked": "a reason"})
    with Producer("walking", rocket.namesrv) as producer:
        found = producer.send("Walked", SECRET.encode(), keys=["walked"]).msg_id
    place = "?topic=Walked"
    paths = [f"{path}{place}" for path in every_path(topic="Walked", group="walked-cg", id=found)]
    paths += [f"/messages/{found}{place}&tab={tab}" for tab in ("consumption", "trace", "raw")]
    paths += [f"/messages{place}&text=letter&from=-1d", f"/messages{place}&key=walked&from=-1d"]
    paths.append(f"/send{place}&from={found}")
    return [*paths, f"/body/{found}{place}", "/dead-export/walked-cg", "/go?q=Walked"]


def test_looking_at_every_page_asks_and_never_changes(
    changing: Site, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: set[int] = set()
    for name in ("request", "submit", "send_oneway"):
        whole = getattr(Client, name)

        def noted(self: Client, address: str, command: Command, *rest: object, _whole=whole, **named: object) -> object:
            codes.add(command.code)
            return _whole(self, address, command, *rest, **named)

        monkeypatch.setattr(Client, name, noted)
    for path in paths:
        for headers in ({}, {"HX-Request": "true"}):
            assert changing.client.get(path, headers=headers).status_code in (200, 404), path
    names = {RequestCode(code).name for code in codes}
    assert "GET_BROKER_CONFIG" in names, "nobody was asked: nothing is tried here"
    assert {name for name in names - OF_BROKERS if not ASKS.match(name)} == set()


@pytest.fixture(scope="module")
def hiding(rocket: Cluster) -> Iterator[Site]:
    with site(rocket.namesrv, hides_bodies=True, allows_changes=True) as found:
        yield found


def test_hidden_bodies_are_on_no_page_in_no_json_and_in_no_file(hiding: Site, paths: list[str]) -> None:
    for path in paths:
        shown = hiding.content(path).text + hiding.client.get(path, params={"format": "json"}).text
        assert SECRET not in shown.replace("text=letter", ""), path
    dry = hiding.post("/dead/walked-cg/dry", which="all", to="topic")
    assert "would be sent" in dry.text
    assert SECRET not in dry.text


def test_hidden_bodies_are_not_in_the_live_tail(
    rocket: Cluster, hiding: Site, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "LASTS_S", 1.0)
    monkeypatch.setattr(tail, "_DRAW_INTERVAL_S", 0.05)
    stop, seen = threading.Event(), ""

    def send() -> None:
        with Producer("tailing", rocket.namesrv) as producer:
            while not stop.wait(0.02):
                producer.send("Walked", SECRET.encode(), keys=["in-the-tail"])

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for _ in range(15):
            with hiding.client.stream("GET", "/topics/Walked/tail/events") as answer:
                seen += "".join(answer.iter_text())
            if "in-the-tail" in seen:
                break
    finally:
        stop.set()
        sender.join()
    assert "in-the-tail" in seen
    assert SECRET not in seen
