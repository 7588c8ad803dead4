"""What does somebody need in ten seconds? One sentence, four facts, how sure, and one thing to do.

Page, terminal and `watch` draw the same card.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from firstfault.investigation.blanks import fill_command
from firstfault.investigation.diagnosis import CitationKind, Diagnosis, Fix, LedBy
from firstfault.investigation.headline import capitalise, say_plainly
from firstfault.investigation.waits import wait_in
from firstfault.ui.leading import say_condition
from firstfault.ui.words import CONFIDENCE, HEALTHY_CERTAINTY, HEALTHY_CONFIDENCE, name_category
from firstfault_tools.findings import Category, Confidence, Verdict
from firstfault_tools.hardware.bus import call_gpu
from firstfault_tools.knowledge.page import Page, bullets
from firstfault_tools.log.clock import read_time

GOES_ON = frozenset({Category.PERFORMANCE, Category.NUMERICAL})
"""Kinds in which the run goes on, so that its GPUs are not idle."""

NAMED_BY_MESSAGE = frozenset({Category.OOM, Category.ENVIRONMENT})
"""Kinds whose own message names what failed: a fix at hand tells more than another artefact."""

GONE = frozenset({Category.OOM})
"""Kinds whose process is gone with what it held: its memory can be looked at in the next run only, which should have
the fix in it."""

NO_PLACE = "no single rank or host (none is named in what was read)"
LEAST_IDLE_S = 60.0
DECIDING = "Deciding line"
"""Name of the fact that the page leaves to the excerpt below the card."""
"""Idle time below which the log ended with the fault and says nothing of what it cost."""

_COMMAND = re.compile(r"```\w*\n(.{1,800}?)\n\s*```", re.S)


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do: in words, and as a command where there is one.

    settles: it is a check that would settle the verdict, not a fix.
    """

    what: str
    why: str
    command: str = ""
    changes_state: bool = False
    citations: tuple[int, ...] = ()
    settles: bool = False
    then: str = ""
    """The first fix, to be done where the check bears the verdict out."""
    blanks: tuple[str, ...] = ()
    """What the person has to put into the command: `NODE, the name of the node`."""

    @property
    def title(self) -> str:
        """`Do next` for a fix, `Check next` for what would settle the verdict."""
        return "Check next" if self.settles else "Do next"


@dataclass(frozen=True, slots=True)
class Card:
    """headline: place and cause. detail: what else the cause says. facts: (name, value), known ones only."""

    headline: str
    detail: str
    facts: tuple[tuple[str, str], ...]
    certainty: str
    reason: str
    leads: str
    action: Action | None


def make_card(diagnosis: Diagnosis, pages: Mapping[str, Page] | None = None) -> Card:
    """The card of a diagnosis. pages: the knowledge, whose checks may be the next thing to do."""
    headline, detail = say_plainly(diagnosis)
    healthy = diagnosis.verdict is Verdict.HEALTHY
    reason = HEALTHY_CONFIDENCE if healthy else CONFIDENCE[diagnosis.confidence]
    certainty = HEALTHY_CERTAINTY if healthy else diagnosis.confidence.value.capitalize()
    action = None if healthy else choose_action(diagnosis, pages or {})
    return Card(
        headline, detail, _facts(diagnosis), certainty, reason, _say_leader(diagnosis),
        _fill(action, diagnosis) if action is not None else None,
    )  # fmt: skip


def _fill(action: Action, diagnosis: Diagnosis) -> Action:
    command, blanks = fill_command(action.command, diagnosis)
    return replace(action, command=command, blanks=blanks)


def choose_action(diagnosis: Diagnosis, pages: Mapping[str, Page]) -> Action | None:
    """The first fix of what is confirmed; of what is likely its own check, else the first fix; of what is less than
    that the artefact that is missing.
    """
    fixes = sorted(
        (f for f in diagnosis.fixes if f.kind == "immediate"), key=lambda f: bool(f.condition)
    )
    fixes = fixes or list(diagnosis.fixes)
    likely = diagnosis.confidence is Confidence.LIKELY
    if fixes and (diagnosis.confidence is Confidence.CONFIRMED or _is_at_hand(fixes[0], diagnosis)):
        return _fix(fixes[0])
    check = _find_check(diagnosis, pages)
    if not likely:
        check = _ask_for(diagnosis) or check
    elif check is None:
        # logs of other ranks or a run with more reporting would be collected for any fault: a fix tells more
        check = _ask_for(diagnosis, own=bool(fixes))
    if check is None:
        return _fix(fixes[0]) if fixes else _collect(diagnosis)
    holds = [fix.text for fix in fixes if not fix.condition]
    return replace(check, then=holds[0] if holds and likely else "")


def _is_at_hand(fix: Fix, diagnosis: Diagnosis) -> bool:
    """What is likely, named by its own message, and mended by a command or at the next start."""
    if diagnosis.confidence is not Confidence.LIKELY or fix.condition:
        return False
    named = diagnosis.category in NAMED_BY_MESSAGE and bool(fix.command)
    return named or diagnosis.category in GONE


def _ask_for(diagnosis: Diagnosis, own: bool = False) -> Action | None:
    """The artefact that is missing and can be had by a command. own: only what this very fault asks for."""
    wanted = [a for a in diagnosis.next_artefacts if a.command and (a.of_fault or not own)]
    if not wanted:
        return None
    first = wanted[0]
    return Action(capitalise(first.what), first.why, first.command, settles=True)


def _fix(fix: Fix) -> Action:
    return Action(fix.text, say_condition(fix), fix.command or "", fix.changes_state, fix.citations)


