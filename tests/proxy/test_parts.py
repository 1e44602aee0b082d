"""The parts that decide without a socket: texts, numbers, handles, settings."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.errors import ConfigError
from bolide.model.queue import QueueOffset
from bolide.protocol.headers.poptext import PopHandle, TopicMark
from bolide.proxy import messages as m
from bolide.proxy.allowance import Allowance
from bolide.proxy.answers import encode_text
from bolide.proxy.calls import cut_message, parse_timeout
from bolide.proxy.config import ProxyConfig, read_config, read_json
from bolide.proxy.handles import Held, Receipt, Renewals, read_receipt
from bolide.proxy.sending import Place, jump_hash, parse_transaction_id, transaction_id
from bolide.proxy.statuses import Denied
from bolide.testing.loop import VirtualClock
from tests.remoting.loops import virtual_time
from tests.tidy.source import PACKAGE


def test_the_classes_are_those_of_the_proto_file() -> None:
    text = (PACKAGE / "proxy" / "messages.proto").read_text("utf-8")
    for name, body in re.findall(r"^message (\w+) \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        fields = re.sub(r"enum \w+ \{.*?\}", "", body, flags=re.DOTALL)
        told = {field: int(number) for field, number in re.findall(r"(\w+) = (\d+);", fields)}
        assert {each.name: each.number for each in getattr(m, name).DESCRIPTOR.fields} == told
    for name, body in re.findall(r"^enum (\w+) \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        told = {value: int(number) for value, number in re.findall(r"(\w+) = (\d+);", body)}
        assert dict(getattr(m, name).items()) == told


def test_message_groups_go_where_apache_sends_them() -> None:
    assert [(jump_hash(group, 4), jump_hash(group, 16)) for group in ("order-1", "order-2", "g")] == [
        (3, 3),
        (2, 11),
        (1, 12),
    ]


@given(st.text(), st.integers(1, 100))
def test_a_message_group_stays_or_moves_to_the_new_queue_when_one_is_added(text: str, count: int) -> None:
    before, after = jump_hash(text, count), jump_hash(text, count + 1)
    assert 0 <= before < count
    assert after in (before, count)


@given(st.text(alphabet="0123456789ABCDEF", min_size=1), st.integers(0, 1 << 60), st.integers(0, 1 << 60))
def test_a_transaction_id_says_where_the_half_message_lies(message_id: str, queue: int, physical: int) -> None:
    place = Place(message_id, queue, physical, "broker@a")
    assert parse_transaction_id(transaction_id(place)) == place


@pytest.mark.parametrize("text", ["", "a", "a@b@c@d", "a@1@2", "a@-1@2@b", "a@1@" + "9" * 30 + "@b"])
def test_what_is_no_transaction_id_is_refused(text: str) -> None:
    with pytest.raises(Denied) as denied:
        parse_transaction_id(text)
    assert denied.value.code == m.Code.INVALID_TRANSACTION_ID


HANDLE = PopHandle(
    start_offset=QueueOffset(5),
    popped_ms=1000,
    invisible_ms=60_000,
    revive_queue_id=3,
    mark=TopicMark.RETRY_V1,
    broker_name="broker-a",
    queue_id=2,
    queue_offset=QueueOffset(7),
)


def test_a_handle_is_read_with_and_without_its_place_and_with_the_stray_number_of_5_5() -> None:
    assert Receipt(HANDLE, 99).text == "5 1000 60000 3 1 broker-a 2 7 99"
    assert read_receipt("5 1000 60000 3 1 broker-a 2 7 99") == Receipt(HANDLE, 99)
    assert read_receipt("5 1000 60000 3 1 broker-a 2 7") == Receipt(HANDLE, -1)
    assert read_receipt("5 1000 60000 3 1 broker-a 2 7 0 99") == Receipt(HANDLE, 99)
    for text in ("", "x", "5 1000 60000 3 1 broker-a 2", "5 1000 60000 3 1 broker-a 2 7 x"):
        with pytest.raises(Denied):
            read_receipt(text)


def hidden(receipt: Receipt, popped_ms: int, invisible_ms: int) -> Receipt:
    return replace(receipt, pop=replace(receipt.pop, popped_ms=popped_ms, invisible_ms=invisible_ms))


@virtual_time
async def test_a_message_is_kept_hidden_in_growing_steps_until_the_longest_time_is_over() -> None:
    clock, spans = VirtualClock(), []
    began_ms = clock.now_ms()

    def change(held, receipt, invisible_ms, changed) -> None:
        spans.append((clock.now_ms() - began_ms, invisible_ms))
        changed(hidden(receipt, clock.now_ms(), invisible_ms))

    renewals = Renewals(ProxyConfig(renew_max_ms=1_000_000), clock, change, lambda group: 7_000)
    held = Held("client", "G", "T", "first")
    renewals.add(held, hidden(Receipt(HANDLE, 1), began_ms, 60_000))
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(renewals.run_forever(), name="test.renewals")
        await asyncio.sleep(3000)  # virtual
        task.cancel()
    assert spans == [
        (50_000, 60_000),
        (100_000, 180_000),
        (270_000, 300_000),
        (560_000, 600_000),
        (1_150_000, 7_000),
    ]
    assert renewals.count == 0


@virtual_time
async def test_three_failures_end_the_keeping() -> None:
    clock = VirtualClock()
    failed = []

    def change(held, receipt, invisible_ms, changed) -> None:
        failed.append(held)
        changed(None)

    renewals = Renewals(ProxyConfig(), clock, change, lambda group: 1)
    renewals.add(Held("client", "G", "T", "first"), Receipt(HANDLE, 1))
    for _ in range(5):
        renewals.renew()
    assert (len(failed), renewals.count) == (3, 0)


@given(st.lists(st.binary(max_size=40), max_size=5), st.integers(1, 9))
def test_messages_survive_any_cut_of_the_stream(contents: list[bytes], cut: int) -> None:
    stream = b"".join(b"\0" + len(each).to_bytes(4, "big") + each for each in contents)
    received, found = bytearray(), []
    for at in range(0, len(stream), cut):
        received += stream[at : at + cut]
        while (message := cut_message(received, 64)) is not None:
            found.append(message)
    assert found == contents


def test_timeouts_and_texts_are_those_of_grpc() -> None:
    assert [parse_timeout(text) for text in (b"2H", b"3M", b"4S", b"5m", b"6u")] == [7200, 180, 4, 0.005, 6e-6]
    assert [parse_timeout(text) for text in (b"", b"5", b"S", b"-1S", b"123456789S")] == [None] * 5
    assert encode_text("50 % of ü") == b"50 %25 of %C3%BC"


def test_an_allowance_grows_with_time_and_with_work_and_never_beyond_its_bound() -> None:
    allowance = Allowance(2, 1, 0.0)
    assert [allowance.spend(0.0) for _ in range(3)] == [True, True, False]
    assert allowance.spend(3.0)
    allowance.earn(100)
    assert [allowance.spend(3.0) for _ in range(3)] == [True, True, False]


def test_the_settings_are_those_of_rmq_proxy_json(tmp_path: Path) -> None:
    file = tmp_path / "rmq-proxy.json"
    file.write_text('{"rocketMQClusterName": "C", "grpcServerPort": 9081, "enableACL": false, "maxMessageSize": 100}')
    config, ignored = read_config(read_json(file))
    assert (config.cluster, config.port.listen.port, config.body_size_max) == ("C", 9081, 100)
    assert (config.port.listen.alpn, ignored) == (("h2",), ["enableACL"])
    file.write_text("{")
    with pytest.raises(ConfigError, match="is not JSON"):
        read_json(file)
    with pytest.raises(ConfigError, match="did you mean grpcServerPort"):
        read_config({"grpcServrPort": "1"})
