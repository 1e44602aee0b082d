"""A user who may send to one topic tries to have the broker store or show something of another."""

from pathlib import Path

import pytest

from bolide.access.questions import of_group, of_topic
from bolide.access.resources import Action, Kind, Need
from bolide.model.message import parse_offset_id
from bolide.model.queue import QueueKey
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.remoting.ports import free_port
from tests.access.walking import ABLE_SECRET, GROUP, ON, ROOT, ROOT_SECRET, give, request_of, signed, users_of
from tests.broker.whole import Whole, whole
from tests.remoting.loops import eventually, one_loop

TIMEOUT_S = 20
MINE, SECRET = "Mine", "Secret"
ELSEWHERE = f"REAL_TOPIC\x01{SECRET}\x02REAL_QID\x010\x02"


async def ask(broker: Whole, command: Command, *, is_root: bool = False) -> Command:
    name, secret = (ROOT, ROOT_SECRET) if is_root else ("able", ABLE_SECRET)
    return await broker.client.request(broker.address, signed(command, name, secret), TIMEOUT_S)


async def make_topics(broker: Whole) -> None:
    for topic in (MINE, SECRET):
        made = request_of(RequestCode.UPDATE_AND_CREATE_TOPIC)
        made.fields["topic"] = topic
        assert (await ask(broker, made, is_root=True)).code == ResponseCode.SUCCESS


async def send(broker: Whole, properties: str, sys_flag: str = "0", code: int = 310) -> Command:
    fields = {"a": "pg", "b": MINE, "c": "TBW102", "d": "4", "e": "0", "f": sys_flag, "g": "1", "h": "0"}
    return await ask(broker, Command(code, fields={**fields, "i": properties}, body=b"planted"))


def count_in(broker: Whole, topic: str) -> int:
    return sum(broker.broker.state.store.max_offset(QueueKey(topic, number)) for number in range(4))


@pytest.mark.feature("X10")
@one_loop
async def test_no_property_of_a_message_has_it_stored_in_another_topic(tmp_path: Path) -> None:
    async with whole(tmp_path, **ON, messageDelayLevel="1s 1s") as broker:
        give(users_of(broker), "able", ABLE_SECRET, [of_topic(MINE, Action.PUB)])
        await make_topics(broker)
        later = [f"DELAY\x011\x02{ELSEWHERE}", f"{ELSEWHERE}DELAY\x012\x02", f"TIMER_DELAY_MS\x01500\x02{ELSEWHERE}"]
        later += [f"{ELSEWHERE}TIMER_DELAY_SEC\x011\x02", f"TIMER_OUT_MS\x011\x02{ELSEWHERE}", ELSEWHERE]
        for number, properties in enumerate(later):
            answer = await send(broker, f"UNIQ_KEY\x01k{number}\x02{properties}")
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        transaction = "TRAN_MSG\x01true\x02PGROUP\x01pg\x02"
        halves = (transaction + ELSEWHERE, ELSEWHERE + transaction)
        for number, properties in enumerate(halves):
            half = await send(broker, f"UNIQ_KEY\x01h{number}\x02{properties}", "4")
            assert half.code == ResponseCode.SUCCESS, half.remark
            place = parse_offset_id(half.fields["msgId"])
            assert place is not None
            fields = {"producerGroup": "pg", "tranStateTableOffset": half.fields["queueOffset"]}
            fields |= {"commitOrRollback": "8", "commitLogOffset": str(place.physical_offset)}
            fields |= {"msgId": f"h{number}", "transactionId": f"h{number}"}
            done = await ask(broker, Command(RequestCode.END_TRANSACTION, fields=fields))
            assert done.code == ResponseCode.SUCCESS, done.remark
        await eventually(lambda: count_in(broker, MINE) >= len(later) + len(halves))
        assert count_in(broker, SECRET) == 0


@pytest.mark.feature("X10")
@one_loop
async def test_a_right_on_all_topics_but_one_does_not_show_what_waits_for_that_one(tmp_path: Path) -> None:
    async with whole(tmp_path, **ON, messageDelayLevel="1h") as broker:
        rights = [Need(Kind.TOPIC, "*", frozenset((Action.SUB,))), of_group(GROUP, Action.SUB)]
        give(users_of(broker), "able", ABLE_SECRET, rights)
        await make_topics(broker)
        fields = {"a": "pg", "b": SECRET, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
        delayed = Command(310, fields={**fields, "i": "UNIQ_KEY\x01k\x02DELAY\x011\x02"}, body=b"not for all")
        assert (await ask(broker, delayed, is_root=True)).code == ResponseCode.SUCCESS
        for code, more in (
            (RequestCode.PULL_MESSAGE, {"sysFlag": "4", "subscription": "*", "expressionType": "TAG"}),
            (RequestCode.LITE_PULL_MESSAGE, {"sysFlag": "4", "subscription": "*", "expressionType": "TAG"}),
            (RequestCode.POP_MESSAGE, {"queueId": "-1", "invisibleTime": "1000", "exp": "*", "expType": "TAG"}),
            (RequestCode.QUERY_MESSAGE, {"key": "k", "maxNum": "32", "endTimestamp": str(1 << 62)}),
        ):
            asked = request_of(code)
            asked.fields |= {"topic": "SCHEDULE_TOPIC_XXXX", "maxMsgNums": "32", **more}
            answer = await ask(broker, asked)
            assert (answer.code, answer.body) == (ResponseCode.NO_PERMISSION, b""), code


@pytest.mark.feature("X10")
@one_loop
async def test_the_second_port_asks_for_a_name_too(tmp_path: Path) -> None:
    port = free_port(-2)
    async with whole(tmp_path, **ON, listenPort=str(port)) as broker:
        for code in (RequestCode.GET_BROKER_CONFIG, RequestCode.SEND_MESSAGE_V2, RequestCode.QUERY_MESSAGE):
            answer = await broker.client.request(f"127.0.0.1:{port - 2}", request_of(code), TIMEOUT_S)
            assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "username cannot be null.")
        known = signed(request_of(RequestCode.GET_BROKER_CONFIG), ROOT, ROOT_SECRET)
        assert (await broker.client.request(f"127.0.0.1:{port - 2}", known, TIMEOUT_S)).code == ResponseCode.SUCCESS
