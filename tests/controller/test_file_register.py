"""Groups in files: what is answered is on disk, and nobody else writes there."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from bolide.controller import elections
from bolide.controller.elections import ReplicaGroup
from bolide.controller.file_register import FileRegister
from bolide.controller.register import ABSENT, Unreachable, decode_group, encode_group
from bolide.errors import StoreError


def group_of(name: str = "g", **more: object) -> ReplicaGroup:
    group = elections.apply(None, "c", name, 1, "h:1;1")
    return elections.elect(group, elections.Health(), asker=1)


def test_a_change_names_what_it_replaces_and_outlives_the_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        register = FileRegister(tmp_path)
        group = group_of()
        assert await register.write("g", group, ABSENT)
        assert not await register.write("g", group, ABSENT)
        kept = await register.read("g")
        assert kept.group == group
        elected = elections.without_master(group)
        assert await register.write("g", elected, kept.revision)
        assert not await register.write("g", None, kept.revision)
        await register.close()
        again = FileRegister(tmp_path)
        kept = await again.read("g")
        assert kept.group == elected
        assert [each.name for each in await again.groups()] == ["g"]
        assert await again.write("g", None, kept.revision)
        assert (await again.read("g")).group is None
        await again.close()

    asyncio.run(scenario())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock"]


def test_of_many_writers_of_one_value_one_wins(tmp_path: Path) -> None:
    async def scenario() -> list[bool]:
        register = FileRegister(tmp_path)
        await register.write("g", group_of(), ABSENT)
        kept = await register.read("g")
        assert kept.group is not None
        after = elections.without_master(kept.group)
        won = await asyncio.gather(*(register.write("g", after, kept.revision) for _ in range(20)))
        await register.close()
        return won

    assert sum(asyncio.run(scenario())) == 1


def test_a_second_process_is_kept_out_with_a_sentence(tmp_path: Path) -> None:
    program = "import pathlib; from bolide.controller.file_register import FileRegister as F; F(pathlib.Path({!r}))"
    program = program.format(str(tmp_path))
    register = FileRegister(tmp_path)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "belongs to a controller that is running" in done.stderr
    assert "--data DIR" in done.stderr
    asyncio.run(register.close())
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"cluster":"c","name":"g","master_id":1}',
        '{"cluster":"c","name":"g","sync_set":[1]}',
        '{"cluster":"c","name":"other"}',
        '{"cluster":"c","name":"g","members":{"1":{"address":"h","check_code":""}},"next_id":1}',
    ],
)
def test_a_broken_file_stops_the_start_and_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "g.json").write_text(text)
    with pytest.raises(StoreError, match=r"g\.json"):
        FileRegister(tmp_path)


def test_a_disk_that_takes_nothing_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def scenario() -> None:
        register = FileRegister(tmp_path)
        await register.write("g", group_of(), ABSENT)
        kept = await register.read("g")
        assert kept.group is not None
        monkeypatch.setattr("bolide.controller.file_register.os.fsync", full)
        with pytest.raises(Unreachable, match="No space left"):
            await register.write("g", elections.without_master(kept.group), kept.revision)
        assert await register.read("g") == kept
        monkeypatch.undo()
        await register.close()

    asyncio.run(scenario())
    assert decode_group((tmp_path / "g.json").read_bytes(), "").master_id == 1


def test_a_group_comes_back_as_it_was() -> None:
    group = group_of()
    assert decode_group(encode_group(group), "here") == group
