"""The power fails before anything was there for long: what was confirmed has a name that leads to it."""

import asyncio
import json
from pathlib import Path

import pytest

from bolide.errors import StoreError
from bolide.files import make_directories, read_whole, sync_directory, write_whole
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.topics import UpdateTopicRequest
from bolide.store.disk import Disk
from tests.broker.whole import whole
from tests.crash.power import Worlds


def test_a_file_in_new_directories_is_there_in_every_world(machine: Path, worlds: Worlds) -> None:
    write_whole(machine / "a/store/config/topics.json", "[1]")
    for world in worlds():
        assert read_whole(world / "a/store/config/topics.json", json.loads, []) == [1]


def test_directories_that_the_disk_makes_are_there_in_every_world(machine: Path, worlds: Worlds) -> None:
    Disk().make_directories(machine / "a/b/c")
    for world in worlds():
        assert (world / "a/b/c").is_dir()


def test_a_topic_confirmed_in_the_first_second_of_a_broker_is_there_in_every_world(
    machine: Path, worlds: Worlds
) -> None:
    header = UpdateTopicRequest(
        topic="Orders",
        default_topic="TBW102",
        read_queue_count=4,
        write_queue_count=4,
        permission=6,
        filter_type="SINGLE_TAG",
        is_ordered=False,
    )

    async def confirmed() -> None:
        # Above the store, so that nothing but its own start syncs its name.
        async with whole(machine / "data") as running:
            answer = await running.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, b"", **header.encode())
            assert answer.code == 0
            for world in worlds():
                tables = json.loads((world / "data/store/config/topics.json").read_text())
                assert "Orders" in tables["topicConfigTable"]
                assert (world / "data/store/checkpoint").is_file()
                assert (world / "data/store/commitlog").is_dir()

    asyncio.run(confirmed())


def test_a_directory_whose_name_could_not_be_synced_is_synced_by_who_needs_it_next(machine: Path) -> None:
    synced = []

    def failing(path: Path) -> None:
        raise StoreError("a disk that fails")

    def noting(path: Path) -> None:
        synced.append(path)
        sync_directory(path)

    with pytest.raises(StoreError):
        make_directories(machine / "a/b", failing)
    make_directories(machine / "a/b/c", noting)
    assert set(synced) == {machine, machine / "a", machine / "a/b"}
    make_directories(machine / "a/b/c", noting)
    assert len(synced) == 3
