"""RocketMQ's released command line tool, run as its users run it: one process a command; or all in a JVM that stays.

A command takes some four seconds, most of them idle at its end, so independent commands are run together.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from interop.clients import JavaAgent
from interop.cluster import fresh_directory, java_command, prepare_home
from interop.process import Program, running
from interop.release import Role

TIMEOUT_S = 60.0
MAIN_CLASS = "org.apache.rocketmq.tools.command.MQAdminStartup"


@dataclass(frozen=True, slots=True)
class Tool:
    """mqadmin of one release, speaking to one list of name servers."""

    release: str
    name_servers: str
    directory: Path

    def run(self, *words: str) -> str:
        """Run one command, as in run("topicRoute", "-t", "Orders"), and return what it printed."""
        return self.run_together(words)[0]

    def run_together(self, *commands: Sequence[str]) -> list[str]:
        """Run independent commands at the same time; what each printed, in their order."""
        with ExitStack() as stack:
            programs = [stack.enter_context(running(words[0], *self._start(words))) for words in commands]
            return [_printed(program) for program in programs]

    def _start(self, words: Sequence[str]) -> tuple[list[str], Path]:
        home = prepare_home(fresh_directory(self.directory, f"mqadmin-{self.release}-{words[0]}"))
        arguments = [words[0], "-n", self.name_servers, *words[1:]]
        return java_command(self.release, Role.CLIENT, home, MAIN_CLASS, *arguments), home


@dataclass(frozen=True, slots=True)
class QuickTool:
    """The same by the tool's own entry, inside an agent: a command costs next to nothing."""

    agent: JavaAgent

    @property
    def release(self) -> str:
        return self.agent.release

    def run(self, *words: str) -> str:
        return _checked(words[0], self.agent.admin(*words))

    def run_together(self, *commands: Sequence[str]) -> list[str]:
        return [self.run(*words) for words in commands]


def _printed(program: Program) -> str:
    program.wait(TIMEOUT_S)
    return _checked(program.name, program.output())


def _checked(name: str, output: str) -> str:
    # mqadmin prints its errors and ends with 0 all the same.
    assert "Exception" not in output, f"mqadmin {name} failed:\n{output}"
    return output
