"""Nobody gets in where they do not belong: every request, as every kind of user, against servers that run."""

import asyncio
import logging
import re
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from bolide.access import door, guesses
from bolide.access.questions import needs_of, of_topic
from bolide.access.resources import Action, Need
from bolide.access.sources import Accounts, Source, Users
from bolide.clock import SystemClock
from bolide.controller.config import read_config as controller_config
from bolide.controller.server import serve as serve_controller
from bolide.errors import ConnectionLost
from bolide.kernel.layout import MAGIC_V1
from bolide.namesrv.config import read_config as namesrv_config
from bolide.namesrv.server import serve as serve_namesrv
from bolide.protocol.bodies import Heartbeat
from bolide.protocol.bodies.access import Acl, AclEntry, AclPolicy
from bolide.protocol.bodies.clients import ProducerMember
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command, read_commands
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from tests.access.walking import (
    ABLE_SECRET,
    CLUSTER,
    GROUP,
    ON,
    PLAIN_SECRET,
    ROOT,
    ROOT_SECRET,
    SECRETS,
    TOPIC,
    give,
    request_of,
    signed,
)
from tests.broker.whole import whole
from tests.remoting.loops import eventually, one_loop

DENIED = re.compile(r"User:\w+ has no permission|username cannot be null|check signature failed|AclException: ")
ACCOUNTS = f"""
accounts:
  - accessKey: rootaccount
    secretKey: {ROOT_SECRET}
    admin: true
  - accessKey: plainaccount
    secretKey: {PLAIN_SECRET}
  - accessKey: ableaccount
    secretKey: {ABLE_SECRET}
    topicPerms: ["{TOPIC}=PUB|SUB"]
    groupPerms: ["{GROUP}=SUB"]
"""
# What needs no right at all, only a name: the list of the specification.
FOR_EVERY_USER = {34, 35, 46, 105, 106, 324, 325}
TIMEOUT_S = 20
IN_FORCE_S = 30  # five are promised, on a machine that has time


@asynccontextmanager
async def three_servers(root: Path, **settings: str) -> AsyncIterator[tuple[dict[str, str], list[Source], Client]]:
    """A broker, a name server and a controller that check access: addresses, and where their accounts are."""
    clock, here = SystemClock(), {"listenPort": "0", "bindAddress": "127.0.0.1"}
    namesrv = namesrv_config({"kvConfigPath": str(root / "ns" / "kv.json"), **here, **settings})
    control = controller_config({"controllerStorePath": str(root / "control"), **here, **settings})
    async with (
        whole(root, **settings) as broker,
        serve_namesrv(namesrv, clock) as (ns, at_ns),
        serve_controller(control, clock) as (controller, at_controller),
        Client(ConnectConfig(), clock) as client,
    ):
        doors = [broker.broker.admission.door, ns.door, controller.door]
        addresses = {
            "broker": broker.address,
            "name server": f"127.0.0.1:{at_ns.port}",
            "controller": f"127.0.0.1:{at_controller.port}",
        }
        yield addresses, [door._source for door in doors if door is not None], client


def needs_at(command: Command) -> list[Need] | None:
    needs = needs_of(command, CLUSTER, lambda place: None)
    return None if needs is None else list(needs)


