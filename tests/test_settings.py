"""RocketMQ's properties text and the dataclasses built from it."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.errors import ConfigError
from bolide.settings import (
    HIDDEN,
    all_keys_of,
    as_text,
    build,
    build_whole,
    changed,
    check_keys,
    conf,
    dump,
    keys_of,
    read_properties,
    shown_whole,
    write_properties,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomConfig:
    port: int = conf("listenPort", 9876)
    is_open: bool = conf("orderMessageEnable", False)
    ratio: float = conf("ratio", 0.5)
    root: Path = conf("storePathRootDir", Path("/tmp/store"))
    name: str = conf("brokerName", "a")
    own: int = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    home: str = conf("home", "/")
    secret: str = conf("secret", "", is_secret=True)
    room: RoomConfig = field(default_factory=RoomConfig)
    ignored: dict[str, str] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a=b", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("  a\t:\tb", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("# note\n! note\n\na=1", {"a": "1"}),
        ("a=1\r\nb=2\rc=3\n", {"a": "1", "b": "2", "c": "3"}),
        ("a=one,\\\n   two", {"a": "one,two"}),
        ("a=C:\\\\store", {"a": "C:\\store"}),
        ("a\\ b\\=c=d", {"a b=c": "d"}),
        ("a=\\u4e2d\\u6587", {"a": "中文"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=x\fy", {"a": "x\fy"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b=c", {"a": "b=c"}),
        ("a=tail  ", {"a": "tail  "}),
        ("a=end\\", {"a": "end"}),
    ],
)
def test_properties_read_as_java_reads_them(text: str, entries: dict[str, str]) -> None:
    assert read_properties(text) == entries


def test_a_broken_unicode_escape_is_refused() -> None:
    for text in ("a=\\u12", "a=\\u 12f", "a=\\uzzzz"):
        with pytest.raises(ConfigError, match="four hexadecimal digits"):
            read_properties(text)


plain_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(st.dictionaries(plain_text.filter(bool), plain_text, max_size=8))
def test_what_is_written_reads_back(entries: dict[str, str]) -> None:
    assert read_properties(write_properties(entries)) == entries


def test_written_properties_are_sorted_lines_without_a_date() -> None:
    assert write_properties({"b": True, "a": 1}) == "a=1\nb=true\n"


def test_text_becomes_the_type_of_the_field_and_the_rest_keeps_its_default() -> None:
    config = build(
        RoomConfig, {"listenPort": " 0 ", "orderMessageEnable": "TRUE", "storePathRootDir": "/data", "x": "y"}
    )
    assert config == RoomConfig(port=0, is_open=True, root=Path("/data"))
    assert config.own == 7


@pytest.mark.parametrize(
    ("key", "text", "why"),
    [
        ("listenPort", "many", "must be a number"),
        ("orderMessageEnable", "1", "must be true or false"),
        ("ratio", "", "number"),
    ],
)
def test_a_text_of_the_wrong_type_names_key_and_value(key: str, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        build(RoomConfig, {key: text})
    assert (caught.value.key, caught.value.value) == (key, text)


def test_dump_shows_every_key_with_its_text() -> None:
    assert dump(RoomConfig()) == {
        "listenPort": "9876",
        "orderMessageEnable": "false",
        "ratio": "0.5",
        "storePathRootDir": "/tmp/store",
        "brokerName": "a",
    }
    assert as_text(None) == as_text(Path("")) == ""


def test_keys_without_effect_are_returned_and_known_ones_are_not() -> None:
    given_keys = {"listenPort": "1", "serverWorkerThreads": "8"}
    assert check_keys(given_keys, keys_of(RoomConfig), {"serverWorkerThreads"}) == ["serverWorkerThreads"]


@pytest.mark.parametrize("slip", ["listenport", "listenPrt", "LISTENPORT", "listen_port"])
def test_an_unknown_key_is_refused_with_the_nearest_right_name(slip: str) -> None:
    with pytest.raises(ConfigError, match="did you mean listenPort\\?") as caught:
        check_keys({slip: "9876"}, keys_of(RoomConfig), ())
    assert caught.value.value == "9876"


def test_a_key_like_no_other_is_refused_without_a_guess() -> None:
    with pytest.raises(ConfigError, match="remove it"):
        check_keys({"zzzzqqqq": "1"}, keys_of(RoomConfig), ())


def test_a_configuration_with_a_room_is_built_shown_and_changed_as_one() -> None:
    config = build_whole(ServerConfig, {"home": "/h", "listenPort": "1", "secret": "s"})
    assert (config.home, config.room.port, config.room.name) == ("/h", 1, "a")
    assert all_keys_of(ServerConfig) == {"home", "secret", *keys_of(RoomConfig)}
    assert shown_whole(config) == {**dump(config.room), "home": "/h", "secret": HIDDEN}
    other = changed(config, {"home": "/g"})
    assert (other.home, other.secret, other.room) == ("/g", "s", config.room)
