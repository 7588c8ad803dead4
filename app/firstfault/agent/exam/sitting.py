"""How does a model do in the exam? Each incident once, by the same turn as in earnest, graded by code.

Graded is what is left of the model's own best explanation after all checks; what the tools say of the
incident earns it nothing.
"""

from __future__ import annotations

import gzip
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from firstfault.agent.enrich import Enriched, enrich, make_question
from firstfault.agent.exam.standing import Marks, failings
from firstfault.agent.exam.surfaces import Incident, vary
from firstfault.agent.failures import EndpointAway
from firstfault.agent.judge import Explanation
from firstfault.agent.model import Model
from firstfault.agent.reply import Reply
from firstfault.grounding.advice import objections, raises_timeout
from firstfault.grounding.effects import tells_to_change
from firstfault.investigation.diagnose import diagnose
from firstfault.investigation.knowledge import Knowledge
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Verdict
from firstfault_tools.registry import Artefact


@dataclass(frozen=True, slots=True)
class Grade:
    """One incident: what was right. None where the incident does not ask for it."""

    incident: Incident
    cause: bool | None
    category: bool | None
    rank: bool | None
    healthy: bool | None
    missed: bool
    left_open: bool | None
    unsafe: bool
    said: str
    problem: str = ""
    sent: int = 0
    received: int = 0
    seconds: float = 0.0


def load_incidents() -> tuple[Incident, ...]:
    """All incidents of the exam as they were written."""
    data = files("firstfault.agent.exam").joinpath("incidents.json.gz").read_bytes()
    rows = json.loads(gzip.decompress(data))
    return tuple(
        Incident(
            **{
                **row,
                "categories": tuple(row["categories"]),
                "must_mention": tuple(row["must_mention"]),
                "must_not_claim": tuple(row["must_not_claim"]),
                "swap": tuple(row["swap"]) if row["swap"] else None,
            }
        )
        for row in rows
    )


def sit(
    model: Model, knowledge: Knowledge, *, seed: int, limit: int = 0, to_the_end: bool = False, stop: Callable[[], bool] = lambda: False
) -> Iterator[Grade]:  # fmt: skip
    """Grades one after the other; of a part of the exam every kind is taken in turn.

    It ends where the pass mark has come out of reach: what is left would cost tokens and change nothing.
    Raises EndpointAway where nobody answers: an exam that nobody sat takes no standing away.
    to_the_end: go on all the same, for the whole table.
    """
    incidents = load_incidents()
    order = _spread(incidents)[: limit or None]
    grades: list[Grade] = []
    for number, incident in enumerate(order):
        if stop() or (not to_the_end and is_out_of_reach(grades, order[number:])):
            return
        grades.append(grade(vary(incident, seed), model, knowledge))
        yield grades[-1]


def is_out_of_reach(grades: Sequence[Grade], left: Sequence[Incident]) -> bool:
    """The mark cannot be reached any more, were all that is left answered right."""
    hoped = [*grades, *(_right(incident) for incident in left)]
    return bool(failings(add_up(hoped, True, (0.0, 0.0))))


def _right(incident: Incident) -> Grade:
    fault = True if not incident.healthy and not incident.undecided else None
    return Grade(
        incident, fault, fault, fault,
        healthy=incident.healthy or None, missed=False, left_open=incident.undecided or None, unsafe=False, said="",
    )  # fmt: skip


def _spread(incidents: tuple[Incident, ...]) -> list[Incident]:
    """Every kind in turn, so that the first few are a fair part."""
    by_kind: dict[str, list[Incident]] = {}
    for incident in incidents:
        by_kind.setdefault(incident.kind, []).append(incident)
    out: list[Incident] = []
    while any(by_kind.values()):
        out += [rows.pop(0) for rows in by_kind.values() if rows]
    return out


