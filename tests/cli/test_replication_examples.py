"""The settings in examples/replication are what they say: read as a broker reads them, and joined into groups."""

from collections import defaultdict
from pathlib import Path

import pytest

from bolide.broker.config import read_config
from bolide.remoting.ports import BROKER_NEIGHBOURS
from bolide.settings import read_properties
from tests.tidy.source import ROOT

EXAMPLES = ROOT / "examples" / "replication"
FILES = sorted(EXAMPLES.glob("*/*.conf"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_file_is_read_and_names_the_command_that_uses_it(path: Path) -> None:
    text = path.read_text("utf-8")
    config = read_config(read_properties(text))
    assert config.name.startswith("broker-")
    assert f"bolide broker -c {path.relative_to(EXAMPLES)} " in text


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES}), ids=lambda path: path.name)
def test_the_brokers_of_a_folder_fit_together_on_one_machine(folder: Path) -> None:
    configs = [read_config(read_properties(path.read_text("utf-8"))) for path in sorted(folder.glob("*.conf"))]
    taken = [config.listen.port + distance for config in configs for distance in (0, *BROKER_NEIGHBOURS)]
    assert len(set(taken)) == len(taken)
    assert len({config.store.root for config in configs}) == len(configs)
    ids = defaultdict(list)
    for config in configs:
        ids[config.name].append(config.broker_id)
    if not configs[0].replication.is_controlled:
        assert all(sorted(found) == list(range(len(found))) for found in ids.values())
    assert f"`{folder.name}`" in (EXAMPLES / "README.md").read_text("utf-8")
