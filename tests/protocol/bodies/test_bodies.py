"""Bodies are JSON in Java's order (a queue as a key is bare), and are read from whatever Java, C++ and Go send."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from bolide.errors import Refusal
from bolide.model.queue import MessageQueue
from bolide.protocol import bodies as b
from bolide.protocol import fastjson
from bolide.protocol.bodies.body import MILD_SIZE_MAX, decode_breathing, read
from bolide.protocol.codes import ResponseCode
from tests.protocol.body_samples import GROUP, HEARTBEAT, QUEUE, QUEUE_1, ROUTE, SAMPLES, SUBSCRIPTION, TOPIC

BODIES = sorted(
    (kind for kind in vars(b).values() if isinstance(kind, type) and issubclass(kind, b.Body) and kind is not b.Body),
    key=lambda kind: kind.__name__,
)
Q0 = MessageQueue("T1", "broker-a", 0)
Q1 = MessageQueue("T1", "broker-a", 1)


def strict_form(java: str) -> str:
    """The sample with its bare and object keys in quotes, and nothing else changed."""
    return json.dumps(fastjson.loads(java), ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize(("kind", "java"), SAMPLES, ids=lambda value: getattr(value, "__name__", None))
def test_javas_text_comes_back_as_it_was_but_for_bare_numbers(kind: type[b.Body], java: str) -> None:
    written = kind.decode(java.encode()).encode().decode()
    assert strict_form(written) == strict_form(java)
    assert written.count("{{") == java.count("{{")


def test_a_queue_as_a_key_is_a_bare_object_for_that_is_all_that_5_5_reads() -> None:
    stats = b.TopicStats(offset_table={Q0: b.QueueSpan(), Q1: b.QueueSpan()})
    row = '"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0'
    keys = [f'{{"brokerName":"broker-a","queueId":{number},"topic":"T1"}}' for number in (0, 1)]
    expected = f'{{"offsetTable":{{{keys[0]}:{{{row}}},{keys[1]}:{{{row}}}}},"topicPutTps":0.0}}'
    assert stats.encode().decode() == expected


@pytest.mark.feature("X05")
def test_an_election_names_all_of_a_group_with_ids_that_mqadmin_reads() -> None:
    members = b.BrokerMembers(broker_addrs={1: "h:1", 2: "h:2"}, broker_name="g", cluster="c")
    written = b.ElectedMaster(broker_member_group=members, sync_state_set=[1]).encode()
    group = b'{"brokerAddrs":{"1":"h:1","2":"h:2"},"brokerName":"g","cluster":"c"}'
    assert written == b'{"brokerMemberGroup":' + group + b',"syncStateSet":[1]}'
    assert b.ElectedMaster.decode(written).broker_member_group == members


@pytest.mark.parametrize("text", [b"", b"7", b"{}", b'{"a":1}', b"[[1]]", b'["a\n"]', b"[" * 100_000])
def test_broker_names_that_are_none_are_refused(text: bytes) -> None:
    with pytest.raises(Refusal):
        b.decode_broker_names(text)


def test_broker_names_come_back_and_ten_thousand_are_too_many() -> None:
    names = ["a", "b-1", "c d", "\u00e9"]
    assert b.decode_broker_names(b.encode_broker_names(names)) == names
    with pytest.raises(Refusal, match="10001 broker names"):
        b.decode_broker_names(b.encode_broker_names(["n"] * 10_001))


def test_a_text_that_looks_like_a_queue_key_stays_a_text() -> None:
    text = '{"brokerName":"b"}'
    table = b.KVTable(table={"a": text, "b": f'x,"{text}":1'})
    assert b.KVTable.decode(table.encode()) == table


@pytest.mark.parametrize(("kind", "java"), SAMPLES, ids=lambda value: getattr(value, "__name__", None))
def test_javas_form_and_ours_mean_the_same(kind: type[b.Body], java: str) -> None:
    assert kind.decode(java.encode()) == kind.decode(strict_form(java).encode())


def test_a_sample_without_odd_keys_comes_back_to_the_byte() -> None:
    for kind, java in SAMPLES:
        if is_strict(java):
            assert kind.decode(java.encode()).encode() == java.encode()


def is_strict(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def parts(type_: inspect.Type) -> Iterator[type]:
    """Every struct inside a type, itself included."""
    if isinstance(type_, inspect.StructType):
        yield type_.cls
        for field in type_.fields:
            yield from parts(field.type)
    elif isinstance(type_, inspect.DictType):
        yield from parts(type_.value_type)
    elif isinstance(type_, inspect.ListType):
        yield from parts(type_.item_type)
    elif isinstance(type_, inspect.UnionType):
        for choice in type_.types:
            yield from parts(choice)


def test_every_body_is_in_a_sample() -> None:
    shown = {part for kind, _ in SAMPLES for part in parts(inspect.type_info(kind))}
    assert set(BODIES) <= shown


@pytest.mark.parametrize("kind", BODIES)
def test_members_stand_in_javas_order(kind: type[b.Body]) -> None:
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    assert names == sorted(names)


@pytest.mark.parametrize("kind", BODIES)
def test_what_is_not_none_is_written_even_at_its_default(kind: type[b.Body]) -> None:
    fields = msgspec.structs.fields(kind)
    needed = {field.name: "x" for field in fields if field.required}
    body = kind(**needed)
    written = {field.encode_name for field in fields if getattr(body, field.name) is not None}
    assert set(json.loads(body.encode())) == written


@pytest.mark.parametrize("kind", BODIES)
def test_an_empty_object_is_read_with_all_defaults(kind: type[b.Body]) -> None:
    if kind is b.BatchAck:
        with pytest.raises(Refusal, match="missing required field"):
            kind.decode(b"{}")
    else:
        assert kind.decode(b"{}") == kind()


@pytest.mark.parametrize("kind", BODIES)
def test_unknown_members_are_ignored(kind: type[b.Body]) -> None:
    needed = '"c":"CG","t":"T1",' if kind is b.BatchAck else ""
    plain = kind.decode(("{" + needed[:-1] + "}").encode())
    assert kind.decode(("{" + needed + '"fromTheFuture":{"a":[1,{}]}}').encode()) == plain


@pytest.mark.parametrize("kind", BODIES)
def test_nulls_keep_the_defaults(kind: type[b.Body]) -> None:
    fields = [field for field in msgspec.structs.fields(kind) if not field.required]
    text = "{" + ",".join(f'"{field.encode_name}":null' for field in fields)
    text += ',"c":"CG","t":"T1"}' if kind is b.BatchAck else "}"
    body = kind.decode(text.encode())
    for field in fields:
        default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        assert getattr(body, field.name) == default


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("text", [b"", b"7", b"[]", b'{"a":', b"\xff", b"null", b"[" * 100_000])
def test_a_refusal_names_the_body_and_the_problem(kind: type[b.Body], text: bytes) -> None:
    with pytest.raises(Refusal, match=f"the {kind.rocketmq_name} in the body cannot be read: .") as caught:
        kind.decode(text)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


def test_a_refusal_names_the_member() -> None:
    with pytest.raises(Refusal, match=r"Expected `int`, got `str` - at `\$\.perm`"):
        b.TopicConfig.decode(TOPIC.replace('"perm":6', '"perm":"much"').encode())


# fastjson's oddities


@pytest.mark.parametrize(
    "text",
    [
        TOPIC.replace('"perm":6', '"perm":"6"').replace('"order":false', '"order":"false"'),
        TOPIC.replace('"', "'"),
        TOPIC.replace(",", " ,\n").replace("}", ",}"),
        TOPIC.replace('"topicName":"T1"', 'topicName:"T1"'),
        TOPIC.replace('"topicSysFlag":0', '"topicSysFlag":null'),
    ],
)
def test_what_fastjson_takes_is_taken(text: str) -> None:
    assert b.TopicConfig.decode(text.encode()) == b.TopicConfig.decode(TOPIC.encode())


def test_numbers_and_booleans_are_taken_for_texts() -> None:
    assert b.KVTable.decode(b'{"table":{"a":1,"b":true,"c":2.5,"d":null}}').table == {"a": "1", "b": "true", "c": "2.5"}


def test_a_reference_among_values_is_what_it_refers_to() -> None:
    text = f'{{"T1":{SUBSCRIPTION},"T2":{{"$ref":"$.subscriptionTable.T1"}}}}'
    connections = b.ConsumerConnections.decode(f'{{"subscriptionTable":{text}}}'.encode())
    assert connections.subscription_table["T2"] == b.Subscription.decode(SUBSCRIPTION.encode())


def test_a_reference_among_queue_keys_is_the_queue_it_refers_to() -> None:
    reference = '{"$ref":"$.consumerTable.c1.null"}'
    text = f'{{"consumerTable":{{"c1":{{{QUEUE}:3,{QUEUE_1}:4}},"c2":{{{reference}:5,{reference}:6}}}}}}'
    assert b.ConsumerStatus.decode(text.encode()).consumer_table == {"c1": {Q0: 3, Q1: 4}, "c2": {Q0: 5, Q1: 6}}


def test_a_reference_is_not_taken_for_an_object_without_members() -> None:
    with pytest.raises(Refusal, match="reference"):
        b.Heartbeat.decode(b'{"consumerDataSet":[{"$ref":"$.nowhere"}]}')


def test_a_queue_as_key_is_read_bare_and_as_text() -> None:
    expected = b.ResetOffsets(offset_table={Q0: 6})
    text = json.dumps({"offsetTable": {QUEUE: 6}}, separators=(",", ":"))
    for form in (f'{{"offsetTable":{{{QUEUE}:6}}}}', text, text.replace(r"\"queueId\":0", r"\"queueId\": \"0\"")):
        assert b.ResetOffsets.decode(form.encode()) == expected


@pytest.mark.parametrize("key", ["T1", "{", "[]", "", "7"])
def test_a_key_that_is_no_queue_is_refused(key: str) -> None:
    with pytest.raises(Refusal, match="ResetOffsetBody"):
        b.ResetOffsets.decode(json.dumps({"offsetTable": {key: 6}}).encode())


def test_awkward_names_survive_as_keys() -> None:
    queue = MessageQueue('%RETRY%"a\\b{', "brök:er,0", 3)
    offsets = b.ResetOffsets(offset_table={queue: 1})
    assert b.ResetOffsets.decode(offsets.encode()) == offsets


def test_control_and_foreign_characters_survive() -> None:
    table = b.KVTable(table={"a\x01\x7f\u2028/": "中文😀\n"})
    assert b.KVTable.decode(table.encode()) == table
    assert json.loads(table.encode()) == {"table": table.table}


def test_what_is_written_has_no_blank_between_tokens() -> None:
    for kind, java in SAMPLES:
        written = kind.decode(java.encode()).encode().decode()
        if is_strict(written):
            assert written == json.dumps(json.loads(written), ensure_ascii=False, separators=(",", ":"))
        assert '": ' not in written
        assert ', "' not in written


# numbers that are none


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_written_as_zero(rate: float) -> None:
    assert b.TopicStats(topic_put_tps=rate).encode() == b'{"offsetTable":{},"topicPutTps":0.0}'
    assert b.ConsumeStats(consume_tps=rate).encode() == b'{"consumeTps":0.0,"offsetTable":{}}'
    assert b.StatsItem(avgpt=rate, tps=rate).encode() == b'{"avgpt":0.0,"sum":0,"tps":0.0}'
    assert b'"consumeOKTPS":0.0,"consumeRT":0.0' in b.ConsumeRates(consume_ok_tps=rate, consume_rt=rate).encode()


@pytest.mark.parametrize("text", ['{"consumeTps":null}', '{"consumeTps":NaN}', '{"consumeTps":1e999}'])
def test_what_is_not_finite_is_read_as_zero(text: str) -> None:
    assert b.ConsumeStats.decode(text.encode()).consume_tps == 0.0


# routes


def test_the_bare_route_is_javas_to_the_byte() -> None:
    for kind, java in SAMPLES:
        if kind is b.TopicRoute and "currIdMap" not in java:
            assert b.TopicRoute.decode(java.encode()).encode_bare() == java.encode()


def test_a_route_without_brokers_has_no_seams() -> None:
    empty = b.TopicRoute()
    assert empty.encode_bare() == empty.encode() == b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}'
    unaddressed = b.TopicRoute(broker_datas=[b.BrokerRoute(broker_name="b"), b.BrokerRoute(broker_name="c")])
    assert unaddressed.encode_bare() == unaddressed.encode()


def addresses_as_go_cuts_them(route: str) -> dict[int, str]:
    """As rocketmq-client-go reads brokerAddrs: by commas and colons, without a JSON parser."""
    inner = route.partition('"brokerAddrs":{')[2].partition("}")[0]
    entries = (entry.split(":", 1) for entry in inner.split(","))
    return {int(id_.strip('"')): address[1:-1] for id_, address in entries}


@pytest.mark.parametrize("form", ["encode", "encode_bare"])
def test_go_can_cut_the_addresses_by_hand(form: str) -> None:
    route = b.TopicRoute.decode(ROUTE.encode())
    text = getattr(route, form)().decode()
    assert addresses_as_go_cuts_them(text) == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}


def test_the_queue_flag_of_old_name_servers_is_understood() -> None:
    old = ROUTE.replace('"topicSysFlag":0', '"topicSynFlag":3').replace(',"enableActingMaster":false', "")
    route = b.TopicRoute.decode(old.encode())
    assert route.queue_datas[0].topic_sys_flag == 3
    assert route.broker_datas[0].enable_acting_master is False


def test_a_mapping_is_passed_on_as_strict_json() -> None:
    text = ROUTE[:-1] + ',"topicQueueMappingByBroker":{"broker-a":{"currIdMap":{0:1},"topic":"T1"}}}'
    mappings = b.TopicRoute.decode(text.encode()).topic_queue_mapping_by_broker
    assert mappings is not None
    assert json.loads(bytes(mappings["broker-a"])) == {"currIdMap": {"0": 1}, "topic": "T1"}


# clients in other languages

CPP_HEARTBEAT = (
    '{"clientID":"10.0.0.9@1","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"CG","messageModel":1,'
    '"subscriptionDataSet":[{"subString":"*","subVersion":"1794773803102","topic":"T1"}]}]}\n'
)


def test_a_heartbeat_of_cpp_is_understood() -> None:
    heartbeat = b.Heartbeat.decode(CPP_HEARTBEAT.encode())
    member = heartbeat.consumer_data_set[0]
    assert heartbeat.producer_data_set == []
    assert member.consume_from_where is b.ConsumeFrom.CONSUME_FROM_FIRST_OFFSET
    assert member.consume_type is b.ConsumeType.CONSUME_PASSIVELY
    assert member.message_model is b.MessageModel.CLUSTERING
    assert member.subscription_data_set == [b.Subscription(sub_string="*", sub_version=1794773803102, topic="T1")]
    assert member.subscription_data_set[0].expression_type == "TAG"


def test_a_heartbeat_of_cpp_without_consumers_is_understood() -> None:
    heartbeat = b.Heartbeat.decode(b'{"clientID":"c","producerDataSet":[{"groupName":"PG"}]}')
    assert heartbeat == b.Heartbeat(client_id="c", producer_data_set=[b.ProducerMember(group_name="PG")])


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (b.ConsumeType, ["CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"]),
        (b.MessageModel, ["BROADCASTING", "CLUSTERING"]),
        (
            b.ConsumeFrom,
            [
                "CONSUME_FROM_LAST_OFFSET",
                "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
                "CONSUME_FROM_MIN_OFFSET",
                "CONSUME_FROM_MAX_OFFSET",
                "CONSUME_FROM_FIRST_OFFSET",
                "CONSUME_FROM_TIMESTAMP",
            ],
        ),
    ],
)
def test_ordinals_and_names_mean_the_same_member(kind: Any, names: list[str]) -> None:
    member = {b.ConsumeType: "consumeType", b.MessageModel: "messageModel", b.ConsumeFrom: "consumeFromWhere"}[kind]
    for ordinal, name in enumerate(names):
        for value in (f'"{name}"', str(ordinal), f'"{ordinal}"'):
            text = f'{{"consumerDataSet":[{{"{member}":{value}}}]}}'
            consumer = b.Heartbeat.decode(text.encode()).consumer_data_set[0]
            assert kind(name) in (consumer.consume_type, consumer.message_model, consumer.consume_from_where)


@pytest.mark.parametrize("value", ['"LITE_SELECTIVE"', "17", "-1", "1.5", '"99"', "true", "{}"])
def test_an_unknown_member_of_an_enum_is_none_or_the_default(value: str) -> None:
    heartbeat = b.Heartbeat.decode(f'{{"consumerDataSet":[{{"messageModel":{value},"groupName":"CG"}}]}}'.encode())
    assert heartbeat.consumer_data_set == [b.ConsumerMember(group_name="CG")]
    assert heartbeat.consumer_data_set[0].message_model is None
    connections = b.ConsumerConnections.decode(f'{{"messageModel":{value}}}'.encode())
    assert connections.message_model is b.MessageModel.CLUSTERING


def test_consumer_connections_always_say_their_enums() -> None:
    said = json.loads(b.ConsumerConnections().encode())
    assert {"consumeType", "messageModel", "consumeFromWhere"} <= set(said)


def test_the_reset_for_cpp_is_the_same_as_a_list() -> None:
    offsets = b.ResetOffsets(offset_table={Q0: 5, Q1: 6})
    assert json.loads(b.ResetOffsetsForC.of(offsets).encode()) == {
        "offsetTable": [
            {"brokerName": "broker-a", "offset": 5, "queueId": 0, "topic": "T1"},
            {"brokerName": "broker-a", "offset": 6, "queueId": 1, "topic": "T1"},
        ]
    }


def test_bodies_of_4_9_are_read_without_what_came_later() -> None:
    old_topic = TOPIC.replace('"attributes":{},', "")
    assert b.TopicConfig.decode(old_topic.encode()) == b.TopicConfig.decode(TOPIC.encode())
    old_heartbeat = HEARTBEAT.replace('"heartbeatFingerprint":0,', "").replace(',"withoutSub":false', "")
    assert b.Heartbeat.decode(old_heartbeat.encode()) == b.Heartbeat.decode(HEARTBEAT.encode())
    old_group = {name: value for name, value in json.loads(GROUP).items() if name not in NEW_IN_GROUPS}
    assert b.GroupConfig.decode(json.dumps(old_group).encode()) == b.GroupConfig.decode(GROUP.encode())


NEW_IN_GROUPS = {
    "attributes",
    "consumeMessageOrderly",
    "consumeTimeoutMinute",
    "groupRetryPolicy",
    "groupSysFlag",
}


# the rest


def test_an_assignment_tells_nothing_from_none() -> None:
    assert b.AssignmentAnswer.decode(b"{}").message_queue_assignments is None
    assert b.AssignmentAnswer().encode() == b"{}"
    assert b.AssignmentAnswer.decode(b'{"messageQueueAssignments":[]}').message_queue_assignments == []
    assert b.AssignmentAnswer(message_queue_assignments=[]).encode() == b'{"messageQueueAssignments":[]}'


def test_locks_speak_of_queues() -> None:
    request = b.LockRequest(client_id="c", consumer_group="CG", mq_set=[b.QueueName.of(Q0), b.QueueName.of(Q1)])
    assert request.queues == [Q0, Q1]
    assert b.UnlockRequest.decode(request.encode()).queues == [Q0, Q1]
    assert b.LockAnswer(lock_ok_mq_set=[b.QueueName.of(Q1)]).queues == [Q1]


def test_the_bits_of_a_batch_ack_are_offsets() -> None:
    ack = b.BatchAcks.decode(b'{"acks":[{"b":"CQI=","c":"CG","so":100,"t":"T1"}]}').acks[0]
    assert list(ack.offsets()) == [100, 103, 109]
    assert b.BatchAck.bits_of([100, 103, 109], 100) == ack.bits == b"\x09\x02"


@given(start=st.integers(0, 2**40), steps=st.sets(st.integers(0, 300)))
def test_bits_and_offsets_are_each_others_inverse(start: int, steps: set[int]) -> None:
    offsets = sorted(start + step for step in steps)
    ack = b.BatchAck(consumer_group="CG", topic="T1", start_offset=start, bits=b.BatchAck.bits_of(offsets, start))
    assert list(ack.offsets()) == offsets


def test_a_batch_ack_is_read_with_long_names_too() -> None:
    long_names = (
        '{"acks":[{"bitSet":"CQI=","consumerGroup":"CG","invisibleTime":60000,"popTime":1700000000000,"queueId":1,'
        '"retry":"0","reviveQueueId":3,"startOffset":100,"topic":"T1"}],"brokerName":"broker-a"}'
    )
    short_names = next(java for kind, java in SAMPLES if kind is b.BatchAcks)
    assert b.BatchAcks.decode(long_names.encode()) == b.BatchAcks.decode(short_names.encode())


def test_lists_of_users_are_bare_arrays() -> None:
    users = [b.User(username="u", user_type="Normal"), b.User(username="v")]
    assert b.encode_list(users) == b'[{"userType":"Normal","username":"u"},{"username":"v"}]'
    assert b.decode_list(b.User, b.encode_list(users)) == users
    assert b.decode_list(b.User, b"[{username:'u'},]") == [b.User(username="u")]
    with pytest.raises(Refusal, match="UserInfo"):
        b.decode_list(b.User, b'{"username":"u"}')


def test_a_password_stays_out_of_logs() -> None:
    assert "secret" not in repr(b.User(username="u", password="secret"))


# properties


def strategy(type_: inspect.Type) -> st.SearchStrategy[Any]:
    """Any value of a type that bodies are made of."""
    match type_:
        case inspect.StructType():
            return st.builds(type_.cls, **{field.name: strategy(field.type) for field in type_.fields})
        case inspect.DictType():
            return st.dictionaries(strategy(type_.key_type), strategy(type_.value_type), max_size=3)
        case inspect.ListType():
            return st.lists(strategy(type_.item_type), max_size=3)
        case inspect.UnionType():
            return st.one_of([strategy(choice) for choice in type_.types])
        case inspect.EnumType():
            return st.sampled_from(type_.cls)
        case inspect.CustomType():
            return st.builds(MessageQueue, st.text(max_size=9), st.text(max_size=9), st.integers(-1, 2**31 - 1))
    return {
        inspect.StrType: st.text(max_size=20),
        inspect.IntType: st.integers(-(2**63), 2**63 - 1),
        inspect.BoolType: st.booleans(),
        inspect.FloatType: st.floats(allow_nan=False, allow_infinity=False),
        inspect.BytesType: st.binary(max_size=9),
        inspect.NoneType: st.none(),
        inspect.RawType: st.sampled_from([msgspec.Raw(b'{"a":[1]}'), msgspec.Raw(b'"x"'), msgspec.Raw(b"{}")]),
    }[type(type_)]


@pytest.mark.parametrize("kind", BODIES)
def test_every_body_survives_the_wire(kind: type[b.Body]) -> None:
    @settings(max_examples=15)
    @given(body=strategy(inspect.type_info(kind)))
    def survives(body: b.Body) -> None:
        written = body.encode()
        assert read(kind, written) == body
        # The mild reader, which a stray comma calls, finds the same.
        assert read(kind, written[:-1] + b",}") == body
        if is_strict(written.decode()):
            assert json.loads(written) == fastjson.loads(written)

    survives()


SOUP = [*'{}[]:,"', "0", "-1", "2.5", '"5"', "null", "true", '"$ref":', '"$"', QUEUE, SUBSCRIPTION, '{"$ref":"$"}']
SOUP += ['"offsetTable":', '"consumerDataSet":', '"subscriptionDataSet":', '"consumeType":', '"brokerDatas":', "{}"]
SOUP += ['"brokerAddrs":', '"topicConfigTable":', '"groupRetryPolicy":', '"acks":', '"b":', '"mqTable":', "9" * 30]


@given(
    kind=st.sampled_from(BODIES),
    text=st.lists(st.sampled_from(SOUP)).map(lambda ts: "".join(ts).encode()) | st.binary(),
)
def test_anything_is_a_body_or_refused(kind: type[b.Body], text: bytes) -> None:
    try:
        body = kind.decode(text)
    except Refusal:
        return
    assert kind.decode(body.encode()) == body


@given(sample=st.sampled_from(SAMPLES), data=st.data())
def test_a_damaged_body_is_read_or_refused(sample: tuple[type[b.Body], str], data: st.DataObject) -> None:
    kind, java = sample
    text = bytearray(java.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=2))
    with contextlib.suppress(Refusal):
        kind.decode(bytes(text))


def test_of_a_strangers_body_the_mild_reader_reads_only_so_much() -> None:
    breaths: list[None] = []
    strict, mild = b'{"clientID":"c","x":"%s"}', b"{'clientID':'c','x':'%s'}"
    for text in (strict % (b"y" * MILD_SIZE_MAX), mild % (b"y" * (MILD_SIZE_MAX // 2))):
        assert decode_breathing(b.Heartbeat, text, lambda: breaths.append(None)).client_id == "c"
    with pytest.raises(Refusal, match="is not strict JSON, the limit is 262144"):
        decode_breathing(b.Heartbeat, mild % (b"y" * MILD_SIZE_MAX), lambda: breaths.append(None))


def test_a_table_by_queue_is_read_alike_whether_its_keys_are_strict_or_only_javas() -> None:
    """Names that a key of fastjson's cannot be told by are left to the mild reader, which gives the same."""
    queues = [
        MessageQueue(topic, "b", 3) for topic in ("T", "%RETRY%g", 'quote"d', "back\\slash", '{"brokerName":"x"}:')
    ]
    stats = b.ConsumeStats(offset_table={queue: b.QueueProgress(broker_offset=7) for queue in queues})
    java = stats.encode()
    assert b'{{"brokerName":' in java
    assert b.ConsumeStats.decode(java) == stats
    assert b.ConsumeStats.decode(java.replace(b'"queueId":', b'"queueId" : ')) == stats
