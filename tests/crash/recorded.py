"""A broker's process whose syncs are noted (`power.py`), and are slow on demand.

It runs in the node's directory: the store is `store` there, the notes are `durable`, the disk's manners `disk.json`.
"""

import json
import sys
from pathlib import Path

from bolide.cli.main import main
from tests.crash.power import Stalls, SyncNotes, SyncRecorder

STORE, NOTES, MANNERS = "store", "durable", "disk.json"


def install() -> None:
    here = Path.cwd()
    manners = json.loads((here / MANNERS).read_text()) if (here / MANNERS).exists() else {}
    (here / STORE).mkdir(exist_ok=True)
    SyncRecorder(SyncNotes(here / STORE, here / NOTES)).install(Stalls(**manners))


if __name__ == "__main__":
    if sys.argv[1] == "broker":
        install()
    main()
