"""What would prove the verdict, and what would refute it? One experiment with both outcomes, and what this log already shows."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from firstfault.conversation.growth import say_growth
from firstfault.conversation.telling import Telling
from firstfault.investigation.next_action import choose_action, write_action
from firstfault_tools.findings import Category, Verdict
from firstfault_tools.knowledge.pack import read_yaml

TABLE = Path(__file__).with_name("proofs.yaml")


def _check(t: Telling) -> str:
    """The next action for this cause where it only reads: its command and what each output means."""
    action = choose_action(t.diagnosis, t.question.knowledge.pages)
    if action is None or action.changes_state or not action.command:
        return ""
    reading = "".join(f"\n- {shown}: {follows}" for shown, follows in action.reading)
    return f"\n\nThe check for this cause itself: {write_action(action)} {t.sources.marks(action.citations, t.diagnosis)}\n\n```bash\n{action.command}\n```\n{reading}"


@cache
def _proofs() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = read_yaml(TABLE.read_text(encoding="utf-8"))["proofs"]
    return found


def tell_proof(t: Telling) -> str:
    """The test and its outcomes; '' where the cause has no kind."""
    d = t.diagnosis
    row = _proofs().get(d.category.value) if d.category is not None else None
    if d.verdict is not Verdict.FAULT or row is None:
        return ""
    grown = say_growth(t) if d.category is Category.OOM else ""
    where = f" at {t.place}" if t.place and t.place not in t.cause else ""
    own = _check(t)
    run = f"\n\n```bash\n{row['run']}\n```" if row["run"] and not own else ""
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
    return (
        f"By one experiment; the log alone makes it {d.confidence.value}: {row['test']}. It is proven where {row['shows']}; it is refuted where "
        f"{row['else']}.{rival}{run}{own}\n\nWhat the log shows already: {t.cause}{where} {t.main}.{f' {grown}' if grown else ''}{earlier}"
    )
