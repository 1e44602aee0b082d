"""Users and what they may do (5.3 and later), and the accounts of 4.x.

Lists of users and policies travel as bare arrays: `encode_list`, `decode_list`.

| here | RocketMQ |
|---|---|
| `User` | UserInfo |
| `Acl`, `AclPolicy`, `AclEntry` | AclInfo, PolicyInfo, PolicyEntryInfo |
| `Accounts`, `Account` | AclConfig, PlainAccessConfig |
"""

from bolide.protocol.bodies.body import Body, always


class User(Body, frozen=True, kw_only=True, gc=False):
    """A user; what an update does not name stays as it is. user_type is Super or Normal."""

    rocketmq_name = "UserInfo"

    password: str | None = None
    user_status: str | None = None
    user_type: str | None = None
    username: str | None = None

    def __repr__(self) -> str:
        return f"User(username={self.username!r}, user_type={self.user_type!r}, user_status={self.user_status!r})"


class AclEntry(Body, frozen=True, kw_only=True):
    """Allow or deny some actions on a resource (`Topic:T1`, `Group:*`), from some addresses."""

    rocketmq_name = "PolicyEntryInfo"

    actions: list[str] = always([])
    decision: str | None = None
    resource: str | None = None
    source_ips: list[str] | None = None


class AclPolicy(Body, frozen=True, kw_only=True):
    """The entries of one kind of policy: Custom or Default."""

    rocketmq_name = "PolicyInfo"

    entries: list[AclEntry] = always([])
    policy_type: str | None = None


class Acl(Body, frozen=True, kw_only=True):
    """All policies of a subject (`User:name`)."""

    rocketmq_name = "AclInfo"

    policies: list[AclPolicy] = always([])
    subject: str | None = None


class Account(Body, frozen=True, kw_only=True):
    """An account of 4.x; its permissions are texts, `name=PUB|SUB`."""

    rocketmq_name = "PlainAccessConfig"

    access_key: str | None = None
    admin: bool = always(False)
    default_group_perm: str | None = None
    default_topic_perm: str | None = None
    group_perms: list[str] | None = None
    secret_key: str | None = None
    topic_perms: list[str] | None = None
    white_remote_address: str | None = None

    def __repr__(self) -> str:
        return f"Account(access_key={self.access_key!r}, admin={self.admin!r})"


class Accounts(Body, frozen=True, kw_only=True):
    """All accounts of a broker, and the addresses that need none."""

    rocketmq_name = "AclConfig"

    global_white_addrs: list[str] = always([])
    plain_access_configs: list[Account] = always([])
