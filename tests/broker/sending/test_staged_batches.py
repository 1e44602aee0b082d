"""Batches that are published once: whatever is repeated, and wherever it is cut off."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bolide.broker.sending.staged_batches import STAGE_LIFE_MS, StagedBatches
from bolide.broker.state import BrokerState
from bolide.errors import Refusal
from bolide.model.message import Message
from bolide.model.queue import QueueKey
from bolide.model.topics import SCHEDULE_TOPIC
from bolide.protocol.batch import encode_batch, split_batch
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.staging import (
    IDENTITY,
    MARK_TOPIC,
    STAGE,
    STAGE_TOPIC,
    TARGET_QUEUE,
    TARGET_TOPIC,
    Publish,
    Published,
)
from bolide.store.record import Appended, Draft
from bolide.store.store import Store
from tests.broker.open_tables import intake_of, tables
from tests.broker.pullers import SMALL, topic_of
from tests.broker.whole import whole
from tests.store.given import HeldClock, draft, read_all

QUERY = "q-1"


def items(batch: int, partition: int, count: int) -> list[Message]:
    names = [f"{batch}-{partition}-{n}" for n in range(count)]
    return [Message("T", name.encode(), properties={IDENTITY: f"{QUERY}/{name.replace('-', '/')}"}) for name in names]


def staged(body: bytes, queue_id: int, labels: dict[str, str]) -> Draft:
    return draft(body, STAGE_TOPIC, queue_id, 0, **labels)


@dataclass
class Rig:
    state: BrokerState
    store: Store
    staged_batches: StagedBatches
    clock: HeldClock

    def stage(self, batch: int, partition: int, count: int, *, queue_id: int = 0, topic: str = "T") -> tuple[int, int]:
        body = encode_batch(items(batch, partition, count))
        labels = {STAGE: f"{QUERY}/{batch}/{partition}", TARGET_TOPIC: topic, TARGET_QUEUE: str(queue_id)}
        appended = self.store.append([staged(body, partition % 4, labels)])
        return partition % 4, appended.queue_offsets[0]

    async def publish(self, batch: int, *stages: tuple[int, int]) -> int:
        async with self.staged_batches._turn:
            await self.staged_batches._publish(Publish(query=QUERY, batch=batch, stages=list(stages)))
        return self.staged_batches.last_done(QUERY)

    def found(self) -> Counter[bytes]:
        return Counter(message.body for queue_id in range(4) for message in read_all(self.store, "T", queue_id))


@asynccontextmanager
async def staged_batches(root: Path, clock: HeldClock | None = None) -> AsyncIterator[Rig]:
    """A broker's part of it, left as a crash leaves it: what was not asked to be kept is not."""
    clock = clock or HeldClock()
    async with tables(root, clock, **SMALL) as kept:
        kept.topics.update(topic_of())
        config = kept.settings.now
        store = Store.open(config.store, clock)
        try:
            state = kept.state(store)
            made = StagedBatches(state, intake_of(state), kept.table_writer)
            await made.load()
            await made._prepare()
            yield Rig(state, store, made, clock)
        finally:
            store.abandon()


def expected(batch: int, *counts: int) -> Counter[bytes]:
    return Counter(b"%d-%d-%d" % (batch, partition, n) for partition, count in enumerate(counts) for n in range(count))


@pytest.mark.feature("D04")
def test_a_batch_is_published_once_however_often_it_is_asked_for(tmp_path) -> None:
    async def main() -> None:
        async with staged_batches(tmp_path) as rig:
            stages = [rig.stage(3, 0, 5), rig.stage(3, 1, 7, queue_id=2)]
            assert not rig.found(), "what is staged is not seen"
            assert await rig.publish(3, *stages) == 3
            assert rig.found() == expected(3, 5, 7)
            again = [rig.stage(3, 0, 5), rig.stage(3, 1, 7)]
            assert await rig.publish(3, *again) == 3
            assert await rig.publish(2, rig.stage(2, 0, 1)) == 3, "an older batch is done too"
            assert rig.found() == expected(3, 5, 7)
            assert await rig.publish(4, rig.stage(4, 0, 2)) == 4
            assert rig.found() == expected(3, 5, 7) + expected(4, 2)
        async with staged_batches(tmp_path) as rig:
            assert await rig.publish(4, rig.stage(4, 0, 2)) == 4, "the mark survives a crash"
            assert rig.found() == expected(3, 5, 7) + expected(4, 2)

    asyncio.run(main())


