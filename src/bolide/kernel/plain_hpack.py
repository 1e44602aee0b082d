"""Headers of HTTP/2 as they are compressed (HPACK, RFC 7541): a block in, pairs of name and value out.

A header is a number in a table, or a text that may be packed by a fixed Huffman code. The table is the standard's 61
pairs, and behind them those that the peer told to remember, the newest first; here they are kept with the newest last.

    1xxxxxxx  a pair of the table             01xxxxxx  a text that is remembered
    001xxxxx  room of the table from now on   000xxxxx  a text that is not (the fourth bit is for intermediaries)
"""

from bolide.kernel.layout import HUFFMAN_SIZES, STATIC_HEADERS

_ENTRY_SIZE = 32  # what the standard adds to the bytes of a pair
_INTEGER_OCTETS_MAX = 4  # behind the first one
_PADDING_BITS_MAX = 7
_END = 256

Pair = tuple[bytes, bytes]


def decode_headers(
    block: bytes, table: list[Pair], table_size_max: int, table_size_limit: int, list_size_max: int
) -> tuple[list[Pair], int]:
    """The headers of a block, and the room of the table after it; the table is brought up to date.

    Raises ValueError for what is no block, and for headers of more than `list_size_max` bytes in the standard's count.
    """
    headers: list[Pair] = []
    at, list_size = 0, 0
    while at < len(block):
        first = block[at]
        if first & 0xE0 == 0x20:
            if headers:
                raise ValueError("the table is resized behind a header")
            table_size_max, at = _integer(block, at, 5)
            if table_size_max > table_size_limit:
                raise ValueError("the table is made larger than it may be")
            _evict(table, table_size_max)
            continue
        if first & 0x80:
            index, at = _integer(block, at, 7)
            pair = _pair(table, index)
        else:
            index, at = _integer(block, at, 6 if first & 0x40 else 4)
            if index:
                name = _pair(table, index)[0]
            else:
                name, at = _text(block, at)
            value, at = _text(block, at)
            pair = (name, value)
            if first & 0x40:
                table.append(pair)
                _evict(table, table_size_max)
        headers.append(pair)
        list_size += len(pair[0]) + len(pair[1]) + _ENTRY_SIZE
        if list_size > list_size_max:
            raise ValueError("the headers are too large")
    return headers, table_size_max


def _pair(table: list[Pair], index: int) -> Pair:
    if 0 < index <= len(STATIC_HEADERS):
        return STATIC_HEADERS[index - 1]
    if not 0 < index <= len(STATIC_HEADERS) + len(table):
        raise ValueError("a header that is not in the table")
    return table[len(STATIC_HEADERS) - index]


def _evict(table: list[Pair], size_max: int) -> None:
    size = sum(len(name) + len(value) + _ENTRY_SIZE for name, value in table)
    count = 0
    while size > size_max:
        size -= len(table[count][0]) + len(table[count][1]) + _ENTRY_SIZE
        count += 1
    del table[:count]


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    mask = (1 << bits) - 1
    value, at = block[at] & mask, at + 1
    if value < mask:
        return value, at
    for shift in range(0, 7 * _INTEGER_OCTETS_MAX, 7):
        if at >= len(block):
            break
        octet, at = block[at], at + 1
        value += (octet & 0x7F) << shift
        if not octet & 0x80:
            return value, at
    raise ValueError("a number without an end")


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    if at >= len(block):
        raise ValueError("a text is missing")
    is_packed = block[at] & 0x80
    size, at = _integer(block, at, 7)
    if size > len(block) - at:
        raise ValueError("a text without an end")
    text = block[at : at + size]
    return _unpacked(text) if is_packed else text, at + size


def _codes() -> dict[tuple[int, int], int]:
    """The symbols by size and code: shorter codes first, and among equals in the order of the symbols."""
    codes: dict[tuple[int, int], int] = {}
    code = size_before = 0
    for size, symbol in sorted((size, symbol) for symbol, size in enumerate(HUFFMAN_SIZES)):
        code <<= size - size_before
        codes[size, code] = symbol
        code, size_before = code + 1, size
    return codes


_CODES = _codes()


def _unpacked(packed: bytes) -> bytes:
    text = bytearray()
    code = size = 0
    for octet in packed:
        for bit in range(7, -1, -1):
            code, size = code << 1 | octet >> bit & 1, size + 1
            symbol = _CODES.get((size, code))
            if symbol == _END:
                raise ValueError("a packed text holds its end")
            if symbol is not None:
                text.append(symbol)
                code = size = 0
    if size > _PADDING_BITS_MAX or code != (1 << size) - 1:
        raise ValueError("a packed text ends within a symbol")
    return bytes(text)
