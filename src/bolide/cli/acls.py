"""`bolide acl`: what users may do with topics, groups and the cluster; and why, for one of them."""

from typing import TYPE_CHECKING, Annotated

import click
from click.exceptions import Exit

from bolide.admin.rows import acl_rows, entry_cells
from bolide.cli.accounts import Source, Targets, ask_guarded, copy_rights, copy_targets, warn_of_differences
from bolide.cli.commands import Argument, Commands, Option
from bolide.cli.forms import json_text, printable
from bolide.cli.output import Format, Namesrv, Output, show

if TYPE_CHECKING:
    from bolide.admin.admin import Admin
    from bolide.protocol.bodies.access import AclEntry

app = Commands("Rights: list, grant, revoke, check, copy.")
User = Annotated[str, Argument(help="the user")]
NO = 1


@app.add("list")
def list_(
    user: Annotated[str, Argument(help="only of users with this in their name")] = "",
    resource: Annotated[str, Option(help="only on resources with this in their name")] = "",
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """What users may do, and the brokers that say so."""
    found = ask_guarded(namesrv, lambda admin: admin.acls(user, resource))
    rows = acl_rows(found)
    show(rows, output, empty="nobody was granted anything; `bolide acl grant USER ACTIONS RESOURCE` does")
    warn_of_differences(found, rows, "acl")


def _line(entry: "AclEntry") -> str:
    resource, actions, decision, sources = entry_cells(entry)
    return f"{decision} {actions} {resource}" + ("" if sources == "anywhere" else f" from {sources}")


@app.add()
def grant(
    user: User,
    actions: Annotated[str, Argument(help="Pub, Sub, Create, Update, Delete, Get, List or All; several as Pub,Sub")],
    resources: Annotated[
        list[str], Argument(help="Topic:name, Group:name, Cluster:name; `*` at the end: all that begin so")
    ],
    is_denied: Annotated[bool, Option("--deny", help="deny it instead")] = False,
    sources: Annotated[
        list[str] | None, Option("--from", metavar="ADDRESS", help="only from this address or network; may be repeated")
    ] = None,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Let a user do something. What it had for the same resource is replaced."""
    from bolide.admin.access import ALLOW, DENY

    words = [word.strip() for word in actions.split(",") if word.strip()]
    decision = DENY if is_denied else ALLOW
    brokers = ask_guarded(
        namesrv,
        lambda admin: admin.grant(f"User:{user}", resources, words, decision=decision, source_ips=sources or ()),
    )
    row = {"user": user, "actions": words, "resources": resources, "decision": decision, "brokers": brokers}
    if output is Output.JSON:
        click.echo(json_text(row))
    else:
        verb = "may not" if is_denied else "may"
        done = f"{user} {verb} {', '.join(words)} {', '.join(resources)} on {', '.join(brokers)}"
        click.echo(printable(done))


@app.add()
def revoke(
    user: User,
    resource: Annotated[str | None, Argument(help="the resource as it was granted; without it, all")] = None,
    is_sure: Annotated[bool, Option("-y", "--yes", help="do not ask")] = False,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Take back what a user was granted for a resource, or everything."""
    if resource is None and not is_sure:
        click.confirm(f"Take back everything that {printable(user)} may do?", abort=True)
    brokers = ask_guarded(namesrv, lambda admin: admin.revoke(f"User:{user}", resource))
    if output is Output.JSON:
        click.echo(json_text({"user": user, "resource": resource, "brokers": brokers}))
    else:
        click.echo(printable(f"{user} has nothing for {resource or 'any resource'} on {', '.join(brokers)} now"))


@app.add()
def copy(
    users: Annotated[list[str] | None, Argument(help="whose rights; without any, everybody's")] = None,
    source: Source = "",
    targets: Targets = None,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Copy what users may do from one broker to others that know them; `bolide user copy` brings the users too."""
    if not source:
        raise click.UsageError("--from says which broker, as `bolide cluster` shows it")
    show(ask_guarded(namesrv, lambda admin: _copied(admin, users, source, targets)), output, empty="nothing to copy")


async def _copied(
    admin: "Admin", users: list[str] | None, source: str, targets: list[str] | None
) -> list[dict[str, object]]:
    (found,) = (await admin.acls(address=source)).values()
    names = [name for acl in found if (name := (acl.subject or "").removeprefix("User:")) in (users or [name])]
    return [
        {"user": name, "to": target, "entries": await copy_rights(admin, name, source, target)}
        for target in await copy_targets(admin, source, targets)
        for name in names
    ]


@app.add()
def check(
    user: User,
    action: Annotated[str, Argument(help="Pub, Sub, Create, Update, Delete, Get or List")],
    resource: Annotated[str, Argument(help="Topic:name, Group:name or Cluster:name")],
    host: Annotated[str, Option("--from", metavar="ADDRESS", help="where the request comes from")] = "127.0.0.1",
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Say whether a user may do something, which entry decides, and why. Ends with 1 where a broker says no."""
    verdicts = ask_guarded(namesrv, lambda admin: admin.check_right(user, action, resource, host))
    rows = [
        {
            "broker": verdict.broker,
            "allowed": "yes" if verdict.is_allowed else "no",
            "why": verdict.why,
            "entry": "" if verdict.entry is None else _line(verdict.entry),
            "also_fit": "; ".join(map(_line, verdict.others)),
        }
        for verdict in verdicts
    ]
    show(rows, output, empty="no broker answered")
    if not all(verdict.is_allowed for verdict in verdicts):
        raise Exit(NO)
