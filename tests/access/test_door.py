"""What was let in once is let in again only as long as the accounts say so; and these follow their files."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bolide.access import door as door_module
from bolide.access.config import AccessConfig
from bolide.access.door import Door
from bolide.access.questions import of_group, of_topic
from bolide.access.resources import Action
from bolide.access.sources import Users, open_source
from bolide.clock import SystemClock
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.testing.loop import VirtualClock
from tests.access.walking import (
    ABLE_SECRET,
    GROUP,
    ON,
    PLAIN_SECRET,
    ROOT,
    ROOT_SECRET,
    TOPIC,
    give,
    request_of,
    signed,
)
from tests.broker.whole import Whole, whole
from tests.remoting.loops import eventually, one_loop, virtual_time

TIMEOUT_S = 20
NEEDS = [of_topic(TOPIC, Action.SUB), of_group(GROUP, Action.SUB)]


def pull() -> Command:
    """Waits at the end of the queue; flag 6 says that it may, and that the subscription stands in the header."""
    command = request_of(RequestCode.PULL_MESSAGE)
    more = {"sysFlag": "6", "suspendTimeoutMillis": "60000", "subscription": "*", "expressionType": "TAG"}
    command.fields |= more | {"maxMsgNums": "32", "queueId": "0", "queueOffset": "0"}
    return command


def pop() -> Command:
    command = request_of(RequestCode.POP_MESSAGE)
    born = str(SystemClock().now_ms())
    more = {"invisibleTime": "60000", "pollTime": "60000", "bornTime": born, "initMode": "0", "expType": "TAG"}
    command.fields |= more | {"maxMsgNums": "32", "queueId": "-1", "exp": "*"}
    return command


async def send(broker: Whole) -> None:
    made = request_of(RequestCode.SEND_MESSAGE_V2)
    made.fields |= {"b": TOPIC, "c": "TBW102", "d": "1", "e": "0"}
    made.body = b"news"
    answer = await broker.client.request(broker.address, signed(made, ROOT, ROOT_SECRET), TIMEOUT_S)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def deleted(users: Users) -> None:
    users.table = users.table.without_user("able")
    users.version += 1


def revoked(users: Users) -> None:
    give(users, "able", ABLE_SECRET, NEEDS[1:])


def other_secret(users: Users) -> None:
    give(users, "able", "another-secret", NEEDS)


def disabled(users: Users) -> None:
    user = replace(users.table.users["able"], is_enabled=False)
    users.table = replace(users.table, users={**users.table.users, "able": user})
    users.version += 1


def only_somebody_else_came(users: Users) -> None:
    give(users, "plain", PLAIN_SECRET, [])


@pytest.mark.feature("X10")
@pytest.mark.parametrize("ask", [pull, pop])
@pytest.mark.parametrize(
    ("change", "code"),
    [(deleted, 16), (revoked, 16), (other_secret, 16), (disabled, 16), (only_somebody_else_came, 0)],
)
@one_loop
async def test_a_request_that_waits_is_answered_only_if_its_user_still_has_the_right(
    tmp_path: Path, ask: Callable[[], Command], change: Callable[[Users], None], code: int
) -> None:
    nameless = {"authenticationWhitelist": "11,200050"}  # who gives a name all the same is asked for its right
    async with whole(tmp_path, **ON, **nameless) as broker, Client(ConnectConfig(), SystemClock()) as client:
        door, (parked, popping) = broker.broker.admission.door, (broker.broker.parked, broker.broker.pop.parked)
        assert door is not None
        users = door._source
        assert isinstance(users, Users)
        made = signed(request_of(RequestCode.UPDATE_AND_CREATE_TOPIC), ROOT, ROOT_SECRET)
        assert (await client.request(broker.address, made, TIMEOUT_S)).code == ResponseCode.SUCCESS
        give(users, "able", ABLE_SECRET, NEEDS)
        waiting = asyncio.ensure_future(client.request(broker.address, signed(ask(), "able", ABLE_SECRET), TIMEOUT_S))
        await eventually(lambda: parked.count + popping.count == 1)
        change(users)
        await send(broker)
        answer = await waiting
        assert answer.code == code, answer.remark
        assert (b"news" in answer.body) == (code == 0)


@pytest.mark.feature("X10")
@pytest.mark.parametrize(
    ("white", "anonymous", "forged"),
    [
        ({"authenticationWhitelist": "26"}, "username cannot be null.", "check signature failed."),
        ({"authenticationWhitelist": "26", "authorizationWhitelist": "26"}, "", "check signature failed."),
        ({"authenticationWhitelist": "28", "authorizationWhitelist": "28"}, "username cannot be null.", "check s"),
    ],
)
@one_loop
async def test_a_code_that_needs_no_name_and_no_right_is_for_those_who_give_none(
    tmp_path: Path, white: dict[str, str], anonymous: str, forged: str
) -> None:
    async with whole(tmp_path, **ON, **white) as broker:

        async def refused(command: Command) -> str:
            return (await broker.client.request(broker.address, command, TIMEOUT_S)).remark or ""

        assert await refused(request_of(RequestCode.GET_BROKER_CONFIG)) == anonymous
        assert (await refused(signed(request_of(RequestCode.GET_BROKER_CONFIG), ROOT, "wrong"))).startswith(forged)


@pytest.mark.feature("X10")
@one_loop
async def test_what_is_remembered_of_a_connection_is_bounded_and_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_module, "VERDICTS_MAX", 2)
    async with whole(tmp_path, **ON) as broker:
        door = broker.broker.admission.door
        assert door is not None
        async with Client(ConnectConfig(), SystemClock()) as client:
            for number in range(4):
                asked = request_of(RequestCode.PULL_MESSAGE)
                asked.fields["topic"] = f"T{number}"
                await client.request(broker.address, signed(asked, ROOT, ROOT_SECRET), TIMEOUT_S)
            assert [len(verdicts) for verdicts in door._verdicts.values()] == [2]
            assert len(door._callers) == 1
        await eventually(lambda: not door._verdicts and not door._callers)


def users_text(secret: str) -> str:
    return f'{{"users":[{{"username":"bob","password":"{secret}","userType":"Super"}}]}}'


@pytest.mark.feature("X09", "X10")
@pytest.mark.parametrize("has_accounts", [False, True])
@virtual_time
async def test_an_edited_file_is_in_force_within_five_seconds_and_a_broken_one_is_not(
    tmp_path: Path, has_accounts: bool
) -> None:
    path = tmp_path / ("conf/plain_acl.yml" if has_accounts else "config/users.json")
    path.parent.mkdir()

    def write(secret: str) -> None:
        account = f"accounts: [{{accessKey: bobbybob, secretKey: {secret}, admin: true}}]"
        path.write_text(account if has_accounts else users_text(secret).replace('"bob"', '"bobbybob"'))

    write("first-secret")
    config = AccessConfig(has_accounts=has_accounts, is_authenticating=not has_accounts)
    source = open_source(config, tmp_path)
    assert source is not None
    door = Door(config, source, VirtualClock(), "C1")
    async with asyncio.TaskGroup() as group:
        following = group.create_task(door.refresh_forever())
        write("second-secret")
        await asyncio.sleep(5)  # virtual
        assert door.secret_of("bobbybob") == "second-secret"
        path.write_text("{ broken")
        await asyncio.sleep(5)  # virtual
        assert door.secret_of("bobbybob") == "second-secret"
        following.cancel()
