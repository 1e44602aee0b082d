"""Where accounts come from: files of ACL 1.0, or tables of ACL 2.0. Both prove a caller and judge what it asks for.

A source has a version, which rises with each change: what was decided under another version is not believed any more.
Anything wrong with a file at the start stops it; later the old rules stay, and the log says what is wrong.
"""

import asyncio
import logging
import stat
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from bolide.access.accounts import FILE_SIZE_MAX, Account, AccountFile, AccountTable, parse_file
from bolide.access.config import AccessConfig
from bolide.access.migration import migrated
from bolide.access.policies import Policies, decide, refusal
from bolide.access.questions import Needs
from bolide.access.resources import Action, Kind, Need
from bolide.access.users import User, UserTable, parse_policies, parse_users
from bolide.errors import BolideError, ConfigError, Refusal, StoreError
from bolide.files import backup_of, read_whole, write_whole
from bolide.model.topics import TRACE_TOPIC
from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.signature import ACCESS_KEY, verify

SECRET_MODE = 0o600
USERS_FILE, POLICIES_FILE = "users.json", "acls.json"
DEFAULT_FILE, FILES_DIRECTORY = "conf/plain_acl.yml", "conf/acl"
_DENY, _PUB, _SUB = 1, 4, 8
T = TypeVar("T")
_ACL = "org.apache.rocketmq.acl.common.AclException: "
log = logging.getLogger(__name__)


class Unproven(Refusal):
    """A caller that is not who it says, or nobody knows: perhaps a guess."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, proven. `is_super` may do everything."""

    name: str
    is_super: bool


class Source(Protocol):
    """Accounts and their rights."""

    version: int

    def secret_of(self, name: str) -> str | None:
        """The secret of a name; None if it may not sign."""
        ...

    def is_white(self, host: str) -> bool:
        """Whether this address passes without a name."""
        ...

    def caller(self, command: Command, host: str) -> Caller:
        """Who sent this; raises Refusal, and `Unproven` for one that may be a guess."""
        ...

    def known(self, name: str, host: str) -> Caller | None:
        """Who proved before to be of this name, as it is now; None if it may not sign any more."""
        ...

    def judge(self, caller: Caller, code: int, needs: Needs, host: str) -> None:
        """Raises Refusal if one of the needs is not given to the caller."""
        ...

    def refresh(self) -> None:
        """Follow files that somebody changed; what is wrong with them is logged."""
        ...


class Users:
    """ACL 2.0."""

    def __init__(self, config: AccessConfig, directory: Path, *, old: AccountTable | None = None) -> None:
        """`old` are accounts of 1.0 to take over. Raises StoreError for files that cannot be read."""
        self._paths = directory / USERS_FILE, directory / POLICIES_FILE
        self._is_authorizing = config.is_authorizing
        self.version = 1
        loaded = self._loaded()
        self.table = loaded.with_first(config.first_pair).with_first(config.inner_pair)
        if old is not None:
            self.table = migrated(self.table, old)
        if self.table != loaded or not self._paths[0].exists():
            self._write(self.table)
        self._seen = _stamps(self._paths)
        self._existing = set(self._seen)  # files that were there when they were last read
        self._problem = ""
        self._turn = asyncio.Lock()
        _warn_of_readers(self._paths)

    def _loaded(self) -> UserTable:
        no_users: dict[str, User] = {}
        no_policies: dict[str, Policies] = {}
        users = _read_first(self._paths[0], parse_users, no_users)
        return UserTable(users, _read_first(self._paths[1], parse_policies, no_policies))

    def _write(self, table: UserTable) -> None:
        for path, text in zip(self._paths, (table.users_text(), table.policies_text()), strict=True):
            write_whole(path, text, SECRET_MODE)
        self._seen, self._existing = _stamps(self._paths), set(self._paths)

    async def change(self, make: Callable[[UserTable], UserTable], file_thread: Executor) -> None:
        """In force when it is on disk; raises Refusal or StoreError, and then nothing has changed."""
        async with self._turn:
            _refuse_over(self._read_again())
            table = make(self.table)
            if table != self.table:
                await asyncio.get_running_loop().run_in_executor(file_thread, self._write, table)
                self.table, self.version = table, self.version + 1

    def refresh(self) -> None:
        if not self._turn.locked():
            self._read_again()

    def _read_again(self) -> str:
        """Follow files that somebody edited, or that another server shares; returns what is wrong with them."""
        stamps = _stamps(self._paths)
        if stamps == self._seen:
            return self._problem
        self._seen = stamps
        try:
            # One that is gone is no empty table: everybody would be locked out while an editor writes it.
            if gone := self._existing - stamps.keys():
                raise ValueError(f"{', '.join(map(str, sorted(gone)))} is not there any more")
            users, policies = self._paths
            table = UserTable(_parsed(users, parse_users), _parsed(policies, parse_policies))
        except (OSError, ValueError) as problem:
            self._problem = f"users and policies not read again, the old ones stay: {problem}"
            log.error("%s", self._problem)
            return self._problem
        self.table, self.version, self._problem = table, self.version + 1, ""
        self._existing = set(stamps)
        log.info("users and policies read again users=%d directory=%s", len(table.users), self._paths[0].parent)
        _warn_of_readers(self._paths)
        return ""

    def secret_of(self, name: str) -> str | None:
        user = self.table.users.get(name)
        return user.password if user is not None and user.is_enabled else None

    def is_white(self, host: str) -> bool:
        return False

    def caller(self, command: Command, host: str) -> Caller:
        name = command.fields.get(ACCESS_KEY)
        if not name:
            raise refusal("username cannot be null.")
        user = self.table.users.get(name)
        if user is None:
            raise Unproven(ResponseCode.NO_PERMISSION, f"User:{name[:64]} is not found.")
        if not verify(command.fields, command.body, user.password):
            raise Unproven(ResponseCode.NO_PERMISSION, "check signature failed.")
        if not user.is_enabled:
            raise refusal(f"User:{name} is disabled.")
        return Caller(name, user.is_super)

    def known(self, name: str, host: str) -> Caller | None:
        user = self.table.users.get(name)
        return Caller(name, user.is_super) if user is not None and user.is_enabled else None

    def judge(self, caller: Caller, code: int, needs: Needs, host: str) -> None:
        if caller.is_super or (not self._is_authorizing and not _is_about_users(code)):
            return
        if needs is None or not self._is_authorizing:
            raise refusal(f"User:{caller.name} has no permission for request {code}, which is for Super users.")
        policies = self.table.policies.get(caller.name, {})
        for need in needs:
            entry = decide(policies, need, host)
            if entry is None or not entry.is_allowed:
                why = "no matched policies." if entry is None else "the decision is deny."
                raise refusal(f"User:{caller.name} has no permission to access {need} from {host}, {why}")


