"""What is the first fault, in one sentence, and what is done next? The card everything else supports."""

from __future__ import annotations

import time
from collections.abc import Mapping
from html import escape

import streamlit as st

from firstfault.incidents.events import RuledOut
from firstfault.investigation.diagnosis import Citation, Diagnosis
from firstfault.ui.age import describe_age
from firstfault.ui.card import DECIDING, Card
from firstfault.ui.leading import say_leading
from firstfault.ui.marks import icon, link_marks, mark_text
from firstfault.ui.next_step import show_action
from firstfault.ui.words import VERDICTS
from firstfault_tools.findings import Verdict

SINCE = "Since"
"""Name of the fact below which its age stands."""


def show_card(diagnosis: Diagnosis, card: Card, ruled: RuledOut | None = None) -> None:
    """Sentence, facts, certainty and the one action, in one frame; of what was ruled out, what is next instead."""
    tone = VERDICTS[diagnosis.verdict].tone
    with st.container(key=f"card-{tone}", gap="small"):
        st.html(write_verdict(diagnosis, card, ruled, time.time()))
        if card.action is not None:
            show_action(card.action, diagnosis)


def write_verdict(
    diagnosis: Diagnosis, card: Card, ruled: RuledOut | None = None, now: float | None = None
) -> str:
    """What stands above the action, as HTML. ruled: that a person's check has dropped the verdict. now: seconds since
    the epoch, by which the age is said."""
    look = VERDICTS[diagnosis.verdict]
    citations = {c.n: c for c in diagnosis.citations}
    marks = link_marks(diagnosis.hypotheses[0].for_[:2], citations) if diagnosis.hypotheses else ""
    rivals = len(diagnosis.hypotheses) - 1
    open_ = diagnosis.verdict is Verdict.UNKNOWN
    certainty, leads = ("Not decided", "") if open_ else (card.certainty, card.leads)
    detail = f'<p class="why">{mark_text(card.detail, citations)}</p>' if card.detail else ""
    reason = card.reason
    if rivals > 0:
        reason += f"; {rivals} other{'s' if rivals > 1 else ''} weighed under Why"
    # how sure stands out, then why; the name of the rule is for whoever looks it up
    told = f'<b class="cat">{escape(certainty)}</b><span class="conf">{escape(reason)}</span>'
    told += f'<span class="lead">{escape(leads)}</span>' if leads else ""
    answer = f'<p class="answer">{mark_text(card.answer, citations)}</p>' if card.answer else ""
    facts = tuple(row for row in card.facts if row[0] != DECIDING)
    notes = {SINCE: describe_age(diagnosis, now)} if now is not None else {}
    return (
        f'<section class="ff ff-verdict {look.tone}" aria-label="Verdict">'
        f'<div class="top"><span class="word">{icon(look.icon)} {look.word}</span>{told}'
        f"{_tags(diagnosis)}</div><h2>{mark_text(card.headline, citations)}{marks}</h2>{answer}{detail}"
        f"{_leading(diagnosis, citations, ruled)}{write_facts(facts, notes)}{_write_line(card)}</section>"
    )


def _write_line(card: Card) -> str:
    """The deciding line and where it stands; the excerpt below shows what stands around it."""
    place = dict(card.facts).get(DECIDING, "")
    if not card.line:
        return ""
    return f'<p class="line"><span>{escape(DECIDING)}, {escape(place)}</span><code>{escape(card.line)}</code></p>'


def _tags(diagnosis: Diagnosis) -> str:
    if not diagnosis.disputed:
        return ""
    return f'<span class="ff-tag ff-tone-warn">{icon("balance")} disputed</span>'


def _leading(diagnosis: Diagnosis, citations: dict[int, Citation], ruled: RuledOut | None) -> str:
    said = " ".join(mark_text(text, citations) for text in say_leading(diagnosis, ruled))
    return f'<p class="why"><b>{said}</b></p>' if said else ""


def write_facts(facts: tuple[tuple[str, str], ...], notes: Mapping[str, str] | None = None) -> str:
    """What, where, since when, idle so far: names above values. notes: what is said below a value, by name."""
    noted = notes or {}
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{_split(value, noted.get(name, ''))}</dd></div>"
        for name, value in facts
    )
    return f'<dl class="ff-facts">{items}</dl>' if items else ""


def _split(value: str, note: str) -> str:
    """A value with what it assumes, and what is noted, on a quiet line of its own. A phone has no room for the note."""
    head, bracket, rest = value.partition(" (")
    assumed = bool(bracket) and rest.endswith(")")
    quiet = escape(rest[:-1]) if assumed else ""
    if note:
        quiet += f'<span class="noted">{"; " if quiet else ""}{escape(note)}</span>'
    return escape(head if assumed else value) + (f"<small>{quiet}</small>" if quiet else "")
