"""Pulls in bulk: who asks with `bolideBulkMax` gets as much as fits, and nobody else notices."""

from typing import Any

import pytest

from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import Command
from tests.broker.pullers import Rig, bodies_of, place_of, pull_of, pulling
from tests.remoting.ends import Peer
from tests.remoting.loops import virtual_time

pytestmark = pytest.mark.usefixtures("fast_path")


def bulk_of(offset: int = 0, size_max: object = 4 << 20, **changes: Any) -> Command:
    command = pull_of(offset, **{"message_count_max": 65_536, **changes})
    command.fields["bolideBulkMax"] = str(size_max)
    return command


async def walk(rig: Rig, **changes: object) -> tuple[list[bytes], int]:
    """All bodies of queue 0, and how many pulls it took."""
    peer = await Peer.connect(rig.port)
    offset, count, bodies = 0, 0, []
    while (answer := await peer.ask(bulk_of(offset, **changes))).code != ResponseCode.PULL_NOT_FOUND:
        bodies += bodies_of(answer) if answer.code == ResponseCode.SUCCESS else []
        offset = place_of(answer).next_offset
        count += 1
    peer.leave()
    return bodies, count


@pytest.mark.feature("D02")
@virtual_time
async def test_one_answer_has_thousands_of_messages_and_a_walk_misses_none(tmp_path) -> None:
    async with pulling(tmp_path, mappedFileSizeConsumeQueue="600000") as rig:
        sent = [b"%d" % n for n in range(3000)]
        for first in range(0, 3000, 500):
            rig.put(*sent[first : first + 500])
        peer = await Peer.connect(rig.port)
        answer = await peer.ask(bulk_of())
        assert bodies_of(answer) == sent
        assert (place_of(answer).next_offset, place_of(answer).max_offset) == (3000, 3000)
        assert bodies_of(await peer.ask(bulk_of(5, message_count_max=7))) == sent[5:12]
        peer.leave()


@virtual_time
async def test_a_walk_crosses_the_files_of_queue_and_log(tmp_path) -> None:
    async with pulling(tmp_path) as rig:  # 300 entries a file of the queue, 1 MiB a segment
        sent = [b"%d" % n + b"x" * 2000 for n in range(1500)]
        for body in sent:
            rig.put(body)
        assert len(rig.store.commitlog.segments.bases) > 2
        bodies, count = await walk(rig)
        assert bodies == sent
        assert count <= 12


@virtual_time
async def test_the_size_is_a_bound_that_the_broker_bounds_in_turn(tmp_path) -> None:
    async with pulling(tmp_path, mappedFileSizeCommitLog=str(16 << 20)) as rig:
        for _ in range(60):
            rig.put(b"x" * 100_000)
        peer = await Peer.connect(rig.port)
        assert len(bodies_of(await peer.ask(bulk_of(size_max=1_000_000)))) == 9
        assert len(bodies_of(await peer.ask(bulk_of(size_max=999_999_999)))) == 41
        for strange in ("", "x", "-5", "9999999999999", "0"):
            assert len(bodies_of(await peer.ask(bulk_of(size_max=strange)))) == 2, "as if it were not there"
        peer.leave()


@virtual_time
async def test_tags_are_chosen_in_bulk_too(tmp_path) -> None:
    async with pulling(tmp_path, mappedFileSizeConsumeQueue="600000") as rig:
        for n in range(400):
            rig.put(b"%d" % n, TAGS="AB"[n % 2])
        bodies, count = await walk(rig, subscription="B")
        assert bodies == [b"%d" % n for n in range(400) if n % 2]
        assert count == 1


@virtual_time
async def test_where_the_kernel_is_plain_a_pull_in_bulk_gets_what_any_other_gets(tmp_path, general_path) -> None:
    async with pulling(tmp_path) as rig:
        sent = [b"%d" % n for n in range(100)]
        rig.put(*sent)
        bodies, count = await walk(rig)
        assert bodies == sent
        assert count > 1


@virtual_time
async def test_who_does_not_ask_for_bulk_gets_what_rocketmq_gives(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.put(*[b"x"] * 40)
        peer = await Peer.connect(rig.port)
        answer = await peer.ask(pull_of(0, message_count_max=1000))
        assert len(bodies_of(answer)) == 32
        peer.leave()
