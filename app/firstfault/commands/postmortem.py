"""`firstfault postmortem`: the post-mortem of an incident as a file."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click


def _time(_context: click.Context, _option: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is no ISO time, such as 2026-03-10T02:47:00Z"
        ) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@click.command(
    "postmortem",
    epilog="Example: firstfault postmortem nV7kQw3xTfRr8pLmZ2sYcB -o report.docx --price 4 --gpus 256",
)
@click.argument("incident")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File; its suffix chooses the format: .md, .html, .docx or .pdf. Without: Markdown on standard output.",
)
@click.option("--gpus", type=click.IntRange(1), help="Number of GPUs of the job.")
@click.option("--price", type=click.FloatRange(0), help="Price of a GPU-hour.")
@click.option("--currency", default="$", show_default=True, help="Sign before amounts.")
@click.option("--start", callback=_time, help="When it began (ISO; UTC where no zone is given).")
@click.option("--end", callback=_time, help="When useful work went on.")
def COMMAND(
    incident: str,
    output: Path | None,
    gpus: int | None,
    price: float | None,
    currency: str,
    start: float | None,
    end: float | None,
) -> None:
    """Write the post-mortem of INCIDENT (the id in the page's address)."""
    from firstfault.errors import UsageError
    from firstfault.postmortem.impact import GivenFigures
    from firstfault.postmortem.rendering import ReportFormat, format_of
    from firstfault.service import open_service

    form = format_of(output) if output is not None else ReportFormat.MARKDOWN
    figures = GivenFigures(gpus, price, currency, start, end)
    with open_service(workers=False) as service:
        content = service.export(incident, form.value, figures)
    if output is None:
        sys.stdout.buffer.write(content)
        return
    try:
        output.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{output}: cannot be written ({error.strerror})") from error
    click.echo(f"wrote {output}", err=True)
