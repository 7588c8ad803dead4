"""What did a system answer? The few fields that scorers look at, whatever produced them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a system to one case. `fixes_shown` and `fixes_grounded` count shown fixes."""

    verdict: str
    category: str | None
    rank: int | None
    text: str
    claim: str
    fixes_shown: int = 0
    fixes_grounded: int = 0
    seconds: float = 0.0


def of_diagnosis(row: dict[str, Any], grounded: int, seconds: float) -> Answer:
    """Answer from a diagnosis object. `claim` is what it asserts; `text` also holds the advice."""
    fixes = " ".join(f"{f['text']} {f['command'] or ''}" for f in row["fixes"])
    claim = f"{row['root_cause']} {row['explanation']}"
    ask = " ".join(f"{a['what']} {a['why']} {a['command']}" for a in row["next_artefacts"])
    return Answer(
        verdict=row["verdict"],
        category=row["category"],
        rank=row["first_failing_rank"],
        text=f"{claim} {fixes} {ask}",
        claim=claim,
        fixes_shown=len(row["fixes"]),
        fixes_grounded=grounded,
        seconds=seconds,
    )
