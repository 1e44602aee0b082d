"""The fuzz itself: it leaves no function out, starts where it says, and repeats what it did."""

import importlib
import random
from typing import Any

import pytest

from tests.fuzz import cases
from tests.fuzz.seeds import seeds
from tests.kernel.twins import compiled

if compiled is None:
    pytest.skip("the compiled kernel was not built; run make build", allow_module_level=True)
targets = importlib.import_module("tests.fuzz.targets")


def test_every_function_of_the_compiled_kernel_has_a_target_and_a_corpus() -> None:
    assert set(targets.exported()) == set(targets.targets) == set(seeds())
    assert {path.stem for path in cases.CORPUS.iterdir()} == set(targets.targets)


@pytest.mark.parametrize("name", sorted(targets.targets))
def test_the_twins_agree_on_the_corpus_and_on_a_hundred_changes_of_it(name: str) -> None:
    corpus, chance = cases.kept(name), random.Random(7)
    assert corpus[: len(seeds()[name])] == seeds()[name], "python -m tests.fuzz --renew, if a seed has changed"
    for case in corpus:
        targets.targets[name](targets.Given(case))
    for _ in range(100):
        case = cases.changed(chance.choice(corpus), chance.choice(corpus), chance)
        targets.targets[name](targets.Given(case))


def test_changes_follow_from_the_seed_and_survive_the_disk() -> None:
    corpus = cases.kept("put_keys")

    def run(seed: int) -> list[cases.Case]:
        chance = random.Random(seed)
        return [cases.changed(chance.choice(corpus), corpus[0], chance) for _ in range(50)]

    assert run(3) == run(3) != run(4)
    assert all(cases.from_text(cases.as_text(case)) == case for case in run(5))


def test_a_target_tells_of_twins_that_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*given: Any) -> int:
        return 1

    monkeypatch.setitem(targets.exported_once(), "java_hash", (wrong, targets.exported_once()["java_hash"][1]))
    with pytest.raises(targets.Disagreement, match="java_hash: compiled says 1"):
        targets.targets["java_hash"](targets.Given({"text": b"TagA"}))
