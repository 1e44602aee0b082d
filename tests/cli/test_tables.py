"""Tables fit the terminal: texts fold, numbers stay whole, wide characters are counted as wide."""

import io

import pytest

from bolide.cli.tables import cut, is_styled, table_lines, width_of

ROWS = [{"name": "a" * 30, "n": "1234567"}, {"name": "主题", "n": "1"}]


def test_columns_line_up_where_characters_are_wide() -> None:
    lines = table_lines(ROWS, numbers={"n"}, long=(), width=None)
    assert {width_of(line) for line in lines} == {38}
    assert [line.split() for line in lines] == [["name", "n"], ["a" * 30, "1234567"], ["主题", "1"]]


def test_a_table_that_is_too_wide_folds_its_texts_and_loses_nothing() -> None:
    lines = table_lines(ROWS, numbers={"n"}, long=(), width=20)
    assert max(map(width_of, lines)) <= 20
    assert "".join(line[:12].strip() for line in lines[1:-1]) == "a" * 30
    assert lines[1].endswith("1234567")


def test_heads_of_several_words_fold_before_names_are_broken() -> None:
    rows = [{"group": "kitchen-workers", "retries behind": "0", "dead letters": "12"}]
    assert table_lines(rows, numbers={"retries behind", "dead letters"}, long=(), width=32) == [
        "group           retries    dead",
        "                 behind letters",
        "kitchen-workers       0      12",
    ]
    assert len(table_lines(rows, numbers={"retries behind", "dead letters"}, long=(), width=80)) == 2


def test_a_long_text_is_cut_before_others_fold() -> None:
    rows = [{"id": "i" * 16, "body": "b" * 100}]
    head, line = table_lines(rows, numbers=(), long={"body"}, width=40)
    assert line == "i" * 16 + " " + "b" * 22 + "…"
    assert head.split() == ["id", "body"]


def test_numbers_stay_whole_on_the_narrowest_terminal() -> None:
    lines = table_lines([{"count": "123456789012"}], numbers={"count"}, long=(), width=5)
    assert lines[-1] == "123456789012"


def test_what_is_cut_says_so() -> None:
    assert cut("主题主题", 5) == "主题…"
    assert cut("short", 5) == "short"


def test_no_color_takes_bold_and_colours_away(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert is_styled(Terminal())
    assert not is_styled(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not is_styled(Terminal())
