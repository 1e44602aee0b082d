"""Somebody with a valid name and few rights tries to get at what is others': replies, staged messages, old rights."""

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from bolide.access import guesses
from bolide.access.questions import of_topic
from bolide.access.resources import Action, Kind, Need
from bolide.clock import SystemClock
from bolide.model.message import parse_offset_id
from bolide.model.queue import QueueKey
from bolide.model.topics import reply_topic
from bolide.protocol.bodies import Heartbeat
from bolide.protocol.bodies.access import Acl, AclEntry, AclPolicy
from bolide.protocol.bodies.clients import ProducerMember
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.signature import ACCESS_KEY, SIGNATURE
from bolide.protocol.staging import STAGE, STAGE_TOPIC, TARGET_QUEUE, TARGET_TOPIC
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from tests.access.walking import ABLE_SECRET, ON, PLAIN_SECRET, ROOT, ROOT_SECRET, give, request_of, signed, users_of
from tests.broker.whole import Whole, whole
from tests.remoting.loops import eventually, one_loop

TIMEOUT_S = 20


async def ask(client: Client, broker: Whole, command: Command, name: str, secret: str) -> Command:
    return await client.request(broker.address, signed(command, name, secret), TIMEOUT_S)


def beat(client_id: str, group: str) -> Command:
    producers = [ProducerMember(group_name=group)]
    return Command(RequestCode.HEART_BEAT, body=Heartbeat(client_id=client_id, producer_data_set=producers).encode())


@pytest.mark.feature("X10")
@one_loop
async def test_a_reply_goes_to_the_user_who_had_the_client_id_first(tmp_path: Path) -> None:
    async with (
        whole(tmp_path, **ON) as broker,
        Client(ConnectConfig(), SystemClock()) as victim,
        Client(ConnectConfig(), SystemClock()) as thief,
    ):
        members = broker.broker.state.members
        give(users_of(broker), "able", ABLE_SECRET, [of_topic("T", Action.PUB)])
        give(users_of(broker), "plain", PLAIN_SECRET, [])
        assert (await ask(victim, broker, beat("10.0.0.1@7", "pg"), "able", ABLE_SECRET)).code == 0
        owner = members.producer_session("10.0.0.1@7")
        assert owner is not None
        assert (await ask(thief, broker, beat("10.0.0.1@7", "pg"), "plain", PLAIN_SECRET)).code == 0
        assert members.producer_session("10.0.0.1@7") is owner
        give(users_of(broker), "other", PLAIN_SECRET, [])  # any change: who was proven is forgotten
        assert (await ask(victim, broker, beat("10.0.0.1@7", "pg"), "able", ABLE_SECRET)).code == 0
        assert (await ask(thief, broker, beat("10.0.0.1@7", "pg"), "plain", PLAIN_SECRET)).code == 0
        assert members.producer_session("10.0.0.1@7") is owner
        victim.close(broker.address)
        await eventually(lambda: members.producer_session("10.0.0.1@7") is None)
        assert (await ask(thief, broker, beat("10.0.0.1@7", "pg"), "plain", PLAIN_SECRET)).code == 0
        assert members.producer_session("10.0.0.1@7") is not None


@pytest.mark.feature("X10")
@one_loop
async def test_a_right_on_all_topics_does_not_show_what_is_staged_for_one_that_is_denied(tmp_path: Path) -> None:
    async with whole(tmp_path, **ON) as broker:
        everything = Need(Kind.TOPIC, "*", frozenset((Action.GET,)))
        give(users_of(broker), "able", ABLE_SECRET, [everything])
        prepare = Command(RequestCode.PUBLISH_STAGED, body=b'{"query":"q","batch":0}')
        assert (await ask(broker.client, broker, prepare, ROOT, ROOT_SECRET)).code == ResponseCode.SUCCESS
        about = {STAGE: "q/0/0", TARGET_TOPIC: "Secret", TARGET_QUEUE: "0", "KEYS": "k"}
        staged = request_of(RequestCode.SEND_MESSAGE_V2)
        staged.fields |= {"b": STAGE_TOPIC, "i": "".join(f"{name}\x01{text}\x02" for name, text in about.items())}
        staged.body = b"not for all"
        answer = await ask(broker.client, broker, staged, ROOT, ROOT_SECRET)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        place = parse_offset_id(answer.fields["msgId"])
        assert place is not None
        view = Command(RequestCode.VIEW_MESSAGE_BY_ID, fields={"offset": str(place.physical_offset)})
        query = request_of(RequestCode.QUERY_MESSAGE)
        query.fields |= {"topic": STAGE_TOPIC, "key": "k", "maxNum": "32", "endTimestamp": str(1 << 62)}
        for asked in (view, query):
            seen = await ask(broker.client, broker, asked, "able", ABLE_SECRET)
            assert (seen.code, seen.body) == (ResponseCode.NO_PERMISSION, b""), asked
        assert b"not for all" in (await ask(broker.client, broker, view, ROOT, ROOT_SECRET)).body


