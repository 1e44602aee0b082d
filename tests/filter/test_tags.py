"""Tag expressions: what is parsed, and what passes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.filter.tags import any_passes, is_tag_type, parse_tags, tag_hashes
from bolide.kernel import java_hash

words = st.text(st.characters(exclude_characters="|", exclude_categories=["Cs"], min_codepoint=0x21), min_size=1)
blanks = st.text(" \t\n\x00", max_size=2)
entry = struct.Struct(">qiq")


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_no_expression_and_the_star_mean_every_message(expression):
    assert parse_tags(expression) is None
    assert tag_hashes(parse_tags(expression)) is None


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("A", ["A"]),
        ("A||B", ["A", "B"]),
        (" A  ||\tB || A", ["A", "B"]),
        ("A|B", ["A|B"]),
        ("A|||B", ["A", "|B"]),
        ("||A", ["A"]),
        ("A || *", ["A", "*"]),
        (" ", []),
        ("|| ", []),
        ("\u3000A", ["\u3000A"]),
    ],
)
def test_an_expression_is_split_as_java_splits_it(expression, tags):
    assert parse_tags(expression) == tags


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_separators_without_a_tag_are_refused(expression):
    with pytest.raises(ValueError, match="no tag"):
        parse_tags(expression)


@given(st.lists(st.tuples(blanks, words, blanks), min_size=1))
def test_tags_survive_being_joined_with_blanks_around_them(parts):
    expression = "||".join(before + word + after for before, word, after in parts)
    if expression == "*":
        return
    assert parse_tags(expression) == list(dict.fromkeys(word for _, word, _ in parts))


@given(st.lists(words), words)
def test_a_tag_passes_exactly_when_its_hash_is_among_those_wanted(wanted, tag):
    hashes = tag_hashes(wanted)
    assert hashes is not None
    entries = entry.pack(4096, 100, java_hash(tag))
    assert any_passes(entries, hashes) == (java_hash(tag) in {java_hash(each) for each in wanted})


def test_colliding_tags_pass_for_each_other_and_a_message_without_tag_passes_for_none():
    assert any_passes(entry.pack(0, 100, java_hash("BB")), tag_hashes(["Aa"]))
    assert not any_passes(entry.pack(0, 100, 0), tag_hashes(["Aa"]))
    assert any_passes(entry.pack(0, 100, 0), None)


def test_one_wanted_entry_among_many_is_enough():
    others = b"".join(entry.pack(n * 100, 100, n) for n in range(50))
    assert not any_passes(others, tag_hashes(["A"]))
    assert any_passes(others + entry.pack(9000, 100, java_hash("A")), tag_hashes(["A"]))


def test_only_tag_and_no_type_at_all_are_about_tags():
    assert [is_tag_type(name) for name in (None, "", "TAG", "SQL92", "tag")] == [True, True, True, False, False]
