"""The picture in the README: what a terminal shows when its lines are typed, made by typing them.

    make picture

Everything in it is real output of a `bolide up` that is started for it; only the window around it is drawn. Bold is all
that the commands print of style, so that is all that is read.
"""

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path

UP = "bolide up --set brokerName=broker-a"
TYPED = (
    "bolide send Orders 'two teas' --tags new --keys o-1",
    "bolide consume Orders --group kitchen --from-beginning --limit 1",
    "bolide group progress kitchen",
)
PICTURE = Path(__file__).resolve().parent.parent / "docs" / "terminal.svg"
COLUMNS = 96
LINE_HEIGHT, CHARACTER_WIDTH, EDGE, TITLE_HEIGHT = 19, 8.2, 16, 34
LIMIT_S = 60.0
_STYLE = re.compile(r"\x1b\[(\d*)m")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, running_up(Path(directory)) as banner:
        parts = [(UP, banner), *((line, typed(line, Path(directory))) for line in TYPED)]
    PICTURE.write_text(drawn(parts), "utf-8")


@contextmanager
def running_up(directory: Path) -> Iterator[str]:
    """`bolide up` in this directory; gives what it printed."""
    ready, printed = directory / "ready", directory / "printed"
    with printed.open("w") as output:
        program = subprocess.Popen(
            [*command(UP), "--ready-file", str(ready), "--log-level", "error"],
            cwd=directory,
            env=environment(),
            stdout=output,
        )
    try:
        end = time.monotonic() + LIMIT_S
        while not (ready.exists() and "Ctrl-C" in printed.read_text()):
            if program.poll() is not None or time.monotonic() > end:
                sys.exit(f"`{UP}` did not start; is its port taken?")
            time.sleep(0.05)
        # Where the messages are depends on who makes the picture; a reader's are where the reader is.
        yield printed.read_text().replace(str(directory.resolve()), "/home/ada")
    finally:
        program.send_signal(signal.SIGTERM)
        program.wait(LIMIT_S)


def typed(line: str, directory: Path) -> str:
    """What a command prints on a terminal of its own."""
    ours, theirs = pty.openpty()
    program = subprocess.Popen(command(line), cwd=directory, env=environment(), stdin=theirs, stdout=theirs)
    os.close(theirs)
    found = b""
    try:
        while part := os.read(ours, 65536):
            found += part
    except OSError:
        pass  # the other end is closed: it has ended
    finally:
        os.close(ours)
    if program.wait(LIMIT_S):
        sys.exit(f"`{line}` ended with {program.returncode}:\n{found.decode()}")
    return found.decode().replace("\r\n", "\n")


def command(line: str) -> list[str]:
    return [sys.executable, "-m", *shlex.split(line)]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NAMESRV_ADDR", "NO_COLOR")}
    return {**kept, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color", "TZ": "UTC", "BOLIDE_PROFILE": ""}


def drawn(parts: list[tuple[str, str]]) -> str:
    """An SVG of a window with these commands and what each printed."""
    lines = [
        line for typed_line, printed in parts for line in (prompt(typed_line), *map(styled, printed.splitlines()), "")
    ]
    width = round(COLUMNS * CHARACTER_WIDTH + 2 * EDGE)
    height = TITLE_HEIGHT + LINE_HEIGHT * len(lines) + EDGE
    rows = "\n".join(
        f'<text x="{EDGE}" y="{TITLE_HEIGHT + LINE_HEIGHT * (number + 1)}">{line}</text>'
        for number, line in enumerate(lines)
        if line
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" xml:space="preserve">
<title>bolide in a terminal</title>
<style>text {{ font: 13.6px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d7dae0;
white-space: pre }} .typed {{ fill: #8fd18f }} .bold {{ font-weight: bold; fill: #ffffff }}</style>
<rect width="{width}" height="{height}" rx="9" fill="#1d2026"/>
<circle cx="20" cy="18" r="6" fill="#ec6a5e"/><circle cx="40" cy="18" r="6" fill="#f4bf4f"/>
<circle cx="60" cy="18" r="6" fill="#61c554"/>
{rows}
</svg>
"""


def prompt(line: str) -> str:
    return f'<tspan class="typed">$ </tspan><tspan class="bold">{escape(line)}</tspan>'


def styled(line: str) -> str:
    """A line of output, its bold parts marked."""
    told, is_bold = [], False
    for number, part in enumerate(_STYLE.split(line)):
        if number % 2:
            is_bold = part == "1"
        elif part:
            told.append(f'<tspan class="bold">{escape(part)}</tspan>' if is_bold else escape(part))
    return "".join(told)


if __name__ == "__main__":
    main()
