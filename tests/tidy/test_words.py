"""The words of the house (`docs/glossary.md`): names that were riddles do not come back."""

import ast
import re
from collections.abc import Iterator

from tests.tidy.source import ROOT, nodes

# What files may not be called, with the word that took its place.
MODULES = {
    "keeping": "table_files",
    "leftovers": "deleted_topics, unanswered",
    "sieving": "filter_budget",
    "waits": "later/requests",
    "gathering": "pipeline",
    "longway": "retry_path",
    "returns": "retrying",
    "sendback": "send_back",
    "sendbacks": "send_back",
    "publishing": "staged_batches",
    "room": "the name of its capability",
    "words": "tokens",
    "pillars": "background",
    "relay": "redelivery",
    "aside": "cutoffs",
    "turns": "slow_work, change_queue",
}
# What classes and functions may not be called.
NAMES = {
    "Keeper": "TableWriter",
    "SieveTime": "FilterBudget",
    "PopRoom": "Pop",
    "TransactionRoom": "Transactions",
    "CurrentConfig": "LiveConfig",
    "Gathering": "SendPipeline",
    "LongWay": "RetryPath",
    "Publishing": "StagedBatches",
    "Waits": "LaterRequests",
    "divert": "route",
    "append_laid": "append_encoded",
    "lay_records": "encode_records",
    "lay_sends": "encode_sends",
    "lay_ends": "encode_outcomes",
    "relay": "redeliver",
    "Turns": "SlowWork, ChangeQueue",
}


def defined() -> Iterator[tuple[str, str]]:
    """Every class and function of the package: where it is, and its name."""
    for module, node in nodes(ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef):
        assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        yield module.at(node), node.name


def test_no_file_has_an_old_word_for_its_name() -> None:
    stems = {path: path.stem for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".pyx", ".pxi")}
    found = [f"{path.relative_to(ROOT)}: {MODULES[stem]}" for path, stem in stems.items() if stem in MODULES]
    assert not found


def test_no_class_and_no_function_has_an_old_word_for_its_name() -> None:
    assert [f"{at}: {name} is {NAMES[name]}" for at, name in defined() if name in NAMES] == []


def test_the_glossary_has_every_word_that_took_the_place_of_another() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    words = {word.rpartition("/")[2] for new in [*MODULES.values(), *NAMES.values()] for word in new.split(", ")}
    assert [word for word in words if re.fullmatch(r"\w+", word) and word not in page] == []


# In docstrings and comments: short main clauses with a named subject need none of these.
RIDDLES = re.compile(r"\b(whoever|anew|otherwise than)\b", re.IGNORECASE)


def test_docstrings_and_comments_are_plain_english() -> None:
    typed = [path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".pyx", ".pxi")]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in typed
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if (match := RIDDLES.search(line))
    ]
    assert not found
