"""What released RocketMQ programs put on the wire, held against our codec and our name server (recordings/README.md).

The live half starts a name server as a process and repeats each recorded conversation, request by request and byte by
byte. Bodies are compared as values: where Java walks a hash map, ours may have another order.
"""

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bolide.kernel import body_crc, cut_frames
from bolide.protocol.bodies import TopicList, TopicRoute, decode_registration
from bolide.protocol.command import FRAME_SIZE_MAX, Command, read_commands
from interop.cluster import NameServer, bolide_name_server
from interop.wire import parse, read_frame

RECORDINGS = Path(__file__).parent / "recordings"
RELEASES = ("4.9.7", "5.5.0")
BROKERS = ("broker-4.9.7", "broker-4.9.7-compressed", "broker-5.5.0")
TIMEOUT_S = 30
JAVA = 0
# 4.9.7 compares versions of whole tables, 5.x looks at each topic: one more topic is written under an equal version.
DIFFERS_IN_4 = {"wipe-write", "add-write"}
# Members that 4.9 does not have and its clients skip.
NEWER_MEMBERS = {"enableActingMaster", "stateVersion"}


@dataclass(frozen=True, slots=True)
class Exchange:
    """A recorded request and what Java answered, as raw frames."""

    name: str
    request: bytes
    answer: bytes


def recording(name: str) -> list[Exchange]:
    lines = (RECORDINGS / f"{name}.jsonl").read_text("ascii").splitlines()
    documents = [json.loads(line) for line in lines]
    return [
        Exchange(one["name"], one["request"].encode("latin-1"), one["answer"].encode("latin-1")) for one in documents
    ]


def command(frame: bytes) -> Command:
    bounds, taken, problem = cut_frames(frame, len(frame), FRAME_SIZE_MAX)
    assert (taken, problem) == (len(frame), None)
    (found,) = read_commands(frame, bounds)
    return found


def all_exchanges() -> list[Exchange]:
    return [exchange for path in sorted(RECORDINGS.glob("*.jsonl")) for exchange in recording(path.stem)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NameServer]:
    with bolide_name_server(tmp_path) as server:
        yield server


@pytest.fixture
def connection(server: NameServer) -> Iterator[socket.socket]:
    with socket.create_connection(server.address, TIMEOUT_S) as connection:
        yield connection