@pytest.mark.feature("D04")
@pytest.mark.parametrize("torn_size", [0, 1, 40, 300])
@pytest.mark.parametrize("step", range(12))
def test_a_publication_cut_off_anywhere_is_carried_out_at_the_next_start_and_no_message_is_there_twice(
    tmp_path, step, torn_size
) -> None:
    async def main() -> None:
        async with staged_batches(tmp_path) as rig:
            await rig.publish(0, rig.stage(0, 0, 2))
            stages = [rig.stage(1, partition, 3, queue_id=partition % 2) for partition in range(4)]
            before = rig.store.commitlog.end
            carrying = rig.staged_batches._publish(Publish(query=QUERY, batch=1, stages=stages))
            for _ in range(step):
                try:
                    carrying.send(None)
                except StopIteration:
                    break
            carrying.close()
            tear(rig.store, max(before, rig.store.commitlog.end - torn_size))
        async with staged_batches(tmp_path) as rig:
            begun = rig.found() - expected(0, 2)
            assert begun in (Counter(), expected(1, 3, 3, 3, 3)), "whole or not at all"
            again = [rig.stage(1, partition, 3, queue_id=1) for partition in range(4)]
            assert await rig.publish(1, *again) == 1
            assert rig.found() == expected(0, 2) + expected(1, 3, 3, 3, 3)

    asyncio.run(main())


def test_a_start_that_cannot_carry_a_batch_out_leaves_it_for_the_next_request(tmp_path, caplog, monkeypatch) -> None:
    async def main() -> None:
        async with staged_batches(tmp_path) as rig:
            stages = [rig.stage(1, 0, 3), rig.stage(1, 1, 3)]
            append, room = rig.store.append, [1, 1]  # for the note and the first stage

            def full(drafts: Sequence[Draft]) -> Appended:
                if not room:
                    raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full")
                room.pop()
                return append(drafts)

            monkeypatch.setattr(rig.store, "append", full)
            with pytest.raises(Refusal, match="full"):
                await rig.publish(1, *stages)
            old = rig.staged_batches
            rig.staged_batches = StagedBatches(rig.state, intake_of(rig.state), old._table_writer)
            await rig.staged_batches.load()
            assert rig.found() == expected(1, 3)
            room += [1, 1, 1]
            assert await rig.publish(1, *stages) == 1
            assert rig.found() == expected(1, 3, 3)

    asyncio.run(main())
    assert "batch not carried out yet query=q-1 problem=the disk is full" in caplog.text


def test_a_damaged_note_is_no_reason_not_to_start(tmp_path, caplog) -> None:
    async def main() -> None:
        async with staged_batches(tmp_path) as rig:
            end = rig.store.append([rig.staged_batches._note(b"damaged")]).end
            segment = rig.store.commitlog.segments.open(0)
            at = bytes(segment.view[:end]).index(b"damaged")
            segment.write(b"D", at)
            await rig.staged_batches.load()
            assert await rig.publish(1, rig.stage(1, 0, 3)) == 1

    asyncio.run(main())
    assert "passed over" in caplog.text


def tear(store: Store, end: int) -> None:
    """What lies behind `end` was not written any more."""
    segment = store.commitlog.segments.find(end)
    if segment is None or end >= store.commitlog.end:
        return
    with segment.path.open("r+b") as file:
        file.seek(end - segment.base)
        file.write(bytes(store.commitlog.end - end))


