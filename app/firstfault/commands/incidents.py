"""`firstfault incidents`: what is on record."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import click


@click.command(
    "incidents",
    epilog="Examples: firstfault incidents 'mlx5 gpu-17'; firstfault postmortem ID -o report.docx",
)
@click.argument("query", default="")
@click.option("--all", "everything", is_flag=True, help="Archived ones too.")
@click.option("--limit", default=30, show_default=True, type=click.IntRange(1, 500))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.option("--delete", "doomed", metavar="ID", help="Delete one for good, evidence included.")
@click.option("--yes", is_flag=True, help="Do not ask before deleting.")
def COMMAND(
    query: str, everything: bool, limit: int, as_json: bool, doomed: str | None, yes: bool
) -> None:
    """List incidents that hold every word of QUERY, last changed first."""
    from firstfault.errors import UsageError
    from firstfault.incidents.plain import to_plain
    from firstfault.plain_text import show_line, write_json
    from firstfault.service import open_service

    with open_service(workers=False) as service:
        if doomed is not None:
            title = service.incident(doomed).title
            if not yes:
                if not sys.stdin.isatty():
                    raise UsageError("deleting needs --yes where nobody can be asked")
                click.confirm(f"Delete {title!r} for good?", abort=True)
            click.echo(f"deleted, with {service.delete(doomed)} stored file(s)", err=True)
            return
        found = service.incidents(query, None if everything else False, limit)
    if as_json:
        click.echo(write_json([to_plain(i) for i in found]))
        return
    if not found:
        click.echo("No incident matches." if query else "No incidents yet.")
    for incident in found:
        day = datetime.fromtimestamp(incident.updated, UTC).strftime("%Y-%m-%d %H:%MZ")
        verdict = incident.verdict.value if incident.verdict else incident.state.value
        click.echo(show_line(f"{incident.id}  {day}  {verdict:<8} {incident.title}"))
