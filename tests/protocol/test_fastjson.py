"""Whatever fastjson writes or takes is read as strict JSON would have been; everything else is a ValueError."""

import contextlib
import json
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.kernel import header_from_json
from bolide.protocol.fastjson import (
    DEPTH_MAX,
    NUMBER_LENGTH_MAX,
    REFERRED_GROWTH_MAX,
    REFERRED_SIZE_FREE,
    header_document,
    loads,
)

QUEUE = '{"brokerName":"broker-a","queueId":0,"topic":"T1"}'


@pytest.mark.parametrize(
    ("text", "strict"),
    [
        ('{0:"a",1:"b"}', '{"0":"a","1":"b"}'),
        ("{-1:1, 2.5:2}", '{"-1":1,"2.5":2}'),
        ("{true:1,false:2,null:3}", '{"true":1,"false":2,"null":3}'),
        ("{topic:'T1', _a$1:2, $b:3}", '{"topic":"T1","_a$1":2,"$b":3}'),
        ("{'a':'it\"s'}", '{"a":"it\\"s"}'),
        ("[1,2,]", "[1,2]"),
        ('{,,"a":1,,"b":[,1,,2,],}', '{"a":1,"b":[1,2]}'),
        (' \t\r\n{ "a" : [ 1 , 2 ] , "b" : { } }\n', '{"a":[1,2],"b":{}}'),
        ('{"a":NaN,"b":[NaN,null],"c":undefined}', '{"a":null,"b":[null,null],"c":null}'),
        ('{"a":1e999,"b":-1e999}', '{"a":null,"b":null}'),
        ("[007,-0,1.50,2E3,-1.5e-3]", "[7,0,1.5,2000.0,-0.0015]"),
        (r"'\x41\'\"\/\b\t\n\f\r\\\v\0\7é'", r'"A' + r"'" + r'\"/\b\t\n\f\r\\\u000b\u0000\u0007é"'),
        (r'"\ud83d\ude00 \u00e9"', '"😀 é"'),
        ('"a raw\nline"', r'"a raw\nline"'),
        ('{"a":1,"a":2}', '{"a":2}'),
        ('{0:1,"0":2}', '{"0":2}'),
        ('"{\\"queueId\\":0}"', '"{\\"queueId\\":0}"'),
        ('{"{\\"queueId\\":0}":1}', '{"{\\"queueId\\":0}":1}'),
        ("10", "10"),
        ("[]", "[]"),
        ("{}", "{}"),
    ],
)
def test_an_oddity_reads_as_its_strict_form(text, strict):
    assert loads(text) == json.loads(strict)
    assert loads(text.encode()) == json.loads(strict)


@pytest.mark.parametrize(
    "text",
    [
        '{{"topic":"T1","brokerName":"broker-a","queueId":0}:5}',
        "{ { topic : 'T1' , brokerName : 'broker-a' , queueId : 0 , } : 5 }",
    ],
)
def test_an_object_key_becomes_the_text_java_takes_in_its_place(text):
    assert loads(text) == {QUEUE: 5}


def test_an_object_key_keeps_texts_that_look_like_json():
    queue = {"topic": '{"a":1},[0:{', "brokerName": "b:0,c", "queueId": 3}
    assert [json.loads(key) for key in loads(f"{{{json.dumps(queue)}:[1]}}")] == [queue]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":{"x":1},"b":{"$ref":"$.a"}}', {"a": {"x": 1}, "b": {"x": 1}}),
        ('{"a":[{"x":1},{"x":2}],"b":[{"$ref":"$.a[1]"}]}', {"a": [{"x": 1}, {"x": 2}], "b": [{"x": 2}]}),
        ('{"a":{"b":[[{"x":1}]]},"c":{"$ref":"$.a.b[0][0]"}}', {"a": {"b": [[{"x": 1}]]}, "c": {"x": 1}}),
        ('[{"x":1},{"$ref":"$[0]"}]', [{"x": 1}, {"x": 1}]),
        ('{"a":{7:{"x":1}},"b":{"$ref":"$.a[7]"}}', {"a": {"7": {"x": 1}}, "b": {"x": 1}}),
        ('{"a":{"10.0.0.9@1":{"x":1}},"b":{"$ref":"$.a.10.0.0.9@1"}}', {"a": {"10.0.0.9@1": {"x": 1}}, "b": {"x": 1}}),
        (
            r'{"a":{"10.0.0.9@1":{"x":1}},"b":{"$ref":"$.a.10\\.0\\.0\\.9\\@1"}}',
            {"a": {"10.0.0.9@1": {"x": 1}}, "b": {"x": 1}},
        ),
        (f'{{"mq":{QUEUE},"t":{{{{"$ref":"$.mq"}}:1}}}}', {"mq": json.loads(QUEUE), "t": {QUEUE: 1}}),
        ('{"a":{"$ref":7}}', {"a": {"$ref": 7}}),
        ('{"a":{"$ref":"$","b":1}}', {"a": {"$ref": "$", "b": 1}}),
    ],
)
def test_a_reference_reads_as_what_it_refers_to(text, expected):
    assert loads(text) == expected
    assert loads(text, as_tree=True) == expected


