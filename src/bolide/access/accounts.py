"""ACL 1.0: the accounts of one or several YAML files, as a value; where a file is wrong, which line and which account.

Every scalar is read as the text that stands there: a secret `012345678` or `yes` is these characters. The first file
that names an access key owns it. Changes by request (50, 51, 53) make new values, and the owning file is written
again; comments in it are lost, as in RocketMQ.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bolide.access.whitelist import WhiteList
from bolide.errors import ConfigError, Refusal
from bolide.protocol.bodies.access import Account as AccountBody
from bolide.protocol.bodies.access import Accounts as AccountsBody
from bolide.protocol.codes import ResponseCode
from bolide.protocol.headers.access import UpdateAclRequest

HIDDEN = "******"
Node = Any  # of a YAML document
KEY_SIZE_MIN = 7
ACCOUNTS_MAX = 10_000
FILE_SIZE_MAX = 8 << 20
_DENY, _PUB, _SUB = 1, 4, 8
_WORDS = {"DENY": _DENY, "PUB": _PUB, "SUB": _SUB, "PUB|SUB": _PUB | _SUB, "SUB|PUB": _PUB | _SUB}
_NAMES = {_DENY: "DENY", _PUB: "PUB", _SUB: "SUB", _PUB | _SUB: "PUB|SUB"}
_NOBODY = WhiteList(())
_ACCOUNT_KEYS = (
    "accessKey",
    "secretKey",
    "whiteRemoteAddress",
    "admin",
    "defaultTopicPerm",
    "defaultGroupPerm",
    "topicPerms",
    "groupPerms",
)
_FILE_KEYS = ("globalWhiteRemoteAddresses", "accounts", "dataVersion")


@dataclass(frozen=True, slots=True)
class Account:
    """Who may sign in, and with which rights; rights are bits."""

    access_key: str
    secret_key: str = field(repr=False)
    white: WhiteList = _NOBODY
    is_admin: bool = False
    topic_default: int = _DENY
    group_default: int = _DENY
    topics: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)

    def of_topic(self, name: str) -> int:
        return self.topics.get(name, self.topic_default)

    def of_group(self, name: str) -> int:
        return self.groups.get(name, self.group_default)

    def shown(self) -> AccountBody:
        """As it is told: without its secret."""
        return AccountBody(
            access_key=self.access_key,
            secret_key=HIDDEN,
            white_remote_address=",".join(self.white.patterns),
            admin=self.is_admin,
            default_topic_perm=_NAMES[self.topic_default],
            default_group_perm=_NAMES[self.group_default],
            topic_perms=[f"{name}={_NAMES[right]}" for name, right in self.topics.items()],
            group_perms=[f"{name}={_NAMES[right]}" for name, right in self.groups.items()],
        )

    def written(self) -> dict[str, object]:
        """As it stands in its file."""
        body = self.shown()
        return {
            "accessKey": self.access_key,
            "secretKey": self.secret_key,
            "whiteRemoteAddress": body.white_remote_address,
            "admin": self.is_admin,
            "defaultTopicPerm": body.default_topic_perm,
            "defaultGroupPerm": body.default_group_perm,
            "topicPerms": body.topic_perms,
            "groupPerms": body.group_perms,
        }


@dataclass(frozen=True, slots=True)
class AccountFile:
    """What one file says; `counter` and `changed_ms` are raised by requests."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    white: WhiteList = _NOBODY
    counter: int = 0
    changed_ms: int = 0

    def text(self) -> str:
        content = {
            "globalWhiteRemoteAddresses": list(self.white.patterns),
            "accounts": [account.written() for account in self.accounts.values()],
            "dataVersion": [{"counter": self.counter, "timestamp": self.changed_ms}],
        }
        return str(_yaml().safe_dump(content, sort_keys=False, allow_unicode=True))

    def changed(self, now_ms: int, **changes: Any) -> "AccountFile":
        return replace(self, counter=self.counter + 1, changed_ms=now_ms, **changes)


