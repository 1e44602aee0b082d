"""Sends as they come: every kind of client, and what no client would send."""

import json
import struct
from typing import Any

from hypothesis import strategies as st

from bolide.kernel import plain
from bolide.kernel.layout import LONG_NAMES, SHORT_NAMES

TOPICS = ["Orders", "Other", "ReadOnly", "Absent", "SCHEDULE_TOPIC_XXXX"]
INT32 = st.integers(-(2**31), 2**31 - 1)
USUAL_NAMES = ["TAGS", "KEYS", "WAIT", "own", "名", "TIMER", "UNIQ_KEY"]
NAMES_APART = ["DELAY", "TIMER_DELAY_SEC", "TRAN_MSG", "POP_CK", "CLUSTER", "MSG_REGION", "TRACE_ON", "INNER_NUM"]
USUAL_VALUES = ["7F0000010001", "TagA", "k1 k2  k3", "true", "TRUE", "标签", "TagNegative-Zzzz", "a\x01b"]
VALUES_APART = ["", "false", "3", "0", 'a"b\\c', "a\nb", "x\0y"]
USUAL_PAIRS = st.lists(st.tuples(st.sampled_from(USUAL_NAMES), st.sampled_from(USUAL_VALUES)), max_size=5)
ALL_NAMES, ALL_VALUES = ["", *USUAL_NAMES, *NAMES_APART], USUAL_VALUES + VALUES_APART
PAIRS = st.lists(st.tuples(st.sampled_from(ALL_NAMES), st.sampled_from(ALL_VALUES)), max_size=5)
HALF_TEXT = "TRAN_MSG\x01true\x02PGROUP\x01pg\x02"
USUAL_TEXT = "UNIQ_KEY\x017F0000010001\x02WAIT\x01true\x02"


def joined(pairs: list[tuple[str, str]]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs)


def ended(texts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """With the last separator, or without, as producers of 4.9.1 to 5.1 do."""
    return texts | texts.map(lambda text: text.removesuffix("\x02"))


USUAL_PROPERTIES = ended(USUAL_PAIRS.map(lambda pairs: USUAL_TEXT + joined(pairs)))
PROPERTIES = ended(
    PAIRS.map(joined)
    | PAIRS.map(lambda pairs: USUAL_TEXT + joined(pairs))
    | PAIRS.map(lambda pairs: joined(pairs) + USUAL_TEXT)
    | st.sampled_from(["noise", "\x02\x02a\x01" + USUAL_TEXT])
)


@st.composite
def batch_body(draw: st.DrawFn, is_usual: bool) -> bytes:
    items = []
    for _ in range(draw(st.integers(1, 4))):
        content = draw(st.binary(max_size=90))
        text = draw(USUAL_PROPERTIES | st.just("") if is_usual else PROPERTIES).encode()
        flag, wrong = draw(INT32), 0 if is_usual else draw(st.sampled_from([0, 1, -1, 70000]))
        size = 22 + len(content) + len(text)
        items.append(struct.pack(">iiiii", size + wrong, 0, 0, flag, len(content)) + content)
        items.append(struct.pack(">H", len(text)) + text)
    body = b"".join(items)
    return body if is_usual else body[: draw(st.sampled_from([len(body), len(body) - 1, 5]))]


@st.composite
def sends(draw: st.DrawFn) -> bytes:
    """One whole frame: of two in three nothing is odd."""
    is_usual = draw(st.sampled_from([True, True, False]))

    def one(usual: list[Any], odd: list[Any]) -> Any:
        return draw(st.sampled_from(usual if is_usual else usual + odd))

    is_batch = one([False, False, True], [])
    is_half = not is_batch and one([False, False, True], [])
    half = (
        one([HALF_TEXT], ["TRAN_MSG\x01TRUE\x02", "TRAN_MSG\x01no\x02", "REAL_QID\x011\x02" + HALF_TEXT])
        if is_half
        else ""
    )
    values: list[Any] = [
        "pg",
        one(["Orders", "Other"], TOPICS),
        "Absent",
        4,
        one([0, 1], [2, 3, 4, -1]),
        one([0, 0x301, 0x10], [4, 8, 0x80]) | (4 if is_half else 0),
        one([1_700_000_000_000, 0, -5], []),
        draw(INT32),
        half + draw(USUAL_PROPERTIES if is_usual else PROPERTIES),
        one([None, 0, 3], []),
        one([None, False], []),
        one([None, 16], []),
        one([True, "TRUE"] if is_batch else [None, False, "1"], []),
    ]
    code = one([310, 320, 10], [34])
    names = LONG_NAMES if code == 10 else SHORT_NAMES
    texts = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in zip(names, values, strict=True)
        if value is not None
    }
    if one([False], [True]):
        texts.pop(draw(st.sampled_from(sorted(texts))))
    if one([False], [True]):
        texts[draw(st.sampled_from(names))] = draw(st.sampled_from(["", "x", "+1", "1" * 20, "\ud83d", "é", 'a"']))
    bodies = st.binary(min_size=1) if is_usual else st.sampled_from([b"x" * 4096, b"y" * 4097, b""])
    body = draw(batch_body(is_usual) if is_batch else bodies)
    opaque, flag = draw(INT32), one([0, 0, 2], [1])
    return encoded(one(["json", "escaped", "numbers", "binary"], ["odd"]), code, opaque, flag, texts, body)


def encoded(way: str, code: int, opaque: int, flag: int, fields: dict[str, Any], body: bytes) -> bytes:
    """A frame as Java, C++ or a binary client writes it, or as nobody does."""
    if way in ("json", "binary"):
        return plain.write_frames([(int(way == "binary"), code, 0, 453, opaque, flag, None, fields, body)])
    if way == "numbers":
        fields = {name: int(text) if text in ("0", "1", "2", "3", "4", "16") else text for name, text in fields.items()}
    document = {"extFields": fields, "remark": "", "code": code, "language": "CPP", "opaque": opaque, "flag": flag}
    spaces = (" , ", " : ") if way == "odd" else (",", ":")
    header = json.dumps(document, separators=spaces, ensure_ascii=way != "odd").encode("utf-8", "surrogatepass")
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


READS = st.lists(sends() | st.sampled_from([plain.write_frames([(0, 34, 0, 453, 9, 0, None, {}, b"{}")])]), max_size=7)


def bounds_of(stream: bytes) -> list[int]:
    bounds, used, problem = plain.cut_frames(stream, len(stream), 1 << 24)
    assert (used, problem) == (len(stream), None)
    return bounds
