"""What `bolide user` and `bolide acl` share: a cluster that checks who asks, and secrets that nobody sees."""

import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import click

from bolide.admin.rows import lacking
from bolide.cli.commands import Option
from bolide.cli.exits import fail
from bolide.cli.forms import printable
from bolide.cli.output import ask
from bolide.errors import ClientError

if TYPE_CHECKING:
    from bolide.admin.admin import Admin

T = TypeVar("T")
_OFF = (
    "access control is off: brokers of this cluster answer anybody. `bolide up --secure` starts one that does not; at "
    "a broker set authenticationEnabled=true, authorizationEnabled=true and initAuthenticationUser (docs/security.md)"
)
_OLD = (
    "this cluster has accounts in files (ACL 1.0, aclEnable) and no users: change plain_acl.yml, or use "
    "Admin.set_account from Python or `mqadmin updateAclConfig`; migrateAuthFromV1Enabled=true makes users of them"
)
_NAMED_MAX = 10
Source = Annotated[str, Option("--from", metavar="HOST:PORT", help="the broker that has them")]
Targets = Annotated[
    list[str] | None,
    Option(
        "--to", metavar="HOST:PORT", help="the broker that is to have them; may be repeated; without it, all others"
    ),
]
PasswordFile = Annotated[
    Path | None, Option("--password-file", metavar="FILE", help="where the new secret is; without it you are asked")
]
Generate = Annotated[bool, Option("--generate", help="make a random secret and print it, once")]


def new_secret(file: Path | None, *, is_generated: bool) -> str:
    """The secret that a user is to have."""
    if is_generated:
        from bolide.cli.secure import generated_secret

        return generated_secret()
    if file is not None:
        from bolide.client.profiles import read_secret

        return read_secret(file)
    if sys.stdin.isatty():
        return str(click.prompt("New secret", hide_input=True, confirmation_prompt=True))
    line = sys.stdin.readline().rstrip("\r\n")
    if not line:
        fail("standard input ends where the new secret was to come; give it there, with --password-file or --generate")
    return line


def warn_of_differences(brokers: Iterable[str], rows: Iterable[Mapping[str, str]], what: str) -> None:
    """Name the brokers that do not have what others have: who may enter here may not enter there."""
    for broker, users in lacking(brokers, rows).items():
        names = ", ".join(users[:_NAMED_MAX]) + (", ..." if len(users) > _NAMED_MAX else "")
        advice = f"`bolide {what} copy --from HOST:PORT` brings the others what one broker has"
        click.echo(printable(f"{broker} differs from other brokers in {names}; {advice}"), err=True)


async def copy_targets(admin: "Admin", source: str, given: list[str] | None) -> list[str]:
    """The addresses to copy to: those that are given, or all brokers but the one that is copied."""
    places = given or [place for place in (await admin.broker_places()).values() if place != source]
    if not places:
        raise ClientError("there is no other broker in this cluster; --to names one of another")
    return places


async def copy_rights(admin: "Admin", name: str, source: str, target: str) -> int:
    """Have a user's rights at one broker at another too; how many entries these are."""
    acl = await admin.acl(f"User:{name}", address=source)
    if acl is None:
        return 0
    await admin.put_acl(acl, address=target)
    return sum(len(policy.entries) for policy in acl.policies)


def ask_guarded(namesrv: str | None, question: Callable[["Admin"], Coroutine[Any, Any, T]]) -> T:
    """Ask a cluster that checks who asks; one that does not is told how to begin."""
    from bolide.protocol.codes import ResponseCode

    async def asking(admin: "Admin") -> T:
        if not await admin.is_access_checked():
            raise ClientError(_OFF)
        try:
            return await question(admin)
        except ClientError as problem:
            if problem.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise ClientError(_OLD, problem.code) from problem
            raise

    return ask(namesrv, asking)
