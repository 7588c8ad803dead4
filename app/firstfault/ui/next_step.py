"""What should be done next? One thing with a copy button, and what doing it changes; never run from here."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import streamlit as st

from firstfault.investigation.diagnosis import Citation, Diagnosis
from firstfault.investigation.next_action import Action
from firstfault.ui.effects import LOOKS, THEN, Effect, judge_command, only_looks, split_look
from firstfault.ui.marks import icon, link_marks, mark_text, sentence


def write_effect(command: str, changes_state: bool = False) -> str:
    """Icon and words for what a command does."""
    effect = (
        Effect.READS
        if only_looks(command, changes_state)
        else judge_command(command, changes_state)
    )
    look = LOOKS[effect]
    return f'<span class="ff-tag ff-tone-{look.tone}">{icon(look.icon)} {effect.value}</span>'


def show_action(action: Action, diagnosis: Diagnosis) -> None:
    """The one thing to do, inside the card. Without a command its words can be copied."""
    citations = {c.n: c for c in diagnosis.citations}
    marks = link_marks(action.citations, citations)
    where = f"<b>{escape(action.where.said)}:</b> " if action.where is not None else ""
    if action.command:
        effect = write_effect(action.command, action.changes_state)
        why = f'<span class="ff-muted">: {escape(action.why)}</span>' if action.why else ""
        said = f"<p>{where}{mark_text(sentence(action.what), citations)}{marks}{why}</p>"
    else:
        effect = marks
        why = f'<span class="ff-muted">{escape(sentence(action.why))}</span>' if action.why else ""
        said = f"<p>{where}{why}</p>" if where or why else ""
    if action.blanks:
        said += f'<p class="ff-muted">Put in: {escape("; ".join(action.blanks))}.</p>'
    st.html(
        f'<section class="ff ff-action" aria-label="{action.title}"><h3 class="ff-title">{action.title}'
        f"{effect}</h3>{said}</section>"
    )
    # words have the copy button of a code block, but not its letters
    with st.container(key="action-command" if action.command else "action-words"):
        if action.choices:
            for tab, (_, command) in zip(
                st.tabs([name for name, _ in action.choices]), action.choices, strict=True
            ):
                with tab:
                    _show_command(command)
        else:
            _show_command(action.command or action.what.replace("`", ""))
    if action.reading:
        st.html(write_reading(action, citations))


def _show_command(command: str) -> None:
    """A block to be copied; what is looked at first in one of its own."""
    look, rest = split_look(command)
    if look:
        st.code(look, language=None, wrap_lines=True)
        st.html(f'<p class="ff ff-muted">{THEN}</p>')
    st.code(rest, language=None, wrap_lines=True)


def write_reading(action: Action, citations: Mapping[int, Citation]) -> str:
    """How the output is read: what follows from what it shows."""
    rows = (
        f"<p><b>{mark_text(condition, citations)}:</b> {mark_text(sentence(follows), citations)}</p>"
        for condition, follows in action.reading
    )
    return f'<div class="ff ff-then">{"".join(rows)}</div>'


def show_collecting(diagnosis: Diagnosis, above: Action | None) -> None:
    """What else would help, each with its command."""
    others = [a for a in diagnosis.next_artefacts if above is None or a.command != above.command]
    if not others:
        return
    st.html('<h3 class="ff ff-title">Collect as well</h3>')
    for artefact in others:
        st.html(
            f'<p class="ff">{escape(sentence(artefact.what))}: {escape(artefact.why)} '
            f"{write_effect(artefact.command)}</p>"
        )
        st.code(artefact.command, language=None, wrap_lines=True)
