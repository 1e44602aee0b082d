"""A whole read at once: the same bytes as one by one, in order, and nothing told that is not so."""

import asyncio
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bolide.kernel
from bolide.broker.hotpath import HotPath
from bolide.broker.intake import Intake
from bolide.broker.members.locks import Locks
from bolide.broker.sending.send import Sends
from bolide.broker.state import BrokerState
from bolide.broker.stats import Stats
from bolide.broker.tables.open_topics import OpenTopics
from bolide.errors import ProtocolError, Refusal
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import Command, read_commands
from bolide.protocol.ids import UniqueIds
from bolide.remoting.handlers import Handlers
from bolide.remoting.owner import Answered, Read, Request
from bolide.store.disk import Disk
from bolide.store.store import Store
from bolide.testing import VirtualClock, run
from bolide.testing.disk import FaultyDisk
from tests.broker.open_tables import Tables, intake_of
from tests.broker.reads import Peer, answered
from tests.broker.senders import DURABLE, SMALL, STORE_HOST, message, sending
from tests.kernel.send_frames import READS, bounds_of
from tests.store.given import HeldClock

pytestmark = pytest.mark.usefixtures("fast_path")


@dataclass
class Room:
    """The sending side over a store of its own; nothing in it needs a loop."""

    state: BrokerState
    intake: Intake
    open_topics: OpenTopics
    store: Store
    sends: Sends
    hot: HotPath
    stats: Stats
    tables: Tables
    clock: HeldClock

    def take(self, stream: bytes, bounds: list[int] | None = None, session: Any = None) -> tuple[bytes, list[int]]:
        bounds = bounds_of(stream) if bounds is None else bounds
        peer: Any = session or Peer()
        return answered(self.hot, peer, stream, bounds)

    def serve(self, stream: bytes, bounds: list[int]) -> bytes:
        """The answers of the plain path, one request after the other; a frame that cannot be read ends it."""
        answers = []
        for i in range(0, len(bounds), 2):
            try:
                (command,) = read_commands(stream, bounds[i : i + 2])
            except ProtocolError:
                break
            if command.is_response:
                continue
            try:
                session: Any = Peer()
                answer: Any = Handlers(self.sends.handlers()).serve(Request(command, session, self.clock.monotonic_s()))
            except Refusal as refusal:
                answer = command.answer(refusal.code, remark=refusal.remark)
            if not command.is_oneway:
                answers.append(answer.encode())
        return b"".join(answers)


@contextmanager
def room(root: Path, disk: Disk | None = None, **changes: str) -> Iterator[Room]:
    clock = HeldClock()
    with ThreadPoolExecutor(1) as file_thread:
        tables = Tables(root, file_thread, clock, SMALL | changes)
        for name, perm in (("Orders", 6), ("Other", 6), ("ReadOnly", 4)):
            tables.topics.update(TopicConfig(topic_name=name, read_queue_nums=2, write_queue_nums=4, perm=perm))
        with Store.open(tables.settings.now.store, clock, STORE_HOST, disk) as store:
            state = tables.state(store)
            open_topics = OpenTopics(tables.topics, tables.settings, tables.table_writer)
            intake = intake_of(state)
            sends = Sends(state, intake, open_topics, Locks(clock))
            sends._unique_ids = UniqueIds(bytes([10, 0, 0, 1]), 1, 1, clock)
            hot = HotPath(state, intake, open_topics)
            yield Room(state, intake, open_topics, store, sends, hot, state.stats, tables, clock)


def log_of(store: Store, start: int) -> bytes:
    view = store.commitlog.view(start, store.commitlog.end - start)
    return b"" if view is None else bytes(view)


def queues_of(store: Store) -> dict[Any, bytes]:
    return {key: bytes(queue.read(0, 100_000) or b"") for key, queue in store.dispatch.queues.items()}


def index_of(store: Store) -> list[Any]:
    return [file.entries() for file in store.dispatch.index.files]


WRONG = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=3)


