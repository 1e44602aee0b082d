"""The property map as one string: `name U+0001 value U+0002`, repeated.

We end with the last U+0002, as 5.2 and later do; 4.9.1 to 5.1 leave it out, so whatever is read or appended to may end
either way. A pair without a name or without a value does not survive any reader, hence is not written. A name or value
that holds a separator would be read as something else by everyone: refused when written.
"""

from collections.abc import Mapping

from bolide.errors import Refusal
from bolide.protocol.codes import ResponseCode

NAME_END = "\x01"
PAIR_END = "\x02"
PROPERTIES_SIZE_MAX = 32767  # the length is a signed int16; one byte more and readers see a negative number


def join_properties(properties: Mapping[str, str]) -> str:
    """The string, as request headers carry it."""
    return encode_properties(properties).decode()


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The string in UTF-8, as records and batches hold it."""
    pairs = [f"{name}{NAME_END}{value}{PAIR_END}" for name, value in properties.items() if name and value]
    text = "".join(pairs)
    if text.count(NAME_END) != len(pairs) or text.count(PAIR_END) != len(pairs):
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "a property name or value contains U+0001 or U+0002; take them out")
    try:
        return _of_legal_size(text.encode())
    except UnicodeEncodeError as problem:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"a property is not Unicode text: {problem}") from None


def parse_properties(text: str) -> dict[str, str]:
    """The map, with or without the last U+0002. Of two pairs with one name the later counts."""
    properties: dict[str, str] = {}
    for pair in text.split(PAIR_END):
        name, _, value = pair.partition(NAME_END)
        if name and value:
            properties[name] = value
    return properties


def decode_properties(encoded: bytes) -> dict[str, str]:
    """The map in a record or a batch. Bytes that are not UTF-8 become U+FFFD, as Java does it.

    A producer that is not Java can store such bytes, and a message nobody can read would hold up its queue for ever.
    """
    return parse_properties(encoded.decode("utf-8", "replace"))


def _of_legal_size(encoded: bytes) -> bytes:
    if len(encoded) > PROPERTIES_SIZE_MAX:
        raise Refusal(
            ResponseCode.MESSAGE_ILLEGAL, f"the properties take {len(encoded)} bytes, at most {PROPERTIES_SIZE_MAX} fit"
        )
    return encoded
