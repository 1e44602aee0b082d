"""`bolide user`: who may ask at all. Every broker keeps its own table, so a change goes to each of them."""

from typing import TYPE_CHECKING, Annotated

import click

from bolide.admin.rows import user_rows
from bolide.cli.accounts import (
    Generate,
    PasswordFile,
    Source,
    Targets,
    ask_guarded,
    copy_rights,
    copy_targets,
    new_secret,
    warn_of_differences,
)
from bolide.cli.commands import Argument, Commands, Option
from bolide.cli.forms import json_text, printable
from bolide.cli.output import Format, Namesrv, Output, show

if TYPE_CHECKING:
    from bolide.admin.admin import Admin
    from bolide.protocol.bodies.access import User

app = Commands("Users: list, create, delete, password, copy.")
Name = Annotated[str, Argument(help="the user")]
At = Annotated[
    str | None,
    Option("--at", metavar="HOST:PORT", help="one server alone: a broker, or a name server or controller that checks"),
]


@app.add("list")
def list_(
    text: Annotated[str, Argument(help="only those with this in their name")] = "",
    at: At = None,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """All users, and the brokers that know them."""
    found = ask_guarded(namesrv, lambda admin: admin.users(text, address=at))
    rows = user_rows(found)
    show(rows, output, empty="no such user")
    warn_of_differences(found, rows, "user")


@app.add()
def create(
    name: Name,
    is_super: Annotated[bool, Option("--super", help="may do everything, and needs no policies")] = False,
    password_file: PasswordFile = None,
    is_generated: Generate = False,
    at: At = None,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Make a user on every broker; what it may do is granted with `bolide acl grant`."""
    from bolide.admin.access import NORMAL, SUPER

    secret = new_secret(password_file, is_generated=is_generated)
    kind = SUPER if is_super else NORMAL
    brokers = ask_guarded(namesrv, lambda admin: admin.create_user(name, secret, user_type=kind, address=at))
    _tell(f"user {name} is known", brokers, {"user": name, "type": kind}, output, secret if is_generated else None)


@app.add()
def password(
    name: Name,
    password_file: PasswordFile = None,
    is_generated: Generate = False,
    at: At = None,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Give a user another secret."""
    secret = new_secret(password_file, is_generated=is_generated)
    brokers = ask_guarded(namesrv, lambda admin: admin.update_user(name, password=secret, address=at))
    _tell(f"user {name} has a new secret", brokers, {"user": name}, output, secret if is_generated else None)


@app.add()
def delete(
    name: Name,
    is_sure: Annotated[bool, Option("-y", "--yes", help="do not ask")] = False,
    at: At = None,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Delete a user and its policies on every broker."""
    if not is_sure:
        click.confirm(f"Delete user {printable(name)} and all it may do?", abort=True)
    brokers = ask_guarded(namesrv, lambda admin: admin.delete_user(name, address=at))
    _tell(f"user {name} is deleted", brokers, {"user": name}, output)


@app.add()
def copy(
    names: Annotated[list[str] | None, Argument(help="which users; without any, all")] = None,
    source: Source = "",
    targets: Targets = None,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Copy users and what they may do from one broker to others.

    Apache's brokers tell passwords; ours tell none, so you are asked for those that are not known there yet. Slaves of
    ours follow their masters by themselves.
    """
    if not source:
        raise click.UsageError("--from says which broker, as `bolide cluster` shows it")
    users, known = ask_guarded(namesrv, lambda admin: _differing(admin, source, targets))
    wanted = [user for user in users if not names or user.username in names]
    given = [
        _with_secret(user) if any(user.username not in there for there in known.values()) else user for user in wanted
    ]
    rows = ask_guarded(namesrv, lambda admin: _copied(admin, given, source, known))
    show(rows, output, empty=f"{source} has no such user")


async def _differing(
    admin: "Admin", source: str, targets: list[str] | None
) -> "tuple[list[User], dict[str, set[str | None]]]":
    """The users of one broker, and the names that each of the others knows."""
    (users,) = (await admin.users(address=source)).values()
    known = {}
    for target in await copy_targets(admin, source, targets):
        (there,) = (await admin.users(address=target)).values()
        known[target] = {user.username for user in there}
    return users, known


def _with_secret(user: "User") -> "User":
    if user.password:
        return user
    from bolide.protocol.bodies.access import User

    click.echo(f"the secret of {printable(user.username or '')} is not told:", err=True)
    secret = new_secret(None, is_generated=False)
    return User(username=user.username, password=secret, user_type=user.user_type, user_status=user.user_status)


async def _copied(
    admin: "Admin", users: "list[User]", source: str, known: dict[str, set[str | None]]
) -> list[dict[str, object]]:
    from bolide.admin.access import NORMAL

    rows: list[dict[str, object]] = []
    for target, names in known.items():
        for user in users:
            name = user.username or ""
            if name in names:
                kept = {"user_type": user.user_type, "user_status": user.user_status}
                await admin.update_user(name, password=user.password or None, address=target, **kept)
            else:
                await admin.create_user(name, user.password or "", user_type=user.user_type or NORMAL, address=target)
            entry_count = await copy_rights(admin, name, source, target)
            rows.append({"user": name, "to": target, "was_there": name in names, "entries": entry_count})
    return rows


def _tell(sentence: str, brokers: list[str], row: dict[str, object], output: Output, secret: str | None = None) -> None:
    """What was done, and where; a secret that was made is shown this once."""
    if output is Output.JSON:
        click.echo(json_text({**row, "brokers": brokers, **({"secret": secret} if secret else {})}))
        return
    click.echo(printable(f"{sentence} on {', '.join(brokers)}"))
    if secret:
        click.echo(f"its secret, shown this once: {secret}")
