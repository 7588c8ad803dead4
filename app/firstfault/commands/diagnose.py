"""`firstfault diagnose`: logs and artefacts in, first fault out."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from firstfault.agent.endpoint import is_configured
from firstfault.errors import CannotAnalyse, UsageError
from firstfault.intake.collect import Collection, collect_paths, collect_stream
from firstfault.paths import data_folder
from firstfault.plain_text import show_text, write_json
from firstfault.workspace import Workspace
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Verdict
from firstfault_tools.log.executors import Workers

if TYPE_CHECKING:
    from firstfault.agent.enrich import Enriched
    from firstfault.agent.model import EndpointModel
    from firstfault.investigation.diagnosis import Diagnosis

_ADDRESS_OR_GLOB = expression(r"://|[*?\[]")

EXIT_CODES = {Verdict.HEALTHY: 0, Verdict.FAULT: 1, Verdict.WARNING: 1, Verdict.UNKNOWN: 4}


@click.command(
    "diagnose", epilog="Several files are one incident. '-' or no path reads standard input."
)
@click.argument("paths", nargs=-1, type=click.Path())
@click.option(
    "--question", default="", help="What you want to know; helps where the log is unclear."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object (firstfault.diagnosis/1)."
)
@click.option("--no-llm", is_flag=True, help="Never ask a model, even if one is configured.")
@click.option(
    "--show-prompt",
    is_flag=True,
    help="Print exactly what a model would be sent, and send nothing.",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write a report: .md, .html, .docx or .pdf.",
)
@click.option(
    "--jobs",
    type=click.IntRange(0, 256),
    default=0,
    help="Processes that scan large logs; 0 chooses by size.",
)
@click.option("--cluster", help="Scan on a Dask cluster, e.g. tcp://scheduler:8786.")
def COMMAND(
    paths: tuple[str, ...],
    question: str,
    as_json: bool,
    no_llm: bool,
    show_prompt: bool,
    report: Path | None,
    jobs: int,
    cluster: str | None,
) -> None:
    """Find the first fault in logs and artefacts of one incident."""
    if not paths and sys.stdin.isatty():
        raise click.UsageError("name a log file or folder, or pipe a log in with '-'")
    if any(not path.strip() for path in paths):
        raise click.UsageError("a path is empty; is a variable of your shell unset?")
    if "-" in paths and paths != ("-",):
        raise click.UsageError(
            "'-' cannot be mixed with files; save the pasted part to a file first"
        )
    if report is not None:
        _check_report(report)
    # nothing goes on record here, so nothing that was piped or unpacked may stay behind
    with _open_spool() as spool:
        workspace = Workspace(spool=spool)
        if not paths or paths == ("-",):
            collection = collect_stream("stdin", sys.stdin.buffer, spool)
        else:
            collection = _collect(paths, spool, cluster is not None)
        verdict = _answer(
            workspace, collection, question, Workers(jobs, cluster), as_json, no_llm, show_prompt,
            report,
        )  # fmt: skip
    if verdict is not None:
        sys.exit(EXIT_CODES[verdict])


def _answer(
    workspace: Workspace, collection: Collection, question: str, workers: Workers, as_json: bool,
    no_llm: bool, show_prompt: bool, report: Path | None,
) -> Verdict | None:  # fmt: skip
    try:
        diagnosis = workspace.diagnose_collection(collection, question, workers)
    except InvalidParameter as error:
        raise UsageError(f"--{error}") from error
    artefacts = {a.name: a.path for a in collection.artefacts}
    if show_prompt:
        _show_prompt(workspace, diagnosis, artefacts, question)
        return None
    ask = not no_llm and is_configured()
    if as_json:
        if ask:
            diagnosis = _ask_model(workspace, diagnosis, artefacts, question).diagnosis
        click.echo(write_json(diagnosis.to_json()))
    else:
        from firstfault.ui.terminal import render

        render(diagnosis)
        if ask:
            sys.stdout.flush()
            enriched = _ask_model(workspace, diagnosis, artefacts, question)
            diagnosis = enriched.diagnosis
            click.echo(show_text(say_enriched(enriched)))
    if report is not None:
        from firstfault.postmortem.summary import write_summary

        write_summary(diagnosis, report, artefacts)
    return diagnosis.verdict


@contextmanager
def _open_spool() -> Iterator[Path]:
    """A folder that lives as long as the command: in the data folder, or where that is closed."""
    place: Path | None = data_folder()
    try:
        data_folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        if not os.access(data_folder(), os.W_OK):
            place = None
    except OSError:
        place = None
    try:
        spool = tempfile.TemporaryDirectory(
            prefix="diagnose-", dir=place, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise CannotAnalyse(
            f"no folder can be written ({error}); set FIRSTFAULT_DATA to one that can"
        ) from error
    with spool as folder, _end_cleanly():
        yield Path(folder)


@contextmanager
def _end_cleanly() -> Iterator[None]:
    """A scheduler's SIGTERM ends the command like Ctrl+C does: what was spooled is removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_report(report: Path) -> None:
    """Say before the work what would only fail after it."""
    from firstfault.postmortem.rendering import format_of

    if report.suffix:
        format_of(report)
    if not report.absolute().parent.is_dir():
        raise UsageError(f"{report}: there is no folder {report.absolute().parent}")


def _model() -> EndpointModel:
    from firstfault.agent.endpoint import read_endpoint
    from firstfault.agent.model import EndpointModel
    from firstfault.settings import Settings

    endpoint = read_endpoint(Settings())  # type: ignore[call-arg]
    if endpoint is None:
        raise UsageError("no model is configured: set FIRSTFAULT_MODEL, and a key or an address")
    return EndpointModel(endpoint)


def _ask_model(
    workspace: Workspace, diagnosis: Diagnosis, artefacts: Mapping[str, Path], question: str
) -> Enriched:
    from firstfault.agent.enrich import enrich, make_question

    def show(text: str) -> None:
        if sys.stderr.isatty():
            click.echo(text, err=True)

    asked = make_question(diagnosis, artefacts, workspace.knowledge, question)
    return enrich(asked, _model(), show=show)


def _collect(paths: tuple[str, ...], spool: Path, in_place: bool) -> Collection:
    if not any(_ADDRESS_OR_GLOB.search(p) for p in paths):
        return collect_paths([Path(p) for p in paths], spool)
    from firstfault.intake.remote import collect_sources

    return collect_sources(paths, spool, in_place)


def _show_prompt(
    workspace: Workspace, diagnosis: Diagnosis, artefacts: Mapping[str, Path], question: str
) -> None:
    from firstfault.agent.enrich import make_question, preview

    asked = make_question(diagnosis, artefacts, workspace.knowledge, question)
    click.echo(write_json(preview(asked, _model()).to_json()))


def say_enriched(enriched: Enriched) -> str:
    """What the model adds, apart from the deterministic answer and marked as such."""
    if enriched.problem:
        return f"Model: deterministic answer only ({enriched.problem})"
    rows = [enriched.text or "The model added nothing that the evidence says."]
    rows += [
        f"  [{c.n}] {c.file}:{c.line} {c.quote[:160]}" if c.file else f"  [{c.n}] page {c.page}"
        for c in enriched.citations
    ]
    if enriched.removed:
        rows.append(f"({enriched.removed})")
    return (
        "Worded by the model, checked against the evidence; the verdict above stands:\n"
        + "\n".join(rows)
    )
