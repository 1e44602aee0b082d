"""The README is true: its program runs, its commands exist, its links lead somewhere."""

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from tests.cli.test_namesrv import LIMIT_S, LOCAL, ask_on, environment, namesrv
from tests.namesrv.brokers import TOPICS
from tests.namesrv.peers import registration_body
from tests.tidy.source import ROOT

README = (ROOT / "README.md").read_text("utf-8")
BROKER = {
    "brokerName": "broker-a",
    "brokerAddr": "127.0.0.1:10911",
    "clusterName": "DefaultCluster",
    "haServerAddr": "127.0.0.1:10912",
    "brokerId": "0",
}


def test_the_program_lists_the_topics_of_a_live_name_server(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    with namesrv(tmp_path, *LOCAL) as process, socket.create_connection(("127.0.0.1", process.port), LIMIT_S) as broker:
        assert (
            ask_on(broker, Command(RequestCode.REGISTER_BROKER, fields=BROKER, body=registration_body(TOPICS))).code
            == 0
        )
        done = subprocess.run(
            [sys.executable, "-c", program.replace("127.0.0.1:9876", f"127.0.0.1:{process.port}")],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            env=environment(tmp_path),
        )
    assert done.stderr == ""
    assert [line.split() for line in done.stdout.splitlines()] == [
        [topic, "broker-a", "×", str(row.write_count)] for topic, row in sorted(TOPICS.items())
    ]


def test_the_program_is_about_twenty_lines() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in program.splitlines() if line.strip()]) <= 20


@pytest.mark.parametrize("target", re.findall(r"^make ([\w-]+)", README, re.MULTILINE))
def test_every_make_target_it_names_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


def test_every_page_it_links_exists() -> None:
    pages = [page for page in re.findall(r"\]\(([^)]+)\)", README) if not page.startswith("http")]
    assert pages
    assert [page for page in pages if not (ROOT / page).is_file()] == []


def test_the_sample_of_a_remark_is_one_the_name_server_gives() -> None:
    """Word for word, but for names and times: the sentence is built by the same function."""
    from bolide.namesrv.absence import Departures, explain
    from bolide.namesrv.entries import Cause
    from bolide.namesrv.routes import RouteTables
    from tests.namesrv.brokers import RW, announce

    tables, departures = RouteTables(), Departures()
    tables.register(announce(topics={"Orders": RW, "TBW102": RW}, address="10.0.0.5:10911", connection="c"), 0)
    (departure,) = tables.disconnect("c", 0)
    assert departure.cause is Cause.DISCONNECTED
    departures.remember(departure)
    said = explain("Orders", tables, departures, "127.0.0.1:9876", 12_000)
    assert said in README.replace("\n", " ")
