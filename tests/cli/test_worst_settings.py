"""Settings at their worst: what is refused changes nothing, what is taken is lived with, now and after a restart."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bolide.broker.config import RULES, BrokerConfig
from bolide.broker.settings.replication import ReplicationConfig
from bolide.ha.config import HaConfig
from bolide.namesrv import config as namesrv
from bolide.protocol.command import Command
from bolide.settings import Bound, Range, bounds_of, dump, read_properties, write_properties
from bolide.store.config import StoreConfig
from tests.cli.processes import bolide, route
from tests.e2e.up import FREE_PORTS, SMALL, Up, ask, bodies, running, send

ROOMS = (BrokerConfig, StoreConfig, ReplicationConfig, HaConfig)
BOUNDS: dict[str, Bound | None] = {key: bound for room in ROOMS for key, bound in bounds_of(room).items()}
DEFAULTS = {key: text for room in ROOMS for key, text in dump(room()).items()}
RANGES = {key: bound for key in sorted(RULES.changeable) if isinstance(bound := BOUNDS[key], Range)}
FLAGS = sorted(key for key in RULES.changeable if DEFAULTS[key] in ("true", "false"))
# These are there to close the broker, or to empty it: they are looked at alone.
CLOSING = {"brokerPermission", "startAcceptSendRequestTimeStamp", "diskSpaceWarningLevelRatio"}
# What fits a log file of 16 MiB.
HIGHEST = {"maxMessageSize": 16 << 20}
NO_NUMBERS = ["", "nan", "Infinity", "1e3", "0x10", "1_000", "1.5", "٣", "²", "true", "9" * 5000, "-" + "9" * 40]
NUMBERS = [0, -1, 2**31, 2**63, 2**64, 10**19, 10**20 - 1, -(2**63)]


def change(address: str, key: str, value: object) -> Command:
    return ask(address, Command(25, body=write_properties({key: str(value)}).encode()))


def refused_values() -> Iterator[tuple[str, str]]:
    for key, bound in RANGES.items():
        ends = [bound.low - 1, bound.high + 1]
        yield from ((key, str(number)) for number in {*NUMBERS, *ends} if not bound.low <= number <= bound.high)
        yield from ((key, text) for text in NO_NUMBERS)
    for key in FLAGS:
        yield from ((key, text) for text in ("", "1", "yes", "nan", "true" * 5000))
    yield from (("deleteWhen", text) for text in ("", "24", "-1", "٣", "²", "04;;", "0" * 5000))
    yield from (("defaultMessageRequestMode", text) for text in ("", "push", "POP" * 5000))
    yield from (("bolideLogLevel", text) for text in ("loud", "10", "INFO ", "debug" * 5000))


def serves(up: Up, body: bytes) -> None:
    sent = send(up.broker, "Hello", body)
    assert sent.code == 0, sent.remark
    assert bodies(up.broker, "Hello")[-1] == body


def test_every_key_that_may_change_is_looked_at_here() -> None:
    assert {*RANGES, *FLAGS, "deleteWhen", "defaultMessageRequestMode", "bolideLogLevel"} == set(RULES.changeable)


def test_a_value_out_of_its_bounds_is_refused_with_the_range_and_nothing_is_kept(tmp_path: Path) -> None:
    with running(tmp_path, "up", *FREE_PORTS, *SMALL) as up:
        before = ask(up.broker, Command(26)).body
        for key, value in refused_values():
            answer = change(up.broker, key, value)
            assert answer.code == 1, (key, value[:40])
            assert "must be" in (answer.remark or ""), (key, answer.remark)
            assert len(answer.remark or "") < 600
            if key in RANGES and value.lstrip("-").isascii() and value.lstrip("-").isdigit() and len(value) < 30:
                assert f"must be {RANGES[key].low} to {RANGES[key].high}" in (answer.remark or "")
        assert ask(up.broker, Command(26)).body == before
        serves(up, b"as ever")
        _, _, stderr = up.stop()
    assert not (tmp_path / "bolide-data" / "config" / "broker.properties").exists()
    assert "Traceback" not in stderr


@pytest.mark.parametrize("end", ["low", "high"])
def test_the_worst_value_of_each_key_that_is_taken_is_served_with_and_started_with(tmp_path: Path, end: str) -> None:
    given = {key: HIGHEST.get(key, bound.high) if end == "high" else bound.low for key, bound in RANGES.items()}
    given = {key: value for key, value in given.items() if key not in CLOSING}
    with running(tmp_path, "up", *FREE_PORTS, *SMALL) as up:
        for key, value in given.items():
            answer = change(up.broker, key, value)
            assert answer.code == 0, answer.remark
            serves(up, key.encode())
        up.stop()
    with running(tmp_path, "up", *FREE_PORTS, *SMALL) as up:  # it is ready
        assert route(up.namesrv, "Hello") == [up.broker]  # and registered
        serves(up, b"after the restart")
        settings = read_properties(ask(up.broker, Command(26)).body.decode())
        assert {key: settings[key] for key in given} == {key: str(value) for key, value in given.items()}
        code, _, stderr = up.stop()
    assert code == 0
    assert "Traceback" not in stderr


def test_a_closed_broker_starts_again_and_is_opened_by_the_same_request(tmp_path: Path) -> None:
    key = "startAcceptSendRequestTimeStamp"
    with running(tmp_path, "up", *FREE_PORTS, *SMALL) as up:
        assert change(up.broker, key, RANGES[key].high).code == 0
        assert send(up.broker, "Hello", b"x").code != 0
        up.stop()
    with running(tmp_path, "up", *FREE_PORTS, *SMALL) as up:
        assert send(up.broker, "Hello", b"x").code != 0
        assert change(up.broker, key, 0).code == 0
        serves(up, b"open")


@pytest.mark.parametrize("has_file", [False, True])
def test_a_value_an_older_version_took_does_not_keep_the_broker_from_starting(tmp_path: Path, has_file: bool) -> None:
    data = tmp_path / "bolide-data"
    path = tmp_path / "broker.conf" if has_file else data / "config" / "broker.properties"
    path.parent.mkdir(parents=True, exist_ok=True)
    bad = {"maxMessageSize": "9" * 20, "defaultTopicQueueNums": "-1", "registerBrokerTimeoutMills": "0"}
    own = "brokerName=broker-x\nmaxMessageSize=65536\n" if has_file else ""
    path.write_text(RULES.noted(own, {**bad, "fileReservedTime": "48"}))
    options = ("-c", str(path)) if has_file else ()
    with running(tmp_path, "up", *FREE_PORTS, *SMALL, *options) as up:
        serves(up, b"here")
        settings = read_properties(ask(up.broker, Command(26)).body.decode())
        assert settings["fileReservedTime"] == "48"  # what is sound is kept
        assert settings["maxMessageSize"] == ("65536" if has_file else "4194304")
        _, _, stderr = up.stop()
    warnings = [line for line in stderr.splitlines() if "it was changed at run time and is not used" in line]
    assert len(warnings) == 3
    assert all(str(path) in line and "must be" in line for line in warnings)


def test_a_bad_value_of_the_owner_stops_the_start_with_its_range(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("defaultTopicQueueNums=-1\n")
    done = bolide(tmp_path, "broker", "-c", str(file), "-p")
    assert done.returncode == 2
    assert "error: defaultTopicQueueNums = -1: must be 1 to 65536" in done.stderr


def test_a_message_size_that_no_frame_or_file_could_hold_is_refused_with_the_key_to_raise_first(tmp_path: Path) -> None:
    with running(tmp_path, "up", *FREE_PORTS, *SMALL) as up:
        answer = change(up.broker, "maxMessageSize", 100 << 20)
        assert answer.code == 1
        assert "com.rocketmq.remoting.frameMaxLength is 16777216; raise that one first" in (answer.remark or "")


@pytest.mark.parametrize("end", ["low", "high"])
def test_a_name_server_lives_with_its_worst_values_and_refuses_others(tmp_path: Path, end: str) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("")
    bounds = bounds_of(namesrv.NamesrvConfig)
    ranges = {key: bound for key in sorted(namesrv.RULES.changeable) if isinstance(bound := bounds[key], Range)}
    assert ranges
    options = ("--host", "127.0.0.1", "--port", "0", "-c", str(file))
    with running(tmp_path, "namesrv", *options) as up:
        for key, bound in ranges.items():
            for value in [*NO_NUMBERS, bound.low - 1, bound.high + 1, 2**63]:
                answer = ask(up.namesrv, Command(318, body=f"{key}={value}".encode()))
                assert (answer.code, "must be" in (answer.remark or "")) == (1, True), (key, value)
            value = bound.low if end == "low" else bound.high
            assert ask(up.namesrv, Command(318, body=f"{key}={value}".encode())).code == 0
        _, _, stderr = up.stop()
    assert "Traceback" not in stderr
    assert "never retrieved" not in stderr
    with running(tmp_path, "namesrv", *options) as up:
        texts = read_properties(ask(up.namesrv, Command(319)).body.decode())
        assert {texts[key] for key in ranges} == {
            str(bound.low if end == "low" else bound.high) for bound in ranges.values()
        }
