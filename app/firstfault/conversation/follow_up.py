"""What does a message ask that only changes one thing of the question before it ("and if it is 48 instead")?"""

from __future__ import annotations

from collections.abc import Sequence

from firstfault_tools.expressions import expression

_CHANGES = expression(
    r"(?i)^\W*(?:ok(?:ay)?,? |so |then )?(?:and|but|or|what about|how about|what if|now)\b,? ?"
    r"(?:what )?(?:about |if )?(?:(?:it|that|this|there)(?: is|.s| was| says)? )?(?P<rest>[^?\n]{1,60}?)(?: instead| then)?\W*$"
)
_SAYS_MORE = expression(
    r"(?i)\b(?:what|why|how|which|where|when|who|should|can|could|does|do|did|is|are|was|were|will|would|has|have)\b"
)
"""A message with a clause of its own is a question of its own."""
_CODE = expression(
    r"(?i)(?P<kind>\b(?:xid|sxid|errno|exit ?code|exit ?status|status|signal|rank)\s{0,2}:?\s?)-?\d{1,3}\b"
)
_NUMBER = expression(
    r"(?i)^(?:an? |the )?(?:xid|sxid|errno|exit ?code|status|signal)?\s?(?P<number>-?\d{1,3})$"
)
MOST = 6
"""Words of what is changed; a longer message speaks for itself."""


def put_in_full(text: str, earlier: Sequence[str]) -> str:
    """The question that is meant: the one before with the other code, or with what is said of it; else `text`."""
    found = _CHANGES.match(text) if earlier else None
    if found is None:
        return text
    rest, before = found["rest"].strip(), earlier[-1].strip()
    number, code = _NUMBER.match(rest), _CODE.search(before)
    if number is not None and code is not None:
        return f"{before[: code.start()]}{code['kind']}{number['number']}{before[code.end() :]}"
    if len(rest.split()) > MOST or _SAYS_MORE.search(rest) is not None:
        return text
    return f"{before.rstrip('?. ')} {rest}?"
