"""Which questions can nobody answer as they are put, and what is missing? The wording is data (missing.yaml)."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.knowledge.pack import read_yaml

TABLE = Path(__file__).with_name("missing.yaml")
LONGEST = 20
"""Words above which a question tells enough to be looked up."""


@dataclass(frozen=True, slots=True)
class Missing:
    """One kind of question without what it would need."""

    id: str
    asks: tuple[re.Pattern[str], ...]
    unless: tuple[re.Pattern[str], ...]
    longest: int
    say: str
    of_incident: bool


@cache
def _rows() -> tuple[Missing, ...]:
    rows = read_yaml(TABLE.read_text(encoding="utf-8"))["rows"]
    return tuple(
        Missing(
            r["id"],
            tuple(re.compile(p, re.IGNORECASE) for p in r["asks"]),
            tuple(re.compile(p, re.IGNORECASE) for p in r.get("unless", ())),
            r.get("longest", LONGEST),
            r["say"],
            r.get("of_incident", False),
        )
        for r in rows
    )


def say_missing(text: str, of_incident: bool = False) -> str:
    """What is missing to answer `text`, or who would; '' where it can be looked up or computed. of_incident: one is at hand."""
    words = len(text.split())
    for row in _rows():
        if of_incident and not row.of_incident:
            continue
        if words > row.longest or not any(p.search(text) for p in row.asks):
            continue
        if not any(p.search(text) for p in row.unless):
            return row.say
    return ""


_EVIDENCE = (
    ("slow", "the step times of the whole log (when it began), what changed then (code, image, data, nodes, settings), and `nvidia-smi -q -d PERFORMANCE,CLOCK` of every node"),
    ("hang|hung|stuck|stop", "the last 200 lines of every rank and, before anything is killed, `py-spy dump --pid PID` of every process"),
    ("", "the last 200 lines of every rank, with the first error, and `dmesg -T` of its host"),
)  # fmt: skip


def say_evidence(text: str) -> str:
    """A complaint without a log: what would show its cause."""
    wanted = next(w for words, w in _EVIDENCE if re.search(words, text, re.IGNORECASE))
    return f"There is no incident here yet, so no cause can be told. Paste or drop {wanted}."
