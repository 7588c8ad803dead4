"""What helps now, and what for good? Each fix with the line and the page it stands on."""

from __future__ import annotations

import streamlit as st

from firstfault.investigation.diagnosis import Citation, Diagnosis, Fix
from firstfault.investigation.next_action import Action
from firstfault.ui.leading import say_condition
from firstfault.ui.marks import icon, link_marks, mark_text
from firstfault.ui.next_step import write_effect

TITLES = (("immediate", "Fix now"), ("structural", "Fix for good"))


def show_fixes(diagnosis: Diagnosis, above: Action | None) -> None:
    """Both lists, in order. A command that already stands in the card is not repeated."""
    citations = {c.n: c for c in diagnosis.citations}
    for kind, title in TITLES:
        fixes = [f for f in diagnosis.fixes if f.kind == kind]
        if not fixes:
            continue
        st.html(f'<h3 class="ff ff-title">{title}</h3>')
        for number, fix in enumerate(fixes, 1):
            _show_fix(number, fix, citations, above)


def _show_fix(number: int, fix: Fix, citations: dict[int, Citation], above: Action | None) -> None:
    tag = ""
    in_card = above is not None and fix.text == above.what
    if in_card:
        tag = '<span class="ff-tag ff-muted">in the card above</span>'
    elif fix.command:
        tag = write_effect(fix.command, fix.changes_state)
    elif fix.changes_state:
        tag = f'<span class="ff-tag ff-tone-warn">{icon("edit")} changes state</span>'
    said = mark_text(say_condition(fix), citations)
    condition = f'<p class="ff-muted">{icon("call_split")} {said}</p>' if said else ""
    st.html(
        f'<div class="ff ff-fix"><span class="k">{number}</span><div>{mark_text(fix.text, citations)}'
        f"{link_marks(fix.citations, citations)} {tag}{condition}</div></div>"
    )
    if fix.command and not in_card:
        st.code(fix.command, language=None, wrap_lines=True)
