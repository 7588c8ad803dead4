"""What did it cost? GPU-hours and money from GPU count, price, times and throughput lost.

Only what the evidence or a person gives is counted; what is missing is named. What others booked
is quoted beside it and never taken over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import prod

from firstfault.investigation.diagnosis import ChainRole, Diagnosis, RunState
from firstfault.postmortem.evidence import Artefacts, Book, StepRow, TimedLine
from firstfault.postmortem.lost_share import read_lost_share
from firstfault.postmortem.lost_work import RunRecord, Stretch
from firstfault.postmortem.pace import Pace, mid
from firstfault.postmortem.report import Cited, Impact, Loss, LossKind
from firstfault.postmortem.since import find_since
from firstfault.postmortem.whys import GivenWhy
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Verdict

MAX_REPORTED = 5
LEAST_GPUS = 2
LEAST_IDLE_S = 60.0
"""Time below which the log ended with the fault: it does not tell when useful work went on."""

_PRICE = expression(r"(?i)([$€£])\s?(\d{1,4}(?:\.\d{1,4})?)\s*(?:/|per|an?)\s*(?:GPU[- ]?)?h(?:ou)?rs?\b")  # fmt: skip
_GPUS = expression(
    r"(?i)\b(\d{1,5}) ?x ?(?:NVIDIA |AMD )?(?:G?[ABH]\d00|GB\d00|MI\d{3}X?|V100|L40S?|A10G?|L4|T4)\b"
)
_GPUS_NAMED = expression(
    r"(?i)\b(?:gpus|ntasks|world_size)[=:] ?(\d{1,6})\b|\b(\d{1,6}) GPUs\b(?! ?(?:per|each|/|a )\b)"
)
_NODES_OF = expression(
    r"(?i)\b(\d{1,5}) (?:nodes|hosts|machines|servers|pods)\b[^\n]{0,40}? x ?(\d{1,2}) ?(?:NVIDIA |AMD )?(?:[ABH]\d00|GB?\d00|MI\d{3}X?|V100|L40S?|GPUs?)\b|"
    r"\d\.\.[a-z-]{0,20}(\d{1,4})\b[^\n]{0,12}?\b(\d{1,2}) GPUs each\b"
)
"""Nodes with the GPUs of each: "16 nodes c01..c16 x 8 H100", "worker-0..3, 8 GPUs each" (counted from 0)."""
_MESH = expression(r"\b(dp_replicate|dp_shard|dp|tp|pp|cp)\s?[=:]\s?(\d{1,5})\b")
"""Sizes whose product is the number of ranks, as torchtitan prints them; experts share these ranks."""
_BOOKED = expression(r"(?i)\b\d[\d,.]*\s*GPU[- ]?h(?:ou)?rs?\b")


@dataclass(frozen=True, slots=True)
class GivenFigures:
    """What a person knows and the evidence may not say. Times in seconds since the epoch, UTC."""

    gpus: int | None = None
    price: float | None = None
    currency: str = "$"
    start: float | None = None
    end: float | None = None
    whys: tuple[GivenWhy, ...] = ()
    """The five whys as a person has edited them; empty: as drafted."""


def measure_impact(given: GivenFigures, record: RunRecord, pace: Pace | None, book: Book) -> Impact:
    """The cost of an incident, with what is missing to count it and what was assumed."""
    diagnosis, artefacts = record.diagnosis, record.artefacts
    gpus, assumed = _gpus(given, diagnosis, artefacts)
    price, currency = given.price, given.currency
    if price is None:
        price, currency = _price_in(artefacts) or (None, currency)
    losses, more = _losses(given, record, gpus, pace, book)
    stood = [x for x in losses if x.kind is not LossKind.REPEATED]
    start = given.start or find_since(diagnosis, artefacts, stood)[0]
    end = given.end or (stood[-1].end if stood else None)
    missing = []
    if gpus is None:
        missing.append("number of GPUs")
    if price is None:
        missing.append("price of a GPU-hour")
    if start is None:
        missing.append("start of the incident")
    if any(loss.share is None for loss in losses):
        missing.append("share of the throughput that was lost")
    if not stood:
        hourly = f"; every hour until then costs {gpus} GPU-hours" if gpus else ""
        missing.append(f"when useful work went on, since the log ends with the fault{hourly}")
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
        assumed=(*assumed, *more),
    )


def _gpus(
    given: GivenFigures, diagnosis: Diagnosis, artefacts: Artefacts
) -> tuple[int | None, list[str]]:
    """GPUs of the job: as a person says, as a line prints, or one for each rank where all of them wrote."""
    got = diagnosis.input
    if given.gpus:
        return given.gpus, []
    if got.world_size:
        return got.world_size, [f"{got.world_size} GPUs: one for each rank of the job"]
    for line in artefacts.lines:
        sizes = dict(_MESH.findall(line.text[:1_000]))
        if len(sizes) >= 3 and {"tp", "pp"} <= set(sizes):
            count = prod(int(v) for v in sizes.values())
            return count, [
                f"{count} GPUs: the product of the parallel sizes in {line.file}, line {line.line}"
            ]
    seen = len(got.ranks_seen)
    least = max(got.ranks_seen, default=-1) + 1
    for line in artefacts.lines:
        of = _NODES_OF.search(line.text[:1_000])
        if of is not None:
            count = int(of[1]) * int(of[2]) if of[1] else (int(of[3]) + 1) * int(of[4])
            if count >= least:
                return count, [f"{count} GPUs: as {line.file}, line {line.line} says"]
        told = _GPUS.search(line.text[:1_000])
        if told is not None and int(told[1]) >= least:
            return int(told[1]), [f"{told[1]} GPUs: as {line.file}, line {line.line} says"]
        named = _GPUS_NAMED.search(line.text[:1_000])
        count = int(named[1] or named[2]) if named is not None else 0
        if count >= max(least, LEAST_GPUS):
            return count, [f"{count} GPUs: as {line.file}, line {line.line} says"]
    if seen > 1 and least == seen:
        return seen, [f"{seen} GPUs: one for each rank that wrote to the logs"]
    return None, []


def _losses(
    given: GivenFigures,
    record: RunRecord,
    gpus: int | None,
    pace: Pace | None,
    book: Book,
) -> tuple[list[Loss], list[str]]:
    """What was lost, and what was assumed for it."""
    if pace is not None:
        return _measured(given, gpus, pace, book), []
    diagnosis, artefacts = record.diagnosis, record.artefacts
    first = diagnosis.first_line
    first_fault = (
        artefacts.begun_at(first.file, first.line, first.text) if first is not None else None
    )
    idle = record.idle if _stands_still(diagnosis) else None
    ended = any(x.role is ChainRole.TEARDOWN for x in diagnosis.cascade)
    stopped_short = _stands_still(diagnosis) or _is_spoiled(diagnosis, record)
    again = _repeated(record, gpus, book) if stopped_short and not given.start else []
    span = _lost_span(given, idle, first_fault)
    if span is None:
        return again, []
    start, end = span
    assumed = [] if given.end else [f"it lasted until the last line, {_clock(end)} UTC"]
    stated = read_lost_share(artefacts.lines)
    if stated is not None and not ended:
        line = stated.line
        marks = (book.line(line.file, line.line, line.text),)
        assumed.append("the share that was lost is as stated in the evidence, all the time")
        slow = _loss(LossKind.SLOW, start, end, stated.share, gpus, marks)
        return [replace(slow, estimated=True)], assumed
    if diagnosis.category is Category.PERFORMANCE:
        slow = _loss(LossKind.SLOW, start, end, None, gpus, ())
        return [replace(slow, estimated=True)], assumed
    assumed.append("nothing useful was done between start and end")
    stopped = _mark_lines((idle.ends,) if idle is not None and not given.end else (), book)
    lost = _loss(LossKind.STOPPED, start, end, 1.0, gpus, stopped)
    return [*again, replace(lost, estimated=True)], assumed


def _lost_span(
    given: GivenFigures, idle: Stretch | None, first_fault: float | None
) -> tuple[float, float] | None:
    """From when to when, as stated, else as the lines show; None where they do not, or it was over at once."""
    start = given.start or (idle.start if idle is not None else first_fault)
    end = given.end or (idle.end if idle is not None else None)
    if start is None or end is None or end <= start:
        return None
    return (start, end) if given.end or end - start >= LEAST_IDLE_S else None


def _repeated(record: RunRecord, gpus: int | None, book: Book) -> list[Loss]:
    """Work since the checkpoint to resume from; it was done, and has to be done again."""
    lost = record.repeated
    if lost is None:
        return []
    marks = _mark_lines((lost.begins, lost.ends), book)
    return [_loss(LossKind.REPEATED, lost.start, lost.end, 1.0, gpus, marks)]


def _mark_lines(lines: Sequence[TimedLine | None], book: Book) -> tuple[int, ...]:
    return tuple(book.line(x.file, x.line, x.text) for x in lines if x is not None)


def _measured(given: GivenFigures, gpus: int | None, pace: Pace, book: Book) -> list[Loss]:
    slow_from = given.start or pace.healthy[-1].time
    slow_to = pace.pause[0] if pace.pause is not None else (given.end or pace.slow[-1].time)
    marks = (_mark(pace.slow[0], book), _mark(pace.slow[-1], book))
    found = [_loss(LossKind.SLOW, slow_from, slow_to, pace.lost_share, gpus, marks)]
    if pace.pause is not None:
        marks = (_mark(pace.slow[-1], book), _mark(pace.later[0], book))
        found.append(_loss(LossKind.STOPPED, *pace.pause, 1.0, gpus, marks))
    return found


def _stands_still(diagnosis: Diagnosis) -> bool:
    """Something failed or was shut down after the first fault, so that the run did not go on."""
    followed = any(x.role is not ChainRole.INITIATING for x in diagnosis.cascade)
    went_on = diagnosis.run_state is RunState.GOES_ON
    return diagnosis.verdict is Verdict.FAULT and followed and not went_on


def _is_spoiled(diagnosis: Diagnosis, record: RunRecord) -> bool:
    """What was trained since the numbers went wrong has to be done again, whoever ended the run."""
    return diagnosis.verdict is Verdict.FAULT and record.onset is not None


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}"


def _loss(
    kind: LossKind,
    start: float,
    end: float,
    share: float | None,
    gpus: int | None,
    marks: tuple[int, ...],
) -> Loss:
    hours = max(0.0, end - start) / 3600
    known = gpus is not None and share is not None
    return Loss(kind, start, end, share, hours * share * gpus if known else None, marks)  # type: ignore[operator]


def _mark(row: StepRow, book: Book) -> int:
    return book.line(row.file, row.line, row.text)


def _say_throughput(pace: Pace | None, book: Book) -> tuple[Cited, ...]:
    if pace is None:
        return ()
    marks = (_mark(pace.healthy[-1], book), _mark(pace.slow[0], book))
    if any(row.by_rate for row in pace.slow):
        share = f"{100 * pace.lost_share:.0f} % of the throughput was lost, by the logged tokens per second."
        return (Cited(share, marks),)
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
