"""What helps now, and what for good? Each fix with the line and the page it stands on."""

from __future__ import annotations

import streamlit as st

from firstfault.investigation.diagnosis import Citation, Diagnosis, Fix
from firstfault.ui.marks import icon, link_marks, mark_text
from firstfault.ui.next_step import choose_next_step, write_effect

TITLES = (("immediate", "Fix now"), ("structural", "Fix for good"))


def show_fixes(diagnosis: Diagnosis) -> None:
    """Both lists, in order. A command that already stands above as the next one is not repeated."""
    step = choose_next_step(diagnosis)
    above = step.command if step is not None else None
    citations = {c.n: c for c in diagnosis.citations}
    for kind, title in TITLES:
        fixes = [f for f in diagnosis.fixes if f.kind == kind]
        if not fixes:
            continue
        st.html(f'<h3 class="ff ff-title">{title}</h3>')
        for number, fix in enumerate(fixes, 1):
            _show_fix(number, fix, citations, above)


def _show_fix(number: int, fix: Fix, citations: dict[int, Citation], above: str | None) -> None:
    tag = ""
    if fix.command and fix.command == above:
        tag = '<span class="ff-tag ff-muted">command above</span>'
    elif fix.command:
        tag = write_effect(fix.command, fix.changes_state)
    elif fix.changes_state:
        tag = f'<span class="ff-tag ff-tone-warn">{icon("edit")} changes state</span>'
    st.html(
        f'<div class="ff ff-fix"><span class="k">{number}</span><div>{mark_text(fix.text, citations)}'
        f"{link_marks(fix.citations, citations)} {tag}</div></div>"
    )
    if fix.command and fix.command != above:
        st.code(fix.command, language=None, wrap_lines=True)
