"""`firstfault diagnose`: logs and artefacts in, first fault out."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from firstfault.agent.endpoint import is_configured
from firstfault.errors import CannotAnalyse, FirstfaultError, InputUnreadable, UsageError
from firstfault.intake.collect import Collection, collect_paths, collect_stream
from firstfault.investigation.next_action import describe_answer
from firstfault.paths import data_folder
from firstfault.plain_text import show_answer, show_text, write_json
from firstfault.workspace import Workspace
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Verdict
from firstfault_tools.log.executors import Workers

if TYPE_CHECKING:
    from firstfault.agent.enrich import Enriched
    from firstfault.agent.model import EndpointModel
    from firstfault.investigation.diagnosis import Diagnosis

MAX_LEAD = 4_000
"""Bytes at the start of a piped log in which a question is looked for."""
_ADDRESS_OR_GLOB = expression(r"://|[*?\[]")

FRESH_SECONDS = 60.0
"""Age from which on a folder that nobody has locked was left behind."""

MODEL_THREAD = "waits-for-the-model"

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
    "--why",
    is_flag=True,
    help="Print how the judge decided: the explanations, their order and every rule that held (with --json: firstfault.why/1).",
)
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
    why: bool,
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
            asked, alone = _read_lead(collection)
            if alone and not question and not as_json:
                _answer_question(workspace, asked)
                return
            question = question or asked
        else:
            collection = _collect(paths, spool, cluster is not None)
        if why:
            decided = _explain(workspace, collection, question, Workers(jobs, cluster), as_json)
            _leave(EXIT_CODES[decided])
        verdict = _answer(
            workspace, collection, question, Workers(jobs, cluster), as_json, no_llm, show_prompt,
            report,
        )  # fmt: skip
    if verdict is not None:
        _leave(EXIT_CODES[verdict])


def _leave(code: int) -> None:
    """End with this code, without waiting for a model that still has not answered."""
    if any(t.name == MODEL_THREAD for t in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _read_lead(collection: Collection) -> tuple[str, bool]:
    """The question that stands above a piped log, and whether there is nothing but the question."""
    from firstfault.intake.message import is_statement, split_message

    if len(collection.artefacts) != 1:
        return "", False
    data = collection.artefacts[0].data(MAX_LEAD + 1)
    split = split_message(data[:MAX_LEAD].decode("utf-8", errors="replace"))
    if split.log or len(data) > MAX_LEAD:
        return split.question if split.log else "", False
    # a line that asks nothing may be one message of a log, without its marks
    return ("", False) if is_statement(split.question) else (split.question, True)


def _answer_question(workspace: Workspace, text: str) -> None:
    """A question without a log is answered as `firstfault ask` does."""
    from firstfault.conversation.rules import answer_once
    from firstfault.conversation.written import write_answer

    click.echo(show_answer(write_answer(answer_once(text, None, workspace.knowledge))))


def _explain(
    workspace: Workspace, collection: Collection, question: str, workers: Workers, as_json: bool
) -> Verdict:
    """How the judge decided, without a model."""
    from firstfault.investigation.why import write_why

    diagnosis, why = workspace.explain_collection(collection, question, workers)
    if as_json:
        click.echo(write_json(why.to_json()))
    else:
        click.echo(show_text(f"{diagnosis.root_cause}\n\n{write_why(why)}"))
    return diagnosis.verdict


def _answer(
    workspace: Workspace, collection: Collection, question: str, workers: Workers, as_json: bool,
    no_llm: bool, show_prompt: bool, report: Path | None,
) -> Verdict | None:  # fmt: skip
    try:
        diagnosis = workspace.diagnose_collection(collection, question, workers)
    except InvalidParameter as error:
        raise UsageError(f"--{error}") from error
    _refuse_unreadable(diagnosis)
    artefacts = {a.name: a.path for a in collection.artefacts}
    if show_prompt:
        _show_prompt(workspace, diagnosis, artefacts, question)
        return None
    ask = not no_llm and is_configured()
    if as_json:
        if ask:
            try:
                diagnosis = _wait_for_model(workspace, diagnosis, artefacts, question)
            except (KeyboardInterrupt, SystemExit):
                # whoever waits no longer for the model still gets the verdict that was there before it
                click.echo(write_json(describe_answer(diagnosis, workspace.knowledge.pages)))
                raise
        click.echo(write_json(describe_answer(diagnosis, workspace.knowledge.pages)))
    else:
        from firstfault.ui.terminal import render

        render(diagnosis, pages=workspace.knowledge.pages, question=question)
        _answer_asked(workspace, diagnosis, artefacts, question)
        if ask:
            sys.stdout.flush()
            enriched = _ask_model(workspace, diagnosis, artefacts, question)
            diagnosis = enriched.diagnosis
            click.echo(show_text(say_enriched(enriched)))
    if report is not None:
        from firstfault.postmortem.summary import write_summary

        write_summary(diagnosis, report, artefacts)
    # a script acts on the exit code: "healthy" that the tools do not bear out is not told to it
    unproven = diagnosis.verdict is Verdict.HEALTHY and diagnosis.disputed
    return Verdict.UNKNOWN if unproven else diagnosis.verdict


def _refuse_unreadable(diagnosis: Diagnosis) -> None:
    """Say that nothing could be read, where all that was given is binary and no dump."""
    got = diagnosis.input
    unread = [s.what for s in got.skipped if "binary content" in s.why]
    if (
        diagnosis.verdict is Verdict.UNKNOWN
        and not got.lines_total
        and set(got.files) <= set(unread)
    ):
        names = ", ".join(unread[:3]) + (f" and {len(unread) - 3} more" if len(unread) > 3 else "")
        raise InputUnreadable(
            f"{names}: not text, and no dump that is known here; name a log, or call a dump as its tool does "
            "(fr_rank_0, trace.json)"
        )


def _answer_asked(
    workspace: Workspace, diagnosis: Diagnosis, artefacts: Mapping[str, Path], question: str
) -> None:
    """The question itself, answered below the verdict where a rule can."""
    if not question.strip():
        return
    from firstfault.conversation.answerer import Question
    from firstfault.conversation.rules import RuleAnswerer
    from firstfault.conversation.written import write_answer

    asked = Question("", 1, question, diagnosis, artefacts, (), workspace.knowledge)
    for part in RuleAnswerer().explain(asked):
        click.echo(f"\n{question.strip()[:200]}\n{show_answer(write_answer(part))}")


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
    with spool as folder, _hold(Path(folder)), _end_cleanly():
        if place is not None:
            _sweep(place)
        yield Path(folder)


@contextmanager
def _hold(folder: Path) -> Iterator[None]:
    """Lock the folder as long as this process lives, however it ends."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _sweep(place: Path) -> None:
    """Remove what a command that was killed left behind: nobody holds it any more."""
    for folder in place.glob("diagnose-*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime < FRESH_SECONDS or folder.is_symlink():
                continue
            with _hold(folder):
                shutil.rmtree(folder, ignore_errors=True)


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


def _wait_for_model(
    workspace: Workspace, diagnosis: Diagnosis, artefacts: Mapping[str, Path], question: str
) -> Diagnosis:
    """The diagnosis with the model's part, or without it when that takes longer than FIRSTFAULT_MODEL_WAIT_S."""
    from firstfault.settings import Settings

    longest = Settings().model_wait_s  # type: ignore[call-arg]
    stop = threading.Event()
    got: list[Diagnosis] = []
    failed: list[FirstfaultError] = []

    def ask() -> None:
        try:
            enriched = _ask_model(workspace, diagnosis, artefacts, question, stop.is_set)
            got.append(enriched.diagnosis)
        except FirstfaultError as error:  # handed on to the thread that waits
            failed.append(error)

    waiting = threading.Thread(target=ask, name=MODEL_THREAD, daemon=True)
    waiting.start()
    try:
        waiting.join(longest)
    finally:
        slow = waiting.is_alive()
        stop.set()
    if failed:
        raise failed[0]
    if got:
        return got[0]
    why = f"the model did not answer within {longest:g} s; raise FIRSTFAULT_MODEL_WAIT_S for a slow one"
    why = why if slow else "the model's part broke off, see standard error"
    noted = {"name": _model().endpoint.name, "state": "deterministic answer only", "why": why}
    return replace(diagnosis, tools={**diagnosis.tools, "model": noted})


def _ask_model(
    workspace: Workspace,
    diagnosis: Diagnosis,
    artefacts: Mapping[str, Path],
    question: str,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Enriched:
    from firstfault.agent.enrich import enrich, make_question
    from firstfault.agent.exam.standing import read_standing
    from firstfault.settings import Settings

    def show(text: str) -> None:
        if sys.stderr.isatty():
            click.echo(text, err=True)

    asked = make_question(diagnosis, artefacts, workspace.knowledge, question)
    asked = replace(asked, is_stopped=is_stopped)
    model = _model()
    standing = read_standing(Settings(), model.endpoint)  # type: ignore[call-arg]
    return enrich(asked, model, earned=standing.passed, show=show)


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
    from firstfault.investigation.diagnosis import LedBy

    rows = [enriched.text or "The model added nothing that the evidence says."]
    rows += [
        f"  [{c.n}] {c.file}:{c.line} {c.quote[:160]}" if c.file else f"  [{c.n}] page {c.page}"
        for c in enriched.citations
    ]
    if enriched.removed:
        rows.append(f"({enriched.removed})")
    led = enriched.diagnosis.led_by is LedBy.MODEL
    stands = (
        "its explanation leads, and the tools' verdict above stays beside it"
        if led
        else "the verdict above stands"
    )
    return f"Worded by the model, checked against the evidence; {stands}:\n" + "\n".join(
        rows
    ).replace("**", "")
