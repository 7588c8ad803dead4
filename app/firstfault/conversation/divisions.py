"""Which sizes must tensor and pipeline parallelism divide, and do they?"""

from __future__ import annotations

from collections.abc import Sequence

from firstfault.conversation.asked import Asked
from firstfault.conversation.calculator_reply import reply_calculated
from firstfault.conversation.quantities import Quantities
from firstfault.conversation.reply import Reply
from firstfault_tools.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Division:
    """A size that a parallel size has to divide."""

    what: str
    whole_size: int
    by: int
    by_name: str

    @property
    def whole(self) -> bool:
        return self.whole_size % self.by == 0

    @property
    def divisors(self) -> str:
        return ", ".join(
            str(n) for n in range(1, min(self.whole_size, 64) + 1) if self.whole_size % n == 0
        )


def find_divisions(q: Quantities) -> list[Division]:
    """What tensor parallelism (heads) and pipeline parallelism (layers) must divide, of what is given."""
    out = []
    if q.heads and q.tensor:
        out.append(Division("attention heads", q.heads, q.tensor, f"TP {q.tensor}"))
    if q.kv_heads and q.tensor and q.kv_heads >= q.tensor:
        out.append(Division("KV heads", q.kv_heads, q.tensor, f"TP {q.tensor}"))
    if q.layers and q.stages:
        chunks = q.stages * (q.virtual or 1)
        by = f"(PP {q.stages} x {q.virtual} chunks)" if q.virtual else f"PP {q.stages}"
        out.append(Division("layers", q.layers, chunks, by))
    return out


MOST_IN_A_NODE = 8
"""GPUs that NVLink joins in a usual server."""


def say_divisions(divided: Sequence[Division], asked: Asked) -> Reply:
    wrong = [d for d in divided if not d.whole]
    told = wrong or divided
    parts = [f"{d.whole_size} {d.what} / {d.by_name} = {d.whole_size / d.by:g}" for d in told]
    first = (
        f"{'No' if wrong else 'Yes'}: {'; '.join(parts)}{', not a whole number' if wrong else ''}."
    )
    lines = []
    for d in told:
        if d.what == "layers" and asked.quantities.virtual and asked.quantities.stages:
            stages = asked.quantities.stages
            fits = [str(v) for v in range(1, 21) if d.whole_size % (stages * v) == 0]
            lines.append(
                f"- Chunks a stage that divide with PP {stages}: {', '.join(fits) or 'none'}."
            )
        else:
            lines.append(f"- Sizes that divide {d.whole_size} {d.what}: {d.divisors}.")
    if asked.quantities.tensor and asked.quantities.tensor > MOST_IN_A_NODE:
        lines.append(f"- TP above {MOST_IN_A_NODE} leaves the NVLink of a usual node and is slow.")
    inputs = {d.what: d.whole_size for d in divided} | {f"by {d.what}": d.by for d in divided}
    return reply_calculated(asked, first, lines, "mesh", inputs, {"divides": not wrong}, [])
