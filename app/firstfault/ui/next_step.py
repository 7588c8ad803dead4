"""What should be run next? One command first, with what running it does; never run from here."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import streamlit as st

from firstfault.investigation.diagnosis import Diagnosis
from firstfault.ui.effects import LOOKS, Effect, judge_command
from firstfault.ui.marks import icon, link_marks, sentence


@dataclass(frozen=True, slots=True)
class NextStep:
    """A command with its reason. citations: marks of the fix it belongs to."""

    what: str
    why: str
    command: str
    changes_state: bool = False
    citations: tuple[int, ...] = ()


def choose_next_step(diagnosis: Diagnosis) -> NextStep | None:
    """The artefact that settles most, else the first fix that has a command."""
    for artefact in diagnosis.next_artefacts:
        if artefact.command:
            return NextStep(artefact.what, artefact.why, artefact.command)
    fixes = sorted(diagnosis.fixes, key=lambda f: (f.kind != "immediate", f.changes_state))
    for fix in fixes:
        if fix.command:
            return NextStep(fix.text, "", fix.command, fix.changes_state, fix.citations)
    return None


def write_effect(command: str, changes_state: bool = False) -> str:
    """Icon and words for what a command does."""
    effect = judge_command(command, changes_state)
    look = LOOKS[effect]
    return f'<span class="ff-tag ff-tone-{look.tone}">{icon(look.icon)} {effect.value}</span>'


def show_next_step(diagnosis: Diagnosis) -> None:
    """The command to copy, and what else would help."""
    step = choose_next_step(diagnosis)
    if step is None:
        return
    marks = link_marks(step.citations, {c.n: c for c in diagnosis.citations})
    effect = judge_command(step.command, step.changes_state)
    title = "Next change" if effect in (Effect.CODE, Effect.SETTING) else "Next command"
    why = f": {escape(step.why)}" if step.why else ""
    st.html(
        f'<section class="ff" aria-label="{title}"><h3 class="ff-title">{title}'
        f"{write_effect(step.command, step.changes_state)}</h3>"
        f'<p style="margin-top:.3rem">{escape(sentence(step.what))}{why}{marks}</p></section>'
    )
    st.code(step.command, language=None, wrap_lines=True)
    others = [a for a in diagnosis.next_artefacts if a.command != step.command]
    if others:
        with st.expander(f"{len(others)} more to collect"):
            for artefact in others:
                st.html(
                    f'<p class="ff">{escape(sentence(artefact.what))}: {escape(artefact.why)} '
                    f"{write_effect(artefact.command)}</p>"
                )
                st.code(artefact.command, language=None, wrap_lines=True)
