"""Does one message ask several things? Its parts, each of which is answered."""

from __future__ import annotations

from collections.abc import Sequence

from firstfault_tools.expressions import expression

MOST, LEAST = 5, 2
_ASKING = (
    r"(?:what|which|who|whom|whose|how|where|when|since when|why|can|could|should|shall|do|does|did|is|are|was|were|will|would|has|have|"
    r"from (?:which|what|where|when)|at which|on which|any (?:sign|way|idea|other)|would|until when|for how long|anything)"
)
_BETWEEN = expression(
    rf"(?i)(?<=[?!.;。？])\s+|\s+[-–] (?={_ASKING}\b)|[,;]? (?:and|und|y|et|but|or|also|plus|so)(?: also| then| so| if)? (?={_ASKING}\b)|"
    rf", ?(?:so |then |und |y |et )?(?={_ASKING}\b)"
)
_REFERS = expression(
    r"(?i)^(?:and |or |so )?(?:(?:is|was|are|were) (?:it|that|this|they)\b.{0,12}|why(?: not)?\W*|how so\W*|is that (?:so|right)\W*)$"
)
_OF_ONE = expression(r"(?i)\b(?:when|if|where|whether|which|that|what|how|while)$")
"""A part that ends so goes on in the next one."""


def split_parts(text: str) -> list[str]:
    """Parts of a message that can each be answered; one where it asks a single thing."""
    parts = [p.strip(" ,") for p in _BETWEEN.split(text.strip()) if p and p.strip(" ,")]
    out: list[str] = []
    for part in parts:
        if out and (len(part.split()) < LEAST or _REFERS.match(part) or _OF_ONE.search(out[-1])):
            out[-1] += f" {part}"
        else:
            out.append(part)
    return out if len(out) <= MOST else [text]


ALIKE_LINES = 0.5
"""Share of the lines of an answer that stand in those before it, from which it only repeats them."""


def without_repeats(texts: Sequence[str]) -> list[str]:
    """Answers to the parts of a message without those that only repeat what stands above."""
    out: list[str] = []
    for text in texts:
        lines = [_MARKS.sub("", x).strip() for x in text.split("\n") if x.strip()]
        above = {_MARKS.sub("", x).strip() for t in out for x in t.split("\n")}
        if lines and sum(x in above for x in lines) < max(1.0, ALIKE_LINES * len(lines)):
            out.append(text)
    return out


_MARKS = expression(r"\s?\[\d{1,3}\]")
