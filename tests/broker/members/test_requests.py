"""What is told about connected clients."""

from pathlib import Path

import msgspec
import pytest

from bolide.protocol.bodies import ClientCheck, ConsumerConnections, GroupSubscription, ProducerTable, Subscription
from bolide.testing import VirtualClock, run
from tests.broker.meeting import Guest, consumer, meeting

# The samples of the protocol's reference: what Java's tools read.
HEARTBEAT = (
    b'{"clientID":"10.0.0.9@1234#567","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
    b'"consumeType":"CONSUME_PASSIVELY","groupName":"CG","messageModel":"CLUSTERING","subscriptionDataSet":['
    b'{"classFilterMode":false,"codeSet":[2598919,2598920],"expressionType":"TAG","subString":"TagA||TagB",'
    b'"subVersion":1794773803102,"tagsSet":["TagA","TagB"],"topic":"T1"}],"unitMode":false}],'
    b'"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"PG"}],"withoutSub":false}'
)
SUBSCRIPTION = {
    "classFilterMode": False,
    "codeSet": [2598919, 2598920],
    "expressionType": "TAG",
    "subString": "TagA||TagB",
    "subVersion": 1794773803102,
    "tagsSet": ["TagA", "TagB"],
    "topic": "T1",
}


def own_address(guest: Guest) -> str:
    (session,) = guest.client.sessions()
    return session.local


@pytest.mark.feature("F125")
def test_connections_of_consumers_are_shown_with_what_they_want(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            assert (await guest.ask(34, body=HEARTBEAT, language=0, version=401)).code == 0
            answer = await guest.ask(203, {"consumerGroup": "CG"})
            connection = {
                "clientAddr": own_address(guest),
                "clientId": "10.0.0.9@1234#567",
                "language": "JAVA",
                "version": 401,
            }
            assert msgspec.json.decode(answer.body) == {
                "connectionSet": [connection],
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "subscriptionTable": {"T1": SUBSCRIPTION},
            }
            answer = await guest.ask(204, {"producerGroup": "PG"})
            assert msgspec.json.decode(answer.body) == {"connectionSet": [connection]}

    run(scenario())


@pytest.mark.feature("F008")
def test_every_instance_of_a_group_is_shown(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as one, broker.guest() as two:
            await one.beat("c1", consumer("g", "T"), producers="pg")
            await two.beat("c2", consumer("g", "T"), producers="pg other")
            answer = await one.ask(203, {"consumerGroup": "g"})
            shown = ConsumerConnections.decode(answer.body).connection_set
            assert [(each.client_id, each.client_addr) for each in shown] == [
                ("c1", own_address(one)),
                ("c2", own_address(two)),
            ]
            table = ProducerTable.decode((await one.ask(328)).body).data
            assert {group: [each.client_id for each in members] for group, members in table.items()} == {
                "pg": ["c1", "c2"],
                "other": ["c2"],
            }
            assert table["pg"][0].last_update_timestamp == broker.clock.now_ms()

    run(scenario())


def test_groups_without_members_are_refused_as_java_tools_expect(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            assert (await guest.ask(203, {"consumerGroup": "CG"})).code == 206
            assert (await guest.ask(204, {"producerGroup": "PG"})).code == 1
            assert ProducerTable.decode((await guest.ask(328)).body).data == {}

    run(scenario())


def test_a_missing_field_is_refused_by_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            for code in (35, 38, 203, 204, 14, 15, 208, 222, 223, 307, 309, 300, 343, 345, 303, 308, 314, 317):
                answer = await guest.ask(code)
                assert answer.code == 1, code
                assert "required but missing" in (answer.remark or ""), code
            for code in (34, 41, 42, 46):
                assert (await guest.ask(code, body=b'{"clientID":')).code == 1, "half a body"
                assert (await guest.ask(code)).code == (0 if code == 46 else 1), "none"

    run(scenario())


def test_what_a_group_wants_of_a_topic_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with meeting(tmp_path, VirtualClock()) as broker, broker.guest() as guest:
            await guest.ask(34, body=HEARTBEAT)
            answer = await guest.ask(345, {"group": "CG", "topic": "T1"})
            assert msgspec.json.decode(answer.body) == {"group": "CG", "subscriptionData": SUBSCRIPTION, "topic": "T1"}
            answer = await guest.ask(345, {"group": "CG", "topic": "T2"})
            assert GroupSubscription.decode(answer.body).subscription_data is None

    run(scenario())


@pytest.mark.feature("F270")
@pytest.mark.parametrize(
    ("kind", "expression", "setting", "code", "reason"),
    [
        ("TAG", "a > 1", "false", 0, ""),
        ("", "a > 1", "false", 0, ""),
        ("SQL92", "a > 1", "false", 1, "enablePropertyFilter"),
        ("SQL92", "a > 1", "true", 0, ""),
        ("SQL92", "a > 1 AND b !", "true", 23, "'!' at character 12"),
        ("SQL93", "a > 1", "true", 23, "SQL93"),
    ],
)
def test_a_subscription_that_would_not_work_is_refused_before_the_start(
    tmp_path: Path, kind: str, expression: str, setting: str, code: int, reason: str
) -> None:
    async def scenario() -> None:
        async with (
            meeting(tmp_path, VirtualClock(), enablePropertyFilter=setting) as broker,
            broker.guest() as guest,
        ):
            wanted = Subscription(topic="T", sub_string=expression, expression_type=kind)
            answer = await guest.ask(46, body=ClientCheck(client_id="c1", group="g", subscription_data=wanted).encode())
            assert answer.code == code
            assert reason in (answer.remark or "")

    run(scenario())