@pytest.mark.feature("X10")
@one_loop
async def test_nobody_has_the_batches_of_another_users_query_passed_over_as_done(tmp_path: Path) -> None:
    """The name of a query stands in every message of it: those who read its topic know it."""

    async def publish(broker: Whole, batch: int, name: str, secret: str) -> int:
        body = (
            b'{"query":"q","batch":%d,"stages":[],"user":"able"}' % batch
        )  # what it says of itself counts for nothing
        return (await ask(broker.client, broker, Command(RequestCode.PUBLISH_STAGED, body=body), name, secret)).code

    for life in range(2):  # the second knows it from what the first left
        async with whole(tmp_path, **ON) as broker:
            give(users_of(broker), "able", ABLE_SECRET, [of_topic(STAGE_TOPIC, Action.PUB)])
            give(users_of(broker), "plain", PLAIN_SECRET, [of_topic(STAGE_TOPIC, Action.PUB)])
            assert await publish(broker, 2 * life, "able", ABLE_SECRET) == ResponseCode.SUCCESS
            assert await publish(broker, 1 << 60, "plain", PLAIN_SECRET) == ResponseCode.NO_PERMISSION
            assert await publish(broker, 2 * life + 1, "able", ABLE_SECRET) == ResponseCode.SUCCESS
            assert broker.broker.staged_batches.last_done("q") == 2 * life + 1


@pytest.mark.feature("X10")
@one_loop
async def test_what_was_let_in_for_one_topic_of_a_stage_is_asked_about_for_the_next(tmp_path: Path) -> None:
    async with whole(tmp_path, **ON) as broker:
        give(users_of(broker), "able", ABLE_SECRET, [of_topic(STAGE_TOPIC, Action.PUB), of_topic("Own", Action.PUB)])
        prepare = Command(RequestCode.PUBLISH_STAGED, body=b'{"query":"q","batch":0}')
        assert (await ask(broker.client, broker, prepare, "able", ABLE_SECRET)).code == ResponseCode.SUCCESS
        for number, (target, code) in enumerate((("Own", 0), ("Own", 0), ("Secret", 16), ("Own", 0))):
            about = {"UNIQ_KEY": f"k{number}", STAGE: f"q/0/{number}", TARGET_TOPIC: target, TARGET_QUEUE: "0"}
            staged = request_of(RequestCode.SEND_MESSAGE_V2)
            staged.fields |= {"a": "pg", "b": STAGE_TOPIC, "c": "TBW102", "d": "1", "e": "0", "g": "1"}
            staged.fields["i"] = "".join(f"{name}\x01{text}\x02" for name, text in about.items())
            staged.body = b"x"
            answer = await ask(broker.client, broker, staged, "able", ABLE_SECRET)
            assert answer.code == code, (target, answer.remark)


@pytest.mark.feature("X10")
@one_loop
async def test_a_secret_that_was_changed_and_a_user_that_was_disabled_open_nothing_on_an_open_connection(
    tmp_path: Path,
) -> None:
    async with whole(tmp_path, **ON) as broker:
        give(users_of(broker), "able", ABLE_SECRET, [of_topic("Own", Action.PUB)])

        async def sent(secret: str) -> tuple[int, str]:
            send = request_of(RequestCode.SEND_MESSAGE_V2)
            send.fields |= {"a": "pg", "b": "Own", "c": "TBW102", "d": "1", "e": "0"}
            send.body = b"x"
            answer = await ask(broker.client, broker, send, "able", secret)
            return answer.code, answer.remark or ""

        async def change(text: bytes) -> None:
            update = Command(RequestCode.AUTH_UPDATE_USER, fields={"username": "able"}, body=text)
            assert (await ask(broker.client, broker, update, ROOT, ROOT_SECRET)).code == ResponseCode.SUCCESS

        for _ in range(2):  # the first is judged, the second is let in by what is remembered
            assert (await sent(ABLE_SECRET))[0] == 0
        await change(b'{"password":"another-secret"}')
        for _ in range(2):
            assert (await sent("another-secret"))[0] == 0
            assert await sent(ABLE_SECRET) == (16, "check signature failed.")
        await change(b'{"userStatus":"disable"}')
        assert await sent("another-secret") == (16, "User:able is disabled.")
        await change(b'{"userStatus":"enable"}')
        assert (await sent("another-secret"))[0] == 0