def test_a_referred_key_is_the_first_key_of_the_map_it_names():
    text = f'{{"consumerTable":{{"c1":{{{QUEUE}:3}},"c2":{{{{"$ref":"$.consumerTable.c1.null"}}:4}}}}}}'
    assert loads(text) == {"consumerTable": {"c1": {QUEUE: 3}, "c2": {QUEUE: 4}}}


def test_several_referred_keys_take_the_keys_of_the_other_map_in_turn():
    text = (
        '{"t":{"c1":{{"q":0}:1,{"q":1}:2,{"q":2}:3},'
        '"c2":{{"$ref":"$.t.c1.null"}:4,{"q":1}:5,{"$ref":"$.t.c1.null"}:6},"c3":{{"$ref":"$.t.c1.null"}:7}}}'
    )
    assert loads(text) == {
        "t": {
            "c1": {'{"q":0}': 1, '{"q":1}': 2, '{"q":2}': 3},
            "c2": {'{"q":0}': 4, '{"q":1}': 5, '{"q":2}': 6},
            "c3": {'{"q":0}': 7},
        }
    }


def test_root_parent_and_self_lead_to_the_container_itself():
    root = loads('{"a":{"root":{"$ref":"$"},"parent":{"$ref":".."},"self":{"$ref":"@"}}}')
    assert root["a"]["root"] is root
    assert root["a"]["parent"] is root
    assert root["a"]["self"] is root["a"]


@pytest.mark.parametrize("path", ["$", "..", "@", "$.a"])
def test_a_tree_holds_no_reference_to_what_holds_it(path):
    with pytest.raises(ValueError, match="reference"):
        loads(f'{{"a":{{"b":{{"$ref":"{path}"}}}}}}', as_tree=True)


@pytest.mark.parametrize("path", ["$.b", "$.a[1]", "$.a[0].y", "$.n", "x", "", "$.c", "...", "$.a.length"])
def test_a_reference_to_nothing_is_an_error(path):
    with pytest.raises(ValueError, match="reference"):
        loads(f'{{"a":[{{"x":1}}],"n":5,"c":{{"$ref":"{path}"}}}}')


@pytest.mark.parametrize("text", ['{"$ref":"$"}', '{"$ref":"@"}', '{"a":{"$ref":".."}}', '{{"$ref":"$.x.null"}:1}'])
def test_a_reference_without_anything_above_it_is_an_error(text):
    with pytest.raises(ValueError, match="reference"):
        loads(text)


def test_more_referred_keys_than_the_other_map_has_are_an_error():
    reference = '{"$ref":"$.a.null"}'
    with pytest.raises(ValueError, match="one more key"):
        loads(f'{{"a":{{{{"q":0}}:1}},"b":{{{reference}:1,{reference}:2}}}}')


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("   ", 3),
        ("{", 1),
        ("[", 1),
        ('{"a"', 4),
        ('{"a":', 5),
        ('{"a":1', 6),
        ('{"a" 1}', 5),
        ('{"a":1 "b":2}', 7),
        ("[1 2]", 3),
        ("[1}", 2),
        ('{"a":1]', 6),
        ('"abc', 0),
        ("'abc\"", 0),
        (r'"\q"', 2),
        (r'"\u12g4"', 2),
        (r'"\x4"', 2),
        ("nul", 0),
        ("Infinity", 0),
        ("-", 0),
        ("1x", 1),
        ("[1.]", 2),
        ("{[1]:2}", 1),
        ("{} {}", 3),
        ("/* no */ 1", 0),
        ("٣", 0),
    ],
)
def test_an_error_names_the_position_and_what_was_found(text, position):
    with pytest.raises(ValueError, match=f"^at character {position}: found .*, expected .*"):
        loads(text)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_nesting_is_limited(opening, closing):
    loads(opening * DEPTH_MAX + "1" + closing * DEPTH_MAX)
    for text in (opening * (DEPTH_MAX + 1) + "1" + closing * (DEPTH_MAX + 1), opening * 1_000_000):
        with pytest.raises(ValueError, match=f"at most {DEPTH_MAX} levels"):
            loads(text)


