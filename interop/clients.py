"""Java producers and consumers: the programs under `java/`, run on a client of a given release.

They print one JSON object a line; `events` reads them. Arguments are `key=value`, see the sources. The agent is a JVM
that takes one step after the other, with as many consumers as a scenario wants: a start costs two seconds, a step next
to nothing.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interop.cluster import fresh_directory, java_command, prepare_home
from interop.process import NotInTime, Program, await_that, running
from interop.release import Role, class_path, compiled_programs

START_TIMEOUT_S = 30.0
SEND_TIMEOUT_S = 60.0
STEP_TIMEOUT_S = 60.0

# A 5.x client whose heartbeat meets its rebalance is refused until its next, and one that does not know its retry topic
# looks for it with its routes: both take 30 s unless told otherwise.
IMPATIENT = {"heartbeatMs": 1000, "pollMs": 1000}

Event = dict[str, Any]


class JavaClient:
    """A running producer or consumer, and what it has told so far."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def events(self, kind: str) -> list[Event]:
        found = [json.loads(line) for line in self.program.lines() if line.startswith('{"event"')]
        return [event for event in found if event["event"] == kind]

    def await_events(self, kind: str, count: int, timeout_s: float) -> list[Event]:
        def probe() -> list[Event] | None:
            found = self.events(kind)
            return found if len(found) >= count else None

        return await_that(f"{count} × {kind} in {self.program.log}", probe, timeout_s)

    def bodies(self) -> set[str]:
        return {event["body"] for event in self.events("received")}

    def finish(self, timeout_s: float = START_TIMEOUT_S) -> None:
        self.program.tell("stop")
        self.program.wait(timeout_s)


class JavaAgent(JavaClient):
    """A JVM that does what it is told, step by step; each step has one answer."""

    def __init__(self, program: Program, release: str, name_servers: str) -> None:
        super().__init__(program)
        self.release = release
        self.name_servers = name_servers
        self._events: list[Event] = []
        self._read_size = 0
        self._answer_count = 0

    def events(self, kind: str) -> list[Event]:
        """As the parent's, but what was read once is not read again: an agent may say a hundred thousand things."""
        with self.program.log.open("rb") as log:
            log.seek(self._read_size)
            fresh, _, _ = log.read().rpartition(b"\n")
        self._read_size += len(fresh) + bool(fresh)
        lines = fresh.decode("utf-8", "replace").splitlines()
        self._events += [json.loads(line) for line in lines if line.startswith('{"event"')]
        return [event for event in self._events if event["event"] == kind]

    def do(self, verb: str, **options: object) -> str:
        """Take one step and return its answer; a step that throws fails the scenario."""
        return self._step(verb, _words(options))

    def admin(self, *words: str) -> str:
        """What mqadmin of this release prints, run inside the agent."""
        return self._step("admin", [words[0], "-n", self.name_servers, *words[1:]])

    def _step(self, verb: str, words: list[str]) -> str:
        self.program.tell("\t".join((verb, *words)))
        self._answer_count += 1

        def answers() -> list[Event]:
            return [event for event in self._events if event["event"] in ("answer", "problem")]

        def probe() -> Event | None:
            is_running = self.program.is_running  # asked first: what it says last is read after its end
            self.events("answer")
            found = answers()
            if len(found) < self._answer_count and not is_running:
                # mqadmin ends its JVM, the agent's, over an option that it does not know or misses.
                raise NotInTime(f"{verb} {words} ended the agent:\n{self.program.output()[-4000:]}")
            return found[-1] if len(found) == self._answer_count else None

        answer = await_that(f"{verb} is answered in {self.program.log}", probe, STEP_TIMEOUT_S)
        assert answer["event"] == "answer", answer
        return str(answer["value"])

    def received(self, consumer: str) -> list[Event]:
        return [event for event in self.events("received") if event["consumer"] == consumer]

    def await_received(self, consumer: str, count: int, timeout_s: float) -> list[Event]:
        def probe() -> list[Event] | None:
            found = self.received(consumer)
            return found if len(found) >= count else None

        return await_that(f"{count} messages for {consumer} in {self.program.log}", probe, timeout_s)


def _words(options: dict[str, object]) -> list[str]:
    return [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in options.items()]


@contextmanager
def signing_agent(directory: Path, release: str, name_servers: str, key: tuple[str, str]) -> Iterator[JavaAgent]:
    """An agent whose mqadmin signs."""
    with java_client(directory, release, "Agent", {"namesrv": name_servers}, key) as client:
        client.program.await_output('"started"', START_TIMEOUT_S)
        yield JavaAgent(client.program, release, name_servers)


@contextmanager
def java_agent(directory: Path, release: str, name_servers: str, **arguments: object) -> Iterator[JavaAgent]:
    with java_client(directory, release, "Agent", {"namesrv": name_servers, **arguments}) as client:
        client.program.await_output('"started"', START_TIMEOUT_S)
        yield JavaAgent(client.program, release, name_servers)


@contextmanager
def java_client(
    directory: Path, release: str, main_class: str, arguments: dict[str, object], key: tuple[str, str] | None = None
) -> Iterator[JavaClient]:
    home = prepare_home(fresh_directory(directory, f"{main_class.lower()}-{release}"))
    if key is not None:
        (home / "conf" / "tools.yml").write_text(f"accessKey: {key[0]}\nsecretKey: {key[1]}\n")
    command = java_command(release, Role.CLIENT, home, main_class, *_words(arguments))
    at = command.index("-cp") + 1
    command[at] = os.pathsep.join((str(compiled_programs(release)), class_path(release, Role.CLIENT)))
    with running(main_class, command, home) as program:
        yield JavaClient(program)


@contextmanager
def java_consumer(directory: Path, release: str, **arguments: object) -> Iterator[JavaClient]:
    with java_client(directory, release, "Consume", arguments) as consumer:
        consumer.program.await_output('"started"', START_TIMEOUT_S)
        yield consumer


@contextmanager
def java_producer(directory: Path, release: str, **arguments: object) -> Iterator[JavaClient]:
    """A producer that sends on until it is told to stop."""
    with java_client(directory, release, "Produce", arguments) as producer:
        producer.program.await_output('"started"', START_TIMEOUT_S)
        yield producer


def send_messages(directory: Path, release: str, **arguments: object) -> list[Event]:
    """Send `count` messages and return what became of them; any failure fails the scenario."""
    with java_client(directory, release, "Produce", arguments) as producer:
        producer.program.await_output('"done"', SEND_TIMEOUT_S)
        assert producer.events("failed") == []
        return producer.events("sent")
