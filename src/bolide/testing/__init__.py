"""Doubles that ship: time you hold (`run`, `VirtualClock`), a link you can cut (`open_link`)."""

from bolide.testing.link import Link, open_link
from bolide.testing.loop import NothingLeft, VirtualClock, VirtualLoop, run

__all__ = ["Link", "NothingLeft", "VirtualClock", "VirtualLoop", "open_link", "run"]
