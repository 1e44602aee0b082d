"""The pages for users are true: the programs of each run, in their order, against one broker."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bolide.testing import Cluster, cluster
from tests.tidy.source import ROOT

LIMIT_S = 60
NAMES = (
    "sending.md",
    "consuming.md",
    "backtracking.md",
    "filtering.md",
    "requests.md",
    "tracing.md",
    "transactions.md",
    "retrying.md",
    "delaying.md",
    "coming-from-aiokafka.md",
    "coming-from-celery.md",
    "coming-from-java.md",
    "coming-from-pika.md",
    "faststream.md",
)
PAGES = {name: (ROOT / "docs" / name).read_text("utf-8") for name in NAMES}
PROGRAMS = [
    pytest.param(program, id=f"{name}-{number}")
    for name, text in PAGES.items()
    for number, program in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL), 1)
]


@pytest.fixture(scope="module")
def rockets() -> Iterator[dict[str, Cluster]]:
    with ExitStack() as stack:
        settings = {"enablePropertyFilter": "true", "recallMessageEnable": "true"}
        found = {name: stack.enter_context(cluster(settings=settings)) for name in NAMES}
        for topic in ("Orders", "Bills"):  # whose consumers there are first, and would say that they wait
            found["faststream.md"].create_topic(topic)
        yield found


@pytest.mark.feature("F118")
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_of_the_pages_runs(
    program: str, rockets: dict[str, Cluster], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    page = str(request.node.callspec.id).rpartition("-")[0]
    (tmp_path / "program.py").write_text(program)
    environment = {**os.environ, "NAMESRV_ADDR": rockets[page].namesrv, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "program.py"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=tmp_path,
        env=environment,
    )
    complaints = [line for line in done.stderr.splitlines() if "INFO" not in line]  # FastStream says when it starts
    assert (done.returncode, complaints) == (0, []), done.stderr


@pytest.mark.parametrize("name", PAGES)
def test_every_link_of_the_pages_leads_somewhere(name: str) -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", PAGES[name]) if not link.startswith("http")]
    assert [link for link in links if not (ROOT / "docs" / link).is_file()] == []


@pytest.mark.parametrize("name", PAGES)
def test_every_name_the_pages_take_from_bolide_exists(name: str) -> None:
    import bolide

    used = set(re.findall(r"\bbolide\.([A-Z]\w+)", PAGES[name]))
    assert used
    assert {word for word in used if not hasattr(bolide, word)} == set()
