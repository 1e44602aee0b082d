"""RocketMQ's own consumers at our broker: every way to receive, where they start, and how they share.

A reset costs a running 4.9 client 40 s and a 5.x client 15 s, at whatever broker: they wait before they look anew.
"""

import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path

import pytest

from interop import wire
from interop.clients import Event, JavaAgent, java_agent
from interop.cluster import Station, bolide_up
from interop.process import await_moment, await_that
from interop.release import CLIENT_RELEASES

COUNT = 60
QUEUE_COUNT = 4
EVEN = dict.fromkeys(range(QUEUE_COUNT), COUNT // QUEUE_COUNT)  # queue → offset when each had its share
TIMEOUT_S = 45.0  # a 5.x client whose heartbeat meets its rebalance is refused until the next, for 30 s
QUERY_OFFSET, SET_REQUEST_MODE = 14, 401

short = pytest.mark.short


class Scene:
    """A topic and a group of its own for one scenario and one release."""

    def __init__(self, agent: JavaAgent, station: Station, name: str, queue_count: int = QUEUE_COUNT) -> None:
        self.agent = agent
        self.topic = station.make_topic(f"{name}-{agent.release.replace('.', '-')}", queue_count)
        self.group = f"of-{self.topic}"
        self._started: list[str] = []

    def send(self, prefix: str = "message", count: int = COUNT, **options: object) -> set[str]:
        self.agent.do("send", topic=self.topic, count=count, prefix=prefix, **options)
        return {f"{prefix}-{number}" for number in range(count)}

    def push(self, name: str, **options: object) -> str:
        """Start a push consumer; its full name is unique in the agent."""
        name = f"{self.topic}-{name}"
        self.agent.do("push", **{"name": name, "group": self.group, "topic": self.topic, **options})
        self._started.append(name)
        return name

    def stop(self, *names: str) -> None:
        for name in names or tuple(self._started):
            self.agent.do("stop", name=name)
            self._started.remove(name)

    def await_bodies(self, consumer: str, bodies: set[str]) -> list[Event]:
        """Everything the consumer received, when all of these are among it."""

        def probe() -> list[Event] | None:
            found = self.agent.received(consumer)
            return found if bodies <= {event["body"] for event in found} else None

        claim = f"{len(bodies)} bodies at {consumer} in {self.agent.program.log}"
        return await_that(claim, probe, TIMEOUT_S) if bodies else self.agent.received(consumer)

    def await_assigned(self, **counts: int) -> None:
        """Wait until consumers hold so many queues each, together every one once."""

        def probe() -> bool:
            held = {
                name: [
                    q for q in self.agent.do("assigned", name=f"{self.topic}-{name}", topic=self.topic).split(",") if q
                ]
                for name in counts
            }
            everyone = [queue for queues in held.values() for queue in queues]
            return len(set(everyone)) == len(everyone) and {n: len(q) for n, q in held.items()} == counts

        await_that(f"queues are held as {counts}", probe, TIMEOUT_S)


def by_queue(events: list[Event]) -> dict[int, list[int]]:
    offsets: dict[int, list[int]] = defaultdict(list)
    for event in events:
        offsets[event["queue"]].append(event["offset"])
    return offsets


@short
def test_a_push_consumer_receives_all_once_and_goes_on_where_it_ended(agent: JavaAgent, station: Station) -> None:
    scene = Scene(agent, station, "Pushed")
    before, during = scene.send("before"), set[str]()
    first = scene.push("first")
    scene.await_bodies(first, before)
    during = scene.send("during")
    events = scene.await_bodies(first, during)
    scene.stop()
    after = scene.send("after")
    second = scene.push("second")
    later = scene.await_bodies(second, after)
    scene.stop()
    assert {event["body"] for event in events} == before | during
    assert {event["body"] for event in later} == after
    assert max(Counter((event["queue"], event["offset"]) for event in events + later).values()) == 1


def test_a_push_consumer_sees_its_tags_only(agent: JavaAgent, station: Station) -> None:
    scene = Scene(agent, station, "PushedTags")
    consumer = scene.push("tags", tags="Aa || C")
    scene.send("x", tag="BB")
    bodies = scene.send("a", tag="Aa") | scene.send("c", tag="C")
    scene.send("y", tag="BB")
    events = scene.await_bodies(consumer, bodies)
    scene.stop()
    assert {event["body"] for event in events} == bodies


@short
def test_an_orderly_listener_that_fails_sees_each_queue_in_order(agent: JavaAgent, station: Station) -> None:
    scene = Scene(agent, station, "Orderly")
    bodies = scene.send(how="ordered")
    consumer = scene.push("orderly", orderly=True, failEvery=4)
    events = scene.await_bodies(consumer, bodies)
    scene.stop()
    share = COUNT // QUEUE_COUNT
    assert by_queue(events) == {queue: list(range(share)) for queue in range(QUEUE_COUNT)}
    for event in events:
        queue, number = event["queue"], int(event["body"].rpartition("-")[2])
        assert number == event["offset"] * QUEUE_COUNT + queue, "in the order of sending"
    refused = [event for event in agent.events("refused") if event.get("consumer") == consumer]
    assert len(refused) == QUEUE_COUNT * len(range(0, share, 4))


@pytest.mark.feature("F204")
def test_broadcast_reaches_every_consumer_of_the_group(agent: JavaAgent, station: Station) -> None:
    scene = Scene(agent, station, "Broadcast")
    consumers = [scene.push(name, broadcast=True) for name in ("left", "right")]
    bodies = scene.send()
    for consumer in consumers:
        events = scene.await_bodies(consumer, bodies)
        assert len(events) == COUNT
    scene.stop()


@pytest.mark.feature("F211")
def test_a_pull_waits_for_the_message_that_is_not_there_yet(agent: JavaAgent, station: Station) -> None:
    scene = Scene(agent, station, "Pulled", 1)
    pull = {"topic": scene.topic, "group": scene.group}
    assert agent.do("pull", **pull, offset=0) == "NO_NEW_MSG 0"
    scene.send(count=5)
    assert agent.do("pull", **pull, offset=0, max=3) == "FOUND 3"
    assert agent.do("pull", **pull, offset=3, block=True) == "FOUND 5"
    assert agent.do("pull", **pull, offset=77).split()[0] == "OFFSET_ILLEGAL"
    assert [event["offset"] for event in agent.received(scene.group)] == list(range(5))


@short
def test_a_lite_pull_consumer_polls_commits_and_seeks(agent: JavaAgent, station: Station) -> None:
    scene = Scene(agent, station, "Lite")
    scene.send()
    for name, assigns in (("subscribing", False), ("assigning", True)):
        group = f"{scene.group}-{name}"
        agent.do("lite", name=group, group=group, topic=scene.topic, assign=assigns)
        assert agent.do("poll", name=group, count=COUNT) == str(COUNT)
        assert by_queue(agent.received(group)) == {q: list(range(COUNT // QUEUE_COUNT)) for q in range(QUEUE_COUNT)}
        agent.do("seek", name=group, topic=scene.topic, offset=10)
        again = COUNT - QUEUE_COUNT * 10
        assert agent.do("poll", name=group, count=again) == str(again)
        assert {event["offset"] for event in agent.received(group)[COUNT:]} == set(range(10, COUNT // QUEUE_COUNT))
        agent.do("stop", name=group)
        assert {queue: committed_at(station, scene, group, queue) for queue in range(QUEUE_COUNT)} == EVEN


def committed_at(station: Station, scene: Scene, group: str, queue: int) -> int:
    answer = wire.call(
        station.address, QUERY_OFFSET, {"consumerGroup": group, "topic": scene.topic, "queueId": str(queue)}
    )
    return int(answer.fields["offset"])


def committed(agent: JavaAgent, scene: Scene, group: str) -> dict[int, int]:
    """Queue → consumer offset, as mqadmin consumerProgress shows it."""
    lines = [line.split() for line in agent.admin("consumerProgress", "-g", group).splitlines()]
    return {int(words[2]): int(words[4]) for words in lines if words[:1] == [scene.topic]}


def reset(agent: JavaAgent, scene: Scene, when_ms: int) -> dict[int, int]:
    """Queue → the offset that mqadmin resetOffsetByTime says it went to."""
    output = agent.admin("resetOffsetByTime", "-g", scene.group, "-t", scene.topic, "-s", str(when_ms))
    lines = [line.split() for line in output.splitlines()]
    return {int(words[1]): int(words[2]) for words in lines if len(words) == 3 and words[1].isdigit()}


@short
def test_a_client_of_5_pops_what_it_is_given(agent: JavaAgent, station: Station) -> None:
    if agent.release != "5.5.0":
        pytest.skip("4.9 has no POP")
    scene = Scene(agent, station, "Popped")
    body = f'{{"topic":"{scene.topic}","consumerGroup":"{scene.group}","mode":"POP","popShareQueueNum":0}}'
    assert wire.call(station.address, SET_REQUEST_MODE, body=body.encode()).code == 0
    first = scene.push("first", pop=True)
    scene.await_bodies(first, scene.send("alone"))
    second = scene.push("second", pop=True)
    sent_count = COUNT

    def second_pops() -> bool:
        nonlocal sent_count
        sent_count += len(scene.send("both"))
        return bool(agent.received(second))

    await_that("both consumers pop", second_pops, TIMEOUT_S)

    def places() -> list[tuple[int, int]]:
        return [(event["queue"], event["offset"]) for event in agent.received(first) + agent.received(second)]

    await_that("all are popped", lambda: len(places()) >= sent_count, TIMEOUT_S)
    scene.stop()
    assert len(set(places())) == len(places()) == sent_count


def test_where_a_new_group_starts(agent: JavaAgent, station: Station) -> None:
    """While the first message is at hand the broker itself says: from there, whatever the client would like."""
    scene = Scene(agent, station, "StartsAt")
    bodies = scene.send()
    for place in ("first_offset", "last_offset", "timestamp"):
        consumer = scene.push(place, group=f"{scene.group}-{place}", **{"from": place})
        assert {event["body"] for event in scene.await_bodies(consumer, bodies)} == bodies
    scene.stop()


@pytest.mark.parametrize("release", CLIENT_RELEASES)
def test_where_a_new_group_starts_when_the_first_messages_are_gone(tmp_path: Path, release: str) -> None:
    settings = {"mappedFileSizeCommitLog": 8 << 20, "fileReservedTime": 0, "cleanResourceInterval": 1500}
    with ExitStack() as stack:
        station = stack.enter_context(bolide_up(tmp_path, settings))
        agent = stack.enter_context(java_agent(tmp_path, release, station.name_servers, compressOver=8 << 20))
        scene = Scene(agent, station, "StartsLater", 1)
        scene.send("gone", count=5)
        for number in range(3):
            scene.send(f"large-{number}", count=1, size=3 << 20)  # the third begins a file of its own
        kept = scene.send("kept")
        agent.admin("deleteExpiredCommitLog", "-b", station.endpoint)
        await_that("5 are gone", lambda: int(agent.do("offset", topic=scene.topic, which="min")) > 5, TIMEOUT_S)
        await_moment(int(time.time()) + 1)  # a time to start from has no milliseconds
        when = time.strftime("%Y%m%d%H%M%S")
        since = scene.send("since")
        starts = {"first_offset": kept | since, "timestamp": since, "last_offset": set()}
        consumers = {
            place: scene.push(place, group=f"{scene.group}-{place}", when=when, **{"from": place}) for place in starts
        }
        for place, consumer in consumers.items():
            scene.await_assigned(**{place: 1})
            scene.await_bodies(consumer, starts[place])
        after = scene.send("after")
        for place, consumer in consumers.items():
            found = {event["body"] for event in scene.await_bodies(consumer, after)}
            assert {body for body in found if not body.startswith("large")} == starts[place] | after


def bodies_of(agent: JavaAgent, consumer: str) -> list[str]:
    return [event["body"] for event in agent.received(consumer)]


@short
def test_a_second_consumer_takes_half_of_the_queues_and_gives_them_back(agent: JavaAgent, station: Station) -> None:
    scene = Scene(agent, station, "Shared")
    first = scene.push("first")
    scene.await_assigned(first=4)
    alone = scene.send("alone")
    scene.await_bodies(first, alone)
    # Progress is told every 5 s; what a queue's next owner has not been told of, he gets again.
    await_that("progress told", lambda: committed(agent, scene, scene.group) == EVEN, TIMEOUT_S)
    second = scene.push("second")
    scene.await_assigned(first=2, second=2)
    both = scene.send("both")
    await_that("both", lambda: set(both) <= set(bodies_of(agent, first) + bodies_of(agent, second)), TIMEOUT_S)
    assert len(agent.received(first) + agent.received(second)) == 2 * COUNT
    assert len(agent.received(second)) == COUNT // 2
    scene.stop(second)
    scene.await_assigned(first=4)
    again = scene.send("again")
    scene.await_bodies(first, again)
    scene.stop()
    assert len(agent.received(first) + agent.received(second)) == 3 * COUNT


def test_a_group_that_runs_goes_back_to_a_time_and_on_to_now(agent: JavaAgent, station: Station) -> None:
    scene = Scene(agent, station, "WentBack")
    consumer = scene.push("running")
    early = scene.send("early")
    scene.await_bodies(consumer, early)
    between_s = time.time() + 0.01
    await_moment(between_s)
    late = scene.send("late")
    scene.await_bodies(consumer, late)
    assert reset(agent, scene, int(between_s * 1000)) == EVEN
    await_that("late ones again", lambda: len(agent.received(consumer)) >= 3 * COUNT, TIMEOUT_S)
    scene.stop()
    counts = Counter(event["body"] for event in agent.received(consumer))
    assert {body: counts[body] for body in counts if counts[body] > 1} == dict.fromkeys(late, 2)


def test_a_group_that_is_away_is_set_back_too(agent: JavaAgent, station: Station) -> None:
    scene = Scene(agent, station, "SetBack")
    bodies = scene.send()
    scene.await_bodies(scene.push("first"), bodies)
    scene.stop()
    assert committed(agent, scene, scene.group) == EVEN
    assert reset(agent, scene, 0) == dict.fromkeys(range(QUEUE_COUNT), 0)
    assert len(scene.await_bodies(scene.push("second"), bodies)) == COUNT
    scene.stop()