def _is_about_users(code: int) -> bool:
    """Without authorisation every user may do everything, but make himself another."""
    return 50 <= code <= 54 or 3001 <= code <= 3010


class Accounts:
    """ACL 1.0."""

    def __init__(self, config: AccessConfig, home: Path) -> None:
        """Raises ConfigError that names file, line and account."""
        self._home = home
        self._default = home / (config.accounts_file or DEFAULT_FILE)
        self.version = 1
        if not self._default.exists():
            write_whole(self._default, "", SECRET_MODE)
        self.table = self._loaded()
        self._seen = _stamps(self._found())
        self._problem = ""
        self._turn = asyncio.Lock()
        self._warn()

    def _found(self) -> list[Path]:
        more = (self._home / FILES_DIRECTORY).rglob("*")
        others = sorted(path for path in more if path.suffix in (".yml", ".yaml") and path.is_file())
        return [self._default, *(path for path in others if path != self._default)]

    def _loaded(self) -> AccountTable:
        return AccountTable.of({path: _read_accounts(path) for path in self._found()})

    def _warn(self) -> None:
        for path, file in self.table.files.items():
            if file.white.is_everybody:
                log.warning("%s: globalWhiteRemoteAddresses has *: everybody passes, with or without an account", path)
            elif file.white.patterns:
                patterns = ", ".join(file.white.patterns)
                log.warning("%s: these addresses pass everything, without an account: %s", path, patterns)
            for account in file.accounts.values():
                if account.white.patterns:
                    patterns = ", ".join(account.white.patterns)
                    log.warning("%s: %s passes without a signature from: %s", path, account.access_key, patterns)
        for name in self.table.repeated():
            log.warning("account %s is in several files; the first one counts: %s", name, self._default)
        _warn_of_readers(self.table.files)

    async def change(self, make: Callable[[AccountTable], tuple[AccountTable, Path]], file_thread: Executor) -> None:
        """In force when it is on disk; raises Refusal or StoreError, and then nothing has changed."""
        async with self._turn:
            _refuse_over(self._read_again())
            table, path = make(self.table)
            text = table.files[path].text()
            await asyncio.get_running_loop().run_in_executor(file_thread, write_whole, path, text, SECRET_MODE)
            self.table, self.version = table, self.version + 1
            self._seen = _stamps(self._found())

    def refresh(self) -> None:
        if not self._turn.locked():
            self._read_again()

    def _read_again(self) -> str:
        """Follow files that somebody edited; returns what is wrong with them."""
        try:
            stamps = _stamps(self._found())
            if stamps == self._seen:
                return self._problem
            self._seen = stamps
            table = self._loaded()
        except (BolideError, OSError) as problem:
            self._problem = f"accounts not read again, the old ones stay: {problem}"
            log.error("%s", self._problem)
            return self._problem
        self.table, self.version, self._problem = table, self.version + 1, ""
        log.info("accounts read again count=%d", len(table.accounts))
        self._warn()
        return ""

    def secret_of(self, name: str) -> str | None:
        account = self.table.accounts.get(name)
        return None if account is None else account.secret_key

    def is_white(self, host: str) -> bool:
        return self.table.is_white(host)

    def caller(self, command: Command, host: str) -> Caller:
        name = command.fields.get(ACCESS_KEY)
        if not name:
            raise _denied("No accessKey is configured")
        account = self.table.accounts.get(name)
        if account is None:
            raise _unproven(f"No acl config for {name[:64]}")
        if account.white.has(host):
            return Caller(name, is_super=True)
        if not verify(command.fields, command.body, account.secret_key):
            raise _unproven(f"Check signature failed for accessKey={name}")
        return Caller(name, account.is_admin)

    def known(self, name: str, host: str) -> Caller | None:
        account = self.table.accounts.get(name)
        return None if account is None else Caller(name, account.is_admin or account.white.has(host))

    def judge(self, caller: Caller, code: int, needs: Needs, host: str) -> None:
        if caller.is_super:
            return
        account = self.table.accounts.get(caller.name)
        if account is None:
            raise _denied(f"No PlainAccessResource for accessKey={caller.name}")
        if needs is None or any(need.kind is Kind.CLUSTER for need in needs):
            raise _denied(f"Need admin permission for request code={code}, but accessKey={caller.name} is not")
        for need in needs:
            if not _is_given(account, need):
                raise _denied(_why(account, need))