@pytest.mark.feature("X10")
@one_loop
async def test_a_right_that_was_taken_back_is_not_remembered_beside_one_that_stays(tmp_path: Path) -> None:
    async with whole(tmp_path, **ON) as broker:
        both = [of_topic("Own", Action.PUB), of_topic("Other", Action.PUB)]

        async def sent(topic: str) -> int:
            send = request_of(RequestCode.SEND_MESSAGE_V2)
            send.fields |= {"a": "pg", "b": topic, "c": "TBW102", "d": "1", "e": "0"}
            send.body = b"x"
            return (await ask(broker.client, broker, send, "able", ABLE_SECRET)).code

        give(users_of(broker), "able", ABLE_SECRET, both)
        assert [await sent(topic) for topic in ("Own", "Other", "Own", "Other")] == [0, 0, 0, 0]
        give(users_of(broker), "able", ABLE_SECRET, both[:1])
        assert [await sent(topic) for topic in ("Own", "Other", "Own", "Other")] == [0, 16, 0, 16]


@pytest.mark.feature("X10")
@one_loop
async def test_a_right_on_the_cluster_makes_changes_and_deletes_no_super_user(tmp_path: Path) -> None:
    async with whole(tmp_path, **ON) as broker:
        users = users_of(broker)
        may = Need(Kind.CLUSTER, broker.broker.state.settings.now.cluster, frozenset((Action.UPDATE,)))
        give(users, "able", ABLE_SECRET, [may])
        for code, name, body in (
            (RequestCode.AUTH_CREATE_USER, "eve", b'{"password":"of-eve","userType":"super"}'),
            (RequestCode.AUTH_UPDATE_USER, "able", b'{"userType":"Super"}'),
            (RequestCode.AUTH_UPDATE_USER, ROOT, b'{"password":"mine-now"}'),
            (RequestCode.AUTH_UPDATE_USER, ROOT, b'{"userStatus":"disable"}'),
            (RequestCode.AUTH_DELETE_USER, ROOT, b""),
        ):
            before = users.table
            answer = await ask(
                broker.client, broker, Command(code, fields={"username": name}, body=body), "able", ABLE_SECRET
            )
            assert (answer.code, "by super user" in (answer.remark or "")) == (16, True), (code, answer.remark)
            assert users.table is before
        plain = Command(RequestCode.AUTH_CREATE_USER, fields={"username": "bob"}, body=b'{"password":"of-bob"}')
        assert (await ask(broker.client, broker, plain, "able", ABLE_SECRET)).code == ResponseCode.SUCCESS


@pytest.mark.feature("X10")
@one_loop
async def test_a_reply_is_stored_for_who_may_send_there_and_passed_on_for_everybody(tmp_path: Path) -> None:
    async with whole(tmp_path, **ON) as broker:
        state = broker.broker.state
        topic = reply_topic(state.settings.now.cluster)
        give(users_of(broker), "plain", PLAIN_SECRET, [])
        give(users_of(broker), "able", ABLE_SECRET, [of_topic(topic, Action.PUB)])
        for name, secret, count in (("plain", PLAIN_SECRET, 0), ("able", ABLE_SECRET, 1)):
            reply = request_of(RequestCode.SEND_REPLY_MESSAGE_V2)
            reply.fields |= {"b": topic, "d": "1", "e": "0", "i": "REPLY_TO_CLIENT\x01nobody\x02"}
            reply.body = b"a reply"
            answer = await ask(broker.client, broker, reply, name, secret)
            assert "has no connection to this broker" in (answer.remark or ""), answer
            assert state.store.max_offset(QueueKey(topic, 0)) == count, name


@pytest.mark.feature("X10")
@one_loop
async def test_a_denial_of_one_topic_is_stronger_than_a_right_on_all(tmp_path: Path) -> None:
    async with whole(tmp_path, **ON) as broker:
        give(users_of(broker), "able", ABLE_SECRET, [])
        entries = [
            AclEntry(actions=["Pub"], decision="Allow", resource="Topic:*"),
            AclEntry(actions=["All"], decision="Deny", resource="Topic:Secret"),
        ]
        users = users_of(broker)
        users.table = users.table.with_policies("User:able", Acl(policies=[AclPolicy(entries=entries)]))
        users.version += 1
        for _ in range(2):  # the first is judged, the second may be remembered
            for topic, code in (("Own", 0), ("Secret", 16)):
                send = request_of(RequestCode.SEND_MESSAGE_V2)
                send.fields |= {"b": topic, "c": "TBW102", "d": "1"}
                send.body = b"x"
                answer = await ask(broker.client, broker, send, "able", ABLE_SECRET)
                assert (answer.code, "the decision is deny" in (answer.remark or "")) == (code, code == 16), topic