@pytest.mark.feature("D04")
def test_what_cannot_be_carried_out_is_refused_before_it_is_begun(tmp_path) -> None:
    async def refusal(rig: Rig, batch: int, *stages: tuple[int, int]) -> str:
        end = rig.store.max_offset(QueueKey(MARK_TOPIC, 0))
        with pytest.raises(Refusal) as caught:
            await rig.publish(batch, *stages)
        assert rig.store.max_offset(QueueKey(MARK_TOPIC, 0)) == end
        return caught.value.remark

    async def main() -> None:
        async with staged_batches(tmp_path) as rig:
            assert "is gone" in await refusal(rig, 0, (0, 99))
            assert "belongs to another batch" in await refusal(rig, 0, rig.stage(1, 0, 2))
            assert "is not here; create it" in await refusal(rig, 0, rig.stage(0, 0, 2, topic="Nowhere"))
            assert "is not here; create it" in await refusal(rig, 0, rig.stage(0, 0, 2, topic=MARK_TOPIC))
            assert "may not be written to" in await refusal(rig, 0, rig.stage(0, 0, 2, queue_id=17))
            broken = staged(b"no batch", 0, {STAGE: f"{QUERY}/0/0", TARGET_TOPIC: "T", TARGET_QUEUE: "0"})
            offset = rig.store.append([broken]).queue_offsets[0]
            assert "no batch" in await refusal(rig, 0, (0, offset))
            late = rig.stage(0, 0, 2)
            rig.clock.ms += STAGE_LIFE_MS + 1
            assert "more than an hour ago" in await refusal(rig, 0, late)
            assert await rig.publish(0, rig.stage(0, 0, 1), late) == 0, "a long batch is as young as its last stage"

    asyncio.run(main())


def test_a_delayed_message_waits_where_it_would_have_waited(tmp_path) -> None:
    async def main() -> None:
        async with staged_batches(tmp_path) as rig:
            body = encode_batch(items(0, 0, 1))
            (item,) = split_batch(body)
            late = item.encoded_properties + b"DELAY\x013\x02"
            size = (22 + len(item.body) + len(late)).to_bytes(4, "big")
            head = size + bytes(8) + bytes(4) + len(item.body).to_bytes(4, "big")
            laid = head + item.body + len(late).to_bytes(2, "big") + late
            labels = {STAGE: f"{QUERY}/0/0", TARGET_TOPIC: "T", TARGET_QUEUE: "1"}
            offset = rig.store.append([staged(laid, 0, labels)]).queue_offsets[0]
            await rig.publish(0, (0, offset))
            assert not rig.found()
            (waiting,) = read_all(rig.store, SCHEDULE_TOPIC, 2)
            assert (waiting.properties["REAL_TOPIC"], waiting.properties["REAL_QID"]) == ("T", "1")

    asyncio.run(main())


@pytest.mark.feature("D04")
def test_the_request_prepares_publishes_and_says_how_far_the_query_is(tmp_path) -> None:
    async def main() -> None:
        async with whole(tmp_path) as running:
            prepared = await running.ask(RequestCode.PUBLISH_STAGED, Publish(query=QUERY, batch=0).encode())
            assert (prepared.code, Published.decode(prepared.body).published) == (0, -1)
            assert running.broker.state.topics.find(STAGE_TOPIC) is not None
            done = await running.ask(RequestCode.PUBLISH_STAGED, Publish(query=QUERY, batch=0, stages=[]).encode())
            assert (done.code, Published.decode(done.body).published) == (0, 0)
            for body in (b"", b"{}", b'{"query":"a/b","batch":1}', b'{"query":"a","batch":-1}'):
                answer = await running.ask(RequestCode.PUBLISH_STAGED, body)
                assert answer.code == ResponseCode.INVALID_PARAMETER

    asyncio.run(main())
