"""What does a blocked thread wait for, by the frames it stands in?

The patterns are data (hang_patterns.json), of three parts. Work says by itself what goes on (a collective, a
compilation, a child process); a wait is how any work may stand still (the network, a future, a queue, a lock), of
which earlier rows are the more telling; a phase is what the program is about (its data, a checkpoint, an evaluation).
The innermost decides: who stands in a collective waits in it, though a save has called it. A phase takes in the waits
it is made of (`absorbs`): a data loader that waits for a queue waits for its loader, one that reads from a socket
waits for the network. A culprit does something that no collective waits for; a victim waits for other ranks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category
from firstfault_tools.stacks.dump import StackFrame, ThreadStack


class Role(StrEnum):
    """Whether a rank that stands here holds others up, or is held up."""

    CULPRIT = "culprit"
    VICTIM = "victim"


class Part(StrEnum):
    """What a pattern tells of a thread: see the head of this file."""

    WORK = "work"
    WAIT = "wait"
    PHASE = "phase"


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of standing still. `file` and `function` must match the same frame, if given.

    page: id of the knowledge page with the fixes; phase_pages: another one where it is met in a phase of that category.
    absorbs: waits and work that this phase is made of. of_phase: its category is that of the phase it is met in.
    of_whom: another thread or process of the same rank ends it. nobody_among_us: no rank of the job ends it.
    branch_page: the page of a collective that only one rank enters in this phase.
    apart: ranks are in different ones of these by plan. note: what a reader has to know of it, a clause.
    """

    id: str
    part: Part
    says: str
    role: Role
    category: Category
    page: str
    file: re.Pattern[str] | None
    function: re.Pattern[str] | None
    during: str
    absorbs: frozenset[str]
    of_phase: bool
    of_whom: bool
    nobody_among_us: bool
    apart: bool
    branch_page: str | None
    note: str
    phase_pages: Mapping[str, str]

    def matches(self, frame: StackFrame) -> bool:
        """Whether a frame is of this kind."""
        if self.file is not None and not self.file.search(frame.file):
            return False
        if self.function is None:
            return True
        # py-spy may print `Event.wait`; the bare name is matched as well.
        bare = frame.function.rsplit(".", 1)[-1]
        return bool(self.function.search(frame.function) or self.function.search(bare))


@dataclass(frozen=True, slots=True)
class Standing:
    """What a thread waits for, and in which phase.

    pattern: None if none fits. frame: the one that shows it. by: how it stands still, where a phase or work says more.
    """

    pattern: Pattern | None
    frame: StackFrame | None
    phase: Pattern | None = None
    by: Pattern | None = None

    @property
    def is_victim(self) -> bool:
        """Whether it only waits for others."""
        return self.pattern is not None and self.pattern.role is Role.VICTIM

    @property
    def is_owed(self) -> bool:
        """Whether another thread or process of the same rank has to end it."""
        if self.is_victim:
            return False
        return any(p is not None and p.of_whom for p in (self.pattern, self.by))

    @property
    def category(self) -> Category | None:
        """Of what it waits for; of what it is about where any kind of work may wait so."""
        if self.pattern is None:
            return None
        of_phase = self.phase if self.pattern.of_phase else None
        return of_phase.category if of_phase is not None else self.pattern.category

    @property
    def page(self) -> str | None:
        """The page with the fixes of what it waits for."""
        if self.pattern is None:
            return None
        about = self.phase.category if self.phase is not None else ""
        return self.pattern.phase_pages.get(about, self.pattern.page)

    @property
    def says(self) -> str:
        """What it does, as the end of a sentence; empty where nothing fits."""
        if self.pattern is None:
            return ""
        inside = self.phase if self.phase is not self.pattern and not self.is_victim else None
        return " ".join(filter(None, (self.pattern.says, inside.during if inside else "")))


@cache
def patterns() -> tuple[Pattern, ...]:
    """All patterns, in order of precedence."""
    raw = json.loads(Path(__file__).with_name("hang_patterns.json").read_text("utf-8"))
    return tuple(
        Pattern(
            id=row["id"],
            part=Part(row["part"]),
            says=row["says"],
            role=Role(row["role"]),
            category=Category(row["category"]),
            page=row["page"],
            file=expression(row["file"]) if row.get("file") else None,
            function=expression(row["function"]) if row.get("function") else None,
            during=row.get("during", ""),
            absorbs=frozenset(row.get("absorbs", ())),
            of_phase=row.get("of_phase", False),
            of_whom=row.get("of_whom", False),
            nobody_among_us=row.get("nobody_among_us", False),
            apart=row.get("apart", False),
            branch_page=row.get("branch_page"),
            note=row.get("note", ""),
            phase_pages=row.get("phase_pages", {}),
        )
        for row in raw["patterns"]
    )


@dataclass(frozen=True, slots=True)
class _Match:
    depth: int
    pattern: Pattern


def classify(thread: ThreadStack) -> Standing:
    """What a thread waits for; a `Standing` without a pattern where nothing fits."""
    frames = thread.frames
    work, phase = _innermost(frames, Part.WORK), _innermost(frames, Part.PHASE)
    if work is not None and phase is not None and _takes(phase, work):
        work = None
    wait = _first_wait(frames[: phase.depth + 1] if phase is not None else frames)
    lead = work
    if lead is None:
        lead = phase if wait is None or (phase is not None and _takes(phase, wait)) else wait
    if lead is None:
        return Standing(None, frames[0] if frames else None)
    by = wait.pattern if wait is not None and wait is not lead else None
    return Standing(lead.pattern, frames[lead.depth], phase.pattern if phase else None, by)


def _takes(phase: _Match, inner: _Match) -> bool:
    """Whether the phase tells more than what was found beside it: it is made of that, or lies within it."""
    return inner.pattern.id in phase.pattern.absorbs or inner.depth > phase.depth


def _innermost(frames: tuple[StackFrame, ...], part: Part) -> _Match | None:
    own = [p for p in patterns() if p.part is part]
    return next((_Match(n, p) for n, f in enumerate(frames) for p in own if p.matches(f)), None)


def _first_wait(frames: tuple[StackFrame, ...]) -> _Match | None:
    own = [p for p in patterns() if p.part is Part.WAIT]
    return next((_Match(n, p) for p in own for n, f in enumerate(frames) if p.matches(f)), None)
