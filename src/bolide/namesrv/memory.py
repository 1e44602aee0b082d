"""Memory that was let go, given back to the system: the C library keeps what a large table had for the next one."""

import ctypes
import gc


def give_back() -> None:
    """Return free memory to the system; blocks for milliseconds, so a thread runs it. Without glibc it does less."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
