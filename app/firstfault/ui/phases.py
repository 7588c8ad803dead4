"""Where does the investigation stand? Five phases; each opens into its question and what speaks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from firstfault.investigation.diagnosis import (
    Citation,
    Diagnosis,
    Phase,
    PhaseName,
    PhaseStatus,
)
from firstfault.ui.marks import icon, link_marks, mark_text, sentence
from firstfault.ui.words import PHASE_STATES, PHASES, QUESTIONS
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Verdict

MOST_FINDINGS = 6
_NUMBERED = expression(r"(?:\s*\[\d{1,3}\])+")


def write_phases(phases: Sequence[Phase], running: bool = False) -> str:
    """The bar as HTML; phases that are not known yet wait, the first of them is at work."""
    known: Mapping[PhaseName, Phase] = {p.name: p for p in phases}
    waiting = [n for n in PhaseName if n not in known]
    items = []
    for name in PhaseName:
        phase = known.get(name)
        if phase is not None:
            items.append(_item(name, phase.status, phase.summary))
        elif running and name is waiting[0]:
            items.append(_line(name, "progress_activity", "at work", "plain", "", spin=True))
        else:
            items.append(
                _line(name, "pending", "waiting" if running else "not reached", "plain", "")
            )
    return (
        f'<ol class="ff ff-phases" aria-label="Phases of the investigation">{"".join(items)}</ol>'
    )


def say_phases(phases: Sequence[Phase]) -> str:
    """Where it stands in one line: `3 of 5 phases answered; open: isolate, resolve`."""
    still = [PHASES[p.name].lower() for p in phases if p.status is PhaseStatus.OPEN]
    answered = len(phases) - len(still)
    return f"Phases: {answered} of {len(phases)} answered" + (f"; open: {', '.join(still)}" if still else "")  # fmt: skip


def write_opened(phases: Sequence[Phase], diagnosis: Diagnosis) -> str:
    """Every phase as a fold: its question, the answer, for, against, and what would change it."""
    citations = {c.n: c for c in diagnosis.citations}
    return "".join(_fold(phase, diagnosis, citations) for phase in phases)


def _fold(phase: Phase, diagnosis: Diagnosis, citations: Mapping[int, Citation]) -> str:
    look = PHASE_STATES[phase.status]
    rows = [
        ("Question", escape(QUESTIONS[phase.name])),
        ("Answer", mark_text(sentence(phase.summary), citations)),
        ("Seen", "<br>".join(escape(sentence(f)) for f in phase.findings[:MOST_FINDINGS])),
        *_evidence(phase.name, diagnosis, citations),
        ("Would change it", _say_change(phase.name, diagnosis, citations)),
    ]
    items = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in rows if text)
    return (
        f'<details class="ff ff-phase"><summary><b>{PHASES[phase.name]}</b>'
        f'<span class="st ff-tone-{look.tone}">{icon(look.icon)} {look.word}</span>'
        f'<span class="sum">{escape(_unmarked(phase.summary))}</span></summary>'
        f"<dl>{items}</dl></details>"
    )


def _unmarked(summary: str) -> str:
    """The answer in one row, for a fold that is closed: numbers that open nothing there are left out."""
    return sentence(" ".join(_NUMBERED.sub("", summary).split()))


def _evidence(
    name: PhaseName, diagnosis: Diagnosis, citations: Mapping[int, Citation]
) -> list[tuple[str, str]]:
    """What speaks for and against the answer of a phase."""
    lead = diagnosis.hypotheses[0] if diagnosis.hypotheses else None
    if lead is None or diagnosis.verdict is Verdict.HEALTHY:
        return []
    for_, against = link_marks(lead.for_, citations), link_marks(lead.against, citations)
    others = [h for h in diagnosis.hypotheses[1:] if h.for_]
    rivals = "<br>".join(
        f"{escape(sentence(h.root_cause))} {link_marks(h.for_, citations)}" for h in others
    )
    if name is PhaseName.LOCALIZE:
        return [("For", for_)]
    if name is PhaseName.ISOLATE:
        test = "; ".join(escape(a.what) for a in diagnosis.next_artefacts)
        return [("For another cause", rivals), ("Would separate them", test if others else "")]
    if name is PhaseName.ROOT_CAUSE:
        return [("For", for_), ("Against", against or "Nothing that was read.")]
    return []


def _say_change(name: PhaseName, diagnosis: Diagnosis, citations: Mapping[int, Citation]) -> str:
    """What would change the answer of a phase, named from this incident as far as it goes."""
    first, got = diagnosis.first_line, diagnosis.input
    healthy = diagnosis.verdict is Verdict.HEALTHY
    wanted = "; ".join(a.what for a in diagnosis.next_artefacts[:2])
    if name is PhaseName.TRIAGE:
        end = (
            f" after {got.time_range[1].replace('T', ' ').removesuffix('Z')} UTC"
            if got.time_range
            else ""
        )
        told = (
            f"an error line{end}, or a file that was not given"
            if healthy
            else f"a step line{end}: the run went on"
        )
        return escape(sentence(told))
    if name is PhaseName.LOCALIZE:
        missing = (got.world_size or 0) - len(got.ranks_seen)
        before = (
            f" before line {first.line} of {first.file}" if first is not None and first.line else ""
        )
        logs = (
            f"an earlier fault in the logs of the {missing} ranks that were not read"
            if missing > 0
            else ""
        )
        return escape(
            sentence(logs or f"a line of another rank or host{before} that reports the same")
        )
    if name is PhaseName.ISOLATE:
        return escape(sentence(wanted or "a line that none of the explanations accounts for"))
    if name is PhaseName.ROOT_CAUSE:
        told = diagnosis.disproof or wanted
        return mark_text(sentence(told), citations) if told else ""
    return "" if healthy else "The run fails again past the step where it failed."


def _item(name: PhaseName, status: PhaseStatus, summary: str) -> str:
    look = PHASE_STATES[status]
    return _line(name, look.icon, look.word, look.tone, summary[:1].upper() + summary[1:])


def _line(
    name: PhaseName, symbol: str, word: str, tone: str, summary: str, spin: bool = False
) -> str:
    shown = icon(symbol)
    if spin:
        shown = shown.replace('class="ff-icon"', 'class="ff-icon ff-spin"')
    return (
        f'<li><b>{PHASES[name]}</b><span class="st ff-tone-{tone}">{shown}{word}</span>'
        f'<p title="{escape(summary, quote=True)}">{escape(summary)}</p></li>'
    )
