"""What does code itself see of a run that a model calls well, and which rank is it that a model places by its host?

A model that has passed may weigh what lines mean, and judge the numbers of steps; that the run went on, or
ended as planned, after each failure has to be seen here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from firstfault.agent.context import TurnContext
from firstfault.agent.judge import Explanation, Sound
from firstfault.grounding.items import Item, ItemKind
from firstfault.investigation.health import Condition, Ground, HealthProof, prove_health
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.progress import ProgressReader
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Category, Complaint, Confidence, Verdict
from firstfault_tools.hardware.bus import normalise_address
from firstfault_tools.log.place import Place
from firstfault_tools.log.scan import make_line
from firstfault_tools.roles import Role

BEYOND_THE_LOG = frozenset({Complaint.DIED, Complaint.STALLED})
"""What a person states of the run that its lines cannot refute: it is gone, it stands still."""


@dataclass(frozen=True, slots=True)
class _Against:
    """The lines that the tools hold against a run. held: those that are known; present: of those, what the run did not outlive."""

    ids: frozenset[str]
    held: tuple[Item, ...]
    present: tuple[Item, ...]

    @property
    def is_known(self) -> bool:
        """Every line is known."""
        return len(self.held) == len(self.ids)

    @property
    def is_survived(self) -> bool:
        """The run went on after every one."""
        return self.is_known and not self.present

    def is_of_steps(self, logs: LogIncident) -> bool:
        """What the run did not outlive is how its numbers look."""
        return all(_is_step(logs, i) for i in self.present) and any(
            _is_step(logs, i) for i in self.held
        )


def find_soundness(
    context: TurnContext, best: Explanation, tools: Explanation, told: Collection[str]
) -> Sound:
    """What code sees of the run that `best` calls well. told: every id that the reply gives a reason with."""
    found = context.examination
    proof = prove_health(found, context.question.text)
    logs = found.logs
    least = _least_sound(proof)
    if not _stands(proof, logs, tools) or not _errors_are_told(proof, context, told):
        return least
    against = _read_against(context, tools)
    reads_wrong = tools.verdict in (Verdict.FAULT, Verdict.WARNING)
    suspected = tools.confidence in (Confidence.POSSIBLE, Confidence.UNKNOWN)
    if reads_wrong and not suspected and against.ids.isdisjoint(told):
        return least
    all_told = against.ids <= set(told)
    survived = against.is_survived
    if all_told and against.is_known and not survived and against.is_of_steps(logs):
        return Sound.STEPS
    if not survived and tools.category is not Category.PERFORMANCE:
        return least
    if not (all_told and survived and proof.quiet and _answers_all(proof)):
        return Sound.GOES_ON
    followed = bool(against.held) and _cites_what_followed(logs, context, best, against.held)
    return Sound.OUTLIVED if followed or not reads_wrong else Sound.GOES_ON


def _least_sound(proof: HealthProof) -> Sound:
    """What is seen of any run: whether no error stands in its lines."""
    return Sound.QUIET if proof.quiet and not proof.suspicious else Sound.UNSEEN


def _read_against(context: TurnContext, tools: Explanation) -> _Against:
    ids = frozenset(x for x in tools.lines if "#" not in x)  # a page is no line of the run
    held = tuple(i for x in ids if (i := context.book.find(x)) is not None)
    logs = context.examination.logs
    return _Against(ids, held, tuple(i for i in held if not _outlived(logs, i)))


def _answers_all(proof: HealthProof) -> bool:
    """What the person asks of the run was seen and is fine."""
    return all(c.holds for c in proof.checks if c.condition is Condition.ANSWERED)


def _stands(proof: HealthProof, logs: LogIncident, tools: Explanation) -> bool:
    """It ends well or goes on, and nothing the person states is beyond what lines can show."""
    beyond = BEYOND_THE_LOG - ({Complaint.DIED} if proof.ground is Ground.FINISHED else set())
    if any(c.complaint in beyond for c in proof.missing):
        return False
    roles = {logs.role_of(d.file) for d in logs.digests}
    if roles == {Role.EXPERIMENT}:
        # tests of the machines alone: there is no run that could be broken
        return tools.verdict is Verdict.UNKNOWN and not tools.failures and proof.quiet
    return proof.shows_progress


def _errors_are_told(proof: HealthProof, context: TurnContext, told: Collection[str]) -> bool:
    """No error stands unexplained in the log that goes on; of files beside it the reply names one each."""
    quiet = next(c for c in proof.checks if c.condition is Condition.QUIET)
    going = {e.file for e in proof.shown_by}
    files = {e.file for e in quiet.evidence} | {line.file for line in proof.suspicious}
    named = {i.file for x in told if (i := context.book.find(x)) is not None}
    return not files & going and files <= named


def _outlived(logs: LogIncident, item: Item) -> bool:
    """The run went on after this line, or had ended as planned."""
    if item.kind is not ItemKind.LOG or not item.line:
        return False
    time = next(
        (make_line(item.file, item.line, item.text, d.year).time for d in logs.digests if d.file == item.file),
        None,
    )  # fmt: skip
    return logs.passed(item.file, item.line, time)


def _is_step(logs: LogIncident, item: Item) -> bool:
    """The line is progress of the run: what the tools hold against it is how its numbers look."""
    reader = _progress_of(logs, item)
    if reader is None or item.kind is not ItemKind.LOG:
        return False
    step = next(reader.after(item.line - 1), None)
    return step is not None and step.number == item.line


def _progress_of(logs: LogIncident, item: Item) -> ProgressReader | None:
    """Progress of the log that the line is of, where that is a run's."""
    return logs.progress.get(item.file) if logs.role_of(item.file) is Role.RUN else None


def _cites_what_followed(
    logs: LogIncident, context: TurnContext, best: Explanation, held: Sequence[Item]
) -> bool:
    """A cited line is itself a step, or the planned end, after the last line that it explains in that log."""
    return any(
        item.line > max((h.line for h in held if h.file == item.file), default=0)
        and item.line in _signs_of_life(logs, item)
        for item in _log_lines(context, best.lines)
    )


def _signs_of_life(logs: LogIncident, item: Item) -> set[int]:
    reader = _progress_of(logs, item)
    if reader is None:
        return set()
    step = next(reader.after(item.line - 1), None)
    return {n for n in (reader.finished_at(), step.number if step is not None else None) if n}


def _log_lines(context: TurnContext, ids: Iterable[str]) -> list[Item]:
    found = (context.book.find(i) for i in ids)
    return [i for i in found if i is not None and i.kind is ItemKind.LOG and i.line]


def with_rank(context: TurnContext, explanation: Explanation) -> Explanation:
    """The rank by the job's placement, where the explanation names host or GPU alone and one rank sits there."""
    if explanation.rank is not None or not explanation.host:
        return explanation
    gpu = explanation.gpu.lower().removeprefix("gpu").strip(" #:")
    place = Place(
        host=explanation.host,
        gpu=int(gpu) if gpu.isdecimal() else None,
        pci=gpu if normalise_address(gpu) is not None else None,
    )
    return replace(explanation, rank=context.examination.logs.placement.ranks_of(place).only)
