"""Rows become messages of a batch: what a row says is what a consumer reads, on both kernels and for any columns."""

import inspect
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.kernel import plain_rows
from bolide.protocol.batch import split_batch
from tests.kernel.twins import both, compiled

kernels = both(plain_rows)

IDENTITY = b"BOLIDE_TXN\x01q/0/1/"
DROPPED = frozenset([b"UNIQ_KEY", b"KEYS", b"TAGS"])


def texts(*values):
    """A column as Arrow has it."""
    bits, offsets = bytearray((len(values) + 7) // 8), array("i", [0])
    for i, value in enumerate(values):
        bits[i >> 3] |= (value is not None) << (i & 7)
        offsets.append(offsets[-1] + len(value or b""))
    return bytes(bits) if None in values else None, offsets.tobytes(), b"".join(value or b"" for value in values)


def maps(*values):
    pairs = [pair for value in values for pair in value or ()]
    valid, offsets, _ = texts(*[value if value is None else b"x" * len(value) for value in values])
    return valid, offsets, texts(*[name for name, _ in pairs]), texts(*[value for _, value in pairs])


def lay(kernel, bodies, order=None, first=0, ids=None, **columns):
    given = dict.fromkeys(("tags", "keys", "properties", "labels")) | {"dropped": DROPPED} | columns
    count = len(bodies[1]) // 4 - 1 if order is None else len(order)
    numbers = None if order is None else array("q", order).tobytes()
    ids = [f"ID{i}" for i in range(count)] if ids is None else ids
    return kernel.encode_rows(numbers, first, IDENTITY, bodies, ids=ids, **given)


def items(kernel, *arguments, **columns):
    laid, ends = lay(kernel, *arguments, **columns)
    ends = [0, *array("q", ends)]
    parts = [split_batch(laid[ends[i] : ends[i + 1]])[0] for i in range(len(ends) - 1)]
    assert parts == split_batch(laid)
    return [(item.body, item.properties) for item in parts]


@kernels
def test_an_item_says_what_the_row_said(kernel):
    found = items(
        kernel,
        texts(b"tea", b"for", b"two"),
        first=98,
        tags=texts(b"red", None, b""),
        keys=texts(b"a b", "茶".encode(), None),
        properties=maps([(b"p", b"q"), (b"UNIQ_KEY", b"old"), (b"n", None), (b"", b"v")], None, [(b"m", b"1")]),
        labels=texts(None, b"DELAY\x013\x02", None),
    )
    assert found == [
        (b"tea", {"TAGS": "red", "KEYS": "a b", "p": "q", "BOLIDE_TXN": "q/0/1/98", "UNIQ_KEY": "ID0"}),
        (b"for", {"KEYS": "茶", "DELAY": "3", "BOLIDE_TXN": "q/0/1/99", "UNIQ_KEY": "ID1"}),
        (b"two", {"m": "1", "BOLIDE_TXN": "q/0/1/100", "UNIQ_KEY": "ID2"}),
    ]


@kernels
def test_rows_are_laid_in_the_order_asked_for_under_their_own_numbers(kernel):
    found = items(kernel, texts(b"0", b"1", b"2"), order=[2, 0], first=10)
    assert [(body, properties["BOLIDE_TXN"]) for body, properties in found] == [(b"2", "q/0/1/12"), (b"0", "q/0/1/10")]
    assert lay(kernel, texts()) == (b"", b"")


@kernels
@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"bodies": texts(b"x", b"")}, "row 8 has an empty body"),
        ({"bodies": texts(b"x", None)}, "row 8 has an empty body"),
        ({"tags": texts(b"a", b"a\x01b")}, "row 8: tags, keys and properties may not hold the characters 1 and 2"),
        ({"keys": texts(b"a\x02", b"a")}, "row 7: tags, keys and properties may not hold"),
        ({"properties": maps([(b"a\x01", b"b")], None)}, "row 7: tags, keys and properties may not hold"),
        ({"properties": maps(None, [(b"a", b"\x02")])}, "row 8: tags, keys and properties may not hold"),
        ({"tags": texts(None, b"a" * 32767)}, "row 8: the properties take 32805 bytes, at most 32767 fit"),
        ({"ids": ["one"]}, "2 rows and 1 ids"),
        ({"order": [0, 2]}, "row 2 of 2"),
        ({"order": [-1, 0]}, "row -1 of 2"),
        ({"tags": texts(b"a")}, "a column of 1 rows has no row 1"),
        ({"tags": (b"", *texts(b"a", b"b")[1:])}, "a bitmap of 0 bytes has no row 0"),
        ({"tags": (None, array("i", [0, 5, 6]).tobytes(), b"ab")}, "a column of 2 bytes has a text from 0 to 5"),
        ({"tags": (None, array("i", [2, 1, 2]).tobytes(), b"ab")}, "a column of 2 bytes has a text from 2 to 1"),
        ({"properties": (None, array("i", [0, 1, 2]).tobytes(), texts(b"a"), texts(b"b"))}, "has pairs from 1 to 2"),
    ],
)
def test_what_is_no_message_is_refused_with_its_number(kernel, columns, complaint):
    given = {"bodies": texts(b"x", b"y"), "first": 7} | columns
    with pytest.raises(ValueError, match=complaint):
        lay(kernel, **given)


