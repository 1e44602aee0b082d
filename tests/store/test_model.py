"""The store against a model, a dict of lists: whatever is done to it, both say the same."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bolide.kernel import java_hash
from bolide.model.queue import QueueKey
from bolide.store.record import decode
from bolide.store.verify import findings
from tests.store.given import HeldClock, crash, draft, opened, query, read_all, small

topics = st.sampled_from(["A", "B", "%RETRY%" + "g" * 130])
queue_ids = st.integers(0, 1)
sizes = st.sampled_from([0, 1, 90, 500, 3000, 9000])
tags = st.sampled_from(["", "x", "y"])
ALL_HOURS = ";".join(map(str, range(24)))


class StoreMachine(RuleBasedStateMachine):
    """Appends, reads, restarts, crashes and deletions in any order."""

    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.clock = HeldClock()
        self.config = small(self.root, keep_hours=1, delete_hours=ALL_HOURS, index_entries_max=30)
        self.store = opened(self.config, self.clock)
        # queue → (physical offset, store time, body, tag) by queue offset; what expired becomes None
        self.model = {}
        self.count = 0

    def teardown(self):
        self.store.close()
        shutil.rmtree(self.root)

    def drafts(self, places):
        made = []
        for topic, queue_id, size, tag in places:
            self.count += 1
            properties = {"KEYS": f"k{self.count}"} | ({"TAGS": tag} if tag else {})
            made.append((draft((b"%d." % self.count).ljust(size, b"."), topic, queue_id, **properties), tag))
        return made

    @rule(places=st.lists(st.tuples(topics, queue_ids, sizes, tags), min_size=1, max_size=4), step=st.integers(0, 9000))
    def append(self, places, step):
        if sum(size for _, _, size, _ in places) > 15_000:
            places = places[:1]
        self.clock.ms += step
        made = self.drafts(places)
        appended = self.store.append([one for one, _ in made])
        for (one, tag), place, offset in zip(made, appended.physical_offsets, appended.queue_offsets, strict=True):
            queue = self.model.setdefault((one.topic, one.queue_id), [])
            assert offset == len(queue)
            queue.append((place, appended.store_ms, one.body, tag))

    @rule()
    def restart(self):
        self.store.close()
        assert findings(self.config) == []
        self.store = opened(self.config, self.clock)
        assert self.store.recovered.was_clean

    @rule(flush=st.booleans(), flush_queues=st.booleans())
    def crash(self, flush, flush_queues):
        if flush:
            self.store.flush()
        if flush_queues:
            self.store.flush_queues()
        crash(self.store)
        self.store = opened(self.config, self.clock)

    @precondition(lambda self: any(self.model.values()))
    @rule()
    def lose_the_last_record(self):
        """A torn write: the newest record loses its last byte before the crash."""
        key, last = max(((key, queue[-1]) for key, queue in self.model.items() if queue), key=lambda pair: pair[1][0])
        if last[0] < max(self.store.commitlog.start, self.store.checkpoint.durable):
            return  # what was durable is not torn: that would be rot (test_rot.py)
        end = last[0] + len(self.store.record_at(last[0]))
        crash(self.store)
        base = self.store.commitlog.segments.base_of(last[0])
        with open(self.config.log_directory / f"{base:020d}", "r+b") as log:
            log.seek(end - 1 - base)
            log.write(b"\0")
        self.model[key].pop()
        self.store = opened(self.config, self.clock)

    @rule(hours=st.integers(0, 3))
    def delete_expired(self, hours):
        self.store.flush()
        now_ms, self.clock.ms = self.clock.ms, 1 << 42
        bases = self.store.clean() if hours else []
        self.clock.ms = now_ms
        assert all(base < self.store.commitlog.start for base in bases)

    @rule(topic=topics, queue_id=queue_ids, back=st.integers(0, 20_000))
    def search_by_time(self, topic, queue_id, back):
        queue = self.model.get((topic, queue_id), [])
        found = self.store.queue(QueueKey(topic, queue_id))
        if found is None:
            assert not queue
            return
        asked = self.clock.ms - back
        low = found.min_offset
        expected = next((i for i in range(low, len(queue)) if queue[i][1] >= asked), len(queue))
        assert self.store.offset_at(QueueKey(topic, queue_id), asked) == expected

    @rule(topic=topics, queue_id=queue_ids, tag=tags)
    def read_by_tag(self, topic, queue_id, tag):
        queue = self.model.get((topic, queue_id), [])
        found = self.store.queue(QueueKey(topic, queue_id))
        got, offset = [], 0 if found is None else found.min_offset
        while offset < len(queue):
            slices = self.store.read(QueueKey(topic, queue_id), offset, 3, frozenset([java_hash(tag)]))
            got += [decode(view).body for view in slices.views]
            offset = slices.next_offset
        assert got == [body for *_, body, its in queue[0 if found is None else found.min_offset :] if its == tag]

    @invariant()
    def queues_hold_what_the_model_holds(self):
        start = self.store.commitlog.start
        for (topic, queue_id), queue in self.model.items():
            expected = [(i, place, body) for i, (place, _, body, _) in enumerate(queue) if place >= start]
            records = read_all(self.store, topic, queue_id)
            assert [(r.queue_offset, r.physical_offset, r.body) for r in records] == expected

    @invariant()
    def the_newest_message_is_found_by_its_key(self):
        newest = max((row for queue in self.model.values() for row in queue), default=None)
        if newest is not None and newest[0] >= self.store.commitlog.start:
            number = newest[2].split(b".")[0].decode()
            found = [
                r
                for topic in ("A", "B", "%RETRY%" + "g" * 130)
                for r in query(self.store, topic, f"k{number}", 9, 0, 1 << 60)
            ]
            assert [record.body for record in found] == [newest[2]]


TestStoreAgainstModel = StoreMachine.TestCase
TestStoreAgainstModel.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