def test_keys_inside_keys_do_not_grow_without_limit():
    assert loads("{{{}:1}:2}") == {'{"{}":1}': 2}
    with pytest.raises(ValueError, match="as a key"):
        loads("{" * (DEPTH_MAX - 1) + "{}" + ":1}" * (DEPTH_MAX - 1))
    with pytest.raises(ValueError, match=f"at most {DEPTH_MAX} levels"):
        loads("{" * 1_000_000)
    chain = ",".join(f'"k{i + 1}":{{{{"$ref":"$.k{i}"}}:1}}' for i in range(60))
    with pytest.raises(ValueError, match="as a key"):
        loads(f'{{"k0":{{"x":1}},{chain}}}')


def test_references_do_not_get_around_the_limit_of_nesting():
    half = "[" * 40 + "]" * 40
    deep = '{"a":' + half + ',"b":' + "[" * 30 + '{"$ref":"$.a"}' + "]" * 30 + "}"
    with pytest.raises(ValueError, match="levels"):
        loads(deep)


@pytest.mark.parametrize("as_tree", [True, False])
def test_references_cannot_multiply_without_end(as_tree):
    levels = ",".join(f'"k{i + 1}":[{",".join([f"""{{"$ref":"$.k{i}"}}"""] * 10)}]' for i in range(40))
    with pytest.raises(ValueError, match="references that stand for"):
        loads(f'{{"k0":{{"x":1}},{levels}}}', as_tree=as_tree)


LONG = 200_000


@pytest.mark.parametrize(
    ("first", "reference"),
    [
        (json.dumps({"x": "a" * LONG}), '{"$ref":"$.t.first"}'),
        (json.dumps({"a" * LONG: 1}), '{"$ref":"$.t.first"}'),
        (json.dumps([["a" * LONG]]), '{"$ref":"$.t.first"}'),
        (json.dumps({"a" * LONG: 1}), '{{"$ref":"$.t.first.null"}:1}'),
        (f"[{','.join(['9' * NUMBER_LENGTH_MAX] * (LONG // NUMBER_LENGTH_MAX))}]", '{"$ref":"$.t.first"}'),
    ],
    ids=["text", "key", "inner text", "lent key", "digits"],
)
def test_references_to_something_long_are_limited(first, reference):
    def text(count: int) -> str:
        return f'{{"t":{{"first":{first},{",".join(f"{i}:{reference}" for i in range(count))}}}}}'

    assert len(loads(text(3))["t"]) == 4
    with pytest.raises(ValueError, match=f"references that stand for at most {REFERRED_SIZE_FREE} characters"):
        loads(text(12))


def test_a_long_text_may_grow_to_a_few_times_its_length():
    long = "a" * REFERRED_SIZE_FREE

    def text(count: int) -> str:
        return json.dumps({"a": [long], "b": [{"$ref": "$.a"}] * count})

    assert loads(text(REFERRED_GROWTH_MAX))["b"] == [[long]] * REFERRED_GROWTH_MAX
    with pytest.raises(ValueError, match="references that stand for at most"):
        loads(text(REFERRED_GROWTH_MAX + 1))


def test_counting_a_value_that_holds_itself_ends():
    cycles = ",".join(['{"$ref":"@"}'] * 2000)
    with pytest.raises(ValueError, match="references that stand for"):
        loads(f'{{"a":[{cycles}],"b":{{"$ref":"$.a"}}}}')


def test_a_number_has_a_limited_length():
    assert loads("9" * NUMBER_LENGTH_MAX) == 10**NUMBER_LENGTH_MAX - 1
    with pytest.raises(ValueError, match="a number of at most"):
        loads("9" * 1_000_000)


def test_bytes_that_are_not_utf8_read_as_java_reads_them():
    assert loads(b'{"a":"\xff\xc3\xa9"}') == {"a": "\N{REPLACEMENT CHARACTER}é"}


def test_half_a_character_becomes_a_question_mark():
    assert loads(r'{"a":"\ud83d","b":"\ude00\ud83d"}') == {"a": "?", "b": "??"}


