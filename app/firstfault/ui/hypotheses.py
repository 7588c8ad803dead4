"""Why this cause, what would prove it wrong, and what else could it be? For and against, side by side."""

from __future__ import annotations

from html import escape

import streamlit as st

from firstfault.investigation.diagnosis import Diagnosis, Hypothesis
from firstfault.ui.marks import link_marks, mark_text, sentence
from firstfault.ui.words import name_category
from firstfault_tools.findings import Verdict


def show_why(diagnosis: Diagnosis) -> None:
    """How the cause is known, what would overturn it, and the explanations that lost."""
    text = mark_text(diagnosis.explanation, {c.n: c for c in diagnosis.citations})
    if text.strip():
        st.html(f'<div class="ff ff-prose"><p>{text}</p></div>')
    show_disproof(diagnosis)
    show_hypotheses(diagnosis)


def show_disproof(diagnosis: Diagnosis) -> None:
    """What would show that the verdict is wrong."""
    if not diagnosis.disproof or diagnosis.verdict is Verdict.HEALTHY:
        return
    text = mark_text(diagnosis.disproof, {c.n: c for c in diagnosis.citations})
    st.html(
        '<section class="ff" aria-label="What would prove this wrong"><h3 class="ff-title">'
        f'What would prove this wrong</h3><p style="margin-top:.3rem">{text}</p></section>'
    )


def show_hypotheses(diagnosis: Diagnosis) -> None:
    """The explanations that lost, best first."""
    others = diagnosis.hypotheses[1:]
    if not others:
        return
    items = "".join(_write(h, diagnosis) for h in others)
    st.html(
        '<section class="ff" aria-label="Other hypotheses"><h3 class="ff-title">Other hypotheses</h3>'
        f'<div style="margin-top:.3rem">{items}</div></section>'
    )


def _write(hypothesis: Hypothesis, diagnosis: Diagnosis) -> str:
    citations = {c.n: c for c in diagnosis.citations}
    speaks_for = link_marks(hypothesis.for_, citations) or "nothing quoted"
    against = link_marks(hypothesis.against, citations) or "nothing quoted"
    category = name_category(hypothesis.category)
    return (
        f'<div class="ff-hyp"><p>{escape(sentence(hypothesis.root_cause))}</p><div class="fa">'
        f"<span>{hypothesis.confidence.value.capitalize()}</span><span>{escape(category)}</span>"
        f"<span>for {speaks_for}</span><span>against {against}</span></div></div>"
    )