@kernels
def test_a_name_of_rocketmq_is_dropped_with_whatever_it_holds(kernel):
    ((_, properties),) = items(kernel, texts(b"x"), properties=maps([(b"TAGS", b"\x01"), (b"KEYS", b"k")]))
    assert properties.keys() == {"BOLIDE_TXN", "UNIQ_KEY"}


def test_the_twins_have_the_same_parameters():
    if compiled is None:
        pytest.skip("the compiled kernel was not built; run make build")
    parameters = [list(inspect.signature(kernel.encode_rows).parameters) for kernel in (plain_rows, compiled)]
    assert parameters[0] == parameters[1]


def outcome(kernel, *arguments, **columns):
    try:
        return lay(kernel, *arguments, **columns)
    except ValueError as problem:
        return str(problem)


TEXTS = st.none() | st.binary(max_size=12) | st.sampled_from([b"red", "茶".encode(), b"x" * 40])
MAPS = st.none() | st.lists(
    st.tuples(st.sampled_from([b"p", b"TAGS", b"", b"\xff", b"UNIQ_KEY"]) | st.binary(max_size=4), TEXTS), max_size=4
)


@given(
    rows=st.lists(st.tuples(st.binary(min_size=1, max_size=60) | TEXTS, TEXTS, TEXTS, MAPS, TEXTS), max_size=12),
    there=st.sets(st.sampled_from(["tags", "keys", "properties", "labels"])),
    order=st.none() | st.lists(st.integers(-1, 12), max_size=12),
    first=st.integers(0, 10**12),
    damage=st.none() | st.tuples(st.sampled_from(["tags", "keys", "labels"]), st.integers(0, 60), st.integers(1, 255)),
)
def test_both_kernels_encode_any_rows_alike(rows, there, order, first, damage):
    if compiled is None:
        pytest.skip("the compiled kernel was not built; run make build")
    bodies, tags, keys, properties, labels = map(list, zip(*rows, strict=True)) if rows else ([], [], [], [], [])
    columns = {"tags": texts(*tags), "keys": texts(*keys), "properties": maps(*properties), "labels": texts(*labels)}
    columns = {name: column for name, column in columns.items() if name in there}
    if damage is not None and damage[0] in columns:
        name, at, mask = damage
        valid, offsets, values = columns[name]
        broken = bytearray(offsets)
        broken[at % len(broken)] ^= mask
        columns[name] = valid, bytes(broken), values
    answers = [
        outcome(kernel, texts(*bodies), order=order, first=first, **columns) for kernel in (plain_rows, compiled)
    ]
    assert answers[0] == answers[1]