def test_reading_time_grows_with_the_text_and_not_faster():
    def seconds(count: int) -> float:
        texts = ["[" + "{'a':\"" + "\\n" * count + '"},' * 2 + "]", "[" + "," * count + "]", "1" + " " * count]
        texts += ['{"k":"' + "a" * count, "{" + ",".join(f"{i}:-1.5e3" for i in range(count)) + "}"]
        start = time.thread_time()
        for text in texts:
            try:
                loads(text)
            except ValueError:
                continue
        return time.thread_time() - start

    # A quadratic step would make this 64 times as long; caches and frequencies change, so that 8 is not asked for.
    assert min(seconds(40_000) for _ in range(3)) < 30 * min(seconds(5_000) for _ in range(3))


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text().filter(lambda k: k != "$ref"), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(value=values, ensure_ascii=st.booleans(), indent=st.sampled_from([None, 1]))
def test_strict_json_reads_as_itself(value, ensure_ascii, indent):
    assert loads(json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)) == value


def write_oddly(value: object, dice: random.Random) -> str:
    """The value as a careless writer has it: single quotes, bare keys, blanks and stray commas."""
    blank = lambda: dice.choice(["", "", " ", "\n\t"])  # noqa: E731
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=dice.random() < 0.5)
        return text if dice.random() < 0.5 else "'" + text[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"
    if isinstance(value, list):
        items = [blank() + write_oddly(item, dice) + blank() + "," * dice.randint(1, 2) for item in value]
        return "[" + "".join(items) + blank() + "]"
    if isinstance(value, dict):
        return "{" + "".join(_write_member(key, value[key], dice) + blank() + "," for key in value) + blank() + "}"
    return json.dumps(value)


def _write_member(key: str, value: object, dice: random.Random) -> str:
    is_bare = key.isascii() and key.isidentifier()
    return (key if is_bare else write_oddly(key, dice)) + " :" + write_oddly(value, dice)


@given(value=values, seed=st.integers(0, 2**32))
def test_careless_json_reads_as_strict(value, seed):
    assert loads(write_oddly(value, random.Random(seed))) == value


SOUP = [*"{}[]:,'\"\\-+.$@ \n", "0", "12", "1e5", "true", "null", "NaN", "a", '"a"', '"$ref"', '"$.a"', '".."', "\\u12"]
SOUP += ['{"$ref":"$"}', '{"$ref":"$.a"}', '{"$ref":"$[0]"}', '{"$ref":"@"}', '"a":', "{{", "}:"]
soup = st.lists(st.sampled_from(SOUP)).map("".join)


@given(text=soup | st.text() | st.binary(), as_tree=st.booleans())
def test_anything_is_read_or_refused_with_a_value_error(text, as_tree):
    with contextlib.suppress(ValueError):
        loads(text, as_tree=as_tree)


@given(text=soup | st.text() | st.binary())
def test_any_text_as_a_header_is_a_header_or_refused(text):
    with contextlib.suppress(ValueError):
        header_from_json(header_document(loads(text)), 0)


def test_a_header_with_everything_in_quotes_is_understood():
    text = (
        "{code:'105', version:\"333\", opaque:'-7', flag:'1', language:'9', remark:5, extFields:{a:1.5,b:true,c:-2,}}"
    )
    header = header_from_json(header_document(loads(text)), 99)
    assert header == (0, 105, 9, 333, -7, 1, "5", {"a": "1.5", "b": "true", "c": "-2"}, 99)


def test_nulls_in_a_header_keep_the_defaults():
    text = '{"code":34,"version":null,"opaque":1,"flag":null,"language":null,"remark":null,"extFields":null}'
    assert header_from_json(header_document(loads(text)), 5) == (0, 34, 0, 0, 1, 0, None, {}, 5)


def test_a_null_among_the_ext_fields_is_left_out() -> None:
    header = header_from_json(header_document(loads("{code:34,extFields:{a:null,b:'',c:7}}")), 5)
    assert header is not None
    assert header[7] == {"b": "", "c": "7"}


@pytest.mark.parametrize("text", ["[]", "7", '{"code":"abc"}', '{"code":99999999999}', '{"extFields":{"a":[1]}}'])
def test_what_is_no_header_stays_none(text):
    assert header_from_json(header_document(loads(text)), 0) is None


def test_the_limits_leave_room_for_what_rocketmq_writes():
    registration = {f"topic-{i}": {"attributes": {}, "perm": 6} for i in range(5_000)}
    assert loads(json.dumps(registration)) == registration


def test_twenty_thousand_references_to_a_subscription_are_read():
    subscription = {
        "classFilterMode": False,
        "codeSet": [],
        "expressionType": "TAG",
        "subString": "*",
        "topic": "T" * 20,
    }
    references = ",".join(f'"topic-{i:06}":{{"$ref":"$.subscriptionTable.T1"}}' for i in range(20_000))
    table = loads(f'{{"subscriptionTable":{{"T1":{json.dumps(subscription)},{references}}}}}')["subscriptionTable"]
    assert len(table) == 20_001
    assert table["topic-019999"] == subscription
