"""`bolide doctor`: what is wrong with a cluster, why it matters, and what to do."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from click.exceptions import Exit

from bolide.cli.commands import Option
from bolide.cli.connection import name_servers
from bolide.cli.exits import plain_errors
from bolide.cli.forms import printable
from bolide.cli.output import Format, Namesrv, Output, show

if TYPE_CHECKING:
    from bolide.admin.doctor.findings import Finding

_NOTHING: dict[str, object] = dict.fromkeys(("number", "severity", "seen", "why", "fix", "page"), "")


def doctor(
    namesrv: Namesrv = None,
    topic: Annotated[str | None, Option(help="look at this topic alone")] = None,
    group: Annotated[str | None, Option(help="look at this group alone")] = None,
    store: Annotated[Path | None, Option(help="look at this machine too, for the store in this directory")] = None,
    send: Annotated[bool, Option(help="send one message to each master, to its topic BenchmarkTest")] = False,
    output: Format = Output.TABLE,
) -> None:
    """What is wrong with a cluster, and what to do.

    Exit code 0: nothing, 1: warnings, 2: errors, 3: not all of it could be looked at.
    """
    import asyncio

    from bolide.admin.doctor.checks import examine, exit_code
    from bolide.admin.doctor.gather import Doctor
    from bolide.admin.rows import finding_cells

    with plain_errors():
        facts = asyncio.run(Doctor(name_servers(namesrv), tries_defaults=True, sends=send).gather(topic, group, store))
    findings = examine(facts)
    if output is Output.TABLE:
        _tell(findings, facts.unseen)
    else:
        rows = [finding_cells(finding) for finding in findings]
        unseen = [{**_NOTHING, "severity": "unseen", "seen": text} for text in facts.unseen]
        show([*rows, *unseen], output, empty="nothing is wrong")
    code = exit_code(findings, facts.unseen)
    if code:
        raise Exit(code)


def _tell(findings: "list[Finding]", unseen: tuple[str, ...]) -> None:
    for finding in findings:
        click.echo(printable(f"{finding.number} {finding.severity.value}: {finding.seen}"))
        click.echo(printable(f"    why: {finding.why}"))
        if finding.fix:
            click.echo(printable(f"    fix: {finding.fix}"))
    for text in unseen:
        click.echo(printable(f"not looked at: {text}"))
    if not findings and not unseen:
        click.echo("nothing is wrong")
