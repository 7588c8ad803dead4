"""Does one message ask several things? Its parts, each of which is answered."""

from __future__ import annotations

from firstfault_tools.expressions import expression

MOST, LEAST = 3, 2
_ASKING = r"(?:what|which|who|whom|whose|how|where|when|why|can|could|should|shall|do|does|did|is|are|was|were|will|would|has|have|from which|from what|at which|on which)"
_BETWEEN = expression(
    rf"(?i)(?<=[?!.;])\s+|,? (?:and|und|y|et|but)(?: also| then)? (?={_ASKING}\b)|, (?={_ASKING}\b)"
)
_REFERS = expression(r"(?i)^(?:and |or )?(?:is|was|are|were) (?:it|that|this|they)\b.{0,12}$")


def split_parts(text: str) -> list[str]:
    """Parts of a message that can each be answered; one where it asks a single thing."""
    parts = [p.strip(" ,") for p in _BETWEEN.split(text.strip()) if p and p.strip(" ,")]
    out: list[str] = []
    for part in parts:
        if out and (len(part.split()) < LEAST or _REFERS.match(part)):
            out[-1] += f" {part}"
        else:
            out.append(part)
    return out if len(out) <= MOST else [text]
