"""Stores that jobs of Spark work on."""

from pathlib import Path


def queue_files(root: Path) -> dict[str, bytes]:
    """The bytes of all queue files, by their place."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted((root / "consumequeue").rglob("*"))
        if path.is_file()
    }
