"""Servers that are kept alive together: real processes."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bolide.cli.supervisor import Child, ChildFailed, Supervisor
from tests.remoting.loops import POLL_INTERVAL_S

LIMIT_S = 60


def name_server(directory: Path, *more: str) -> Child:
    files = (
        "--set",
        f"kvConfigPath={directory / 'kv.json'}",
        "--set",
        f"configStorePath={directory / 'ns.properties'}",
    )
    return Child("namesrv", ("namesrv", "--host", "127.0.0.1", "--port", "0", *files, *more), directory)


async def until(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not claim():  # noqa: ASYNC110
            await asyncio.sleep(POLL_INTERVAL_S)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_child_that_is_killed_is_there_again_and_all_are_gone_at_the_end(tmp_path: Path) -> None:
    async def scenario() -> tuple[int, int, list[str]]:
        said: list[str] = []
        async with Supervisor(said.append) as supervisor:
            child = name_server(tmp_path)
            await supervisor.start(child)
            first = child.pid
            os.kill(first, signal.SIGKILL)
            await until(lambda: child.pid != first and len(said) == 2)
            assert child.ready["pid"] == child.pid
            return first, child.pid, said

    first, second, said = asyncio.run(scenario())
    assert not is_alive(first)
    assert not is_alive(second)
    assert "was ended by SIGKILL" in said[0]
    assert f"is there again (pid {second})" in said[1]


def test_a_child_that_cannot_start_says_why_in_its_own_words(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Supervisor() as supervisor:
            await supervisor.start(name_server(tmp_path, "--set", "noSuchKey=1"))

    with pytest.raises(ChildFailed, match="noSuchKey"):
        asyncio.run(scenario())


def test_children_end_with_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    program = (
        "import asyncio\n"
        "from pathlib import Path\n"
        "from bolide.cli.supervisor import Child, Supervisor\n"
        "async def main():\n"
        "    async with Supervisor() as supervisor:\n"
        f"        child = Child('namesrv', {list(name_server(tmp_path).arguments)!r}, Path({str(tmp_path)!r}))\n"
        "        await supervisor.start(child)\n"
        "        print(child.pid, flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
    asyncio.run(until(lambda: not is_alive(child)))
