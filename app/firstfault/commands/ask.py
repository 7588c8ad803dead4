"""`firstfault ask`: one turn of the conversation, the same as in the page."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from firstfault.conversation.answerer import Question
from firstfault.conversation.rules import RuleAnswerer
from firstfault.conversation.written import answer_to_json, write_answer
from firstfault.errors import UsageError
from firstfault.incidents.events import AnswerPart
from firstfault.knowledge_base.warm import WarmSearch
from firstfault.plain_text import show_answer, write_json
from firstfault.workspace import Workspace

if TYPE_CHECKING:
    from firstfault.investigation.diagnosis import Diagnosis

MAX_INPUT = 100_000


@click.command(
    "ask", epilog="'-' as QUESTION reads standard input: a question, or a question above a log."
)
@click.argument("question")
@click.argument("paths", nargs=-1, type=click.Path())
@click.option(
    "--incident", default="", help="Id of a recorded incident; the turn goes on its record."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object (firstfault.answer/1)."
)
@click.option("--no-llm", is_flag=True, help="Never ask a model, even if one is configured.")
def COMMAND(
    question: str, paths: tuple[str, ...], incident: str, as_json: bool, no_llm: bool
) -> None:
    """Answer QUESTION: about training failures, with numbers, or about PATHS or an incident."""
    if incident and paths:
        raise click.UsageError("give paths or --incident, not both")
    log = ""
    if question == "-":
        question, log = _split(sys.stdin.buffer.read(MAX_INPUT).decode("utf-8", errors="replace"))
    if not question.strip() and not paths and not log:
        raise click.UsageError("the question is empty")
    if incident:
        part = _ask_incident(incident, question, no_llm)
        name: str | None = incident
    else:
        part = _ask_files(question, paths, log)
        name = None
    if as_json:
        click.echo(write_json(answer_to_json(part, name)))
    else:
        click.echo(show_answer(write_answer(part)))


def _split(text: str) -> tuple[str, str]:
    from firstfault.intake.message import split_message

    split = split_message(text)
    return split.question, split.log


def _ask_files(question: str, paths: tuple[str, ...], log: str) -> AnswerPart:
    from firstfault.intake.collect import collect_bytes, collect_paths

    with tempfile.TemporaryDirectory(prefix="firstfault-ask-") as spool:
        workspace = Workspace(spool=Path(spool))
        diagnosis: Diagnosis | None = None
        artefacts: Mapping[str, Path] = {}
        if paths or log:
            if paths:
                collection = collect_paths([Path(p) for p in paths], Path(spool))
            else:
                collection = collect_bytes(
                    "pasted.txt", log.encode("utf-8", "replace"), Path(spool)
                )
            diagnosis = workspace.diagnose_collection(collection, question)
            artefacts = {a.name: a.path for a in collection.artefacts}
        asked = Question(
            "", 1, question, diagnosis, artefacts, (), workspace.knowledge, time=time.time()
        )
        return next(RuleAnswerer(WarmSearch(at_once=True)).answer(asked))


def _ask_incident(incident: str, question: str, no_llm: bool) -> AnswerPart:
    """One turn of a recorded incident; a worker of this process answers it."""
    from firstfault.service import open_service

    answerer = RuleAnswerer() if no_llm else None
    with open_service(answerer=answerer) as service:
        service.incident(incident)
        turn = service.ask(incident, question)
        for _ in service.follow(incident, timeout=300.0):
            pass
        parts = service.answer(incident, turn)
    if not parts:
        raise UsageError(f"no answer came for turn {turn}; see the incident in `firstfault chat`")
    return parts[0]
