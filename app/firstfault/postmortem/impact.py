"""What did it cost? GPU-hours and money from GPU count, price, times and throughput lost.

Only what the evidence or a person gives is counted; what is missing is named. What others booked
is quoted beside it and never taken over.
"""

from __future__ import annotations

from dataclasses import dataclass

from firstfault.investigation.diagnosis import Diagnosis
from firstfault.postmortem.evidence import Artefacts, Book, StepRow
from firstfault.postmortem.pace import Pace, mid
from firstfault.postmortem.report import Cited, Impact, Loss, LossKind
from firstfault_tools.expressions import expression

MAX_REPORTED = 5
_PRICE = expression(r"(?i)([$€£])\s?(\d{1,4}(?:\.\d{1,4})?)\s*(?:/|per|an?)\s*(?:GPU[- ]?)?h(?:ou)?rs?\b")  # fmt: skip
_BOOKED = expression(r"(?i)\b\d[\d,.]*\s*GPU[- ]?h(?:ou)?rs?\b")


@dataclass(frozen=True, slots=True)
class GivenFigures:
    """What a person knows and the evidence may not say. Times in seconds since the epoch, UTC."""

    gpus: int | None = None
    price: float | None = None
    currency: str = "$"
    start: float | None = None
    end: float | None = None


def measure_impact(
    given: GivenFigures,
    diagnosis: Diagnosis,
    artefacts: Artefacts,
    pace: Pace | None,
    first_fault: float | None,
    book: Book,
) -> Impact:
    """The cost of an incident, with what is missing to count it."""
    gpus = given.gpus or diagnosis.input.world_size
    price, currency = given.price, given.currency
    if price is None:
        price, currency = _price_in(artefacts) or (None, currency)
    losses = _losses(given, gpus, pace, first_fault, book)
    start = given.start or (losses[0].start if losses else first_fault)
    end = given.end or (losses[-1].end if losses else None)
    missing = []
    if gpus is None:
        missing.append("number of GPUs")
    if price is None:
        missing.append("price of a GPU-hour")
    if start is None:
        missing.append("start of the incident")
    if not losses:
        missing.append("end of the incident: when useful work went on")
    return Impact(
        gpus=gpus,
        price=price,
        currency=currency,
        start=start,
        end=end,
        losses=tuple(losses),
        throughput=_say_throughput(pace, book),
        reported=_reported(artefacts, book),
        missing=tuple(missing),
    )


def _losses(
    given: GivenFigures, gpus: int | None, pace: Pace | None, first_fault: float | None, book: Book
) -> list[Loss]:
    if pace is not None:
        slow_from = given.start or pace.healthy[-1].time
        slow_to = pace.pause[0] if pace.pause is not None else pace.slow[-1].time
        marks = (_mark(pace.slow[0], book), _mark(pace.slow[-1], book))
        found = [_loss(LossKind.SLOW, slow_from, slow_to, pace.lost_share, gpus, marks)]
        if pace.pause is not None:
            marks = (_mark(pace.slow[-1], book), _mark(pace.later[0], book))
            found.append(_loss(LossKind.STOPPED, *pace.pause, 1.0, gpus, marks))
        return found
    start = given.start or first_fault
    if start is None or given.end is None or given.end <= start:
        return []
    return [_loss(LossKind.STOPPED, start, given.end, 1.0, gpus, ())]


def _loss(
    kind: LossKind, start: float, end: float, share: float, gpus: int | None, marks: tuple[int, ...]
) -> Loss:
    hours = max(0.0, end - start) / 3600
    return Loss(kind, start, end, share, None if gpus is None else hours * share * gpus, marks)


def _mark(row: StepRow, book: Book) -> int:
    return book.line(row.file, row.line, row.text)


def _say_throughput(pace: Pace | None, book: Book) -> tuple[Cited, ...]:
    if pace is None:
        return ()
    marks = (_mark(pace.healthy[-1], book), _mark(pace.slow[0], book))
    text = (
        f"Steps took {mid(pace.slow) / 1000:.1f} s instead of {mid(pace.healthy) / 1000:.1f} s: "
        f"{100 * pace.lost_share:.0f} % of the throughput was lost."
    )
    return (Cited(text, marks),)


def _price_in(artefacts: Artefacts) -> tuple[float, str] | None:
    for line in artefacts.lines:
        found = _PRICE.search(line.text)
        if found is not None:
            return float(found[2]), found[1]
    return None


def _reported(artefacts: Artefacts, book: Book) -> tuple[Cited, ...]:
    out: list[Cited] = []
    for line in artefacts.lines:
        if _BOOKED.search(line.text) and len(out) < MAX_REPORTED:
            out.append(Cited(" ".join(line.text.split())[:300], (book.line(line.file, line.line, line.text),)))  # fmt: skip
    return tuple(out)
