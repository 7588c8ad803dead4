"""What speaks against a plain answer that is near to a question? It names one side of a choice only, or says what to do
where the meaning was asked.

Vectors hold "A or B" near to every answer on A; the words of B tell whether it is weighed at all.
"""

from __future__ import annotations

from functools import cache

from firstfault.conversation.forms import Form
from firstfault.knowledge_base.rulings import Ruling
from firstfault.knowledge_base.tokens import tokenize
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

ONE_SIDE, OTHER_FORM = 0.03, 0.015
"""What an answer that lacks a side of the choice loses of a cosine, and one that says what to do where a meaning is asked."""
HALF = 0.5
"""Share of the words of a side that an answer must have: "zero" alone is no ZeRO-3."""
_QUOTES = str.maketrans("", "", "'\"`")
_TERM = r"(?:[\w.-]{2,30})(?: (?!or\b|and\b|vs\b|versus\b|for\b|in\b|on\b|to\b|with\b|from\b|when\b|if\b)[\w.-]{2,20}){0,2}"
_CHOICE = expression(
    rf"(?i)\b(?P<left>{_TERM}),? (?:or(?: (?:just|rather|better|instead|only))?|vs\.?|versus|against) (?:an? |the )?(?P<right>{_TERM})|"
    rf"\b(?P<one>{_TERM})\b[^?\n]{{0,24}}\b(?:different from|differ from|compared (?:to|with)) (?:an? |the )?(?P<other>{_TERM})"
)
_NO_SIDE = expression(
    r"(?i)^(?:not?|never|nothing|more|less|so|later|another|else|both|similar|such|anything|something|what\w*|too)\b"
)
_OF_MEANING = expression(
    r"(?i)\bwhat (?:do|does)\b[^?\n]{1,60}\bmean|\bmeaning of\b|^\W*what(?:.s| is| are) (?!the (?:best|right|way))"
)
_DO = frozenset({Form.HOW, Form.DO})


@dataclass(frozen=True, slots=True)
class Doubts:
    """sides: the words of either side of a choice; of_meaning: the meaning of something is asked."""

    sides: tuple[frozenset[str], ...] = ()
    of_meaning: bool = False

    def weigh(self, form: Form | None, words: frozenset[str]) -> float:
        """How much an answer with these words, to a question of that form, loses."""
        lacks = any(len(side & words) < HALF * len(side) for side in self.sides)
        return ONE_SIDE * lacks + OTHER_FORM * (self.of_meaning and form in _DO)


def read_doubts(text: str) -> Doubts:
    """What an answer to the question has to hold."""
    return Doubts(_read_sides(text), _OF_MEANING.search(text) is not None)


def _read_sides(text: str) -> tuple[frozenset[str], ...]:
    """The words by which the two sides of a choice differ; none where there is no choice between two things."""
    found = _CHOICE.search(text.translate(_QUOTES))
    if found is None:
        return ()
    left, right = [g for g in found.groups() if g][:2]
    if _NO_SIDE.match(right):
        return ()
    one, other = frozenset(tokenize(left)), frozenset(tokenize(right))
    sides = one - other, other - one
    return sides if all(sides) else ()


@cache
def said_by(ruling: Ruling) -> frozenset[str]:
    """The words of an answer."""
    return frozenset(tokenize(" ".join([*(text for _, text in ruling.forms), ruling.say])))
