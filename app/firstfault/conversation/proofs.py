"""What would prove the verdict, and what would refute it? One experiment with both outcomes, and what this log already shows."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from firstfault.conversation.blocks import write_block
from firstfault.conversation.growth import say_growth
from firstfault.conversation.run_answers import at_line
from firstfault.conversation.telling import Telling
from firstfault.conversation.words import plain_words
from firstfault.investigation.next_action import choose_action, write_action
from firstfault.knowledge_base.tokens import tokenize
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Verdict
from firstfault_tools.knowledge.pack import read_yaml

TABLE = Path(__file__).with_name("proofs.yaml")
LEAST_LETTERS = 3
_NETWORK_PART = expression(
    r"(?i)\b(?:a|its|the) link\b|\bport\b|\bcable\b|\btransceiver\b|\bnic\b|\bhca\b"
)


def _check(t: Telling) -> str:
    """The next action for this cause where it only reads: its command and what each output means."""
    action = choose_action(t.diagnosis, t.question.knowledge.pages)
    if action is None or action.changes_state or not action.command:
        return ""
    reading = "".join(f"\n- {shown}: {follows}" for shown, follows in action.reading)
    return f"\n\nThe check for this cause itself: {write_action(action)} {t.sources.marks(action.citations, t.diagnosis)}\n\n{write_block(action.command)}\n{reading}"


RARE = 3
"""Lines that may hold a word for it to name one thing."""


def _named_lines(t: Telling) -> str:
    """The lines that name what the question suspects; '' where no rare word of it is in the log."""
    words = {w for w in tokenize(t.asked.text) if len(w) > LEAST_LETTERS} - plain_words()
    held = {w: [x for x in t.evidence.lines if w in set(tokenize(x.text))] for w in words}
    found = [x for lines in held.values() if 0 < len(lines) <= RARE for x in lines]
    once = list({(x.file, x.number): x for x in found}.values())[:2]
    told = "; ".join(f"`{x.text.strip()[:160]}` ({at_line(t, x.file, x.number, x.text)})" for x in once)  # fmt: skip
    return f" Lines that name what you suspect: {told}." if told else ""


@cache
def _proofs() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = read_yaml(TABLE.read_text(encoding="utf-8"))["proofs"]
    return found


def tell_proof(t: Telling) -> str:
    """The test and its outcomes; '' where the cause has no kind."""
    d = t.diagnosis
    kind = d.category.value if d.category is not None else ""
    row = _proofs().get("network_part" if kind == "hardware" and _NETWORK_PART.search(d.root_cause) else kind)  # fmt: skip
    if d.verdict is not Verdict.FAULT or row is None:
        return ""
    grown = say_growth(t) if d.category is Category.OOM else ""
    where = f" at {t.place}" if t.place and t.place not in t.cause else ""
    own = _check(t)
    run = f"\n\n{write_block(row['run'])}" if row["run"] and not own else ""
    first = d.first_line
    earlier = f" An earlier failure than line {first.line} of {first.file}, in a log that was not given, would overturn it too." if first is not None else ""  # fmt: skip
    other = next(
        (
            h
            for h in d.hypotheses[1:]
            if h.root_cause != d.root_cause and h.category is not d.category
        ),
        None,
    )
    rival = f" The next explanation would then be: {other.root_cause} {t.sources.marks(other.for_[:2], d)}." if other is not None else ""  # fmt: skip
    named = _named_lines(t)
    return (
        f"By one experiment; the log alone makes it {d.confidence.value}: {row['test']}. It is proven where {row['shows']}; it is refuted where "
        f"{row['else']}.{rival}{run}{own}\n\nWhat the log shows already: {t.cause}{where} {t.main}.{f' {grown}' if grown else ''}{named}{earlier}"
    )