def test_a_read_taken_at_once_leaves_the_bytes_of_one_taken_one_by_one(tmp_path: Path) -> None:
    sizes: Any = {"mappedFileSizeCommitLog": str(64 << 20), "maxIndexNum": "1000000"}
    with room(tmp_path / "hot", **sizes) as hot, room(tmp_path / "plain", **sizes) as plain:

        @settings(max_examples=250)
        @given(READS, st.just([]) | WRONG)
        def check(frames: list[bytes], wrong: list[tuple[int, int]]) -> None:
            noisy = bytearray(b"".join(frames))
            for at, byte in wrong[: len(noisy)]:
                noisy[at % len(noisy)] = byte
            stream = bytes(noisy)
            bounds, start = bolide.kernel.cut_frames(stream, len(stream), 1 << 24)[0], hot.store.commitlog.end
            answers, left = hot.take(stream, bounds)
            gone = set(left)
            taken = [place for i in range(0, len(bounds), 2) if bounds[i] not in gone for place in bounds[i : i + 2]]
            assert plain.serve(stream, taken) == answers
            random.seed(1)
            rest = hot.serve(stream, left)
            random.seed(1)
            assert plain.serve(stream, left) == rest
            assert log_of(plain.store, start) == log_of(hot.store, start)
            hot.clock.ms += 7
            plain.clock.ms += 7

        check()
        assert hot.store.commitlog.end > 0
        assert queues_of(hot.store) == queues_of(plain.store)
        assert index_of(hot.store) == index_of(plain.store)
        for name in ("Orders", "Other"):
            assert hot.stats.put_total.count == plain.stats.put_total.count > 100
            assert hot.stats._puts[name].size == plain.stats._puts[name].size


def stream_of(count: int, **how: Any) -> bytes:
    return b"".join(message(b"%d" % i, opaque=i, **how).encode() for i in range(count))


