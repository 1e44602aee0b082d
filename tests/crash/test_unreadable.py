"""Pages of mapped files that cannot be read: an error of what lies there, and not the end of the process.

A page behind the end of its file raises the same signal as one that a disk fails to give, so files are cut short under
a broker that runs.
"""

import contextlib
import mmap
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bolide
from bolide import kernel
from bolide.store.disk import Disk
from bolide.store.segment import Segment
from bolide.store.store import Store
from bolide.testing import Cluster, cluster, run
from tests.broker.delaying import delaying
from tests.broker.timing import Timed, pass_s, timing
from tests.broker.transacting import transacting
from tests.store.given import bodies, draft, opened, small

PAGE = 4096
guarded = pytest.mark.skipif(kernel.NAME == "plain", reason="the plain kernel guards nothing")


def send(rocket: Cluster, *sent: bytes, keys: bool = False) -> None:
    with bolide.Producer("pg", rocket.namesrv) as producer:
        for body in sent:
            producer.send("T", body, keys=[f"key-{body[:8].decode()}"] if keys else [])


def received(rocket: Cluster, group: str, last: bytes) -> list[bytes]:
    """Everything up to a message."""
    got = [b""]
    with bolide.Consumer(group, "T", rocket.namesrv, start_from=bolide.StartFrom.oldest()) as consumer:
        while got[-1] != last:
            got.append(next(consumer).body)
    return got[1:]


def file_of(rocket: Cluster, directory: str) -> Path:
    (path,) = (rocket.brokers[0].directory / "store" / directory).iterdir()
    return path


@contextlib.contextmanager
def one_life(directory: Path) -> Iterator[Cluster]:
    """A cluster as processes, whose broker must be the same at the end."""
    with cluster(processes=True, directory=directory) as rocket:
        rocket.create_topic("T", 1)
        pid = rocket.brokers[0].pid
        yield rocket
        assert rocket.brokers[0].is_running
        assert rocket.brokers[0].pid == pid


@guarded
def test_messages_on_unreadable_pages_of_the_log_are_passed_over_and_all_others_are_served(tmp_path: Path) -> None:
    sent = [b"%08d" % number + b"." * 1500 for number in range(40)]
    with one_life(tmp_path) as rocket:
        send(rocket, *sent)
        log = rocket.brokers[0].directory / "store/commitlog" / f"{0:020d}"
        size = bytes(log.read_bytes()).index(b"00000001") - bytes(log.read_bytes()).index(b"00000000")
        os.truncate(log, 8 * PAGE)
        oldest = bolide.StartFrom.oldest()
        with bolide.Consumer("first", "T", rocket.namesrv, start_from=oldest) as consumer:
            whole = 8 * PAGE // size
            assert [next(consumer).body for _ in range(whole)] == sent[:whole]
            send(rocket, b"later")
            assert next(consumer).body == b"later"
        assert "a page of the log cannot be read" in (tmp_path / "broker-0" / "broker-0.log").read_text()


@guarded
def test_a_queue_whose_pages_cannot_be_read_is_made_again_from_the_log(tmp_path: Path) -> None:
    sent = [b"%08d" % number for number in range(600)]
    with one_life(tmp_path) as rocket:
        send(rocket, *sent)
        os.truncate(file_of(rocket, "consumequeue/T/0"), PAGE)
        send(rocket, b"later")
        assert received(rocket, "first", b"later") == [*sent, b"later"]
        send(rocket, b"last")
        assert received(rocket, "second", b"last") == [*sent, b"later", b"last"]
    assert file_of(rocket, "consumequeue/T/0").stat().st_size == 20_000


@guarded
def test_an_index_whose_pages_cannot_be_read_is_made_again_from_the_log(tmp_path: Path) -> None:
    sent = [b"%08d" % number for number in range(500)]
    with one_life(tmp_path) as rocket:
        send(rocket, *sent, keys=True)
        os.truncate(file_of(rocket, "index"), PAGE)
        with bolide.Admin(rocket.namesrv) as admin:
            for number in (0, 250, 499):
                (found,) = admin.messages_by_key("T", f"key-{number:08d}")
                assert found.body == sent[number]


