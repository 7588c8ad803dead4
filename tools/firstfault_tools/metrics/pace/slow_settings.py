"""Which printed setting explains that a run is slow? Facts for the complaint of a person.

A setting is no fault: the findings are context, and become an answer only where somebody says that the
run is slow or does not advance.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.hardware.excerpt import keep_marked, quote_line

LAST_LINES = 6
TABLE = Path(__file__).with_name("slow_settings.json")
_SAID = expression(
    r"^\s*#|\b(?:unset|try|consider|set\w* it|you can|should|grep|if you)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table."""

    id: str
    word: str
    pattern: re.Pattern[str]
    needs: re.Pattern[str] | None
    weight: float
    title: str
    page: str
    category: Category
    last: bool = False
    explains: str = "slow"


@cache
def load_settings() -> tuple[Setting, ...]:
    """The rows of slow_settings.json."""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))["settings"]
    return tuple(
        Setting(
            r["id"],
            r["word"],
            expression(r["pattern"], short=0),
            expression(r["needs"], short=0) if r.get("needs") else None,
            float(r["weight"]),
            r["title"],
            r["page"],
            Category(r.get("category", "performance")),
            bool(r.get("last", False)),
            r.get("explains", "slow"),
        )
        for r in rows
    )


@cache
def _words() -> tuple[str, ...]:
    return tuple(dict.fromkeys(s.word for s in load_settings()))


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """Settings of the table that the log prints."""
    kept = keep_marked(lines, _words())
    if not kept:
        return ()
    found = []
    for setting in load_settings():
        place = next(
            (
                (n, t)
                for n, t in kept[:5000]
                if setting.word in t
                and not _SAID.search(t[:400])
                and setting.pattern.search(t[:4000])
            ),
            None,
        )
        if place is None or (setting.last and not _ends_there(setting, lines)):
            continue
        also: tuple[int, str] | None = place
        if setting.needs is not None:
            needs = setting.needs
            also = next(((n, t) for n, t in lines[:50_000] if needs.search(t[:2000])), None)
            if also is None:
                continue
        found.append(
            Finding(
                kind=f"setting.{setting.id}",
                title=setting.title,
                level=Level.CONTEXT,
                category=setting.category,
                confidence=Confidence.POSSIBLE,
                evidence=tuple(
                    quote_line(file, n, t) for n, t in dict.fromkeys([place, also or place])
                ),
                page=setting.page,
                facts={"explains": {setting.explains: setting.weight}},
            )
        )
    return tuple(found)


def _ends_there(setting: Setting, lines: Sequence[tuple[int, str]]) -> bool:
    """The setting stands within the last lines of the log."""
    return any(setting.pattern.search(text[:4000]) for _, text in lines[-LAST_LINES:])