def _collect(diagnosis: Diagnosis) -> Action | None:
    wanted = diagnosis.next_artefacts[:1]
    return Action(capitalise(wanted[0].what), wanted[0].why, settles=True) if wanted else None


def _find_check(diagnosis: Diagnosis, pages: Mapping[str, Page]) -> Action | None:
    """A check with a command on the page that the verdict rests on: the first whose names are all known, else the
    first."""
    for citation in diagnosis.citations:
        page = pages.get(citation.page or "") if citation.kind is CitationKind.PAGE else None
        section = page.section("How to confirm") if page is not None else None
        found_here = []
        for item in bullets(section.text) if section is not None else ():
            text = "\n".join(item)
            found = _COMMAND.search(text)
            if found is not None:
                words = " ".join(text[: found.start()].split()).rstrip(":.")
                command = "\n".join(line.strip() for line in found[1].split("\n"))
                found_here.append(Action(words, "", command, citations=(citation.n,), settles=True))
        if page is not None:
            filled = [a for a in found_here if not fill_command(a.command, diagnosis)[1]]
            return next(iter((*filled, *found_here)), None)
    return None


def _say_leader(diagnosis: Diagnosis) -> str:
    leader = {
        LedBy.RULE: f"by rule {diagnosis.signature}" if diagnosis.signature else "",
        LedBy.MODEL: "led by the model's reasoning",
        LedBy.PERSON: "led by what a person checked",
    }[diagnosis.led_by]
    return "" if diagnosis.verdict is Verdict.HEALTHY else leader


def _facts(diagnosis: Diagnosis) -> tuple[tuple[str, str], ...]:
    at, about = time_of_fault(diagnosis)
    since = f"{'about ' if about else ''}{datetime.fromtimestamp(at, UTC):%d %b %Y, %H:%M:%S} UTC" if at else ""  # fmt: skip
    if since and (waited := read_wait(diagnosis)):
        since += f" (reported {say_duration(waited)} later)"
    first = diagnosis.first_line
    line = (f"{first.file}:{first.line}" if first.line else first.file) if first else ""
    rows = [
        ("What", name_category(diagnosis.category)),
        ("Where", say_where(diagnosis)),
        ("Since", since),
        say_idle(diagnosis, at),
        (DECIDING, line),
    ]
    if diagnosis.verdict is Verdict.HEALTHY:
        rows = rows[1:2]
    return tuple((name, value) for name, value in rows if value)


def say_where(diagnosis: Diagnosis) -> str:
    """`rank 11 on gpu-a17, GPU 3 (local rank 3)`, as far as it is known; what is not known is said."""
    rank, host, gpu = diagnosis.first_failing_rank, diagnosis.host, call_gpu(diagnosis.gpu)
    of_host = f" on {host}" if rank is not None else f"host {host}"
    place = ("" if rank is None else f"rank {rank}") + (of_host if host else "")
    where = ", ".join(p for p in (place, gpu) if p)
    if diagnosis.verdict is Verdict.HEALTHY or (not where and diagnosis.first_line is None):
        return where
    unknown = [] if host else ["host not named in what was read"]
    local = [] if diagnosis.local_rank is None else [f"local rank {diagnosis.local_rank}"]
    notes = "; ".join([*local, *unknown])
    return f"{where}{f' ({notes})' if notes else ''}" if where else NO_PLACE


def time_of_fault(diagnosis: Diagnosis) -> tuple[float | None, bool]:
    """(seconds since the epoch, whether only about then) of the deciding line, else of its chain."""
    span = diagnosis.input.time_range
    first = diagnosis.first_line
    if span is None or first is None:
        return None, False
    year = int(span[0][:4])
    if (at := read_time(first.text, year)) is not None:
        return at - read_wait(diagnosis), False
    # a watchdog nearby reports what began when its wait did
    near = [
        (abs(link.line - first.line), at - wait_in(link.text))
        for link in diagnosis.cascade
        if link.file == first.file and (at := read_time(link.text, year)) is not None
    ]
    return (min(near)[1], True) if near else (None, False)


def read_wait(diagnosis: Diagnosis) -> float:
    """Seconds for which the deciding line says that it has waited when it was written; 0 where it says none."""
    return wait_in(diagnosis.first_line.text) if diagnosis.first_line is not None else 0.0


def say_duration(seconds: float) -> str:
    """`30 min`, `45 s`."""
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def say_idle(diagnosis: Diagnosis, since: float | None) -> tuple[str, str]:
    """Name and value: GPU-hours from the fault to the last line, else what an hour costs, with what was
    assumed; no value where nothing tells."""
    idle = "Idle so far"
    span, gpus = diagnosis.input.time_range, count_gpus(diagnosis)
    failed = diagnosis.verdict in (Verdict.FAULT, Verdict.UNKNOWN)
    if since is None or span is None or not gpus or not failed or diagnosis.category in GOES_ON:
        return idle, ""
    seconds = datetime.fromisoformat(span[1].replace("Z", "+00:00")).timestamp() - since
    known = diagnosis.input.world_size is not None
    several = "s" if gpus > 1 else ""
    assumed = f"{gpus} GPU{several}, one a rank" + ("" if known else " seen")
    if not LEAST_IDLE_S <= seconds < 30 * 86_400:
        return "Idle costs", f"{gpus} GPU-hour{several} an hour (while it stays down; {assumed})"
    return idle, f"{gpus * seconds / 3600:.1f} GPU-hours to the last line ({assumed})"


def count_gpus(diagnosis: Diagnosis) -> int | None:
    """GPUs of the job, one a rank: its size where a line prints it, else the ranks seen."""
    return diagnosis.input.world_size or len(diagnosis.input.ranks_seen) or None
