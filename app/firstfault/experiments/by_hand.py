"""How is an experiment carried out by a person? It says what to run; they run it and enter how it ended.

For who cannot or must not let Firstfault start anything: the page, an assistant over MCP, another machine. What
is entered is a trial like any other: on record before the next, judged by the same stopping rule.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from firstfault.errors import CannotAnalyse, UsageError
from firstfault.experiments.driver import say_subject
from firstfault.experiments.outcome import choose_about, say_stored, write_evidence
from firstfault.experiments.planning import check_command
from firstfault.incidents.acceptance import Upload
from firstfault.incidents.experiments import StoredExperiment
from firstfault.service import Service
from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import ToolError
from firstfault_tools.experiments.experiment import About, Ask, Design, Result, next_step
from firstfault_tools.experiments.kinds import Kind
from firstfault_tools.experiments.sequential import StoppingRule
from firstfault_tools.experiments.trial import Outcome, Trial, fill_command

KINDS = (Kind.TEST, Kind.SIZES, Kind.HOSTS)
"""Kinds whose trials need nothing prepared by Firstfault (no checkout, no written configuration)."""
ENTERED = "entered by hand"
MOST_ENTERED = 1000


@dataclass(frozen=True, slots=True)
class Claim:
    """What a person suspects, and what their command does if they are right."""

    hypothesis: str
    command: str
    fails_if_true: bool = True
    rate: float | None = None
    explanation: int | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The next trial: its number, what it tries, and the command to run."""

    number: int
    tries: str
    command: str


def plan_test(service: Service, claim: Claim, incident: str | None = None) -> Design:
    """The design of a test; nothing is stored or run. Raises UsageError."""
    if not claim.hypothesis.strip():
        raise UsageError("hypothesis: empty; say in a sentence what you suspect")
    about = About()
    if claim.explanation is not None:
        if incident is None:
            raise UsageError("explanation: is one of an incident; name the incident")
        about = choose_about(service.diagnosis(incident), claim.explanation)
    how = f"in about {claim.rate:.0%} of trials" if claim.rate else "at its usual rate"
    said = f"the command fails {how}" if claim.fails_if_true else f"the command no longer fails ({how} before)"  # fmt: skip
    try:
        design = Design(
            Kind.TEST,
            claim.hypothesis.strip(),
            said,
            tuple(shlex.split(claim.command)),
            (claim.hypothesis.strip()[:60],),
            about,
            StoppingRule(claim.rate),
            fails_if_true=claim.fails_if_true,
        )
        check_command(design)
    except ToolError as error:
        raise UsageError(str(error)) from error
    except ValueError as error:
        raise UsageError(f"command: {error}; close the quotes") from error
    return design


def put_on_record(service: Service, design: Design, incident: str | None = None) -> str:
    """Id of the stored experiment, which waits for its first trial."""
    return service.record.experiments.create(design, incident)


def next_by_hand(stored: StoredExperiment) -> Waiting | None:
    """What to run next; None where there is a result. Raises UsageError for a kind that is not done by hand."""
    if stored.result is not None:
        return None
    if stored.design.kind not in KINDS:
        raise UsageError(
            f"experiment {stored.id} is of the kind {stored.design.kind.value}, whose trials are prepared on the "
            f"command line: firstfault experiment resume {stored.id}"
        )
    step = _step(stored)
    if isinstance(step, Result):
        return None
    argv = fill_command(stored.design.command, _fields(stored.design, step))
    tries = say_subject(stored.design, step.subject)
    return Waiting(len(stored.trials) + 1, tries, shlex.join(argv))


def enter_trials(
    service: Service, experiment: str, outcome: Outcome, times: int = 1
) -> StoredExperiment:
    """Record how trials of what was asked ended; its result, where the rule is met, joins the incident.

    Trials beyond the one that decides are left out.
    """
    if outcome is Outcome.UNUSABLE or not 1 <= times <= MOST_ENTERED:
        raise UsageError(f"enter passed, failed or skipped, 1 to {MOST_ENTERED} times")
    store = service.record.experiments
    stored = store.get(experiment)
    if next_by_hand(stored) is None:
        raise UsageError(f"experiment {experiment} has its result: {say_stored(stored)}")
    asked = _step(stored)
    for _ in range(times):
        step = _step(stored)
        if isinstance(step, Result) or step != asked:
            break
        trial = Trial(step.subject, outcome, reason=ENTERED)
        store.add_trial(experiment, len(stored.trials) + 1, trial)
        stored = store.get(experiment)
    done = _step(stored)
    if isinstance(done, Result):
        store.finish(experiment, done)
        stored = store.get(experiment)
        _submit(service, stored)
    return stored


def _submit(service: Service, stored: StoredExperiment) -> None:
    """The record joins the incident's evidence; whoever works on incidents weighs it again."""
    if stored.incident is not None:
        record = Upload(f"experiment-{stored.id}.json", write_evidence(stored).encode())
        service.add_evidence(stored.incident, [record], key=f"experiment-{stored.id}")


def _step(stored: StoredExperiment) -> Ask | Result:
    try:
        return next_step(stored.design, stored.trials)
    except ToolError as error:
        raise CannotAnalyse(str(error)) from error


def _fields(design: Design, step: Ask) -> Mapping[str, str]:
    if design.kind is Kind.HOSTS:
        joined = ",".join(step.subject)
        return {"hosts": joined, "count": str(len(step.subject)), "hostfile": f"<(tr , '\\n' <<< {joined})"}  # fmt: skip
    return {"value": step.subject[0]} if design.kind is Kind.SIZES else {}
