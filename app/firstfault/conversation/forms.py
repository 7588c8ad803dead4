"""In which form is something asked? For yes or no, how to, why, what to do, what it is, how much."""

from __future__ import annotations

from enum import StrEnum

from firstfault_tools.expressions import expression


class Form(StrEnum):
    """What the first sentence of an answer has to be."""

    SHOULD = "should"
    HOW = "how"
    WHY = "why"
    DO = "do"
    WHAT = "what"
    MUCH = "much"


_OPENS = r"(?:what|how|which|where|when|who|whom|whose|why)"
_BEGINS = rf"^\W*(?:(?!{_OPENS}\b)\w+,? )?(?:is|are|was|can|could|may|should|shall|must|do|does|did|will|would|has|have)\b"
_FORMS = (
    (Form.SHOULD, expression(rf"(?i){_BEGINS}")),
    (Form.HOW, expression(r"(?i)\bhow (?:do|can|to|should|would) ?(?:i|we|you)?\b")),
    (Form.WHY, expression(r"(?i)\bwhy\b|\bcauses?\b|\breasons?\b")),
    (Form.DO, expression(r"(?i)\bwhat (?:do|should|can) (?:i|we) do\b|\bwhat (?:now|next|to do)\b")),
    (Form.WHAT, expression(r"(?i)\bwhat(?:.s| is| are| does)\b|\bmean")),
    (Form.MUCH, expression(r"(?i)\bhow (?:much|many|often|long|big|large)\b")),
)  # fmt: skip
_OPEN = expression(
    r"(?i)\b(?:what|how|which|where|when|who|why)\b(?! (?:is|are) (?:ok|safe))[^?\n]{0,14}\b(?:do|does|can|should|is|are|would|will)\b"
)
"""A question that yes or no does not answer, although it holds an auxiliary verb."""
_YES_OR_NO = expression(
    rf"(?i){_BEGINS}|"
    r"\b(?:should|can|must|may|could) (?:i|we|one|it|you)\b|\b(?:do|does) (?:i|we|it)\b|"
    r"\b(?:safe|worth|ok|okay|enough|necessary|need(?:ed)?|worry|normal|care|usable|required|ignore|matters?|dangerous|harmless)\b|"
    r"(?:[:;,.?!-] *|\b(?:is|it|that|too) )(?:a )?(?:bad|problem|low|high|broken|dead|useful|wrong|guilty|expensive)\W*$|\byes or no\b"
)
_LAST = expression(r"([^.,:;?!]{2,80})\?\W*$")
_CHOICE = expression(
    rf"(?i)\b(?:{_OPENS}|whats?|whos?|hows?|or|vs|versus|against|difference|meaning)\b"
)
_YES_OR_NO_TOO = expression(
    r"(?i)(?:[,;:.?!] ?|\b(?:and|or|but|so) )(?:so )?(?:is|are|can|could|may|should|shall|must|do|does|will|would) "
    r"(?:i|we|it|this|that|they|there|one|the|a|(?!be\b)[\w-]{2,20} [\w-]{2,20})\b"
)
"""A second clause that asks for yes or no, behind one that does not."""


def read_form(text: str) -> Form | None:
    """The form in which a question begins; None where it is only told or named."""
    return next((form for form, words in _FORMS if words.search(text)), None)


def asks_yes_or_no(text: str) -> bool:
    """Yes, no or only if answers it: it says so, or ends in a clause that is one ("xid 79. reboot?")."""
    if _OPEN.search(text) is not None:
        return False
    last = _LAST.search(text)
    return _YES_OR_NO.search(text) is not None or (
        last is not None and _CHOICE.search(text) is None
    )


def asks_yes_or_no_too(text: str) -> bool:
    """A second clause asks for yes or no."""
    return _YES_OR_NO_TOO.search(text) is not None
