"""A broker with the recovery of old: the log ends at its first record that is not whole, and all behind it is gone."""

import sys

from bolide.cli.main import main
from bolide.store.recovery import Recovery
from bolide.store.resync import Resync
from tests.crash.recorded import install


def forget() -> None:
    """From now on this process looks for nothing behind a bad record, and believes no durable position."""
    end_log = Recovery._end_log

    def end_early(self: Recovery, end: int, queues_from: int) -> int:
        self._checkpoint.durable = min(self._checkpoint.durable, end)
        return end_log(self, end, queues_from)

    Recovery._end_log = end_early  # type: ignore[method-assign]
    Resync.behind = lambda *_: None  # type: ignore[method-assign]


if __name__ == "__main__":
    if sys.argv[1] == "broker":
        install()
        forget()
    main()
