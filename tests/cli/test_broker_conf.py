"""The explained broker.conf says what is so."""

import re
from pathlib import Path

from bolide.broker.config import BrokerConfig, read_config, shown
from bolide.cli.start import read_file
from bolide.settings import read_properties
from tests.cli.processes import bolide
from tests.tidy.source import ROOT

FILE = ROOT / "docs" / "broker.conf"
# `#key=value` is a default; `# key=value` an example of what has no default worth showing.
DEFAULTS = dict(re.findall(r"^#([\w.]+)=(.*)$", FILE.read_text("utf-8"), re.MULTILINE))
EXAMPLES = dict(re.findall(r"^# ([\w.]+)=(.*)$", FILE.read_text("utf-8"), re.MULTILINE))


def test_as_it_is_it_changes_nothing() -> None:
    assert read_file(FILE) == {}


def test_every_value_it_shows_is_the_default() -> None:
    texts = shown(BrokerConfig())
    assert len(DEFAULTS) > 30
    assert {key: texts[key] for key in DEFAULTS} == DEFAULTS


def test_with_every_line_in_force_it_is_a_configuration_without_idle_keys(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(re.sub(r"^# ?([\w.]+=)", r"\1", FILE.read_text("utf-8"), flags=re.MULTILINE))
    config = read_config(read_properties(file.read_text("utf-8")))
    assert not config.ignored
    assert config.name == "broker-a"
    assert len(EXAMPLES) == 5
    done = bolide(tmp_path, "broker", "-c", str(file), "-p")
    assert done.returncode == 0
    assert "namesrvAddr=10.0.0.1:9876;10.0.0.2:9876" in done.stdout


def test_its_lines_are_easy_to_read() -> None:
    assert max(map(len, FILE.read_text("utf-8").splitlines())) <= 120
