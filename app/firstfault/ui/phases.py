"""Where does the investigation stand? The bar of five phases; icon and word, never colour alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from firstfault.investigation.diagnosis import Phase, PhaseName, PhaseStatus
from firstfault.ui.marks import icon
from firstfault.ui.words import PHASE_STATES, PHASES


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