def grade(incident: Incident, model: Model, knowledge: Knowledge) -> Grade:
    """One incident put to the model, and what it is worth."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="exam-") as folder:
        paths = {}
        for number, (name, text) in enumerate(incident.files.items()):
            paths[name] = Path(folder) / f"{number}-{Path(name).name}"
            paths[name].write_text(text, "utf-8")
        artefacts = [Artefact(name, path) for name, path in paths.items()]
        diagnosis = diagnose(artefacts, knowledge, (), incident.question)
        question = make_question(diagnosis, paths, knowledge, incident.question)
        enriched = enrich(question, model, earned=True)
    if enriched.away:
        raise EndpointAway(enriched.problem)
    return _mark(incident, enriched, knowledge, time.monotonic() - begin)


def _mark(incident: Incident, enriched: Enriched, knowledge: Knowledge, seconds: float) -> Grade:
    shown, outcome = enriched.assessment, enriched.outcome
    best = shown.explanations[0] if shown is not None and shown.explanations else None
    verdict = best.verdict if best is not None else Verdict.UNKNOWN
    fault = not incident.healthy and not incident.undecided
    category = _names_category(incident, best)
    return Grade(
        incident,
        cause=(category and _names_cause(incident, best)) if fault else None,
        category=category if fault else None,
        rank=(best is not None and best.rank == incident.rank) if fault else None,
        healthy=(verdict is Verdict.HEALTHY) if incident.healthy else None,
        missed=not incident.healthy and verdict is Verdict.HEALTHY,
        left_open=(best is not None and verdict is Verdict.UNKNOWN) if incident.undecided else None,
        unsafe=outcome is not None and outcome.reply is not None and is_unsafe(outcome.reply, knowledge),
        said=best.cause if best is not None else "",
        problem=enriched.problem,
        sent=outcome.sent_tokens if outcome is not None else 0,
        received=outcome.received_tokens if outcome is not None else 0,
        seconds=seconds,
    )  # fmt: skip


def _names_category(incident: Incident, best: Explanation | None) -> bool:
    if best is None:
        return False
    return (best.category.value if best.category else None) in incident.categories


def _names_cause(incident: Incident, best: Explanation | None) -> bool:
    if best is None:
        return False
    told = f"{best.cause} {best.mechanism}"
    named = all(re.search(m, told, re.I) for m in incident.must_mention)
    return named and not any(re.search(m, best.cause, re.I) for m in incident.must_not_claim)


def is_unsafe(reply: Reply, knowledge: Knowledge) -> bool:
    """The reply, before any check, advises what harms: it is the model that is examined."""
    advice = [p.text for p in reply.answer]
    for account in reply.explanations:
        advice += [account.test, account.command]
    return any(
        tells_to_change(text) or raises_timeout(text) or objections(text, text, knowledge.variables)
        for text in advice
    )


def conclude(grades: Sequence[Grade], limit: int, price: tuple[float, float]) -> Marks:
    """Marks of an exam that is over: whole, lost where it ended by itself before that, else the part that was asked for."""
    whole = len(grades) == len(load_incidents())
    return add_up(grades, whole, price, lost=not whole and not limit)


def add_up(
    grades: Sequence[Grade], whole: bool, price: tuple[float, float], lost: bool = False
) -> Marks:
    """Marks of all grades. price: of a million tokens sent and received. lost: it ended when the mark was out of reach."""

    def share(values: list[bool | None]) -> float:
        asked = [v for v in values if v is not None]
        return sum(asked) / len(asked) if asked else 0.0

    sent, received = sum(g.sent for g in grades), sum(g.received for g in grades)
    healthy = [g.healthy for g in grades if g.healthy is not None]
    open_ = [g.left_open for g in grades if g.left_open is not None]
    return Marks(
        incidents=len(grades),
        cause=share([g.cause for g in grades]),
        category=share([g.category for g in grades]),
        rank=share([g.rank for g in grades]),
        healthy=sum(healthy),
        healthy_of=len(healthy),
        broken_called_healthy=sum(g.missed for g in grades),
        left_open=sum(open_),
        undecided=len(open_),
        misleading=share([g.cause for g in grades if g.incident.misleading]),
        unsafe=sum(g.unsafe for g in grades),
        unanswered=sum(bool(g.problem) for g in grades),
        sent_tokens=sent,
        received_tokens=received,
        seconds=sum(g.seconds for g in grades),
        price=(sent * price[0] + received * price[1]) / 1e6,
        whole=whole,
        lost=lost,
    )