@dataclass(frozen=True, slots=True)
class AccountTable:
    """All files together, the default one first."""

    files: Mapping[Path, AccountFile] = field(default_factory=dict)
    accounts: Mapping[str, Account] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Mapping[Path, AccountFile]) -> "AccountTable":
        accounts: dict[str, Account] = {}
        for file in files.values():
            for name, account in file.accounts.items():
                accounts.setdefault(name, account)
        return cls(dict(files), accounts)

    def repeated(self) -> list[str]:
        """Access keys that more than one file names."""
        owners: dict[str, int] = {}
        for file in self.files.values():
            for name in file.accounts:
                owners[name] = owners.get(name, 0) + 1
        return sorted(name for name, count in owners.items() if count > 1)

    def is_white(self, host: str) -> bool:
        return any(file.white.has(host) for file in self.files.values())

    def with_account(self, given: UpdateAclRequest, now_ms: int) -> tuple["AccountTable", Path]:
        """With an account made or changed, and the file that is to be written; raises Refusal (209)."""
        try:
            account = _from_request(given)
        except ValueError as problem:
            raise Refusal(ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED, str(problem)) from None
        if len(self.accounts) >= ACCOUNTS_MAX and account.access_key not in self.accounts:
            text = f"there are {ACCOUNTS_MAX} accounts already"
            raise Refusal(ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED, text)
        path = self._owner(account.access_key) or next(iter(self.files))
        file = self.files[path]
        return self._with(path, file.changed(now_ms, accounts={**file.accounts, account.access_key: account})), path

    def without_account(self, access_key: str, now_ms: int) -> tuple["AccountTable", Path]:
        """Without an account; raises Refusal (210)."""
        path = self._owner(access_key)
        if path is None:
            remark = f"The accesskey[{access_key}] corresponding to accessConfig has been deleted failed."
            raise Refusal(ResponseCode.DELETE_ACL_CONFIG_FAILED, remark)
        file = self.files[path]
        left = {name: account for name, account in file.accounts.items() if name != access_key}
        return self._with(path, file.changed(now_ms, accounts=left)), path

    def with_white(self, patterns: Iterable[str], named: str, now_ms: int) -> tuple["AccountTable", Path]:
        """With another global white list in the named file, or in the default one; raises Refusal (211)."""
        path = Path(named) if named else next(iter(self.files))
        if path not in self.files:
            files = ", ".join(map(str, self.files))
            remark = f"{path} is not a ACL configuration file; these are: {files}"
            raise Refusal(ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED, remark)
        try:
            white = WhiteList(patterns)
        except ValueError as problem:
            raise Refusal(ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED, str(problem)) from None
        return self._with(path, self.files[path].changed(now_ms, white=white)), path

    def shown(self) -> AccountsBody:
        """Everything but the secrets."""
        patterns = [pattern for file in self.files.values() for pattern in file.white.patterns]
        accounts = [account.shown() for account in self.accounts.values()]
        return AccountsBody(global_white_addrs=patterns, plain_access_configs=accounts)

    def _with(self, path: Path, file: AccountFile) -> "AccountTable":
        return AccountTable.of({**self.files, path: file})

    def _owner(self, access_key: str) -> Path | None:
        return next((path for path, file in self.files.items() if access_key in file.accounts), None)


def parse_file(path: Path, text: str) -> AccountFile:
    """What a file says; raises ConfigError that names the line and the account."""
    try:
        root = _yaml().compose(text, Loader=_yaml().SafeLoader)
    except _yaml().YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise ConfigError("plain_acl", str(path), f"{where}{getattr(problem, 'problem', problem)}") from None
    return AccountFile() if root is None else _Reader(path).file(root)


