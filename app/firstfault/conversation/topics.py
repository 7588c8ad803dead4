"""Which part of the system does a sentence speak of, and who is on call for a kind of cause?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Category
from firstfault_tools.knowledge.pack import read_yaml

TABLE = Path(__file__).with_name("topics.yaml")


@dataclass(frozen=True, slots=True)
class Topic:
    """One part of the system. categories: kinds of causes that lie there."""

    id: str
    word: re.Pattern[str]
    categories: tuple[Category, ...]
    team: str
    seen: re.Pattern[str]
    """How trouble of the part is printed."""
    named_in_causes: bool = False
    """Its words in a cause mean the part itself; "gpu" in a cause is often only the name of a host."""
    check: str = ""
    """Commands that show the state of the part."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """What a log cannot tell apart from a cause that matches: expression -> sentence."""


@cache
def load_topics() -> tuple[Topic, ...]:
    """Every topic, in file order."""
    rows = read_yaml(TABLE.read_text(encoding="utf-8"))["topics"]
    return tuple(
        Topic(
            row["id"],
            re.compile(row["word"], re.IGNORECASE),
            tuple(map(Category, row["categories"])),
            row["team"],
            re.compile(row["seen"], re.IGNORECASE),
            row.get("named_in_causes", False),
            row.get("check", ""),
            row.get("beside", {}),
        )
        for row in rows
    )


def topics_in(text: str) -> tuple[Topic, ...]:
    """Topics that `text` speaks of."""
    return tuple(t for t in load_topics() if t.word.search(text))


def team_of(category: Category | None, cause: str = "") -> str:
    """Who is on call for a kind of cause; the part that the cause itself names comes first."""
    if category is None:
        return ""
    named = [t for t in load_topics() if t.named_in_causes and category in t.categories and t.word.search(cause)]  # fmt: skip
    if named:
        return named[0].team
    teams: Mapping[Category, str] = {
        t.categories[0]: t.team for t in reversed(load_topics()) if t.categories
    }
    return teams.get(category, "the owner of the run")
