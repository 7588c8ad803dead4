"""Which part of the system did a person check, and does an explanation lie wholly in it? Data, never words of its title."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from firstfault.investigation.diagnosis import Hypothesis
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Category
from firstfault_tools.knowledge.pack import read_yaml

TABLE = Path(__file__).with_name("checked.yaml")


@dataclass(frozen=True, slots=True)
class Part:
    """What a check clears. say: `the GPUs`; kinds: kinds of causes that lie wholly in it; bare_kinds: where no page is known."""

    id: str
    say: str
    word: re.Pattern[str]
    pages: frozenset[str]
    kinds: frozenset[Category]
    bare_kinds: frozenset[Category]
    recorded: frozenset[str]
    only_read: bool
    """Looked at and not tested: that does not clear it of what its run has shown."""

    def holds(self, hypothesis: Hypothesis) -> bool:
        """The cause lies wholly in this part, whatever its sentence names."""
        if hypothesis.page in self.pages | self.recorded or hypothesis.category in self.kinds:
            return True
        return not hypothesis.page and hypothesis.category in self.bare_kinds

    def clears(self, hypothesis: Hypothesis) -> bool:
        """A check of the part that found it in order speaks against the cause."""
        return (
            self.holds(hypothesis) and not self.only_read and hypothesis.page not in self.recorded
        )


@cache
def load_parts() -> tuple[Part, ...]:
    """Every part, in file order."""
    rows = {r["id"]: r for r in read_yaml(TABLE.read_text(encoding="utf-8"))["parts"]}
    return tuple(
        Part(
            name,
            row["say"],
            re.compile(row["word"], re.IGNORECASE),
            frozenset(_gather(name, "pages", rows)),
            frozenset(map(Category, _gather(name, "kinds", rows))),
            frozenset(map(Category, _gather(name, "bare_kinds", rows))),
            frozenset(_gather(name, "recorded", rows)),
            row.get("only_read", False),
        )
        for name, row in rows.items()
    )


def _gather(name: str, key: str, rows: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """What the part and those that it takes in have under a key."""
    yield from rows[name].get(key, ())
    for inner in rows[name].get("parts", ()):
        yield from _gather(inner, key, rows)


def parts_in(text: str) -> tuple[Part, ...]:
    """Parts that `text` speaks of."""
    return tuple(p for p in load_parts() if p.word.search(text))


def lies_elsewhere(hypothesis: Hypothesis, text: str) -> bool:
    """The cause lies wholly in a part that `text` does not speak of, though it speaks of one: words that they share
    (`network file system`) do not make it the other."""
    own = {p.id for p in load_parts() if p.holds(hypothesis)}
    spoken = {p.id for p in parts_in(text)}
    return bool(own) and bool(spoken) and not own & spoken


def lies_in(hypothesis: Hypothesis, text: str) -> bool:
    """The cause lies wholly in a part that `text` speaks of."""
    return any(part.holds(hypothesis) for part in parts_in(text))
