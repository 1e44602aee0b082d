"""The two ways of a pull: what `take` answers is, to the byte, what serving it one by one would have answered."""

import random
from typing import Any, cast

import msgspec
import pytest

from bolide.broker.pulling.pull import Pulls
from bolide.errors import Refusal
from bolide.kernel import cut_frames
from bolide.kernel.layout import ENTRY_SIZE
from bolide.protocol.bodies import GroupConfig
from bolide.protocol.command import Command, read_commands
from bolide.remoting.owner import Read, Request
from bolide.remoting.session import Session
from tests.broker.pullers import GROUP, TOPIC, Rig, bodies_of, connected, pull_of, pulling, topic_of
from tests.remoting.ends import Peer
from tests.remoting.loops import both_loops, eventually, virtual_time

pytestmark = pytest.mark.usefixtures("fast_path")
TAGS = ("A", "Aa", "BB", "C", "")


def taken(pulls: Pulls, *commands: Command) -> tuple[bytes, list[int]]:
    stream = b"".join(command.encode() for command in commands)
    bounds = cut_frames(stream, len(stream), 1 << 24)[0]
    return pulls.answer_read(Read(cast(Session, None), memoryview(stream), bounds))


def served(pulls: Pulls, command: Command) -> bytes | None:
    """What the general path answers; None for a refusal."""
    try:
        reply = pulls.pull(Request(command, cast(Session, None), 0.0))
    except Refusal:
        return None
    assert isinstance(reply, Command)
    return reply.encode()


@pytest.mark.parametrize("seed", range(4))
@virtual_time
async def test_both_ways_give_the_same_bytes_for_any_pull(tmp_path, seed) -> None:
    dice = random.Random(seed)
    async with pulling(tmp_path) as rig:
        for _ in range(200):
            tag, size = dice.choice(TAGS), dice.choice((0, 10, 1000, 30_000))
            more = {"TAGS": tag} if tag else {}
            rig.put(dice.randbytes(size), queue_id=dice.randrange(3), **more)
        assert len(rig.store.commitlog.segments.bases) > 1  # some pulls cross from one to the next
        peer = await connected(rig, expression="A || BB", version=5)
        answered = {True: 0, False: 0}
        for n in range(400):
            command = pull_of(
                dice.choice((0, 1, 10, 40, 66, 70, 1000, -1, dice.randrange(80))),
                opaque=dice.randrange(-(2**31), 2**31),
                codec=dice.randrange(2),
                code=dice.choice((11, 361)),
                queue_id=dice.choice((0, 1, 2, 3, 4)),
                message_count_max=dice.choice((1, 8, 32, 100)),
                sys_flag=dice.choice((0, 4, 5, 1)),
                commit_offset=n,
                subscription=dice.choice(("*", "A", "A || C", "Nobody", "||", None)),
                subscription_version=dice.choice((0, 5, 6)),
                answer_size_max=dice.choice((None, 0, 500, 40_000, 262_144)),
            )
            frames, left = taken(rig.pulls, command)
            answered[not left] += 1
            assert (frames or None) == served(rig.pulls, command)
            assert bool(left) == (not frames)
        assert min(answered.values()) > 50  # the dice fell on both sides
        peer.leave()


@pytest.mark.parametrize("wrong", ["of another topic", "of another offset", "empty"])
@virtual_time
async def test_an_old_entry_that_is_not_its_messages_is_put_right_before_a_pull_is_taken(tmp_path, wrong) -> None:
    ours = [b"ours %03d" % number for number in range(30)]
    async with pulling(tmp_path) as rig:
        for body in ours:
            rig.put(body)
            rig.put(b"theirs" + body[6:], topic="U")
    mine, others = (next(tmp_path.rglob(f"consumequeue/{topic}/0/*")) for topic in (TOPIC, "U"))
    entries, theirs = bytearray(mine.read_bytes()), others.read_bytes()
    middle = slice(10 * ENTRY_SIZE, 20 * ENTRY_SIZE)  # what a start compares is at the ends
    bad = {"of another topic": theirs[middle], "of another offset": entries[20:220]}
    entries[middle] = bad.get(wrong, bytes(200))
    mine.write_bytes(entries)
    async with pulling(tmp_path) as rig:
        frames, left = taken(rig.pulls, pull_of(0, sys_flag=4))
        assert not left
        assert bodies_of(read_commands(frames, cut_frames(frames, len(frames), 1 << 24)[0])[0]) == ours