class Walk:
    """Asks, and keeps every byte that was answered."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.answers: list[bytes] = []

    async def is_in(self, address: str, command: Command) -> bool:
        answer = await self._client.request(address, command, TIMEOUT_S)
        self.answers.append(answer.encode())
        is_denied = DENIED.search(answer.remark or "") is not None
        assert not is_denied or answer.code in (ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR)
        return not is_denied


@pytest.mark.feature("X10")
@one_loop
async def test_every_request_as_every_kind_of_user_is_answered_or_refused_as_the_table_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guesses, "FREE_COUNT", 1 << 30)
    caplog.set_level(logging.INFO, "bolide")
    async with three_servers(tmp_path, **ON) as (addresses, sources, client):
        walk = Walk(client)
        for (server, address), users in zip(addresses.items(), sources, strict=True):
            assert isinstance(users, Users)
            give(users, "plain", PLAIN_SECRET, [])
            for code in RequestCode:
                where = f"{code.name} at the {server}"
                needs = needs_at(request_of(code))
                assert not await walk.is_in(address, request_of(code)), f"nobody: {where}"
                assert not await walk.is_in(address, signed(request_of(code), ROOT, "wrong-secret")), f"wrong: {where}"
                is_plain_in = await walk.is_in(address, signed(request_of(code), "plain", PLAIN_SECRET))
                assert is_plain_in == (needs == []), f"a user without policies: {where}"
                assert not is_plain_in or code in FOR_EVERY_USER | {33, 37}, where
                give(users, "able", ABLE_SECRET, needs or [])
                is_able_in = await walk.is_in(address, signed(request_of(code), "able", ABLE_SECRET))
                assert is_able_in == (needs is not None), f"a user with just that right: {where}"
                assert await walk.is_in(address, signed(request_of(code), ROOT, ROOT_SECRET)), f"Super: {where}"
                if needs:
                    give(users, "able", ABLE_SECRET, needs[1:])
                    is_short = await walk.is_in(address, signed(request_of(code), "able", ABLE_SECRET))
                    assert is_short == (needs[0] in needs[1:]), f"one right too few: {where}"
        told = b"\n".join(walk.answers) + caplog.text.encode()
    for secret in SECRETS:
        assert secret.encode() not in told
    assert b'"password"' not in told


@pytest.mark.feature("X09")
@one_loop
async def test_every_request_as_every_kind_of_account_is_answered_or_refused_as_the_table_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guesses, "FREE_COUNT", 1 << 30)
    caplog.set_level(logging.INFO, "bolide")
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    given = {"aclEnable": "true", "rocketmqHome": str(home), "bolideAccessCluster": CLUSTER}
    async with three_servers(tmp_path, **given) as (addresses, sources, client):
        walk = Walk(client)
        for (server, address), accounts in zip(addresses.items(), sources, strict=True):
            assert isinstance(accounts, Accounts)
            for code in RequestCode:
                where = f"{code.name} at the {server}"
                needs = needs_at(request_of(code))
                assert not await walk.is_in(address, request_of(code)), f"nobody: {where}"
                wrong = signed(request_of(code), "rootaccount", "wrong-secret")
                assert not await walk.is_in(address, wrong), f"wrong: {where}"
                is_plain_in = await walk.is_in(address, signed(request_of(code), "plainaccount", PLAIN_SECRET))
                assert is_plain_in == (needs == []), f"an account without rights: {where}"
                is_able_in = await walk.is_in(address, signed(request_of(code), "ableaccount", ABLE_SECRET))
                given_to = {TOPIC: {"Pub", "Sub", "Get"}, GROUP: {"Sub", "Get"}}
                is_given = needs is not None and all(need.actions & given_to.get(need.name, set()) for need in needs)
                assert is_able_in == is_given, f"an account with rights: {where}"
                assert await walk.is_in(address, signed(request_of(code), "rootaccount", ROOT_SECRET)), where
        told = b"\n".join(walk.answers) + caplog.text.encode()
    for secret in SECRETS:
        assert secret.encode() not in told


async def send(client: Client, address: str, topic: str, name: str, secret: str, body: bytes = b"x") -> Command:
    fields = {
        "a": "pg",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1",
        "h": "0",
        "i": "UNIQ_KEY\x01k\x02",
    }
    return await client.request(address, signed(Command(310, fields=fields, body=body), name, secret), TIMEOUT_S)


@pytest.mark.feature("X10")
@one_loop
async def test_rights_hold_on_the_fast_path_and_changes_are_in_force_at_once(tmp_path: Path) -> None:
    async with whole(tmp_path, **ON) as broker, Client(ConnectConfig(), SystemClock()) as client:
        at = broker.address
        root = partial(signed, name=ROOT, secret=ROOT_SECRET)
        for topic in ("Mine", "Yours"):
            fields = {
                "topic": topic,
                "defaultTopic": "TBW102",
                "readQueueNums": "4",
                "writeQueueNums": "4",
                "perm": "6",
            }
            fields |= {"topicFilterType": "SINGLE_TAG", "order": "false"}
            made = await client.request(at, root(Command(17, fields=fields)), TIMEOUT_S)
            assert made.code == 0, made.remark
        user = b'{"password":"' + PLAIN_SECRET.encode() + b'"}'
        assert (
            await client.request(at, root(Command(3001, fields={"username": "bob"}, body=user)), TIMEOUT_S)
        ).code == 0
        assert (await send(client, at, "Mine", "bob", PLAIN_SECRET)).code == 16
        entry = AclEntry(actions=["Pub"], decision="Allow", resource="Topic:Mine")
        acl = Acl(subject="User:bob", policies=[AclPolicy(entries=[entry], policy_type="Custom")])
        grant = Command(3006, fields={"subject": "User:bob"}, body=acl.encode())
        assert (await client.request(at, root(grant), TIMEOUT_S)).code == 0
        for _ in range(3):  # the first is judged, the others are remembered
            answer = await send(client, at, "Mine", "bob", PLAIN_SECRET)
            assert (answer.code, answer.remark) == (0, None)
            assert (await send(client, at, "Yours", "bob", PLAIN_SECRET)).code == 16
            forged = await send(client, at, "Mine", "bob", "wrong-secret")
            assert (forged.code, forged.remark) == (16, "check signature failed.")
        revoke = Command(3008, fields={"subject": "User:bob", "resource": "Topic:Mine"})
        assert (await client.request(at, root(revoke), TIMEOUT_S)).code == 0
        refused = await send(client, at, "Mine", "bob", PLAIN_SECRET)
        assert "no permission to access Topic:Mine from 127.0.0.1, no matched policies." in (refused.remark or "")


@pytest.mark.feature("X10")
@one_loop
async def test_a_recorded_request_with_its_fields_swapped_is_refused_and_a_replay_is_what_the_format_allows(
    tmp_path: Path,
) -> None:
    async with whole(tmp_path, **ON) as broker, Client(ConnectConfig(), SystemClock()) as client:
        command = signed(request_of(RequestCode.GET_BROKER_CONFIG), ROOT, ROOT_SECRET)
        assert (await client.request(broker.address, command, TIMEOUT_S)).code == 0
        replayed = Command(26, fields=dict(command.fields))
        assert (await broker.client.request(broker.address, replayed, TIMEOUT_S)).code == 0  # only TLS prevents it
        topic = signed(request_of(RequestCode.GET_TOPIC_CONFIG), ROOT, ROOT_SECRET)
        topic.fields["topic"], topic.fields["AccessKey"] = topic.fields["AccessKey"], topic.fields["topic"]
        answer = await client.request(broker.address, topic, TIMEOUT_S)
        assert (answer.code, answer.remark) == (16, "User:T is not found.")
        longer = signed(request_of(RequestCode.GET_TOPIC_CONFIG), ROOT, ROOT_SECRET)
        longer.fields["more"] = "x"
        assert (await client.request(broker.address, longer, TIMEOUT_S)).remark == "check signature failed."


@pytest.mark.feature("X10")
@one_loop
async def test_guesses_are_slowed_and_an_honest_client_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guesses, "FREE_COUNT", 3)
    monkeypatch.setattr(guesses, "STEP_S", 0.2)
    async with whole(tmp_path, **ON) as broker, Client(ConnectConfig(), SystemClock()) as client:
        wrong = [signed(request_of(RequestCode.GET_BROKER_CONFIG), ROOT, f"guess-{number}") for number in range(8)]
        began_s = asyncio.get_running_loop().time()
        guessing = [asyncio.ensure_future(client.request(broker.address, each, TIMEOUT_S)) for each in wrong]
        honest = signed(request_of(RequestCode.GET_BROKER_CONFIG), ROOT, ROOT_SECRET)
        assert (await broker.client.request(broker.address, honest, TIMEOUT_S)).code == 0
        assert not all(each.done() for each in guessing)
        answers = await asyncio.gather(*guessing)
        assert {answer.remark for answer in answers} == {"check signature failed."}
        assert asyncio.get_running_loop().time() - began_s >= 0.9


@pytest.mark.feature("X10")
@one_loop
async def test_who_guesses_on_and_on_is_hung_up_on_and_nobody_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guesses, "FREE_COUNT", 1)
    monkeypatch.setattr(guesses, "WAIT_MAX_S", 0.0)
    async with whole(tmp_path, **ON) as broker, Client(ConnectConfig(), SystemClock()) as client:
        wrong = [signed(request_of(RequestCode.GET_BROKER_CONFIG), ROOT, f"guess-{number}") for number in range(2)]
        assert (await client.request(broker.address, wrong[0], TIMEOUT_S)).code == ResponseCode.NO_PERMISSION
        with pytest.raises(ConnectionLost):
            await client.request(broker.address, wrong[1], TIMEOUT_S)
        honest = signed(request_of(RequestCode.GET_BROKER_CONFIG), ROOT, ROOT_SECRET)
        assert (await broker.client.request(broker.address, honest, TIMEOUT_S)).code == ResponseCode.SUCCESS


@pytest.mark.feature("X10")
@one_loop
async def test_an_edited_file_of_users_is_in_force_at_every_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "REFRESH_S", 0.01)
    async with three_servers(tmp_path, **ON) as (addresses, sources, client):
        for (server, address), source in zip(addresses.items(), sources, strict=True):
            assert isinstance(source, Users)
            path, _ = source._paths
            path.write_text(path.read_text().replace(ROOT_SECRET, "planted-other-secret"))
            await eventually(lambda source=source: source.secret_of(ROOT) == "planted-other-secret")  # type: ignore[misc]
            for secret, is_in in ((ROOT_SECRET, False), ("planted-other-secret", True)):
                asked = signed(request_of(RequestCode.AUTH_LIST_USER), ROOT, secret)
                answer = await client.request(address, asked, TIMEOUT_S)
                assert (answer.code == ResponseCode.SUCCESS) == is_in, server


@pytest.mark.feature("X09")
@one_loop
async def test_an_edited_file_of_accounts_is_in_force_in_seconds_and_no_connection_is_lost(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    path = home / "conf" / "plain_acl.yml"
    path.write_text(ACCOUNTS)
    given = {"aclEnable": "true", "rocketmqHome": str(home)}
    async with whole(tmp_path, **given) as broker, Client(ConnectConfig(), SystemClock()) as client:

        async def code() -> int:
            asked = signed(request_of(RequestCode.GET_MAX_OFFSET), "plainaccount", PLAIN_SECRET)
            answer = await client.request(broker.address, asked, TIMEOUT_S)
            return 1 if "AclException" in (answer.remark or "") else 0

        assert await code() == 1
        (session,) = client.sessions()
        path.write_text(ACCOUNTS.replace(PLAIN_SECRET, f"{PLAIN_SECRET}\n    defaultTopicPerm: SUB"))
        began_s = asyncio.get_running_loop().time()
        while await code() == 1:
            assert asyncio.get_running_loop().time() - began_s < IN_FORCE_S
        assert list(client.sessions()) == [session]


@pytest.mark.feature("X09")
@pytest.mark.parametrize(("listed", "code"), [("127.0.0.1", 0), ("10.9.9.9", 1)])
@one_loop
async def test_a_listed_address_passes_everything_and_a_proxy_header_makes_nobody_listed(
    tmp_path: Path, listed: str, code: int
) -> None:
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(f"globalWhiteRemoteAddresses: [{listed}]{ACCOUNTS}")
    async with whole(tmp_path, aclEnable="true", rocketmqHome=str(home)) as broker:
        for claim in (b"", b"PROXY TCP4 10.9.9.9 127.0.0.1 4000 10911\r\n"):
            reader, writer = await asyncio.open_connection(*broker.address.split(":"))
            writer.write(claim + request_of(RequestCode.GET_BROKER_CONFIG).encode())
            size = int.from_bytes(await reader.readexactly(4), "big")
            (answer,) = read_commands(await reader.readexactly(size), [0, size])
            assert answer.code == code, (claim, answer.remark)
            assert code == 0 or "No accessKey is configured" in (answer.remark or "")
            writer.close()


@pytest.mark.feature("X10")
@one_loop
async def test_settings_that_once_let_strangers_in_are_refused_to_everybody(tmp_path: Path) -> None:
    """CVE-2023-33246 (a shell line from rocketmqHome) and CVE-2023-37582 (settings written anywhere)."""
    async with three_servers(tmp_path, **ON) as (addresses, _, client):
        target = tmp_path / "owned"
        for address, code, keys in (
            (
                addresses["broker"],
                25,
                ("rocketmqHome", "brokerConfigPath", "filterServerNums", "bolideFilterServerConfig"),
            ),
            (addresses["name server"], 318, ("configStorePath", "kvConfigPath", "rocketmqHome")),
        ):
            for key in keys:
                body = f"{key}={'1' if key == 'filterServerNums' else target}\n".encode()
                for body_given in (body, body.replace(b"\n", b"\\nrocketmqHome=/x\n")):
                    nobody = await client.request(address, Command(code, body=body_given), TIMEOUT_S)
                    assert nobody.code == 16
                    admin = signed(Command(code, body=body_given), ROOT, ROOT_SECRET)
                    assert (await client.request(address, admin, TIMEOUT_S)).code != 0, (code, key)
        shown = signed(Command(RequestCode.GET_BROKER_CONFIG), ROOT, ROOT_SECRET)
        settings = (await client.request(addresses["broker"], shown, TIMEOUT_S)).body.decode()
    assert "filterServerNums=0\n" in settings  # so no process is ever started
    assert str(target) not in settings
    assert not target.exists()


@pytest.mark.feature("X10")
@pytest.mark.parametrize("topic", ["../x", "a/b", "a\0b", "%RETRY%../x", "%DLQ%../../x"])
def test_a_topic_that_is_a_path_is_refused_and_leaves_nothing_behind(tmp_path: Path, topic: str) -> None:
    """CVE-2019-17572."""

    async def scenario() -> None:
        async with whole(tmp_path / "inside", **ON) as broker, Client(ConnectConfig(), SystemClock()) as client:
            answer = await send(client, broker.address, topic, ROOT, ROOT_SECRET)
            assert answer.code != 0
            fields = request_of(RequestCode.UPDATE_AND_CREATE_TOPIC).fields | {"topic": topic}
            made = signed(Command(17, fields=fields), ROOT, ROOT_SECRET)
            assert (await client.request(broker.address, made, TIMEOUT_S)).code != 0

    asyncio.run(scenario())
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


HEAD_SIZE = 88  # of a record, before its body


def forged(place: int, body_size: int, size: int) -> bytes:
    """The head of a record that would begin at a place of the log and have so much of it for its body."""
    head = struct.pack(">iIIiiqqiq", size, MAGIC_V1, 0, 0, 0, 0, place, 0, 1)
    return head + bytes(8) + struct.pack(">q", 1) + bytes(8) + struct.pack(">iqi", 0, 0, body_size)


@pytest.mark.feature("X10")
@one_loop
async def test_a_record_that_somebody_wrote_into_bodies_does_not_show_what_lies_between_them(tmp_path: Path) -> None:
    async with whole(tmp_path, **ON) as broker:
        source, store = broker.broker.admission.door._source, broker.broker.state.store  # type: ignore[union-attr]
        assert isinstance(source, Users)
        give(source, "able", ABLE_SECRET, [of_topic("Own", Action.PUB), of_topic("Own", Action.GET)])

        async def send(topic: str, name: str, secret: str, body: bytes) -> int:
            command, place = request_of(RequestCode.SEND_MESSAGE_V2), store.log_end
            command.fields |= {"b": topic, "c": "TBW102", "d": "1"}
            command.body = body
            assert (await broker.client.request(broker.address, signed(command, name, secret), TIMEOUT_S)).code == 0
            return place

        async def view(place: int) -> Command:
            command = Command(RequestCode.VIEW_MESSAGE_BY_ID, fields={"offset": str(place)})
            return await broker.client.request(broker.address, signed(command, "able", ABLE_SECRET), TIMEOUT_S)

        secret_body, end = b"what nobody else may see", b"\x03Own" + bytes(2)
        place = await send("Own", "able", ABLE_SECRET, bytes(HEAD_SIZE))
        await send("Secret", ROOT, ROOT_SECRET, secret_body)
        size, begin = store.log_end - place - HEAD_SIZE, store.log_end + HEAD_SIZE
        await send("Own", "able", ABLE_SECRET, forged(begin, size, HEAD_SIZE + size + len(end)))
        await send("Secret", ROOT, ROOT_SECRET, secret_body)
        await send("Own", "able", ABLE_SECRET, end)
        assert secret_body in bytes(store.record_at(begin) or b""), "the forgery is well made"
        refused = await view(begin)
        assert (refused.code, refused.body) == (ResponseCode.SYSTEM_ERROR, b"")
        assert (await view(begin - HEAD_SIZE)).code == ResponseCode.SUCCESS


@pytest.mark.feature("X10")
@one_loop
async def test_a_code_that_needs_no_right_opens_no_other(tmp_path: Path) -> None:
    async with whole(tmp_path, **ON, authorizationWhitelist="320") as broker:
        source = broker.broker.admission.door._source  # type: ignore[union-attr]
        assert isinstance(source, Users)
        give(source, "plain", PLAIN_SECRET, [])
        made = request_of(RequestCode.SEND_MESSAGE_V2)
        made.fields |= {"b": TOPIC, "c": "TBW102", "d": "1"}
        made.body = b"what plain may not see"
        assert (await broker.client.request(broker.address, signed(made, ROOT, ROOT_SECRET), TIMEOUT_S)).code == 0
        batch, pull = request_of(RequestCode.SEND_BATCH_MESSAGE), request_of(RequestCode.PULL_MESSAGE)
        for topic in (TOPIC, f"{TOPIC}\0{GROUP}"):  # with the byte that stands between names in a verdict
            batch.fields["b"] = topic
            await broker.client.request(broker.address, signed(batch, "plain", PLAIN_SECRET), TIMEOUT_S)
        pull.fields |= {"maxMsgNums": "10", "sysFlag": "4", "subscription": "*", "expressionType": "TAG"}
        answer = await broker.client.request(broker.address, signed(pull, "plain", PLAIN_SECRET), TIMEOUT_S)
        assert (answer.code, answer.body) == (ResponseCode.NO_PERMISSION, b"")


@pytest.mark.feature("X10")
@one_loop
async def test_who_says_to_be_of_a_producer_group_is_not_asked_about_messages_it_may_not_send(tmp_path: Path) -> None:
    async with whole(tmp_path, **ON) as broker:
        source, members = broker.broker.admission.door._source, broker.broker.state.members  # type: ignore[union-attr]
        assert isinstance(source, Users)
        beat = Heartbeat(client_id="c", producer_data_set=[ProducerMember(group_name=GROUP)]).encode()
        for needs in ([], [of_topic(TOPIC, Action.PUB)]):
            give(source, "plain", PLAIN_SECRET, needs)
            assert members.producer(GROUP, TOPIC) is None
            told = signed(Command(RequestCode.HEART_BEAT, body=beat), "plain", PLAIN_SECRET)
            assert (await broker.client.request(broker.address, told, TIMEOUT_S)).code == 0
            assert (members.producer(GROUP, TOPIC) is not None) == bool(needs)


@pytest.mark.feature("X10")
@one_loop
async def test_who_was_a_super_user_is_not_asked_about_messages_any_more(tmp_path: Path) -> None:
    async with whole(tmp_path, **ON) as broker:
        source, members = broker.broker.admission.door._source, broker.broker.state.members  # type: ignore[union-attr]
        assert isinstance(source, Users)
        beat = Heartbeat(client_id="c", producer_data_set=[ProducerMember(group_name=GROUP)]).encode()
        told = signed(Command(RequestCode.HEART_BEAT, body=beat), ROOT, ROOT_SECRET)
        assert (await broker.client.request(broker.address, told, TIMEOUT_S)).code == 0
        assert members.producer(GROUP, TOPIC) is not None
        give(source, ROOT, ROOT_SECRET, [])
        async with Client(ConnectConfig(), SystemClock()) as other:  # whoever comes first after the change
            asked = signed(request_of(RequestCode.GET_BROKER_CLUSTER_INFO), ROOT, ROOT_SECRET)
            await other.request(broker.address, asked, TIMEOUT_S)
        assert members.producer(GROUP, TOPIC) is None
