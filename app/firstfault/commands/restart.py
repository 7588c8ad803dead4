"""`firstfault restart`: what a launcher asks after an attempt has ended. Start again, where, or stop?"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from firstfault.errors import CannotAnalyse
from firstfault.incidents.records import Incident
from firstfault.incidents.restart import (
    NO_FURTHER,
    Advice,
    Attempt,
    Decision,
    decide_restart,
)
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.plain_text import show_line, write_json
from firstfault.postmortem.attempts import count_meetings
from firstfault.postmortem.evidence import Artefacts
from firstfault.postmortem.lost_work import RunRecord
from firstfault.service import NamedPath, NewIncident, Service, open_service

SCHEMA = "firstfault.restart/1"
LOOKED_BACK = 50
HELP = """May the job start again? Asked by a launcher after each attempt.

\b
PATHS are the logs of the attempt that ended. It is diagnosed and kept as an incident under the name of
the job; the decision counts its earlier attempts and what is on record about the host.

\b
Examples:
  firstfault restart logs/3 --job pretrain --attempt 3 --json
  firstfault restart train.log --job "$SLURM_JOB_ID" || exit 1     stops the loop where it is told to

\b
Exit codes: 0 start again (hosts to leave out are printed, `exclude` in JSON), 1 stop and fix first,
2 usage, 3 unreadable, 4 could not analyse. Take only 1 for a stop. With --shadow a stop is only said.
"""


@click.command("restart", help=HELP)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--job", required=True, help="Name of the job, the same for all its attempts.")
@click.option(
    "--attempt", type=click.IntRange(1), help="Number of this attempt; default: the next."
)
@click.option("--shadow", is_flag=True, help="Say a stop, but end with exit code 0.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object (firstfault.restart/1)."
)
def COMMAND(
    paths: tuple[Path, ...], job: str, attempt: int | None, shadow: bool, as_json: bool
) -> None:
    """Diagnose the attempt and decide."""
    from firstfault.experiments.outcome import settle

    prefix = f"attempt/{job}/"
    with open_service(workers=False) as service:
        before = service.record.incidents.numbered(prefix)
        number = attempt or max((n for n, _ in before), default=0) + 1
        new = NewIncident(tuple(map(NamedPath, paths)), title=f"{job}, attempt {number}")
        incident = service.start(new, key=f"{prefix}{number}")
        settle(service, incident)
        diagnosis = service.diagnosis(incident)
        if diagnosis is None:
            raise CannotAnalyse(f"incident {incident} has no diagnosis; it is in the page")
        known = [x for x in service.record.incidents.numbered(prefix) if x[0] <= number]
        attempts = _read_attempts(service, known[-LOOKED_BACK:])
        met = count_meetings(diagnosis, _artefacts(service, incident, diagnosis))
        advice = decide_restart(diagnosis, attempts, service.related(incident), met)
    if as_json:
        click.echo(write_json(_record(job, incident, advice, attempts, diagnosis)))
    else:
        click.echo("\n".join(_say(job, incident, advice, attempts)))
    sys.exit(1 if advice.decision is Decision.STOP and not shadow else 0)


def _read_attempts(service: Service, known: Sequence[tuple[int, Incident]]) -> list[Attempt]:
    """Attempts as they are on record; of the last ones, the step that they came to."""
    return [
        Attempt(
            number, i.verdict, i.signature, i.host, i.root_cause or "",
            _last_step(service, i.id) if at >= len(known) - NO_FURTHER else None, i.category,
        )
        for at, (number, i) in enumerate(known)
    ]  # fmt: skip


def _last_step(service: Service, incident: str) -> int | None:
    diagnosis = service.diagnosis(incident)
    if diagnosis is None:
        return None
    last = RunRecord(diagnosis, _artefacts(service, incident, diagnosis)).last_step
    return last.step if last is not None else None


def _artefacts(service: Service, incident: str, diagnosis: Diagnosis) -> Artefacts:
    files = {n: p for n, p in service.record.shelf.artefacts(incident).items() if p.is_file()}
    return Artefacts(files, diagnosis.citations)


def _record(
    job: str, incident: str, advice: Advice, attempts: Sequence[Attempt], diagnosis: Diagnosis
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "job": job,
        "decision": advice.decision.value,
        "reason": advice.reason,
        "exclude": list(advice.without),
        "incident": incident,
        "verdict": diagnosis.verdict.value,
        "confidence": diagnosis.confidence.value,
        "root_cause": diagnosis.root_cause,
        "attempts": [
            {
                "attempt": a.number, "verdict": a.verdict.value if a.verdict else None, "signature": a.signature,
                "host": a.host, "step": a.step, "root_cause": a.root_cause,
            }
            for a in attempts
        ],
    }  # fmt: skip


def _say(job: str, incident: str, advice: Advice, attempts: Sequence[Attempt]) -> list[str]:
    number = attempts[-1].number
    lines = [
        f"{advice.decision.value.upper()}  (attempt {number} of {show_line(job)}): {show_line(advice.reason)}"
    ]
    if advice.without:
        lines.append(f"exclude  {','.join(map(show_line, advice.without))}")
    for a in attempts:
        step = f", last step {a.step}" if a.step is not None else ""
        on = f" on {show_line(a.host)}" if a.host else ""
        lines.append(
            f"attempt  {a.number}: {a.verdict.value if a.verdict else 'open'}{on}{step}: {show_line(a.root_cause)}"
        )
    return [*lines, f"incident {incident}"]
