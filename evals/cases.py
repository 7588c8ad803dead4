"""What is an eval case? One folder: case.yaml, its input files, and what a right answer holds.

`cases/dev/<kind>/<id>/` is worked on, `cases/held/<id>/` is only ever counted. The kind is what a right answer says:
the category of the fault, `healthy` where nothing is wrong, `undecided` where the evidence decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import yaml

CASES = Path(__file__).parent / "cases"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FOLDERS = {"dev": "*/*/case.yaml", "held": "*/case.yaml"}
SHARED = Path(__file__).parent.parent.parent / "shared"


class Split(StrEnum):
    """Which cases: those that are worked on, or those that are held back and only counted."""

    DEV = "dev"
    HELD = "held"


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

    @property
    def kind(self) -> str:
        """Category of the fault, `healthy` or `undecided`: the name of the case's folder."""
        return "healthy" if self.severity == "ok" else self.category or "undecided"


@dataclass(frozen=True, slots=True)
class Case:
    """One incident with its expected answer."""

    id: str
    source: str
    title: str
    question: str
    inputs: tuple[Path, ...]
    split: Split
    tags: tuple[str, ...]
    expect: Expectation


def load_case(folder: Path, split: Split = Split.DEV) -> Case:
    """Case of one folder; KeyError names a missing field."""
    row = yaml.load((folder / "case.yaml").read_bytes(), _LOADER)
    expect = row["expect"]
    accept = tuple(expect.get("accept_categories") or ())
    return Case(
        id=row["id"],
        source=row["source"],
        title=row["title"],
        question=row.get("question") or "",
        inputs=tuple(folder / name for name in row["inputs"]),
        split=split,
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


def load_cases(split: Split | str = Split.DEV, root: Path = CASES) -> tuple[Case, ...]:
    """Every case of one split, by id. Held cases are read only by who asks for them."""
    split = Split(split)
    found = sorted((root / split).glob(_FOLDERS[split]), key=lambda p: p.parent.name)
    return tuple(load_case(f.parent, split) for f in found)


def find_case(case: str, root: Path = CASES) -> Path:
    """Folder of a dev case by its id; LookupError where there is none."""
    for folder in (root / Split.DEV).glob(f"*/{case}"):
        return folder
    raise LookupError(f"no dev case {case!r} below {root}")
