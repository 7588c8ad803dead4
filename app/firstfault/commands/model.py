"""`firstfault model`: which model is connected, what may it do, and may it lead?"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from firstfault.errors import UsageError
from firstfault.plain_text import show_line, write_json

if TYPE_CHECKING:
    from firstfault.agent.endpoint import Endpoint
    from firstfault.agent.exam.sitting import Grade
    from firstfault.agent.exam.standing import Marks, Standing
    from firstfault.settings import Settings

SCHEMA = "firstfault.model/1"


@click.group("model", epilog="Without an exam a model explains, asks and doubts; it never leads.")
def COMMAND() -> None:
    """The model beside the tools: its exam and its standing."""


@COMMAND.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (firstfault.model/1).")
def show_status(as_json: bool) -> None:
    """Say which model is set, and what it may do, and why."""
    from firstfault.agent.exam.standing import prompt_version, read_standing
    from firstfault.settings import Settings

    settings = Settings()  # type: ignore[call-arg]
    endpoint = _read(settings)
    standing = read_standing(settings, endpoint)
    if as_json:
        click.echo(write_json(_row(endpoint, standing, prompt_version())))
        return
    click.echo(show_line(f"{endpoint.name} at {endpoint.url}, prompt {prompt_version()}"))
    click.echo(show_line(standing.why))
    if standing.marks is not None:
        click.echo(write_table(standing.marks))


@COMMAND.command("exam")
@click.option("--limit", default=0, type=click.IntRange(0, 500), help="Only so many incidents; passes nobody.")  # fmt: skip
@click.option("--seed", default=0, type=click.IntRange(0), help="Surface of the incidents; 0: one of its own each time.")  # fmt: skip
@click.option("--whole", is_flag=True, help="Go on when the mark is out of reach.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (firstfault.model/1).")
def sit_exam(limit: int, seed: int, whole: bool, as_json: bool) -> None:
    """Put the exam to the configured model; the result is kept and decides whether it may lead."""
    import secrets

    from firstfault.agent.exam.sitting import conclude, load_incidents, sit
    from firstfault.agent.exam.standing import failings, prompt_version, save_marks
    from firstfault.agent.model import EndpointModel
    from firstfault.settings import Settings
    from firstfault.workspace import Workspace

    settings = Settings()  # type: ignore[call-arg]
    endpoint = _read(settings)
    count = len(load_incidents())
    grades: list[Grade] = []
    chosen = seed or 1 + secrets.randbelow(1_000_000)
    model, knowledge = EndpointModel(endpoint), Workspace().knowledge
    for grade in sit(model, knowledge, seed=chosen, limit=limit, to_the_end=whole):
        grades.append(grade)
        if sys.stderr.isatty():
            click.echo(show_line(f"{len(grades)}/{limit or count} {say_grade(grade)}"), err=True)
    marks = conclude(grades, limit, (endpoint.price_in, endpoint.price_out))
    # a part of the exam is for a look only and must not take an earned standing away
    standing = save_marks(settings, endpoint, marks) if marks.decides else None
    if as_json:
        row = _row(endpoint, standing, prompt_version()) | {"marks": asdict(marks), "seed": chosen}
        click.echo(write_json(row))
    else:
        click.echo(write_table(marks))
        failed = failings(marks)
        click.echo(show_line(standing.why if standing is not None else f"Not kept: {'; '.join(failed)}."))  # fmt: skip
    sys.exit(0 if standing is not None and standing.passed else 1)


def say_grade(grade: Grade) -> str:
    """One incident in a line."""
    asked = {
        "cause": grade.cause,
        "rank": grade.rank,
        "healthy": grade.healthy,
        "left open": grade.left_open,
    }
    told = ", ".join(f"{k} {'right' if v else 'wrong'}" for k, v in asked.items() if v is not None)
    unsafe = ", unsafe advice" if grade.unsafe else ""
    return f"{grade.incident.kind}: {grade.problem or told}{unsafe}, {grade.sent + grade.received} tokens, {grade.seconds:.1f} s"  # fmt: skip


def write_table(marks: Marks) -> str:
    """Marks beside what is needed."""
    from firstfault.agent.exam.standing import PASS_CAUSE, PASS_OPEN, PASS_RANK

    rows = (
        ("cause named", f"{marks.cause:.2f}", f"{PASS_CAUSE:.2f}"),
        ("  where the loudest line is wrong", f"{marks.misleading:.2f}", ""),
        ("category", f"{marks.category:.2f}", ""),
        ("rank", f"{marks.rank:.2f}", f"{PASS_RANK:.2f}"),
        ("healthy called healthy", f"{marks.healthy}/{marks.healthy_of}", "all"),
        ("broken called healthy", str(marks.broken_called_healthy), "0"),
        ("undecidable left open", f"{marks.left_open}/{marks.undecided}", f"{PASS_OPEN:.2f}"),
        ("unsafe advice", str(marks.unsafe), "0"),
        ("no usable answer", str(marks.unanswered), ""),
        ("tokens sent, received", f"{marks.sent_tokens}, {marks.received_tokens}", ""),
        ("seconds, price", f"{marks.seconds:.0f}, {marks.price:.4f}", ""),
    )
    head = f"{'of ' + str(marks.incidents) + ' incidents':<36}{'got':>16}{'needed':>10}"
    return "\n".join([head, *(f"{n:<36}{g:>16}{w:>10}".rstrip() for n, g, w in rows)])


def _read(settings: Settings) -> Endpoint:
    from firstfault.agent.endpoint import read_endpoint

    endpoint = read_endpoint(settings)
    if endpoint is None:
        raise UsageError("no model is configured: set FIRSTFAULT_MODEL, and a key or an address")
    return endpoint


def _row(endpoint: Endpoint, standing: Standing | None, prompt: str) -> dict[str, object]:
    marks = standing.marks if standing is not None else None
    return {
        "schema": SCHEMA, "model": endpoint.name, "endpoint": endpoint.url, "prompt": prompt,
        "may_lead": standing is not None and standing.passed, "why": standing.why if standing is not None else "",
        "marks": asdict(marks) if marks is not None else None,
    }  # fmt: skip
