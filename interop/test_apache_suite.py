"""RocketMQ's own integration tests, as released with 5.5.0, run against three of our brokers.

Their base class starts a name server and three brokers inside the JVM; one of ours in its place names servers that run
elsewhere (`java/suite`). What a test asks of a broker's inside is asked over the wire where there is a request for it;
tests that reach further in are left out below, each with the reason. `--broker 5.5.0` runs them against Apache's
brokers in the same way, and shows what they take for granted.

The tests mostly wait, and their classes share a list of clients in their JVM, so each chapter has a JVM of its own and
all of them run at the same time.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from interop.cluster import (
    JDK_DOORS,
    LARGE,
    bolide_broker,
    bolide_name_server,
    java_broker,
    java_name_server,
)
from interop.process import Program, running
from interop.release import suite_class_path

LIMIT_S = 900.0
BROKER_NAMES = ("TestBrokerName_0", "TestBrokerName_1", "TestBrokerName_2")
# What their base class sets for its brokers, and the store has room for their large messages.
SETTINGS: dict[str, object] = {
    "brokerClusterName": "DefaultCluster",
    "enablePropertyFilter": True,
    "recallMessageEnable": True,
    "appendTopicForTimerDeleteKey": True,
    "traceTopicEnable": True,
    "maxTransferCountOnMessageInMemory": 1024,
    "maxTransferCountOnMessageInDisk": 1024,
    "mappedFileSizeCommitLog": 64 << 20,
}
CHAPTERS = {
    "waiting": ["delay.NormalMsgDelayIT", "recall.SendAndRecallDelayMessageIT", "recall.RecallWithTraceIT"],
    "deciding": [
        "client.producer.transaction.TransactionalMsgIT",
        "client.consumer.filter.SqlFilterIT",
        "retry.PopConsumerRetryIT",
        "offset.OffsetNotFoundIT",
        "offset.OffsetResetForPopIT",
    ],
    "offsets": ["offset.OffsetResetIT"],
    "sending": [
        "client.producer.async.AsyncSendExceptionIT",
        "client.producer.async.AsyncSendWithMessageQueueIT",
        "client.producer.async.AsyncSendWithMessageQueueSelectorIT",
        "client.producer.async.AsyncSendWithOnlySendCallBackIT",
        "client.producer.batch.BatchSendIT",
        "client.producer.exception.msg.ChinaPropIT",
        "client.producer.exception.msg.MessageExceptionIT",
        "client.producer.exception.msg.MessageUserPropIT",
        "client.producer.exception.producer.ProducerGroupAndInstanceNameValidityIT",
        "client.producer.oneway.OneWaySendExceptionIT",
        "client.producer.oneway.OneWaySendIT",
        "client.producer.oneway.OneWaySendWithMQIT",
        "client.producer.oneway.OneWaySendWithSelectorIT",
        "client.producer.order.OrderMsgDynamicRebalanceIT",
        "client.producer.order.OrderMsgIT",
        "client.producer.order.OrderMsgRebalanceIT",
        "client.producer.order.OrderMsgWithTagIT",
        "client.producer.querymsg.QueryMsgByIdExceptionIT",
        "client.producer.querymsg.QueryMsgByIdIT",
        "client.producer.querymsg.QueryMsgByKeyIT",
    ],
    "popping": [
        "client.consumer.pop.BatchAckIT",
        "client.consumer.pop.NotificationIT",
        "client.consumer.pop.PopBigMessageIT",
        "client.consumer.pop.PopMessageAndForwardingIT",
        "client.consumer.pop.PopOrderlyIT",
    ],
    "sharing": [
        "client.consumer.balance.NormalMsgDynamicBalanceIT",
        "client.consumer.balance.NormalMsgStaticBalanceIT",
        "client.consumer.cluster.DynamicAddAndCrashIT",
        "client.consumer.cluster.DynamicAddConsumerIT",
        "client.consumer.cluster.DynamicCrashConsumerIT",
        "client.consumer.tag.MulTagSubIT",
        "client.consumer.tag.TagMessageWith1ConsumerIT",
        "client.consumer.tag.TagMessageWithMulConsumerIT",
        "client.consumer.tag.TagMessageWithSameGroupConsumerIT",
        "client.consumer.topic.MulConsumerMulTopicIT",
        "client.consumer.topic.OneConsumerMulTopicIT",
    ],
    "broadcasting": [
        "client.consumer.broadcast.normal.BroadcastNormalMsgNotReceiveIT",
        "client.consumer.broadcast.normal.BroadcastNormalMsgRecvCrashIT",
        "client.consumer.broadcast.normal.BroadcastNormalMsgRecvStartLaterIT",
        "client.consumer.broadcast.normal.BroadcastNormalMsgTwoDiffGroupRecvIT",
        "client.consumer.broadcast.normal.NormalMsgTwoSameGroupConsumerIT",
        "client.consumer.broadcast.tag.BroadcastTwoConsumerFilterIT",
        "client.consumer.broadcast.tag.BroadcastTwoConsumerSubDiffTagIT",
        "client.consumer.broadcast.tag.BroadcastTwoConsumerSubTagIT",
    ],
}
LEFT_OUT = {
    "OffsetNotFoundIT.testConsumeStopAndResume": "puts a hook into the broker's JVM",
    "OffsetResetForPopIT.testResetOffsetThenAckOldForPopOrderly": "asks the broker's table of ordered pops",
    "OffsetResetForPopIT.testRestOffsetToSkipMsgForPopOrderly": "asks the broker's table of ordered pops",
    "BatchSendIT.testBatchSend_SysInnerBatch": "is about inner batches (BatchCQ), which are not kept here",
    # A new group asks a queue for its offset, is told that there is none, and then asks for the end: what came first in
    # between is lost to it. These send for seconds while a consumer starts; Apache's brokers answer in the same way.
    "TagMessageWithSameGroupConsumerIT.testConsumerStartWithInterval": "may miss a message on a busy machine",
    "TagMessageWithSameGroupConsumerIT.testConsumerStartTwoAndCrashOneAfterWhile": "as the one before",
}


@pytest.fixture(scope="module")
def chapters(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, broker_kind: str
) -> Iterator[dict[str, Program]]:
    """Every chapter that was asked for, running."""
    directory = tmp_path_factory.mktemp("suite")
    wanted = [name for name in CHAPTERS if any(f"[{name}]" in item.name for item in request.session.items)]
    with ExitStack() as stack:
        port, brokers = _servers(stack, directory, broker_kind)
        options = ["-Djava.net.preferIPv4Stack=true", f"-Dexamined.namesrv={port}", f"-Dexamined.brokers={brokers}"]
        running_ones: dict[str, Program] = {}
        for name in wanted:
            program = stack.enter_context(_running(directory / name, options, CHAPTERS[name]))
            program.await_output("(?m)^ok ", LIMIT_S)  # a JVM at a time: their starts would starve what runs
            running_ones[name] = program
        yield running_ones


def _servers(stack: ExitStack, directory: Path, kind: str) -> tuple[int, str]:
    """The port of a name server, and the three brokers in the words of our base class."""
    ports: dict[str, int] = {}
    if kind == "bolide":
        server = stack.enter_context(bolide_name_server(directory))
        for name in BROKER_NAMES:
            settings = {**SETTINGS, "brokerName": name}
            ports[name] = stack.enter_context(bolide_broker(directory, server.endpoint, settings)).address[1]
    else:
        server = stack.enter_context(java_name_server(directory, kind))
        for name in BROKER_NAMES:
            broker = stack.enter_context(
                java_broker(directory, kind, server.endpoint, {**SETTINGS, "brokerName": name})
            )
            broker.await_route(server)
            ports[name] = broker.address[1]
    return server.address[1], ",".join(f"{name}@{port}" for name, port in ports.items())


def _running(home: Path, options: list[str], classes: list[str]) -> AbstractContextManager[Program]:
    home.mkdir(parents=True)
    java = ["java", *JDK_DOORS, *LARGE, f"-Duser.home={home}", f"-Djava.io.tmpdir={home}", *options]
    left_out = [f"-{name}" for name in LEFT_OUT]
    return running("suite", [*java, "-cp", suite_class_path(), "Suite", *classes, *left_out], home)


@pytest.mark.parametrize("name", CHAPTERS)
def test_apaches_own_tests_pass(chapters: dict[str, Program], name: str) -> None:
    program = chapters[name]
    program.await_output(r"(?m)^end$", LIMIT_S)
    outcomes = [line.split() for line in program.lines() if line.startswith(("ok ", "failed "))]
    failed = [words[1] for words in outcomes if words[0] == "failed"]
    assert failed == [], program.output()[-20_000:]
    ran = {words[1].partition(".")[0] for words in outcomes}
    assert ran == {path.rpartition(".")[2] for path in CHAPTERS[name]}
