"""Options: Kafka's names and rocketmq-spark's, and a clear word for the rest."""

import pytest

from bolide.errors import ConfigError
from bolide.model.queue import MessageQueue
from bolide.spark.options import SQL, TAG, sink_options, source_options
from bolide.spark.source.offsets import EARLIEST

NAMESRV = {"nameServer": "a:9876;b:9876"}


def test_names_of_kafka_and_of_rocketmq_spark_mean_the_same() -> None:
    ours = source_options({"bolide.bootstrap.servers": "a:9876;b:9876", "subscribe": "t", "group": "g"})
    theirs = source_options({"nameserver": "a:9876,b:9876", "topic": "t", "kafka.group.id": "g"})
    assert ours == theirs
    assert ours.cluster.namesrv == ("a:9876", "b:9876")


def test_names_count_in_any_case_as_spark_hands_them_over() -> None:
    options = source_options({**NAMESRV, "SUBSCRIBE": "a, b", "maxoffsetspertrigger": "5", "FailOnDataLoss": "False"})
    assert options.subscription.topics == ("a", "b")
    assert (options.offsets_per_trigger_max, options.fails_on_loss) == (5, False)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"subscribe": "t"}, "bolide.bootstrap.servers"),
        (NAMESRV, "one of subscribe, subscribePattern and assign"),
        ({**NAMESRV, "subscribe": "t", "subscribePattern": "t.*"}, "one of them decides what is read"),
        ({**NAMESRV, "subscribe": "t", "topic": "u"}, "is another word for"),
        ({**NAMESRV, "subscribe": "t", "maxOffsetPerTriger": "5"}, "did you mean maxOffsetsPerTrigger"),
        ({**NAMESRV, "subscribe": "t", "zzzzzzzz": "5"}, "known are"),
        ({**NAMESRV, "subscribe": "t", "maxOffsetsPerTrigger": "0"}, "at least 1"),
        ({**NAMESRV, "subscribe": "t", "maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "5"}, "one limit"),
        ({**NAMESRV, "subscribe": "t", "failOnDataLoss": "maybe"}, "true or false"),
        ({**NAMESRV, "subscribe": "t", "startingOffsets": "soon"}, "earliest, latest or JSON"),
        ({**NAMESRV, "subscribe": "t", "startingOffsets": '{"t": {"0": 5}}'}, "where an object belongs"),
        ({**NAMESRV, "subscribe": "t", "startingOffsets": "latest", "startingTimestamp": "5"}, "decides where it is"),
        ({**NAMESRV, "subscribePattern": "("}, "no regular expression"),
        ({**NAMESRV, "assign": '{"t": ["x"]}'}, "must be JSON like"),
        ({**NAMESRV, "subscribe": "t", "accessKey": "k"}, "go together"),
    ],
)
def test_what_is_unknown_or_contradicts_is_refused_with_what_to_do(options, complaint) -> None:
    with pytest.raises(ConfigError, match=complaint):
        source_options(options)


def test_a_filter_is_tags_unless_it_speaks_sql() -> None:
    def kind(expression: str) -> str:
        return source_options({**NAMESRV, "subscribe": "t", "subExpression": expression}).subscription.expression_type

    assert [kind("A || B"), kind("*"), kind("ORDER-1")] == [TAG] * 3
    assert [kind("a = 'x'"), kind("price > 3"), kind("a IS NOT NULL"), kind("a between 1 and 2")] == [SQL] * 4


def test_offsets_are_read_in_both_forms() -> None:
    for text in ('{"t": {"b": {"0": 7, "1": -2}}}', '{"v": 1, "topics": {"t": {"b": {"0": 7, "1": -2}}}}'):
        position = source_options({**NAMESRV, "subscribe": "t", "startingOffsets": text}).starting
        assert position is not None
        assert position.offsets == {MessageQueue("t", "b", 0): 7, MessageQueue("t", "b", 1): EARLIEST}


def test_a_sink_names_its_guarantee_and_its_broker_only_where_that_counts() -> None:
    assert not sink_options({**NAMESRV, "topic": "t", "checkpointLocation": "/c"}).is_exactly_once
    assert sink_options({**NAMESRV, "deliveryGuarantee": "Exactly-Once", "broker": "a"}).broker == "a"
    with pytest.raises(ConfigError, match="only deliveryGuarantee"):
        sink_options({**NAMESRV, "broker": "a"})
    with pytest.raises(ConfigError, match="at-least-once or exactly-once"):
        sink_options({**NAMESRV, "deliveryGuarantee": "sometimes"})
    with pytest.raises(ConfigError, match="did you mean topic"):
        sink_options({**NAMESRV, "topik": "t"})


def test_secrets_are_not_shown() -> None:
    options = source_options({**NAMESRV, "subscribe": "t", "accessKey": "key", "secretKey": "verysecret"})
    assert "verysecret" not in repr(options)