class _Reader:
    """Walks the nodes of one file; every complaint has the line and, inside one, the account."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._account = ""

    def file(self, root: Node) -> AccountFile:
        members = self._members(root, _FILE_KEYS)
        white = self._list(members.get("globalWhiteRemoteAddresses"))
        accounts: dict[str, Account] = {}
        for node in self._nodes(members.get("accounts")):
            account = self._read_account(node)
            if account.access_key in accounts:
                raise self._problem(node, "is there twice")
            accounts[account.access_key] = account
        self._account = ""
        counter, changed_ms = self._version(members.get("dataVersion"))
        return AccountFile(accounts, self._white(members.get("globalWhiteRemoteAddresses"), white), counter, changed_ms)

    def _read_account(self, node: Node) -> Account:
        self._account = "(without accessKey)"
        members = self._members(node, _ACCOUNT_KEYS)
        texts = {key: self._text(value) for key, value in members.items() if key not in ("topicPerms", "groupPerms")}
        self._account = texts.get("accessKey") or self._account
        for key in ("accessKey", "secretKey"):
            if len(texts.get(key, "")) < KEY_SIZE_MIN:
                raise self._problem(members.get(key, node), f"{key} must have more than {KEY_SIZE_MIN - 1} characters")
        is_admin = texts.get("admin", "false").lower()
        if is_admin not in ("true", "false"):
            raise self._problem(members["admin"], "admin must be true or false")
        white_node = members.get("whiteRemoteAddress")
        return Account(
            texts["accessKey"],
            texts["secretKey"],
            self._white(white_node, [texts.get("whiteRemoteAddress", "")]),
            is_admin == "true",
            _WORDS.get(texts.get("defaultTopicPerm", "").strip(), _DENY),
            _WORDS.get(texts.get("defaultGroupPerm", "").strip(), _DENY),
            self._rights(members.get("topicPerms")),
            self._rights(members.get("groupPerms")),
        )

    def _rights(self, node: Node | None) -> dict[str, int]:
        found = {}
        for each in self._nodes(node):
            try:
                name, right = parse_right(self._text(each))
            except ValueError as problem:
                raise self._problem(each, str(problem)) from None
            found[name] = right
        return found

    def _white(self, node: Node | None, patterns: Sequence[str]) -> WhiteList:
        try:
            return WhiteList(patterns)
        except ValueError as problem:
            raise self._problem(node, str(problem)) from None

    def _version(self, node: Node | None) -> tuple[int, int]:
        nodes = self._nodes(node)
        if not nodes:
            return 0, 0
        members = {key: self._text(value) for key, value in self._members(nodes[0], None).items()}
        numbers = [members.get(key, "0") for key in ("counter", "timestamp")]
        if not all(text.isdecimal() for text in numbers):
            raise self._problem(node, "dataVersion has a counter and a timestamp, both numbers")
        return int(numbers[0]), int(numbers[1])

    def _members(self, node: Node, known: tuple[str, ...] | None) -> dict[str, Node]:
        if node.id != "mapping":
            raise self._problem(node, "must be a mapping (key: value)")
        found = {}
        for key, value in node.value:
            name = self._text(key)
            if known is not None and name not in known:
                raise self._problem(key, f"{name!r} is no key here; known are {', '.join(known)}")
            found[name] = value
        return found

    def _nodes(self, node: Node | None) -> list[Node]:
        if node is None or (node.id == "scalar" and node.value in ("", "null", "~")):
            return []
        if node.id != "sequence":
            raise self._problem(node, "must be a list")
        return list(node.value)

    def _list(self, node: Node | None) -> list[str]:
        return [self._text(each) for each in self._nodes(node)]

    def _text(self, node: Node) -> str:
        if node.id != "scalar":
            raise self._problem(node, "must be a text")
        return str(node.value)

    def _problem(self, node: Node | None, text: str) -> ConfigError:
        where = "" if node is None else f"line {node.start_mark.line + 1}: "
        who = f"account {self._account}: " if self._account else ""
        return ConfigError("plain_acl", str(self._path), f"{where}{who}{text}")


def parse_right(text: str) -> tuple[str, int]:
    """`name=PUB|SUB`; any other word is a denial, as in RocketMQ. Raises ValueError."""
    name, equals, word = text.partition("=")
    if not equals or "=" in word or not name.strip():
        raise ValueError(f"{text!r} is not of the form name=PUB|SUB")
    return name.strip(), _WORDS.get(word.strip(), _DENY)


def _from_request(given: UpdateAclRequest) -> Account:
    """Raises ValueError with RocketMQ's words."""
    key, secret = given.access_key, given.secret_key or ""
    if len(key) < KEY_SIZE_MIN or len(secret) < KEY_SIZE_MIN:  # Apache's broker says the secret too
        raise ValueError(f"The accessKey={key} and secretKey={HIDDEN} cannot be null and length should longer than 6")
    topics, groups = _rights_given(given.topic_permissions), _rights_given(given.group_permissions)
    patterns = given.white_remote_address or ""
    try:
        white = WhiteList([patterns])
    except ValueError as problem:
        raise ValueError(f"Netaddress examine scope Exception netaddress is {patterns}: {problem}") from None
    return Account(
        key,
        secret,
        white,
        given.is_admin,
        _WORDS.get((given.default_topic_permission or "").strip(), _DENY),
        _WORDS.get((given.default_group_permission or "").strip(), _DENY),
        topics,
        groups,
    )


def _rights_given(text: str | None) -> dict[str, int]:
    rights: dict[str, int] = {}
    for each in (text or "").split(","):
        try:
            name, right = parse_right(each) if each.strip() else ("", 0)
        except ValueError:
            shape = "The expected resource format is 'Res=Perm'. For example: topicA=SUB"
            raise ValueError(f"Parse Resource format error for {each}.\n{shape}") from None
        rights |= {name: right} if name else {}
    return rights


def _yaml() -> Any:
    """PyYAML, which only who reads or writes such files needs."""
    try:
        import yaml
    except ImportError:
        why = "account files are YAML, and PyYAML is not installed: pip install 'bolide[acl]'"
        raise ConfigError("aclEnable", True, why) from None
    return yaml
