"""The numbers of the protocol against a second transcription of them."""

import re
from pathlib import Path

import pytest

from bolide.protocol.codes import FULL_REQUEST_CODES, RequestCode, ResponseCode

# real code → what is left of it in the 16 bits of a binary header
TRUNCATED = {
    200050: 3442,
    200051: 3443,
    200052: 3444,
    200053: 3445,
    200054: 3446,
    200055: 3447,
    200056: 3448,
    200151: 3543,
}
RESERVED = {13, 22, 23, 27, 47, 209, 210, 211, 212, 213, 214, 301, 302}


@pytest.mark.parametrize(("real", "wire"), TRUNCATED.items())
def test_a_pop_code_cut_to_16_bits_is_known_again(real, wire):
    assert FULL_REQUEST_CODES[wire] == real


def test_no_cut_code_is_also_the_number_of_another_request():
    assert not set(FULL_REQUEST_CODES) & {int(code) for code in RequestCode}
    assert len(FULL_REQUEST_CODES) == sum(code > 0x7FFF for code in RequestCode)


def test_every_request_has_one_number_and_every_number_one_name():
    assert len(RequestCode.__members__) == len(RequestCode)


def test_reserved_numbers_have_names_for_the_log():
    assert {int(code) for code in RequestCode} >= RESERVED


def test_only_the_three_failures_of_acl_v1_share_their_numbers():
    shared = {name for name, code in ResponseCode.__members__.items() if name != code.name}
    assert shared == {
        "UPDATE_AND_CREATE_ACL_CONFIG_FAILED",
        "DELETE_ACL_CONFIG_FAILED",
        "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED",
    }


@pytest.mark.parametrize("enum", [RequestCode, ResponseCode])
def test_a_code_prints_as_its_number(enum):
    assert all(f"{code}" == str(int(code)) for code in enum)


def test_negative_results_fit_the_sixteen_bits_of_a_binary_header():
    assert all(-0x8000 <= code <= 0x7FFF for code in ResponseCode)


def test_the_page_on_compatibility_has_every_request_once_and_by_its_name():
    page = (Path(__file__).parents[2] / "docs" / "compat.md").read_text("utf-8")
    listed = re.findall(r"^\| (\d+) \| (\w+) \|", page, re.MULTILINE)
    assert sorted(listed) == sorted((str(int(code)), code.name) for code in RequestCode)
