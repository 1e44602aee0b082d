"""Which process this is, without asking the system for each message; a fork is noticed when it happens."""

import os

process_id = os.getpid()


def _note_fork() -> None:
    global process_id
    process_id = os.getpid()


os.register_at_fork(after_in_child=_note_fork)