@pytest.mark.feature("X10")
@one_loop
async def test_without_authorisation_a_user_may_do_everything_but_make_himself_another(tmp_path: Path) -> None:
    given = {key: text for key, text in ON.items() if key != "authorizationEnabled"}
    async with whole(tmp_path, **given) as broker:
        give(users_of(broker), "plain", PLAIN_SECRET, [])
        config = request_of(RequestCode.GET_BROKER_CONFIG)
        assert (await ask(broker.client, broker, config, "plain", PLAIN_SECRET)).code == ResponseCode.SUCCESS
        before = users_of(broker).table
        body = b'{"password":"of-eve","userType":"Super"}'
        for code in (RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER):
            for name in ("eve", "plain"):
                made = Command(code, fields={"username": name}, body=body)
                refused = await ask(broker.client, broker, made, "plain", PLAIN_SECRET)
                assert "which is for Super users" in (refused.remark or ""), (code, name)
        assert users_of(broker).table is before


@pytest.mark.feature("X10")
@one_loop
async def test_no_answer_about_one_user_or_about_all_holds_a_password(tmp_path: Path) -> None:
    async with whole(tmp_path, **ON) as broker:
        for asked in (
            Command(RequestCode.AUTH_GET_USER, fields={"username": ROOT}),
            Command(RequestCode.AUTH_LIST_USER),
            Command(RequestCode.AUTH_LIST_USER, fields={"filter": ROOT}),
        ):
            answer = await ask(broker.client, broker, asked, ROOT, ROOT_SECRET)
            assert ROOT.encode() in answer.body
            assert ROOT_SECRET.encode() not in answer.body
            assert b"password" not in answer.body


def _with(change: Callable[[str], str]) -> Callable[[Command], None]:
    def spoil(command: Command) -> None:
        command.fields[SIGNATURE] = change(command.fields[SIGNATURE])

    return spoil


def _as_other_user(command: Command) -> None:
    command.fields[ACCESS_KEY] = "plain"


def _to_other_topic(command: Command) -> None:
    command.fields["b"] = "Other"


def _moved_between_fields(command: Command) -> None:
    """The same bytes in the same order: the topic has one letter less, the field before it one more."""
    command.fields["a"], command.fields["b"] = command.fields["a"] + command.fields["b"][0], command.fields["b"][1:]


def _other_body(command: Command) -> None:
    command.body += b"!"


def _unsigned(command: Command) -> None:
    del command.fields[SIGNATURE]


WRONG = {
    "empty": _with(lambda right: ""),
    "of nothing": _with(lambda right: base64.b64encode(bytes(20)).decode()),
    "half": _with(lambda right: right[:14]),
    "twice": _with(lambda right: right + right),
    "another case": _with(str.swapcase),
    "without its padding": _with(lambda right: right.rstrip("=")),
    "with a blank": _with(lambda right: right + " "),
    "in hexadecimal": _with(lambda right: base64.b64decode(right).hex()),
    "in other letters": _with(lambda right: right.translate(str.maketrans("+/", "-_")).replace("=", ".")),
    "of another alphabet": _with(lambda right: "\u0391" + right[1:]),
    "as long as a header may be": _with(lambda right: right * 4_000),
    "missing": _unsigned,
    "another user's": _as_other_user,
    "for another topic": _to_other_topic,
    "a letter moved": _moved_between_fields,
    "of another body": _other_body,
}


@pytest.mark.feature("X10")
@one_loop
async def test_no_wrong_signature_is_let_in_beside_right_ones_with_or_without_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the fast path, where the first right one has been judged; a one-way request is told nothing."""
    monkeypatch.setattr(guesses, "FREE_COUNT", 1 << 30)

    def send() -> Command:
        command = request_of(RequestCode.SEND_MESSAGE_V2)
        command.fields |= {"a": "pg", "b": "Mine", "c": "TBW102", "d": "1", "e": "0"}
        command.body = b"body"
        return signed(command, "able", ABLE_SECRET)

    async with whole(tmp_path, **ON) as broker:
        give(users_of(broker), "able", ABLE_SECRET, [of_topic("Mine", Action.PUB)])
        give(users_of(broker), "plain", PLAIN_SECRET, [of_topic("Mine", Action.PUB)])
        queue, at = QueueKey("Mine", 0), broker.address
        for count, (kind, spoil) in enumerate(WRONG.items(), 1):
            right, wrong, silent = send(), send(), send()
            spoil(wrong)
            spoil(silent)
            assert (await broker.client.request(at, right, TIMEOUT_S)).code == ResponseCode.SUCCESS, kind
            await broker.client.send_oneway(at, silent)
            refused = await broker.client.request(at, wrong, TIMEOUT_S)
            assert refused.code != ResponseCode.SUCCESS, kind
            assert broker.broker.state.store.max_offset(queue) == count, kind
        assert broker.broker.state.store.max_offset(QueueKey("Other", 0)) == 0