def test_a_batch_that_needs_a_new_segment_lies_whole_in_it(tmp_path: Path) -> None:
    with room(tmp_path, mappedFileSizeCommitLog="4096") as here:
        for _ in range(5):
            answers, left = here.take(stream_of(6))
            assert (left, len(bounds_of(answers)) // 2) == ([], 6)
        assert len(here.store.commitlog.segments.bases) > 1
        columns = here.store.dispatch.queues["Orders", 0]
        assert columns.next_offset == 30
        commands = read_commands(answers, bounds_of(answers))
        for number, answer in enumerate(commands):
            record = here.store.record_at(int(answer.fields["msgId"][16:], 16))
            assert record is not None
            assert int(answer.fields["queueOffset"]) == 24 + number


def test_nothing_is_answered_or_shown_when_the_log_could_not_be_written(tmp_path: Path) -> None:
    class FullDisk(Disk):
        is_full = False

        def write(self, fd: int, content: bytes | memoryview, position: int) -> None:
            if self.is_full:
                raise OSError(28, "No space left on device")
            super().write(fd, content, position)

    disk = FullDisk()
    with room(tmp_path, disk) as here:
        here.take(stream_of(2))
        disk.is_full = True
        stream = stream_of(3)
        answers, left = here.take(stream)
        assert (answers, left) == (b"", bounds_of(stream))
        refused = read_commands(refusals := here.serve(stream, left), bounds_of(refusals))
        assert [(answer.code, answer.opaque) for answer in refused] == [(14, 0), (14, 1), (14, 2)]
        assert here.store.dispatch.queues["Orders", 0].next_offset == 2
        assert here.stats.put_total.count == 2
        disk.is_full = False
        answers, left = here.take(stream)
        assert [answer.fields["queueOffset"] for answer in read_commands(answers, bounds_of(answers))] == [
            "2",
            "3",
            "4",
        ]


def test_a_busy_store_refuses_a_whole_read_with_2(tmp_path: Path) -> None:
    with room(tmp_path) as here:
        here.store._slow_until_s = here.clock.monotonic_s() + 1
        stream = stream_of(3)
        answers, left = here.take(stream)
        assert (answers, left) == (b"", bounds_of(stream))
        refused = here.serve(stream, left)
        assert {answer.code for answer in read_commands(refused, bounds_of(refused))} == {ResponseCode.SYSTEM_BUSY}


def test_changed_topics_settings_and_addresses_count_from_the_next_read_on(tmp_path: Path) -> None:
    with room(tmp_path) as here:
        stream = stream_of(1, queue_id=3)
        assert here.take(stream)[1] == []
        here.tables.topics.update(TopicConfig(topic_name="Orders", read_queue_nums=2, write_queue_nums=2))
        assert here.take(stream)[1] != []
        here.tables.topics.update(TopicConfig(topic_name="Orders", read_queue_nums=4, write_queue_nums=4))
        here.store.store_host = bytes([127, 0, 0, 9, 0, 0, 0, 80])
        here.tables.set(regionId="Mars", brokerClusterName="C2", traceOn="false")
        answers, _ = here.take(stream)
        (answer,) = read_commands(answers, bounds_of(answers))
        assert answer.fields["msgId"].startswith("7F00000900000050")
        assert (answer.fields["MSG_REGION"], answer.fields["TRACE_ON"]) == ("Mars", "false")
        assert b"CLUSTER\x01C2\x02" in log_of(here.store, 0)


def test_before_the_hour_that_is_set_no_read_is_taken(tmp_path: Path) -> None:
    with room(tmp_path, startAcceptSendRequestTimeStamp="1700000000001") as here:
        stream = stream_of(2)
        assert here.take(stream) == (b"", bounds_of(stream))
        here.clock.ms += 1
        assert here.take(stream)[1] == []


class FirstPulls:
    """Answers a pull that a read begins with."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def answer_read(self, read: Read) -> Answered:
        self.seen.append(read.bounds)
        is_pull = read_commands(read.stream, read.bounds[:2])[0].code == 11
        return (b"pulled", read.bounds[2:]) if is_pull else (b"", read.bounds)


def test_what_sends_leave_goes_on_with_its_bounds_and_all_answers_leave_together(tmp_path: Path) -> None:
    with room(tmp_path) as here:
        pulls = FirstPulls()
        hot = HotPath(here.state, here.intake, here.open_topics, cast(Any, pulls))
        stream = Command(11).encode() + message().encode() + Command(34).encode()
        bounds, peer = bounds_of(stream), Peer()
        answered(hot, peer, message().encode())
        pulls.seen.clear()
        answers, left = answered(hot, peer, stream)
        assert pulls.seen == [bounds[:2] + bounds[4:]]
        assert (answers[-6:], left) == (b"pulled", bounds[4:])
        assert len(bounds_of(answers[:-6])) == 2
        here.store.is_disk_full = True
        assert answered(hot, peer, stream) == (b"pulled", bounds[2:])


def test_the_pulls_of_a_connection_that_never_sent_are_answered_first_and_once(tmp_path: Path) -> None:
    with room(tmp_path) as here:
        pulls = FirstPulls()
        hot = HotPath(here.state, here.intake, here.open_topics, cast(Any, pulls))
        stream = Command(11).encode() + message().encode() + Command(34).encode()
        bounds, sender = bounds_of(stream), cast(Any, Peer())
        answered(hot, sender, message().encode())
        pulls.seen.clear()
        only_pulls = Command(11).encode()
        reads = [Read(cast(Any, Peer()), memoryview(each), bounds_of(each)) for each in (stream, only_pulls)]
        reads.insert(1, Read(sender, memoryview(message().encode()), bounds_of(message().encode())))
        (mixed, mixed_left), (sent, sent_left), (pulled, pulled_left) = hot.handle_turn(reads)
        assert pulls.seen == [bounds, bounds[:2]]
        assert (mixed[:6], len(bounds_of(mixed[6:])), mixed_left) == (b"pulled", 2, bounds[4:])
        assert (len(bounds_of(sent)), sent_left) == (2, [])
        assert (pulled, pulled_left) == (b"pulled", [])


@pytest.mark.feature("F087")
def test_under_synchronous_flush_the_answers_of_a_read_leave_when_it_is_durable(tmp_path: Path) -> None:
    async def play() -> None:
        async with sending(tmp_path, **DURABLE) as here:
            hot, peer = await opened(here), Peer()
            stream = stream_of(5)
            assert answered(hot, peer, stream) == (b"", [])
            assert (peer.held, peer.written) == (5, [])
            assert here.messages("Orders") == []
            await here.store.durable(here.store.commitlog.end)
            await asyncio.sleep(0)
            assert peer.held == 0
            (answers,) = peer.written
            assert [answer.code for answer in read_commands(answers, bounds_of(answers))] == [0] * 5
            assert len(here.messages("Orders")) == 5

    asyncio.run(play())


async def opened(here: Any) -> HotPath:
    here.tables.topics.update(TopicConfig(topic_name="Orders"))
    await here.open_topics.keep("Orders")
    return HotPath(here.state, here.intake, here.open_topics)


def test_a_late_flush_is_told_as_stored_and_a_failed_one_as_not(tmp_path: Path) -> None:
    disk = FaultyDisk()

    async def play() -> None:
        clock = VirtualClock()
        async with sending(tmp_path, clock=clock, disk=disk, flushDiskType="SYNC_FLUSH") as here:
            hot, peer = await opened(here), Peer()
            loop: Any = asyncio.get_running_loop()
            gate = asyncio.Event()
            flush = here.store.flush_in_thread
            here.store.flush_in_thread = lambda: hold_back(gate, flush)  # type: ignore[method-assign]
            stream = stream_of(3) + message(codec=1, opaque=9).encode() + message(oneway=True).encode()
            answered(hot, peer, stream)
            await asyncio.sleep(3)  # virtual
            answered(hot, peer, stream)
            assert peer.written == []
            await asyncio.sleep(2.1)  # virtual
            assert (len(peer.written), peer.held) == (1, 5)
            answers = read_commands(peer.written[0], bounds_of(peer.written[0]))
            assert [(answer.code, answer.opaque, answer.codec) for answer in answers] == [
                (10, 0, 0),
                (10, 1, 0),
                (10, 2, 0),
                (10, 9, 1),
            ]
            assert all(answer.fields["msgId"] for answer in answers)
            disk.broken_for = "commitlog"
            gate.set()
            await asyncio.sleep(0.5)  # virtual
            answers = read_commands(peer.written[1], bounds_of(peer.written[1]))
            assert [answer.code for answer in answers] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 4
            assert all(set(answer.fields) == {"MSG_REGION", "TRACE_ON"} for answer in answers)
            assert loop.time() < 10

    run(play())


async def hold_back(gate: asyncio.Event, flush: Any) -> None:
    await gate.wait()
    await flush()


def test_a_command_of_these_tests_is_taken(tmp_path: Path) -> None:
    with room(tmp_path) as here:
        for command in (message(), message(code=10), message(codec=1), message(oneway=True)):
            assert isinstance(command, Command)
            assert here.take(command.encode())[1] == []


def test_a_kernel_that_fails_costs_nobody_a_connection_and_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stream = stream_of(2)

    def fail(*given: Any) -> Any:
        raise OverflowError("Python int too large to convert to C long")

    with room(tmp_path) as here:
        with monkeypatch.context() as broken:
            broken.setattr(bolide.kernel, "encode_sends", fail)
            for _ in range(3):
                assert here.take(stream) == (b"", bounds_of(stream)), "left to be served one by one"
        assert [(record.levelname, record.exc_info is not None) for record in caplog.records] == [("ERROR", True)]
        answers, left = here.take(stream)
        assert (left, len(bounds_of(answers))) == ([], 4)


def test_pulls_that_fail_end_one_connection_and_not_those_of_the_same_turn(tmp_path: Path) -> None:
    stream = Command(99, fields={"topic": "Orders"}).encode()
    ended: list[Any] = []

    @dataclass(eq=False)
    class Ending(Peer):
        def abort(self, why: str) -> None:
            ended.append(self)

    with room(tmp_path) as here:
        bad, good = Ending(), Ending()

        class Pulls:
            def answer_read(self, read: Read) -> Answered:
                if read.session is cast(Any, bad):
                    raise ValueError("what nobody thought of")
                return b"pulled", []

        pulls = cast(Any, Pulls())
        hot = HotPath(here.state, here.intake, here.open_topics, pulls)
        reads = [Read(cast(Any, peer), memoryview(stream), bounds_of(stream)) for peer in (bad, good)]
        assert hot.handle_turn(reads) == [(b"", []), (b"pulled", [])]
    assert ended == [bad]
