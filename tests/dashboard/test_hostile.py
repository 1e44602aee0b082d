"""What anybody may call themselves is text on every page: client ids, groups, tags, properties, reasons."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import quote

import pytest

from bolide import Producer
from bolide.protocol.bodies import ConsumerMember, Heartbeat, ProducerMember, Subscription
from bolide.protocol.command import Command
from bolide.testing.blocking import Cluster
from tests.dashboard.letters import bury
from tests.dashboard.site import Site
from tests.e2e.up import ask_on

HEARTBEAT = 34
LIMIT_S = 30
SCRIPT = "<script>alert(1)"  # without a slash, which brokers refuse in names
IMAGE = '"><img src=x onerror=alert(2)>'
NAMES = (SCRIPT, IMAGE, "{{7*7}}", "a\u202eb", "nul\x00", "'-alert(3)-'", "x" * 4000)
RAW = ("<script>alert", "<img src=x", "\x00", "\u202e", ">49<")


def members(client_id: str, group: str, topic: str) -> bytes:
    subscribed = [Subscription(topic=topic, sub_string=SCRIPT)]
    consumer = ConsumerMember(group_name=group, subscription_data_set=subscribed)
    producer = ProducerMember(group_name=client_id)
    return Heartbeat(client_id=client_id, consumer_data_set=[consumer], producer_data_set=[producer]).encode()


@contextmanager
def beating(address: str, bodies: list[bytes]) -> Iterator[list[int]]:
    """People who are connected and say so, a connection each; gives how the broker answered them."""
    host, _, port = address.rpartition(":")
    with ExitStack() as stack:
        peers = [stack.enter_context(socket.create_connection((host, int(port)), LIMIT_S)) for _ in bodies]
        yield [ask_on(peer, Command(HEARTBEAT, body=body)).code for peer, body in zip(peers, bodies, strict=True)]


def test_client_ids_and_groups_of_heartbeats_are_text_on_every_page(rocket: Cluster, pages: Site) -> None:
    rocket.create_topic("Beaten", 1)
    beats = [members(name, "hostile-cg", "Beaten") for name in NAMES]
    beats += [members("plain", name, "Beaten") for name in NAMES]
    beats.append(members("huge" * (1 << 18), "hostile-cg", "Beaten"))  # 1 MiB
    with beating(rocket.brokers[0].address, beats) as codes:
        taken = [name for name, code in zip(NAMES, codes, strict=False) if code == 0]
        assert taken, "the broker let nobody in: nothing is tried here"
        text = pages.wait_for("/clients", lambda text: "alert(1)" in text, q="alert")
        assert "&lt;script&gt;alert(1)" in text
        for path in ("/clients", "/groups", "/groups/hostile-cg", "/topics/Beaten", "/", "/transactions"):
            found = pages.content(path).text
            assert not [raw for raw in RAW if raw in found], path
            assert len(found) < 200_000, path


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "path", ["/topics/{}", "/groups/{}", "/dead/{}", "/messages/{}", "/topics?q={}", "/search?q={}"]
)
def test_a_name_in_an_address_is_text(pages: Site, path: str, name: str) -> None:
    found = pages.content(path.format(quote(name, safe=""))).text
    assert not [raw for raw in RAW if raw in found]


def test_tags_keys_properties_bodies_and_reasons_are_text(rocket: Cluster, pages: Site) -> None:
    rocket.create_topic("Named", 1)
    with Producer("naming", rocket.namesrv) as producer:
        sent = producer.send("Named", SCRIPT.encode(), tags=SCRIPT, keys=["<b>"], properties={SCRIPT: IMAGE})
    bury(rocket.namesrv, "named-cg", "Named", {"<i>": IMAGE})
    place = f"/messages/{sent.msg_id}?topic=Named"
    for path in (place, f"{place}&tab=raw", "/messages?topic=Named&from=-1d", "/dead", "/dead/named-cg"):
        found = pages.wait_for(path, lambda text: "&lt;" in text)
        assert not [raw for raw in RAW if raw in found], path