@virtual_time
async def test_a_read_with_many_pulls_is_answered_in_their_order_and_the_rest_is_left(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.put(b"a", b"b")
        good = [pull_of(n % 2, opaque=n) for n in range(5)]
        other, refused = Command(105, opaque=100), pull_of(0, opaque=101, topic="Nobody")
        frames, left = taken(rig.pulls, good[0], other, *good[1:3], refused, *good[3:])
        answers = read_commands(frames, cut_frames(frames, len(frames), 1 << 24)[0])
        assert [answer.opaque for answer in answers] == [0, 1, 2, 3, 4]
        assert [bodies_of(answer) for answer in answers] == [[b"a", b"b"], [b"b"]] * 2 + [[b"a", b"b"]]
        stream = b"".join(each.encode() for each in (good[0], other, *good[1:3], refused))
        assert [command.opaque for command in read_commands(stream, left)] == [100, 101]
        assert taken(rig.pulls, other)[1] == [4, len(other.encode())]


@virtual_time
async def test_both_ways_note_the_same(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.put(b"a", b"b", b"c")
        notes = []
        for way in (taken, served):
            rig.stats.got_total.count = rig.stats.got_total.size = rig.stats.missed_count = 0
            for offset, commit_offset in ((0, 7), (2, 8), (3, 9), (3, -1)):
                way(rig.pulls, pull_of(offset, sys_flag=5, commit_offset=commit_offset, message_count_max=2))
            total = rig.stats.got_total
            pulled = rig.offsets.get_pulled(GROUP, TOPIC, 0)
            notes.append((total.count, total.size, rig.stats.missed_count, rig.offsets.get(GROUP, TOPIC, 0), pulled))
            rig.offsets.remove_topic(TOPIC)
        assert notes[0] == notes[1]
        assert notes[0][0] == 3
        assert notes[0][2:] == (2, 9, 3)


@pytest.mark.parametrize("change", ["topic flag", "group flag", "slaves", "reset", "frame size"])
@virtual_time
async def test_what_makes_an_answer_special_goes_the_plain_way(tmp_path, change) -> None:
    settings: dict[str, Any] = {"slaves": {"slaveReadEnable": "true"}}.get(change, {})
    if change == "frame size":
        settings = {"com.rocketmq.remoting.frameMaxLength": "600"}
    async with pulling(tmp_path, **settings) as rig:
        rig.put(b"x" * 500)
        if change == "topic flag":
            rig.topics.update(_with_flag(topic_of()))
        elif change == "group flag":
            rig.groups.update(GroupConfig(group_name=GROUP, group_sys_flag=1))
        for _ in range(2):
            answers: list[bytes | None] = []
            for way in (lambda pulls, command: taken(pulls, command)[0], served):
                if change == "reset":
                    rig.offsets.reset(GROUP, TOPIC, 0, 0)
                answers.append(way(rig.pulls, pull_of(0)))
            if change == "frame size":
                answers[0] = answers[0] or answers[1]  # left to the session, which says that it is too large
            assert answers[0] == answers[1]


def _with_flag(config: Any) -> Any:
    return msgspec.structs.replace(config, topic_sys_flag=1)


@both_loops
async def test_pulls_over_a_port_take_the_fast_path_and_refusals_still_say_why(tmp_path) -> None:
    assert Rig.is_fast
    async with pulling(tmp_path) as rig:
        rig.put(b"a")
        peer = await Peer.connect(rig.port)
        peer.send(*[pull_of(0, opaque=n) for n in range(10)], pull_of(0, opaque=10, topic="Nobody"))
        answers = await peer.answers(11)
        assert [answer.code for answer in sorted(answers, key=lambda each: each.opaque)] == [0] * 10 + [17]
        assert rig.fast_count == 10
        peer.send(pull_of(1, sys_flag=6, opaque=3))
        await eventually(lambda: rig.parked.count == 1)
        assert rig.fast_count == 11
        rig.put(b"b")
        assert bodies_of((await peer.answers(1))[0]) == [b"b"]
        peer.leave()


@both_loops
async def test_a_peer_that_pulls_much_and_reads_nothing_is_not_answered_in_advance(tmp_path) -> None:
    async with pulling(tmp_path) as rig:
        rig.put(*[b"x" * 60_000] * 4)
        heard = await connected(rig)
        peer = await Peer.connect(rig.port)
        peer.send(*[pull_of(0, opaque=n) for n in range(60)])
        await eventually(lambda: rig.fast_count > 0)
        await heard.ask(pull_of(0, queue_id=1, sys_flag=4))  # the peer's read has been dealt with
        assert rig.server is not None
        assert len(rig.server.sessions) == 2
        assert max(session.unsent_size for session in rig.server.sessions) < 2 << 20
        assert sorted(answer.opaque for answer in await peer.answers(60)) == list(range(60))
        for each in (heard, peer):
            each.leave()
