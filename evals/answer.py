"""What did a system answer? The few fields that scorers look at, whatever produced them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from firstfault_tools.hardware.bus import call_gpu

MAX_QUOTED = 400
_QUOTE = re.compile(r"«[^»]{0,2000}»")


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a system to one case. `fixes_shown` and `fixes_grounded` count shown fixes; None: not checked.

    said: the verdict's own sentence and place, nothing that is quoted. claim: all that it asserts, with
    what it quotes. text: the claim, the advice and what to collect next.
    """

    verdict: str
    category: str | None
    rank: int | None
    text: str
    claim: str
    said: str
    confidence: str = "unknown"
    fixes_shown: int = 0
    fixes_grounded: int | None = None
    seconds: float = 0.0


def of_diagnosis(row: dict[str, Any], grounded: int | None = None, seconds: float = 0.0) -> Answer:
    """Answer from a diagnosis object."""
    fixes = " ".join(f"{f['text']} {f['command'] or ''}" for f in row["fixes"])
    said = _say_verdict(row)
    first = row.get("first_line") or {}
    # the deciding line stands under the evidence, once, and is no longer repeated in the explanation
    quoted = f"«{first['text'][:MAX_QUOTED]}»" if first.get("text") else ""
    claim = f"{row['root_cause']} {row['explanation']} {quoted}".rstrip()
    ask = " ".join(f"{a['what']} {a['why']} {a['command']}" for a in row["next_artefacts"])
    return Answer(
        verdict=row["verdict"],
        category=row["category"],
        rank=row["first_failing_rank"],
        text=f"{claim} {fixes} {ask}",
        claim=claim,
        said=said,
        confidence=row["confidence"],
        fixes_shown=len(row["fixes"]),
        fixes_grounded=grounded,
        seconds=seconds,
    )


def _say_verdict(row: dict[str, Any]) -> str:
    """The card's headline and the place below it: `<cause>; rank 3; host n4; GPU 2`."""
    rank = row["first_failing_rank"]
    place = [
        f"rank {rank}" if rank is not None else "",
        f"host {row['host']}" if row["host"] else "",
        call_gpu(row["gpu"]),
    ]
    return "; ".join([_QUOTE.sub("", row["root_cause"]), *filter(None, place)])
