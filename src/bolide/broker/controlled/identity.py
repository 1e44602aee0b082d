"""Which replica of its group this broker is: a number from the controller, kept in two small files beside the log.

`brokerIdentity-temp` is written before the broker applies for a number, and `brokerIdentity` once it was granted. A
crash in between loses nothing: the same number is applied for again with the same check code, which the controller
takes for the same broker. A broker that lost its identity would get a new number and leave an orphan in the controller.

Both files are RocketMQ's, so a directory may change hands between its brokers and ours.

A directory may be copied with them, so they do not prove that a broker at another address is the one that had the
number. `seat` does: while we hold the very lock file that it held, on the same running machine, it has ended.
"""

from dataclasses import dataclass
from pathlib import Path

from bolide.errors import StoreError
from bolide.files import sync_directory, write_whole

_ID_MAX = (1 << 63) - 1
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Application:
    """A number that was or will be applied for; `check_code` tells the controller that it is still the same broker."""

    replica_id: int
    check_code: str


class IdentityFiles:
    """The two files of one broker. Everything here blocks for a moment, and happens once at a start."""

    def __init__(self, root: Path, cluster: str, broker_name: str) -> None:
        self._owner = f"{cluster}#{broker_name}"
        self._path = root / "brokerIdentity"
        self._applied_path = root / "brokerIdentity-temp"

    def replica_id(self) -> int | None:
        """The number that was granted, None if none was; raises StoreError for a directory of another broker."""
        text = _text_of(self._path)
        if text is None:
            return None
        owner, _, number = text.rpartition("#")
        self._check_owner(self._path, owner)
        return self._number(self._path, number)

    def application(self) -> Application | None:
        """What was applied for and perhaps granted, by a life that ended too early to know."""
        text = _text_of(self._applied_path)
        if text is None:
            return None
        owner, number, check_code = [*text.rsplit("#", 2), "", ""][:3]
        self._check_owner(self._applied_path, owner)
        return Application(self._number(self._applied_path, number), check_code)

    def apply(self, application: Application) -> None:
        """Note what will be applied for."""
        write_whole(self._applied_path, f"{self._owner}#{application.replica_id}#{application.check_code}")

    def granted(self, replica_id: int) -> None:
        """Keep the number that was granted."""
        write_whole(self._path, f"{self._owner}#{replica_id}")
        self.forget_application()

    def forget_application(self) -> None:
        """The number was somebody else's, or is ours for good."""
        self._applied_path.unlink(missing_ok=True)
        sync_directory(self._applied_path.parent)

    def _check_owner(self, path: Path, owner: str) -> None:
        if owner != self._owner:
            found, own = owner.replace("#", " "), self._owner.replace("#", " ")
            raise StoreError(
                f"{path} says that this directory belongs to {found}, and this broker is {own}; set brokerClusterName "
                "and brokerName to those, or choose another directory"
            )

    def _number(self, path: Path, text: str) -> int:
        if not (text.isascii() and text.isdigit() and 0 < int(text) <= _ID_MAX):
            raise StoreError(f"{path} has no number of a replica but {text[:40]!r}; restore the file, or move it away")
        return int(text)


def seat(root: Path) -> str | None:
    """Which lock a broker that has opened this store holds; None where that cannot be told.

    A copy of the file is another file, and a file that a frozen broker has open stays that file wherever it is moved.
    """
    try:
        lock = (root / "lock").stat()
        return f"{_BOOT.read_text('ascii').strip()}:{lock.st_dev:x}:{lock.st_ino:x}"
    except (OSError, ValueError):
        return None


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text("utf-8").strip() or None
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as problem:
        raise StoreError(f"{path} cannot be read: {problem}") from problem
