"""Which equations tie the quantities of a training run together, what is asked for by which words, and how is a result told?

The table is data (relations.yaml); every row holds whenever its words do, so that rows chain.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.knowledge.pack import read_yaml

TABLE = Path(__file__).with_name("relations.yaml")
_WORD = re.compile(r"[a-z_][a-z_0-9]*")
_FUNCTIONS = frozenset({"pi", "ceil", "floor", "sqrt", "log", "exp", "min", "cos"})


@dataclass(frozen=True, slots=True)
class Relation:
    """One equation."""

    of: str
    expression: str
    tree: ast.expr
    inputs: tuple[str, ...]
    when: frozenset[str]
    unless: frozenset[str]
    neutral: Mapping[str, float]
    assume: Mapping[str, float]
    holds: str
    source: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Words that ask for a quantity. beside: only where something else is asked, too."""

    say: re.Pattern[str]
    of: tuple[str, ...]
    beside: bool
    unless: re.Pattern[str] | None


@dataclass(frozen=True, slots=True)
class Output:
    """How a result is told."""

    unit: str
    name: str
    whole: bool
    up: bool
    only: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """All of relations.yaml. covers: numbers that need not enter because another stands for them; same_words and plain_words: of a question, against the names of outputs."""

    relations: tuple[Relation, ...]
    asks: tuple[Ask, ...]
    outputs: Mapping[str, Output]
    covers: Mapping[str, Sequence[str]]
    same_words: Mapping[str, str]
    plain_words: frozenset[str]


@cache
def load_table() -> Table:
    """The equations, what is asked for, and how results are told."""
    data = read_yaml(TABLE.read_text(encoding="utf-8"))
    relations = tuple(_relation(r) for r in data["relations"])
    asks = tuple(
        Ask(
            re.compile(r["say"], re.I),
            tuple(r["of"]),
            r.get("beside", False),
            re.compile(r["unless"], re.I) if "unless" in r else None,
        )
        for r in data["asks"]
    )
    outputs = {n: Output(r["unit"], r.get("name", ""), r.get("whole", False), r.get("up", False), r.get("only", False)) for n, r in data["outputs"].items()}  # fmt: skip
    return Table(relations, asks, outputs, data["covers"], data["same_words"], frozenset(data["plain_words"].split()))  # fmt: skip


def _relation(r: Mapping[str, object]) -> Relation:
    text = str(r["is"])
    names = tuple(
        dict.fromkeys(
            n for n in _WORD.findall(text) if n not in _FUNCTIONS and not n.startswith("e_")
        )
    )
    return Relation(
        str(r["of"]), text, ast.parse(text, mode="eval").body, names, frozenset(str(r.get("when", "")).split()),
        frozenset(str(r.get("unless", "")).split()), r.get("neutral", {}), r.get("assume", {}),  # type: ignore[arg-type]
        str(r.get("holds", "")), str(r.get("source", "")),
    )  # fmt: skip
