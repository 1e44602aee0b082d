"""Judges a history against what the queues hold in the end. Pure: values in, a verdict out.

A send that was acknowledged with 0 is a promise: the message is there, at the offset that was told, behind whatever the
same producer knew to be stored in that queue before. A reader's sighting is one as well: what was given out stays. A
refusal that says "not stored" keeps its word. Of sends that are open or unknown nothing is asked but that they appear
once at most, unless the client may have repeated them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.replication.history import Fate, Queues, Send, Sighting

_SHOWN_MAX = 5


@dataclass(slots=True)
class Verdict:
    """The faults that were found, each a sentence under its kind, and what else was counted."""

    lost: list[str] = field(default_factory=list)  # acknowledged and missing
    moved: list[str] = field(default_factory=list)  # acknowledged at an offset that holds something else
    unseen: list[str] = field(default_factory=list)  # given to a reader, and gone from there
    disordered: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)  # in a queue, never sent
    doubled: list[str] = field(default_factory=list)  # stored twice, sent once
    unrefused: list[str] = field(default_factory=list)  # refused as not stored, and stored
    torn: list[str] = field(default_factory=list)  # a queue with a hole
    counts: Counter[str] = field(default_factory=Counter)

    def faults(self) -> dict[str, list[str]]:
        kinds = ("lost", "moved", "unseen", "disordered", "invented", "doubled", "unrefused", "torn")
        return {kind: found for kind in kinds if (found := getattr(self, kind))}

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
        faults = [
            f"{kind} {len(found)}: {'; '.join(found[:_SHOWN_MAX])}{' ...' if len(found) > _SHOWN_MAX else ''}"
            for kind, found in self.faults().items()
        ]
        return "\n".join([counts, *(faults or ["no fault"])])


def judge(events: Iterable[Send | Sighting], queues: Queues) -> Verdict:
    """What the history promised and the queues do not keep."""
    verdict = Verdict()
    events = list(events)
    sends = [event for event in events if isinstance(event, Send)]
    places = _places(queues)
    _judge_promises(sends, places, {queue: dict(held) for queue, held in queues.items()}, verdict)
    _judge_order(sends, verdict)
    _judge_contents(sends, places, verdict)
    _judge_sightings([event for event in events if isinstance(event, Sighting)], queues, verdict)
    _judge_holes(queues, verdict)
    verdict.counts["messages in queues"] = sum(len(held) for held in queues.values())
    return verdict


def _places(queues: Queues) -> dict[str, list[tuple[str, int]]]:
    places: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for queue, held in queues.items():
        for offset, body in held:
            places[body].append((queue, offset))
    return places


def _judge_promises(
    sends: Sequence[Send], places: dict[str, list[tuple[str, int]]], held: dict[str, dict[int, str]], verdict: Verdict
) -> None:
    for send in sends:
        verdict.counts[f"sends {send.fate.value}"] += 1
        is_there = send.body in places
        if send.fate is Fate.ACKNOWLEDGED:
            told = f"{send.body} at {send.queue}:{send.offset}, acknowledged at {send.ended_s:.3f} s"
            if not is_there:
                verdict.lost.append(told)
            elif send.queue is not None and held.get(send.queue, {}).get(send.offset or 0) != send.body:
                verdict.moved.append(f"{told}, is at {places[send.body]}")
        elif is_there:
            verdict.counts[f"{send.fate.value} and stored"] += 1
            if send.fate is Fate.REFUSED and not send.is_retried:
                verdict.unrefused.append(f"{send.body} at {places[send.body]}: code {send.code} {send.remark}")


def _judge_order(sends: Sequence[Send], verdict: Verdict) -> None:
    """Of two acknowledged sends of one producer in one queue the one that ended before the other began is in front."""
    by_place: dict[tuple[str, str], list[Send]] = defaultdict(list)
    for send in sends:
        if send.fate is Fate.ACKNOWLEDGED and send.queue is not None:
            by_place[send.producer, send.queue].append(send)
    for (_, queue), group in by_place.items():
        ended = sorted(group, key=lambda send: send.ended_s)
        behind: Send | None = None  # of those that had ended, the one with the largest offset
        at = 0
        for send in sorted(group, key=lambda send: send.invoked_s):
            while at < len(ended) and ended[at].ended_s <= send.invoked_s:
                if behind is None or (ended[at].offset or 0) > (behind.offset or 0):
                    behind = ended[at]
                at += 1
            if behind is not None and behind is not send and (behind.offset or 0) >= (send.offset or 0):
                verdict.disordered.append(f"{send.body} at {queue}:{send.offset}, behind it {behind.body}")


def _judge_contents(sends: Sequence[Send], places: dict[str, list[tuple[str, int]]], verdict: Verdict) -> None:
    known = {send.body: send for send in sends}
    for body, found in places.items():
        send = known.get(body)
        if send is None:
            verdict.invented.append(f"{body} at {found}")
        elif len(found) > 1:
            verdict.counts["repeated"] += len(found) - 1
            if not send.is_retried:
                verdict.doubled.append(f"{body} at {found}")


def _judge_sightings(sightings: Sequence[Sighting], queues: Queues, verdict: Verdict) -> None:
    verdict.counts["sightings"] = len(sightings)
    held = {queue: dict(content) for queue, content in queues.items()}
    for seen in sightings:
        now = held.get(seen.queue, {}).get(seen.offset)
        if now != seen.body:
            verdict.unseen.append(f"{seen.body} at {seen.queue}:{seen.offset} at {seen.at_s:.3f} s, now {now}")


def _judge_holes(queues: Queues, verdict: Verdict) -> None:
    for queue, held in queues.items():
        offsets = [offset for offset, _ in held]
        if offsets and offsets != list(range(offsets[0], offsets[0] + len(offsets))):
            verdict.torn.append(f"{queue} has {len(offsets)} messages from {offsets[0]} to {offsets[-1]}")
