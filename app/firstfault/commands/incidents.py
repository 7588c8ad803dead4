"""`firstfault incidents`: what is on record, and what precedes what?"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from firstfault.incidents.correlation import (
    correlate_events,
    correlate_incidents,
    write_correlation,
)

MAX_CORRELATED = 500


@click.command(
    "incidents",
    epilog="Examples: firstfault incidents 'mlx5 gpu-17'; firstfault postmortem ID -o report.docx",
)
@click.argument("query", default="")
@click.option("--all", "everything", is_flag=True, help="Archived ones too.")
@click.option("--limit", default=30, show_default=True, type=click.IntRange(1, 500))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.option("--delete", "doomed", metavar="ID", help="Delete one for good, evidence included.")
@click.option(
    "--correlate", is_flag=True, help="Which warnings precede faults, and when do faults come?"
)
@click.option("--window-h", default=24.0, show_default=True, type=click.FloatRange(0.01, 8760))
@click.option(
    "--events",
    type=click.Path(exists=True, dir_okay=False),
    help="Of a run's own event log instead (JSON lines: event_type, timestamp).",
)
@click.option(
    "--window-s",
    default=300.0,
    show_default=True,
    type=click.FloatRange(1, 31_536_000),
    help="How long after an event a failure counts, with --events.",
)
@click.option("--yes", is_flag=True, help="Do not ask before deleting.")
def COMMAND(
    query: str,
    everything: bool,
    limit: int,
    as_json: bool,
    doomed: str | None,
    correlate: bool,
    window_h: float,
    events: str | None,
    window_s: float,
    yes: bool,
) -> None:
    """List incidents that hold every word of QUERY, last changed first."""
    from firstfault.errors import UsageError
    from firstfault.incidents.plain import to_plain
    from firstfault.plain_text import show_line, show_text, write_json
    from firstfault.service import open_service

    if events is not None:
        text = Path(events).read_text(encoding="utf-8", errors="replace")
        click.echo(show_text(write_correlation(correlate_events(text, events, window_s), as_json)))
        return
    with open_service(workers=False) as service:
        if doomed is not None:
            title = service.incident(doomed).title
            if not yes:
                if not sys.stdin.isatty():
                    raise UsageError("deleting needs --yes where nobody can be asked")
                click.confirm(f"Delete {title!r} for good?", abort=True)
            click.echo(f"deleted, with {service.delete(doomed)} stored file(s)", err=True)
            return
        if correlate:
            # Resolved incidents are archived, and a pattern needs them all.
            past = service.incidents(query, None, MAX_CORRELATED)
            click.echo(write_correlation(correlate_incidents(past, window_h), as_json))
            return
        found = service.incidents(query, None if everything else False, limit)
    if as_json:
        click.echo(write_json([to_plain(i) for i in found]))
        return
    if not found:
        none = "No incidents yet: `firstfault chat` puts them on record, `firstfault diagnose` does not."
        click.echo("No incident matches." if query else none)
    for incident in found:
        day = datetime.fromtimestamp(incident.updated, UTC).strftime("%Y-%m-%d %H:%MZ")
        verdict = incident.verdict.value if incident.verdict else incident.state.value
        click.echo(show_line(f"{incident.id}  {day}  {verdict:<8} {incident.title}"))
