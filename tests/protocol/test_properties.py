"""The property string: what is written, what is read, what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.errors import Refusal
from bolide.protocol.codes import ResponseCode
from bolide.protocol.properties import (
    PROPERTIES_SIZE_MAX,
    decode_properties,
    encode_properties,
    join_properties,
    parse_properties,
)

texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=20)
property_maps = st.dictionaries(texts, texts, max_size=8)


@given(property_maps)
def test_properties_survive_text_and_bytes(properties: dict[str, str]) -> None:
    assert parse_properties(join_properties(properties)) == properties
    assert decode_properties(encode_properties(properties)) == properties


@given(property_maps)
def test_gotcha_37_the_last_separator_may_be_there_or_not(properties: dict[str, str]) -> None:
    text = join_properties(properties)
    assert not properties or text.endswith("\x02")
    assert parse_properties(text.removesuffix("\x02")) == properties


def test_the_string_is_java_s() -> None:
    assert join_properties({"KEYS": "k1", "TAGS": "TagA"}) == "KEYS\x01k1\x02TAGS\x01TagA\x02"
    assert encode_properties({}) == b""


@pytest.mark.parametrize("properties", [{"": "a"}, {"a": ""}, {"": ""}])
def test_what_no_reader_keeps_is_not_written(properties: dict[str, str]) -> None:
    assert join_properties({**properties, "b": "1"}) == "b\x011\x02"


@pytest.mark.parametrize("text", ["", "\x02", "\x02\x02", "a", "a\x01", "\x01b", "\x01", "a\x01\x02\x01b\x02c"])
def test_pairs_without_name_or_value_are_dropped(text: str) -> None:
    assert parse_properties(text) == {}
    assert parse_properties(text + "\x02ok\x01yes") == {"ok": "yes"}


def test_the_later_of_two_pairs_counts_and_a_value_keeps_its_first_separator() -> None:
    assert parse_properties("a\x011\x02a\x012\x02") == {"a": "2"}
    assert parse_properties("a\x01b\x01c\x02") == {"a": "b\x01c"}


@pytest.mark.parametrize(
    "properties", [{"a\x01": "b"}, {"a": "b\x01"}, {"a\x02": "b"}, {"a": "b\x02"}, {"a": "\x02b\x01"}, {"a": "\ud800"}]
)
def test_a_separator_or_half_a_character_inside_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(Refusal) as refused:
        join_properties({"x": "y", **properties})
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("letter", ["x", "中"])
def test_gotcha_37_more_bytes_than_an_int16_counts_are_refused(letter: str) -> None:
    overhead = len(b"a\x01\x02")
    fitting = letter * ((PROPERTIES_SIZE_MAX - overhead) // len(letter.encode()))
    padding = "y" * (PROPERTIES_SIZE_MAX - overhead - len(fitting.encode()))
    assert len(encode_properties({"a": fitting + padding})) == PROPERTIES_SIZE_MAX
    with pytest.raises(Refusal, match="32768"):
        encode_properties({"a": fitting + padding + "y"})


@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_some_map(encoded: bytes) -> None:
    properties = decode_properties(encoded)
    assert all(properties)
    assert all(properties.values())


def test_bytes_that_are_not_utf_8_do_not_make_a_message_unreadable() -> None:
    assert decode_properties(b"a\x01\xff\x02b\x01ok\x02") == {"a": "\ufffd", "b": "ok"}
