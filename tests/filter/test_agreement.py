"""Two members want the same, or it is said where not."""

import pytest

from bolide.filter.agreement import differences, wants_of


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([("T", "TAG", "A || B")], [("T", None, "B||A")]),
        ([("T", "TAG", "*")], [("T", "TAG", "")]),
        ([("T", "TAG", "A"), ("%RETRY%g", "TAG", "*")], [("T", "TAG", "A")]),
        ([("T", "SQL92", "a > 1")], [("T", "SQL92", "a > 1")]),
    ],
    ids=["order and blanks", "all in two spellings", "the retry topic", "sql"],
)
def test_what_comes_to_the_same_is_no_difference(ours, theirs) -> None:
    assert wants_of(ours) == wants_of(theirs)
    assert differences(wants_of(ours), wants_of(theirs)) == []


def test_topics_expressions_and_types_that_differ_are_named() -> None:
    ours = wants_of([("T", "TAG", "A"), ("U", "TAG", "*"), ("V", "SQL92", "a > 1")])
    theirs = wants_of([("T", "TAG", "B"), ("V", "TAG", "a > 1"), ("W", "TAG", "*")])
    assert differences(ours, theirs) == [
        ("T", "A", "B"),
        ("U", "*", "nothing"),
        ("V", "SQL92 a > 1", "a > 1"),
        ("W", "nothing", "*"),
    ]
