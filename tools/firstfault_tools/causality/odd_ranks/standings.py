"""Where does each rank stand in its collectives, and how is a rank that parted from the others told?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from firstfault_tools.causality.odd_ranks.last_words import read_doing
from firstfault_tools.dataclass import dataclass
from firstfault_tools.facts import Fact
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.log.digest import Line
from firstfault_tools.log.work import WorkReport

STACK_HEADING = "Stack trace of the failed collective:"
"""Printed above a stack; not above the notice that there is none."""


@dataclass(frozen=True, slots=True)
class RankState:
    """Where one rank stands in one process group."""

    rank: int
    report: WorkReport
    seq: int | None
    op: str | None
    numel: int | None
    enqueued: int | None
    completed: int | None
    timed_out: bool

    @property
    def never_entered(self) -> bool:
        return (
            self.enqueued is not None
            and self.completed is not None
            and self.enqueued == self.completed
        )

    @property
    def issued(self) -> tuple[str | None, int | None]:
        """Operation and size: what must be the same on all ranks."""
        return self.op, self.numel


def read_states(reports: Sequence[WorkReport]) -> dict[int, RankState]:
    """The last standing of every rank in one group, by its reports."""
    states: dict[int, RankState] = {}
    for rank in sorted({r.rank for r in reports}):
        own = [r for r in reports if r.rank == rank]
        timeouts = [r for r in own if r.timed_out and r.op is not None]
        statuses = [r for r in own if r.enqueued is not None]
        lead = timeouts[0] if timeouts else own[0]
        numbered = [r.seq for r in (*timeouts, *own) if r.seq is not None]
        states[rank] = RankState(
            rank=rank,
            report=lead,
            seq=numbered[0] if numbered else None,
            op=lead.op,
            numel=lead.numel_in,
            enqueued=statuses[0].enqueued if statuses else None,
            completed=statuses[0].completed if statuses else None,
            timed_out=bool(timeouts),
        )
    return states


def describe_state(state: RankState) -> str:
    """The collective in words, with size and number where known."""
    seq = f" (SeqNum {state.seq})" if state.seq is not None else ""
    return f"{describe_issued(state)}{seq}"


def describe_issued(state: RankState) -> str:
    """The same without its number, where that stands beside it."""
    size = f" of {state.numel} elements" if state.numel is not None else ""
    return f"{state.op or 'a collective'}{size}"


def say_waited(states: Sequence[RankState]) -> str:
    """` for 600 s`: the longest wait, or nothing."""
    ms = max((s.report.ran_ms or s.report.timeout_ms or 0 for s in states), default=0)
    return f" for {ms / 1000:.0f} s" if ms else ""


def make_readable(line: Line) -> str:
    """A line without the bar of its progress."""
    text = re.sub(r"[█▉▊▋▌▍▎▏#\s]{2,}", " ", line.message if line.message.strip() else line.text)
    return text.strip()[:160]


def describe_divergence(
    kind: str,
    title: str,
    level: Level,
    rank: int | None,
    lines: Sequence[Line],
    page: str,
    words: Sequence[Line],
    category: Category | None = Category.CODE_BUG,
    facts: dict[str, int | None] | None = None,
) -> Finding:
    """Finding about ranks that parted; `words`, what the rank said last, may tell the kind of work."""
    evidence: list[Evidence] = []
    shown: dict[str, str] = {}
    for line in lines:
        if line.evidence() not in evidence:
            evidence.append(line.evidence())
    if words:
        who = f"rank {rank}" if rank is not None else "one of them"
        title += f"; the last thing {who} said before: {make_readable(words[0])!r}"
        doing = read_doing(words)
        if doing is not None and category is Category.CODE_BUG:
            title += f": {doing.means}"
            category, page = doing.category, doing.page
            shown = {Fact.FIX.value: doing.fix} if doing.fix else {}
    return Finding(
        kind=kind,
        title=title,
        level=level,
        category=category,
        evidence=tuple(evidence),
        rank=rank,
        time=lines[0].time,
        page=page,
        facts={**(facts or {}), **shown},
    )


def explain_gathers(one: str | None, other: str | None) -> str:
    """What two gathers of different sizes mean: parameters of different modules are gathered (ZeRO-3, FSDP)."""
    if (
        one is None
        or other is None
        or "ALLGATHER" not in one.upper()
        or "ALLGATHER" not in other.upper()
    ):
        return ""
    return (
        "; they gather parameters of different modules, so one went past a module that got no input there "
        "(an expert of a mixture that received no tokens, a vision tower in a batch without images)"
    )