def _is_given(account: Account, need: Need) -> bool:
    """Pub and Sub as they stand; Get on what the account has any right on; everything else is an administrator's."""
    if need.kind is Kind.TOPIC and need.name == TRACE_TOPIC and Action.PUB in need.actions:
        return True
    right = account.of_topic(need.name) if need.kind is Kind.TOPIC else account.of_group(need.name)
    if right & _DENY:
        return False
    wanted = {Action.PUB: _PUB, Action.SUB: _SUB, Action.GET: _PUB | _SUB}
    return any(right & wanted.get(action, 0) for action in need.actions)


def _why(account: Account, need: Need) -> str:
    listed = account.topics if need.kind is Kind.TOPIC else account.groups
    word = "topic" if need.kind is Kind.TOPIC else "group"
    return f"No {'' if need.name in listed else 'default '}permission for {word}:{need.name}"


def _denied(text: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, _ACL + text)


def _unproven(text: str) -> Unproven:
    return Unproven(ResponseCode.SYSTEM_ERROR, _ACL + text)


def _read_accounts(path: Path) -> AccountFile:
    try:
        if path.stat().st_size > FILE_SIZE_MAX:
            raise ConfigError("plain_acl", str(path), f"is larger than {FILE_SIZE_MAX} bytes")
        return parse_file(path, path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError("plain_acl", str(path), f"cannot be read: {problem}") from None


def _read_first(path: Path, parse: Callable[[str], T], empty: T) -> T:
    """A file at the start. A crash leaves none, and its backup counts; one that is broken has to be repaired.

    Its backup is older: somebody may be in it who was deleted since.
    """
    try:
        if path.exists() and path.read_text("utf-8").strip():
            return _parsed(path, parse)
    except (OSError, ValueError) as problem:
        advice = f"repair the file, or put {backup_of(path)} in its place if that is right"
        raise StoreError(f"{problem}; {advice}") from None
    return read_whole(path, parse, empty)


def _parsed(path: Path, parse: Callable[[str], T]) -> T:
    try:
        return parse(path.read_text("utf-8") if path.exists() else "{}")
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None


def _refuse_over(problem: str) -> None:
    """What somebody edited is not written over while it has a mistake: it would be lost."""
    if problem:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"nothing is changed before the file is repaired: {problem}")


def _warn_of_readers(paths: Iterable[Path]) -> None:
    """Secrets and rights stand in these files. RocketMQ's own are often for everybody: no reason not to start."""
    for path, mode in ((path, stat.S_IMODE(path.stat().st_mode)) for path in paths if path.exists()):
        if mode & 0o077:
            verb = "written" if mode & 0o022 else "read"
            log.warning("%s is ours alone and can be %s by others (mode %04o): chmod 600 it", path, verb, mode)


def _stamps(paths: Iterable[Path]) -> dict[Path, tuple[int, int, int]]:
    """What tells one state of some files from another."""
    found = {}
    for path in paths:
        try:
            told = path.stat()
        except OSError:
            continue
        found[path] = told.st_mtime_ns, told.st_size, told.st_ino
    return found


def open_source(config: AccessConfig, home: Path) -> Users | Accounts | None:
    """The source that the settings ask for, None without any; `home` is where relative places begin."""
    if config.has_accounts:
        return Accounts(config, _below(home, config.home))
    if not config.is_authenticating:
        return None
    old = Accounts(config, _below(home, config.home)).table if config.is_migrating else None
    return Users(config, _below(home / "config", config.directory), old=old)


def _below(default: Path, given: Path) -> Path:
    return default if given == Path() else given