def comparable(body: bytes) -> Any:
    """The body as a value: lists of names as sets, newer members left out."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(member) for name, member in value.items() if name not in NEWER_MEMBERS}
        if isinstance(value, list):
            return sorted((plain(member) for member in value), key=repr)
        return value

    return plain(parse(body)) if body else None


def test_every_recorded_frame_is_read_as_what_it_is() -> None:
    for exchange in all_exchanges():
        request, answer = command(exchange.request), command(exchange.answer)
        assert not request.is_response
        assert answer.is_response
        assert answer.language == JAVA
        assert answer.opaque == request.opaque, exchange.name


@pytest.mark.parametrize("release", RELEASES)
def test_bare_integer_keys_are_written_for_old_askers_only(release: str) -> None:
    answers = {exchange.name: command(exchange.answer).body for exchange in recording(f"namesrv-{release}")}
    assert b'{0:"127.0.0.1:10911",1:"127.0.0.2:10911"}' in answers["route-bare-keys"]
    for name in ("route-standard-json", "route-standard-json-asked"):
        assert b'{"0":"127.0.0.1:10911","1":"127.0.0.2:10911"}' in answers[name]


@pytest.mark.parametrize("broker", [*BROKERS, "broker-5.5.0-compressed"])
def test_a_java_broker_s_table_is_read_whole_from_either_form(broker: str) -> None:
    release = broker.removesuffix("-compressed")
    question = next(exchange for exchange in recording(release) if exchange.name == "all-topics")
    request = command(recording(broker)[0].request)
    registration = decode_registration(request.body, request.fields["compressed"] == "true", request.version)
    topics = registration.topics.topic_config_table
    assert set(topics) == set(TopicList.decode(command(question.answer).body).topic_list)
    default = topics["TBW102"]
    assert (default.read_queue_nums, default.write_queue_nums, default.perm) == (8, 8, 7)
    assert body_crc(request.body) == int(request.fields["bodyCrc32"])


def test_routes_of_java_are_read_and_written_again_to_the_byte() -> None:
    bodies = {exchange.name: command(exchange.answer).body for exchange in recording("namesrv-5.5.0")}
    bare, standard = bodies["route-bare-keys"], bodies["route-standard-json"]
    assert TopicRoute.decode(bare) == TopicRoute.decode(standard)
    assert TopicRoute.decode(standard).encode_bare() == bare
    assert TopicRoute.decode(bare).encode() == standard


@pytest.mark.feature("F029", "F045")
@pytest.mark.parametrize("release", RELEASES)
def test_our_name_server_holds_the_conversation_that_java_held(release: str, connection: socket.socket) -> None:
    for exchange in recording(f"namesrv-{release}"):
        connection.sendall(exchange.request)
        ours, javas = command(read_frame(connection)), command(exchange.answer)
        assert (ours.opaque, ours.code) == (javas.opaque, javas.code), (exchange.name, ours)
        if release == "4.9.7" and exchange.name in DIFFERS_IN_4:
            continue
        assert ours.fields == javas.fields, exchange.name
        assert comparable(ours.body) == comparable(javas.body), exchange.name


@pytest.mark.parametrize("name", ["route-bare-keys", "route-standard-json", "route-standard-json-asked"])
def test_our_route_has_integer_keys_in_the_form_that_the_asker_reads(name: str, connection: socket.socket) -> None:
    for exchange in recording("namesrv-5.5.0"):
        connection.sendall(exchange.request)
        body = command(read_frame(connection)).body
        if exchange.name == name:
            assert (b'{"0":' in body) == (b'{"0":' in command(exchange.answer).body)
            assert (b"{0:" in body) == (b"{0:" in command(exchange.answer).body)
            return


@pytest.mark.feature("F015", "F019")
@pytest.mark.parametrize("broker", BROKERS)
def test_a_java_broker_s_registration_gives_the_routes_that_java_gives(broker: str, connection: socket.socket) -> None:
    for exchange in recording(broker):
        connection.sendall(exchange.request)
        ours, javas = command(read_frame(connection)), command(exchange.answer)
        assert ours.code == javas.code == 0, (exchange.name, ours)
        if exchange.name != "register":  # Java answers with a table of order topics that may be empty or absent
            assert comparable(ours.body) == comparable(javas.body), exchange.name


@pytest.mark.feature("F025")
@pytest.mark.parametrize("broker", BROKERS)
def test_a_java_broker_s_farewell_takes_its_routes_away(broker: str, connection: socket.socket) -> None:
    exchanges = {exchange.name: exchange for exchange in recording(broker)}
    codes = []
    for name in ("register", "route-standard-json", "unregister", "route-standard-json"):
        connection.sendall(exchanges[name].request)
        codes.append(command(read_frame(connection)).code)
    assert codes == [0, 0, 0, 17]


@pytest.mark.feature("F056")
def test_a_compressed_table_is_read_even_when_its_header_calls_it_plain(connection: socket.socket) -> None:
    # A 5.5.0 broker with compressedRegister=true sends this; its own name server refuses it, the broker never appears.
    (registration,) = recording("broker-5.5.0-compressed")
    assert command(registration.request).fields["compressed"] == "false"
    assert command(registration.answer).code == 1
    connection.sendall(registration.request)
    assert command(read_frame(connection)).code == 0
    question = next(exchange for exchange in recording("broker-5.5.0") if exchange.name == "all-topics")
    connection.sendall(question.request)
    ours = command(read_frame(connection))
    assert comparable(ours.body) == comparable(command(question.answer).body)
