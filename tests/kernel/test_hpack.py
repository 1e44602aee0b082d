"""Compressed headers: what the library `hpack` encodes we read, and what we read it reads alike."""

from typing import Any

import pytest
from hpack import Decoder, Encoder
from hpack.exceptions import HPACKError
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.table import HeaderTable
from hypothesis import given
from hypothesis import strategies as st

from bolide.kernel import layout, plain_hpack
from tests.kernel.twins import both

SIZE = 4096
NAMES = st.sampled_from([b":path", b"content-type", b"x-mq-client-id", b"te"]) | st.binary(min_size=1, max_size=30)
PAIRS = st.tuples(NAMES, st.binary(max_size=20) | st.binary(min_size=100, max_size=300))
BLOCKS = st.lists(st.lists(PAIRS, max_size=4), min_size=1, max_size=4)


def test_the_tables_are_those_of_the_standard() -> None:
    assert tuple(HeaderTable.STATIC_TABLE) == layout.STATIC_HEADERS
    assert list(layout.HUFFMAN_SIZES) == list(REQUEST_CODES_LENGTH)
    wanted = {(size, code): n for n, (size, code) in enumerate(zip(REQUEST_CODES_LENGTH, REQUEST_CODES, strict=True))}
    assert wanted == plain_hpack._CODES


@both(plain_hpack)
@given(blocks=BLOCKS, is_packed=st.booleans(), size=st.sampled_from([0, 60, 500, SIZE]))
def test_what_the_library_encodes_is_read_block_by_block(
    kernel: Any, blocks: list[list[tuple[bytes, bytes]]], is_packed: bool, size: int
) -> None:
    encoder, table, room = Encoder(), list[tuple[bytes, bytes]](), SIZE
    for number, pairs in enumerate(blocks):
        if number == 1:
            encoder.header_table_size = size
        block = encoder.encode(pairs, huffman=is_packed)
        found, room = kernel.decode_headers(block, table, room, SIZE, 1 << 20)
        assert found == pairs
    assert table == [(bytes(name), bytes(value)) for name, value in reversed(encoder.header_table.dynamic_entries)]


@both(plain_hpack)
@given(blocks=st.lists(st.binary(max_size=60), max_size=4))
def test_what_is_read_of_any_bytes_the_library_reads_alike(kernel: Any, blocks: list[bytes]) -> None:
    decoder, table, room = Decoder(max_header_list_size=1 << 20), list[tuple[bytes, bytes]](), SIZE
    decoder.max_allowed_table_size = SIZE
    for block in blocks:
        try:
            found, room = kernel.decode_headers(block, table, room, SIZE, 1 << 20)
        except ValueError:
            return
        try:
            meant = [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]
        except HPACKError as problem:
            raise AssertionError(f"{block!r} was read as {found!r}") from problem
        assert found == meant


@both(plain_hpack)
@pytest.mark.parametrize(
    ("block", "why"),
    [
        (b"\x80", "not in the table"),
        (b"\xbe", "not in the table"),
        (b"\xff\xff\xff\xff\xff\x7f", "without an end"),
        (b"\x00", "missing"),
        (b"\x00\x05ab", "without an end"),
        (b"\x82\x20", "behind a header"),
        (b"\x3f\xe2\x1f", "larger than"),
        (b"\x00\x81\xff\x00", "packed text"),
        (b"\x00\x84\xff\xff\xff\xff\x00", "packed text"),
        (b"\x00\x01a\x7f\xf0\x1e" + b"x" * 4079, "too large"),
    ],
)
def test_what_is_no_block_is_refused(kernel: Any, block: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        kernel.decode_headers(block, [], SIZE, SIZE, 4000)


@both(plain_hpack)
def test_a_small_block_cannot_unpack_into_headers_without_a_bound(kernel: Any) -> None:
    table = [(b"n", b"v" * 3000)]
    with pytest.raises(ValueError, match="too large"):
        kernel.decode_headers(b"\xbe" * 1000, table, SIZE, SIZE, 16_384)


@both(plain_hpack)
def test_an_entry_larger_than_the_table_empties_it(kernel: Any) -> None:
    table = [(b"a", b"b")]
    found, _ = kernel.decode_headers(b"\x40\x01n\x7f\xa2\x1f" + b"v" * 4129, table, SIZE, SIZE, 1 << 20)
    assert found == [(b"n", b"v" * 4129)]
    assert table == []
