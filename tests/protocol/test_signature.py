"""Signed requests: Java's examples, and everything that must break a signature."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.protocol.signature import SIGNATURE, UNIQUE_KEY_QUERY, sign, verify

SECRET = "secret12345"
EXAMPLES = [
    ({"AccessKey": "AK1", "topic": "T1"}, b"", "6OIgoUGzDi0wNNc6jkxUONAbC3Q="),
    ({"AccessKey": "AK1", "a": "PG", "b": "T1", "k": "false"}, b"hello", "P3YUL5bKI1Wu+QFsAI9h4aKd+LU="),
]

fields_of_requests = st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=12), max_size=8)


@pytest.mark.parametrize(("fields", "body", "signature"), EXAMPLES)
def test_signatures_are_java_s(fields: dict[str, str], body: bytes, signature: str) -> None:
    assert sign(fields, body, SECRET) == signature
    assert verify({**fields, SIGNATURE: signature}, body, SECRET)


@pytest.mark.parametrize(("fields", "body", "signature"), EXAMPLES)
def test_order_of_fields_and_an_old_signature_do_not_count(fields: dict[str, str], body: bytes, signature: str) -> None:
    shuffled = {SIGNATURE: "stale", **dict(reversed(fields.items()))}
    assert sign(shuffled, body, SECRET) == signature


def test_upper_case_names_sort_before_lower_case_ones() -> None:
    assert sign({"a": "2", "Z": "1"}, b"", SECRET) == sign({"only": "12"}, b"", SECRET)


def test_names_sort_by_utf_16_units_as_in_java() -> None:
    beyond_the_basic_plane, last_of_it = "\U00010000", "\uffee"
    fields = {last_of_it: "2", beyond_the_basic_plane: "1"}
    assert sign(fields, b"", SECRET) == sign({"only": "12"}, b"", SECRET)


def test_fields_a_cpp_client_adds_are_covered() -> None:
    fields = {"AccessKey": "AK1", "OnsChannel": "ALIYUN", "topic": "T1"}
    signed = {**fields, SIGNATURE: sign(fields, b"", SECRET)}
    assert verify(signed, b"", SECRET)
    assert not verify({**signed, "OnsChannel": "other"}, b"", SECRET)


@given(fields_of_requests, st.binary(max_size=20), st.binary(min_size=1, max_size=4), st.text(min_size=1, max_size=8))
def test_another_body_secret_or_value_breaks_the_signature(
    fields: dict[str, str], body: bytes, more: bytes, other: str
) -> None:
    fields.pop(SIGNATURE, None)
    signed = {**fields, SIGNATURE: sign(fields, body, SECRET)}
    assert verify(signed, body, SECRET)
    assert not verify(signed, body + more, SECRET)
    assert not verify(signed, body, SECRET + "\N{BULLET}")
    assert not verify({**signed, "zzzzzzzzz": other}, body, SECRET)


@pytest.mark.parametrize("signature", ["", "x", "é", "\ud800", "6OIgoUGzDi0wNNc6jkxUONAbC3Q"])
def test_a_wrong_signature_is_false_and_not_an_error(signature: str) -> None:
    fields, body, _ = EXAMPLES[0]
    assert not verify({**fields, SIGNATURE: signature}, body, SECRET)


def test_no_signature_is_a_wrong_one() -> None:
    assert not verify({"AccessKey": "AK1"}, b"", SECRET)


QUERY = {"AccessKey": "AK1", "topic": "T1", "key": "K"}
MARKED = {**QUERY, UNIQUE_KEY_QUERY: "true"}


@pytest.mark.parametrize("covered", [QUERY, MARKED], ids=["up to 4.9.3", "from 4.9.4"])
def test_a_query_by_unique_key_is_accepted_from_old_and_new_clients(covered: dict[str, str]) -> None:
    signature = sign(covered, b"", SECRET)
    assert verify({**MARKED, SIGNATURE: signature}, b"", SECRET)
    assert not verify({**MARKED, "key": "other", SIGNATURE: signature}, b"", SECRET)


def test_only_that_one_field_may_be_left_uncovered() -> None:
    signature = sign({"AccessKey": "AK1", "topic": "T1"}, b"", SECRET)
    assert not verify({**QUERY, SIGNATURE: signature}, b"", SECRET)
    assert not verify({**MARKED, SIGNATURE: signature}, b"", SECRET)
    signature = sign(QUERY, b"", SECRET)
    assert not verify({**MARKED, "_UNIQUE_KEY": "K", SIGNATURE: signature}, b"", SECRET)
