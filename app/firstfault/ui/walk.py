"""Where does the investigation stand after a turn? The phases as they moved, and the hypothesis board."""

from __future__ import annotations

from html import escape

import streamlit as st

from firstfault.incidents.events import Explained, WalkShown
from firstfault.ui.marks import sentence
from firstfault.ui.phases import say_phases, write_phases


def show_walk(walk: WalkShown, latest: bool) -> None:
    """Phases, and the board in a fold; of turns before the latest one line, since they moved on."""
    if not latest:
        st.html(f'<p class="ff ff-foot">{escape(say_phases(walk.phases))}</p>')
        return
    st.html(write_phases(walk.phases))
    if not walk.board:
        return
    with st.expander(f"Hypotheses ({len(walk.board)})"):
        st.html(write_board(walk))


def write_board(walk: WalkShown) -> str:
    """The board as HTML: state, for, against and test of every explanation."""
    rows = "".join(_row(number, row) for number, row in enumerate(walk.board, 1))
    test = (
        f"<p><b>Tells the first two apart:</b> {escape(walk.separating_test)}</p>"
        if walk.separating_test
        else ""
    )
    return f'<section class="ff" aria-label="Hypothesis board">{rows}{test}</section>'


def _row(number: int, row: Explained) -> str:
    lists = "".join(
        f"<p><b>{name}</b> {escape('; '.join(items))}</p>"
        for name, items in (("For:", row.for_[:3]), ("Against:", row.against[:3]))
        if items
    )
    test = f"<p><b>Test:</b> {escape(row.test)}</p>" if row.test else ""
    return (
        f'<div class="ff-hyp"><p>{number}. {escape(sentence(row.root_cause))}</p><div class="fa">'
        f"<span>{escape(row.confidence.capitalize())}</span><span>{escape(row.state)}</span></div>{lists}{test}</div>"
    )
