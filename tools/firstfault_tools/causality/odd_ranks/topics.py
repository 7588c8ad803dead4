"""What is a value about, by the words that stand round it? The subjects of topics.json."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Json


@dataclass(frozen=True, slots=True)
class Topic:
    """A subject on which ranks must agree.

    explains: categories of failures that a disagreement explains. means: what it means, in words.
    """

    name: str
    words: re.Pattern[str]
    line: re.Pattern[str] | None
    category: Category
    page: str
    explains: frozenset[Category]
    means: str
    holds_up: bool
    """Ranks that differ in it may wait for each other without an error."""
    fewer: str = ""
    more: str = ""
    """What it means where the value is a number below or above that of the others."""

    def tell(self, value: str, usual: str) -> str:
        """What it means that one has `value` and the others have `usual`."""
        own, common = _number(value), _number(usual)
        if own is None or common is None or own == common:
            return self.means
        return (self.fewer if own < common else self.more) or self.means

    @property
    def facts(self) -> dict[str, Json]:
        """What a finding about this topic accounts for."""
        return {"explains": {"stalled": 0.9}} if self.holds_up else {}

    @property
    def strict(self) -> bool:
        """Must be equal whatever else the name of the value holds."""
        return self.name in ("hash", "address", "world", "setting")


def _number(value: str) -> float | None:
    try:
        return float(value.replace(",", "").replace("_", ""))
    except ValueError:
        return None


_PATH = expression(r"(?<![\w.])/[\w.-]+(?:/[\w.-]+)*/?")


@cache
def _load() -> tuple[tuple[Topic, ...], re.Pattern[str]]:
    raw = json.loads((Path(__file__).parent / "topics.json").read_text(encoding="utf-8"))
    topics = tuple(
        Topic(
            name=row["name"],
            words=expression(row["words"], re.IGNORECASE),
            line=expression(row["line"]) if "line" in row else None,
            category=Category(row["category"]),
            page=row["page"],
            explains=frozenset(map(Category, row["explains"])),
            means=row["means"],
            holds_up=bool(row.get("holds_up")),
            fewer=row.get("fewer", ""),
            more=row.get("more", ""),
        )
        for row in raw["topics"]
    )
    return topics, expression(raw["ordinary"])


def topic_of(name: str, line: str) -> Topic | None:
    """Topic of a value called `name` in `line`; None for what may differ or is measured."""
    topics, ordinary = _load()
    # the folders of a path say nothing of the value that stands behind it
    usual = ordinary.search(_PATH.sub(" ", name)) is not None
    for topic in topics:
        if usual and not topic.strict:
            continue
        if topic.words.search(name) or (topic.line is not None and topic.line.search(line)):
            return topic
    return None
