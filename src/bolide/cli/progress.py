"""A bar on standard error that shows how far a long command is; nobody but a terminal sees it."""

import sys
from types import TracebackType
from typing import Self

from bolide.cli.tables import cut, terminal_width
from bolide.clock import SystemClock

_BAR_WIDTH = 30
_INTERVAL_S = 0.1
_clock = SystemClock()


class Bar:
    """Drawn while its `with` block runs, and wiped away at its end."""

    def __init__(self, what: str, total: int | None = None, *, is_shown: bool = True) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._is_shown = is_shown and sys.stderr.isatty()
        self._begun_s = self._drawn_s = _clock.monotonic_s()

    def __enter__(self) -> Self:
        self._draw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def tell(self, done: int, total: int | None = None, what: str | None = None) -> None:
        """So much is done, of so much."""
        self._done = done
        self._total = self._total if total is None else total
        self._what = what or self._what
        if _clock.monotonic_s() - self._drawn_s >= _INTERVAL_S:
            self._draw()

    def _draw(self) -> None:
        if not self._is_shown:
            return
        self._drawn_s = _clock.monotonic_s()
        took_s = int(self._drawn_s - self._begun_s)
        line = f"{self._what} {took_s // 60}:{took_s % 60:02}"
        if self._total:
            full = _BAR_WIDTH * min(self._done, self._total) // self._total
            line += f" {'━' * full}{'╌' * (_BAR_WIDTH - full)} {self._done:,} of {self._total:,}"
        sys.stderr.write("\r\033[K" + cut(line, terminal_width() - 1))
        sys.stderr.flush()
