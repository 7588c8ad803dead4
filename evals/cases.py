"""What is an eval case? One folder: case.yaml, its input files, and what a right answer holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

CASES = Path(__file__).parent / "cases"
SHARED = Path(__file__).parent.parent.parent / "shared"


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a right answer holds. `severity` ok means: nothing is wrong."""

    category: str | None
    accept_categories: tuple[str | None, ...]
    root_cause: str
    first_failing_rank: int | None
    must_mention: tuple[str, ...]
    must_not_claim: tuple[str, ...]
    severity: str


@dataclass(frozen=True, slots=True)
class Case:
    """One incident with its expected answer."""

    id: str
    title: str
    question: str
    inputs: tuple[Path, ...]
    split: str
    tags: tuple[str, ...]
    expect: Expectation


def load_case(folder: Path) -> Case:
    """Case of one folder; KeyError names a missing field."""
    row = yaml.safe_load((folder / "case.yaml").read_text(encoding="utf-8"))
    expect = row["expect"]
    accept = tuple(expect.get("accept_categories") or ())
    return Case(
        id=row["id"],
        title=row["title"],
        question=row.get("question") or "",
        inputs=tuple(folder / name for name in row["inputs"]),
        split=row.get("split", "dev"),
        tags=tuple(row.get("tags") or ()),
        expect=Expectation(
            category=expect["category"],
            accept_categories=accept or (expect["category"],),
            root_cause=expect["root_cause"],
            first_failing_rank=expect["first_failing_rank"],
            must_mention=tuple(expect.get("must_mention") or ()),
            must_not_claim=tuple(expect.get("must_not_claim") or ()),
            severity=expect["severity"],
        ),
    )


def load_cases(root: Path = CASES) -> tuple[Case, ...]:
    """Every case folder below `root`, by name."""
    return tuple(load_case(f.parent) for f in sorted(root.glob("*/case.yaml")))
