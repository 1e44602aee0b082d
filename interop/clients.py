"""Java producers and consumers: the programs under `java/`, run on a client of a given release.

They print one JSON object a line; `events` reads them. Arguments are `key=value`, see the sources.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interop.cluster import fresh_directory, java_command, prepare_home
from interop.process import Program, await_that, running
from interop.release import Role, class_path, compiled_programs

START_TIMEOUT_S = 30.0
SEND_TIMEOUT_S = 60.0

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


@contextmanager
def java_client(directory: Path, release: str, main_class: str, arguments: dict[str, object]) -> Iterator[JavaClient]:
    home = prepare_home(fresh_directory(directory, f"{main_class.lower()}-{release}"))
    words = [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in arguments.items()]
    command = java_command(release, Role.CLIENT, home, main_class, *words)
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