@guarded
def test_a_page_that_can_be_read_again_is_the_files_again(tmp_path: Path) -> None:
    with opened(small(tmp_path)) as store:
        sent = [b"%d" % number + b"." * 500 for number in range(20)]
        store.append([draft(body) for body in sent])
        path = tmp_path / "commitlog" / f"{0:020d}"
        content = path.read_bytes()
        os.truncate(path, PAGE)
        faults = kernel.fault_count()
        assert bodies(store) == sent[:6]
        assert kernel.fault_count() > faults
        path.write_bytes(content)
        assert bodies(store) == sent


@guarded
def test_a_map_that_went_without_a_word_takes_no_fault_of_one_that_lies_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(2 * PAGE))
    with path.open("r+b") as file:
        earlier = mmap.mmap(file.fileno(), 2 * PAGE)
        kernel.guard_map(earlier)
        earlier.close()
        again = mmap.mmap(file.fileno(), 2 * PAGE)  # where the first one lay
        place = kernel.guard_map(again)
        os.truncate(path, PAGE)
        assert again[PAGE] == 0
        assert kernel.patched_span(place) == (PAGE, 2 * PAGE)
        kernel.unguard_map(place)


@guarded
def test_a_fault_elsewhere_ends_the_process_as_before() -> None:
    program = """
        import mmap, os, tempfile
        from pathlib import Path
        from bolide.store.disk import Disk
        from bolide.store.segment import Segment
        directory = Path(tempfile.mkdtemp())
        guarded = Segment.create(Disk(), directory, 0, 8192).guard()
        os.truncate(guarded.path, 0)
        assert bytes(guarded.view) == bytes(8192)
        os.truncate(guarded.path, 8192)
        foreign = mmap.mmap(guarded.fd, 8192)
        os.truncate(guarded.path, 0)
        print("here", flush=True)
        foreign[0]
    """
    for flags in ([], ["-X", "faulthandler"]):
        command = [sys.executable, *flags, "-c", textwrap.dedent(program)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert ended.stdout == "here\n", ended.stderr
        assert ended.returncode == -signal.SIGBUS
        assert ("Bus error" in ended.stderr) == bool(flags)


@guarded
def test_the_guard_of_a_map_goes_with_the_last_view_of_it(tmp_path: Path) -> None:
    segment = Segment.create(Disk(), tmp_path, 0, 4 * PAGE).guard()
    view = segment.view[PAGE:]
    os.truncate(segment.path, 0)
    segment.close()
    assert view[0] == 0
    view.release()
    following = Segment.create(Disk(), tmp_path, 4 * PAGE, 4 * PAGE).guard()
    assert not following.is_patched
    following.close()


COUNT = 24  # of messages that wait; their units are on one page


def found(directory: Path, pattern: str) -> Path:
    return next(directory.rglob(pattern))


def fail_once(path: Path, read: Callable[[], object]) -> None:
    """No page of a file can be read while somebody does, and all can again afterwards."""
    content = path.read_bytes()
    os.truncate(path, 0)
    faults = kernel.fault_count()
    read()
    assert kernel.fault_count() > faults, "nobody looked"
    path.write_bytes(content)


async def wait_with(late: Timed, count: int = COUNT) -> list[bytes]:
    """Timed messages, due in some seconds, that are filed."""
    for number in range(count):
        await late.delay(5 + number % 3, b"%04d" % number, f"u{number}")
    await pass_s(1.2)
    assert late.timers.files.waiting_count == count
    return [b"%04d" % number for number in range(count)]


@guarded
@pytest.mark.parametrize("name", ["timerwheel", "timerlog/*"])
@pytest.mark.parametrize("is_filing", [True, False], ids=["filing meets it", "delivering meets it"])
def test_what_waits_is_filed_again_where_pages_of_the_timers_files_cannot_be_read(
    tmp_path: Path, name: str, is_filing: bool
) -> None:
    async def scenario() -> None:
        async with timing(tmp_path) as late:
            sent = await wait_with(late)
            os.truncate(found(tmp_path, name), 0)
            if is_filing:
                await late.delay(5.5, b"later")
                sent.append(b"later")
            await pass_s(12)
            assert sorted(late.bodies) == sorted(sent)
            assert late.timers.files.waiting_count == 0
            assert late.timers.files.counts.table["Orders"].count == 0
            await late.delay(3, b"last")
            await pass_s(5)
            assert late.bodies[-1] == b"last"
        async with timing(tmp_path, late.clock) as late:
            await pass_s(5)
            assert sorted(late.bodies) == sorted([*sent, b"last"])

    run(scenario())


@guarded
def test_a_slot_whose_units_can_be_read_again_is_delivered_and_nothing_is_filed_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with timing(tmp_path) as late:
            sent = await wait_with(late)
            units = late.timers.files.log
            fail_once(found(tmp_path, "timerlog/*"), lambda: units.message_at(0))
            await pass_s(12)
            assert sorted(late.bodies) == sent

    run(scenario())
    assert "filed again" not in caplog.text


def touch_log(store: Store) -> Callable[[], int]:
    segment = store.commitlog.segments.find(0)
    assert segment is not None
    return lambda: kernel.touch(segment.view[: store.commitlog.end])


@guarded
def test_delayed_messages_whose_pages_can_be_read_again_all_come_in_their_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with delaying(tmp_path) as late:
            for number in range(COUNT):
                await late.send(3, b"%04d" % number)
            fail_once(found(tmp_path, "commitlog/*"), touch_log(late.sending.store))
            await pass_s(15)
            assert late.bodies() == [b"%04d" % number for number in range(COUNT)]
            assert late.sending.store.mishaps.total == 0

    run(scenario())


@guarded
@pytest.mark.parametrize("is_filed", [True, False])
def test_timed_messages_whose_pages_can_be_read_again_all_come(tmp_path: Path, is_filed: bool) -> None:
    async def scenario() -> None:
        async with timing(tmp_path, timerStopEnqueue="false" if is_filed else "true") as late:
            for number in range(COUNT):
                await late.delay(5, b"%04d" % number, f"u{number}")
            await pass_s(1.2)
            fail_once(found(tmp_path, "commitlog/*"), touch_log(late.sending.store))
            late.sending.tables.set(timerStopEnqueue="false")
            late.timers.wake()
            await pass_s(10)
            assert late.bodies == [b"%04d" % number for number in range(COUNT)]
            assert late.sending.store.mishaps.total == 0

    run(scenario())


@guarded
def test_messages_that_wait_on_pages_that_cannot_be_read_cost_themselves_and_are_counted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with timing(tmp_path) as late:
            for number in range(COUNT):
                await late.delay(5, b"%04d" % number + bytes(1000), f"u{number}")
            await pass_s(1.2)
            os.truncate(found(tmp_path, "commitlog/*"), 5 * PAGE)
            await pass_s(10)
            come = [body[:4] for body in late.bodies]
            assert 10 < len(come) < 20 < COUNT
            assert come == [b"%04d" % number for number in range(len(come))]
            assert late.sending.store.mishaps.counts == {"store.redelivery": COUNT - len(come)}

    run(scenario())


@guarded
def test_half_messages_whose_pages_can_be_read_again_are_committed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transacting(tmp_path) as rig:
            halves = [await rig.prepare(b"%04d" % number) for number in range(COUNT)]
            fail_once(found(tmp_path, "commitlog/*"), touch_log(rig.room.store))
            for half in halves:
                rig.end(half, 8)
            assert sorted(each.body for each in rig.messages()) == [b"%04d" % n for n in range(COUNT)]

    run(scenario())
