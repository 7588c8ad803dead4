"""How does a diagnosis look on a command line? The card of the page in 80 columns; what supports it after.

The rows are written plainly into a pipe or file; a terminal draws them (terminal_drawing.py).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from firstfault.investigation.diagnosis import Citation, CitationKind, Diagnosis, Fix
from firstfault.investigation.next_action import Action
from firstfault.plain_text import show_line, show_text
from firstfault.ui.card import Card, make_card
from firstfault.ui.effects import THEN, split_look
from firstfault.ui.leading import say_condition, say_leading
from firstfault.ui.terminal_rows import WIDTH, Row, RowKind, wrap_command
from firstfault_tools.findings import Verdict
from firstfault_tools.knowledge.page import Page

if TYPE_CHECKING:
    from rich.console import Console

MAX_QUOTE = 400
MAX_SKIPPED, MAX_SHOWN, MAX_BRIEF = 5, 5, 100
_LOOK = {
    Verdict.FAULT: ("FAULT", "bold red"),
    Verdict.WARNING: ("WARNING", "bold yellow"),
    Verdict.HEALTHY: ("HEALTHY", "bold green"),
    Verdict.UNKNOWN: ("NOT ENOUGH EVIDENCE", "bold cyan"),
}
INDENT = 4
GAP = Row(RowKind.TEXT, ())


def render(
    diagnosis: Diagnosis,
    console: Console | None = None,
    pages: Mapping[str, Page] | None = None,
    question: str = "",
) -> None:
    """Print a diagnosis for a person; drawn only where somebody looks at a terminal.

    pages: the knowledge, whose checks may be the next thing to do. question: what the person asked.
    """
    rows = write_rows(diagnosis, pages, question)
    if console is None and not sys.stdout.isatty() and not os.environ.get("FORCE_COLOR"):
        for row in rows:
            lines = (" " * row.indent + line for line in row.text.split("\n"))
            sys.stdout.write("\n".join(lines).rstrip() + "\n")
        return
    from firstfault.ui.terminal_drawing import draw

    draw(rows, _LOOK[diagnosis.verdict][1].split()[-1], console)


def write_rows(
    diagnosis: Diagnosis, pages: Mapping[str, Page] | None = None, question: str = ""
) -> list[Row]:
    """All rows of a diagnosis, the card first."""
    card = make_card(diagnosis, pages, question)
    rows = [*_verdict(diagnosis, card), *_action(card.action), *_evidence(diagnosis)]
    if diagnosis.explanation:
        rows += [_head("Why"), _say(diagnosis.explanation), GAP]
    rows += [*_fixes(diagnosis, card.action), *_next(diagnosis, card.action)]
    if diagnosis.disproof:
        rows += [_head("What would prove this wrong"), _say(diagnosis.disproof), GAP]
    others = diagnosis.hypotheses[1:]
    if others:
        rows.append(_head("Other hypotheses"))
        for other in others:
            marks = "".join(f"[{n}]" for n in other.for_)
            rows.append(_say(f"- {other.confidence.value}: {other.root_cause} {marks}"))
        rows.append(GAP)
    return [*rows, *_sources(diagnosis), _receipt(diagnosis)]


def _say(text: str, style: str = "", indent: int = 0) -> Row:
    return Row(RowKind.TEXT, ((show_text(text), style),), indent)


def _head(text: str) -> Row:
    return Row(RowKind.HEADING, ((text, "dim"),))


def _command(text: str) -> Row:
    told = wrap_command(show_text(text).rstrip(), WIDTH - INDENT)
    return Row(RowKind.COMMAND, ((told, ""),), INDENT)


def _verdict(diagnosis: Diagnosis, card: Card) -> list[Row]:
    head = [_LOOK[diagnosis.verdict], (f"  {card.certainty.lower()}", "default")]
    if card.leads:
        head.append((f", {card.leads}", "dim"))
    if diagnosis.disputed:
        head.append(("  disputed", "bold yellow"))
    told = [
        (card.headline, "bold"),
        (card.answer, "bold default"),
        (card.detail, "default"),
        *((text, "yellow") for text in say_leading(diagnosis)),
    ]
    lines: list[tuple[tuple[str, str], ...]] = [((show_text(t), style),) for t, style in told if t]
    width = max((len(name) for name, _ in card.facts), default=0)
    lines += [((f"{name:<{width}}  ", "dim"), (show_line(value), "")) for name, value in card.facts]
    return [Row(RowKind.CARD, parts) for parts in (tuple(head), *lines)] + [GAP]


def _commands(text: str) -> list[Row]:
    """What is looked at first, and what is done then."""
    look, rest = split_look(text)
    return [_command(look), _say(THEN, "dim"), _command(rest)] if look else [_command(rest)]


def _action(action: Action | None) -> list[Row]:
    if action is None:
        return []
    where = f"{action.where.said}: " if action.where is not None else ""
    said = where + action.what + (f": {action.why}" if action.why else "")
    marks = "".join(f"[{n}]" for n in action.citations)
    state = "  (changes state)" if action.changes_state else ""
    out = [_head(action.title), _say(f"{said}{state} {marks}".rstrip())]
    if action.blanks:
        out.append(_say(f"Put in: {'; '.join(action.blanks)}.", "dim"))
    for scheduler, command in action.choices:
        out += [_say(f"{scheduler}:", "dim"), *_commands(command)]
    if action.command and not action.choices:
        out += _commands(action.command)
    out += [_say(f"{condition}: {follows}") for condition, follows in action.reading]
    return [*out, GAP]


def _evidence(diagnosis: Diagnosis) -> list[Row]:
    logs = _quoted_lines(diagnosis)[:MAX_SHOWN]
    if not logs:
        return []
    out = [_head("Evidence")]
    for citation in logs:
        quote = citation.quote
        shown = quote if len(quote) <= MAX_QUOTE else f"{quote[:MAX_QUOTE]}…"
        out += [_say(f"[{citation.n}] {_place(citation)}", "dim"), _say(shown, indent=4)]
    return [*out, GAP]


def _quoted_lines(diagnosis: Diagnosis) -> list[Citation]:
    return [c for c in diagnosis.citations if c.kind is not CitationKind.PAGE]


def _place(citation: Citation) -> str:
    if citation.kind is CitationKind.PAGE:
        return f"{citation.page} > {citation.heading}" + (
            f"  {citation.url}" if citation.url else ""
        )
    return show_line(f"{citation.file}:{citation.line}" if citation.line else str(citation.file))


def _fixes(diagnosis: Diagnosis, above: Action | None) -> list[Row]:
    out: list[Row] = []
    for kind, title in (("immediate", "Fix now"), ("structural", "Fix for good")):
        fixes = [f for f in diagnosis.fixes if f.kind == kind and not _is_said(f, above)]
        if not fixes:
            continue
        out.append(_head(title))
        for fix in fixes:
            marks = "".join(f"[{n}]" for n in fix.citations)
            state = "  (changes state)" if fix.changes_state else ""
            out.append(_say(f"- {fix.text}{state} {marks}"))
            if fix.condition:
                out.append(_say(say_condition(fix), "yellow", 2))
            if fix.command:
                out.append(_command(fix.command))
        out.append(GAP)
    return out


def _is_said(fix: Fix, above: Action | None) -> bool:
    """The card has it: as the one action, or whole as what comes after the check."""
    return above is not None and (
        fix.text == above.what or (fix.text == above.then and not fix.command)
    )


def _next(diagnosis: Diagnosis, above: Action | None) -> list[Row]:
    wanted = [a for a in diagnosis.next_artefacts if above is None or a.command != above.command]
    if not wanted:
        return []
    out = [_head("Collect as well")]
    for artefact in wanted:
        out.append(_say(f"- {artefact.what}: {artefact.why}"))
        if artefact.command:
            out.append(_command(artefact.command))
    return [*out, GAP]


def _sources(diagnosis: Diagnosis) -> list[Row]:
    pages = [c for c in diagnosis.citations if c.kind is CitationKind.PAGE]
    rest = _quoted_lines(diagnosis)[MAX_SHOWN:]
    if not pages and not rest:
        return []
    out = [_head("Sources")]
    out += [_say(f"[{c.n}] {_place(c)}  {_shorten(c.quote)}", "dim") for c in rest]
    marks: dict[str, str] = {}
    for citation in pages:
        place = _place(citation)
        marks[place] = f"{marks.get(place, '')}[{citation.n}]"
    out += [_say(f"{mark} {place}", "dim") for place, mark in marks.items()]
    return [*out, GAP]


def _shorten(quote: str) -> str:
    flat = " ".join(quote.split())
    return flat if len(flat) <= MAX_BRIEF else f"{flat[:MAX_BRIEF]}…"


def _receipt(diagnosis: Diagnosis) -> Row:
    got = diagnosis.input
    parts = [f"read {got.lines_read} of {got.lines_total} lines in {len(got.files)} file(s)"]
    if got.ranks_seen:
        world = f" of {got.world_size}" if got.world_size else ""
        parts.append(f"{len(got.ranks_seen)}{world} rank(s) seen")
    if got.redactions:
        parts.append(f"{sum(got.redactions.values())} secret(s) redacted")
    parts += [show_line(f"skipped {s.what}: {s.why}") for s in got.skipped[:MAX_SKIPPED]]
    if len(got.skipped) > MAX_SKIPPED:
        parts.append(f"{len(got.skipped) - MAX_SKIPPED} more skipped, see --json")
    return _say("; ".join(parts), "dim")
