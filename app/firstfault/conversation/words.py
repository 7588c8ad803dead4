"""Which words of a question carry no meaning of their own?"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from firstfault.knowledge_base.tokens import tokenize
from firstfault_tools.expressions import expression
from firstfault_tools.knowledge.pack import read_yaml

TABLE = Path(__file__).with_name("facts.yaml")


@cache
def plain_words(kind: str = "stop") -> frozenset[str]:
    """Words of facts.yaml's list of that name."""
    return frozenset(tokenize(read_yaml(TABLE.read_text(encoding="utf-8"))["plain_words"][kind]))


MOST_LEFT = 2
"""Words of a question beside the quantity that it names above which something else is asked than its value."""
_NO_CONTENT = expression(
    r"(?i)\b(?:rank|step|iteration|gpu|node|host|line)s? ?#?\d+\b|\b(?:last|first|value|range|current|usual|highest|lowest|"
    r"max\w*|min\w*|print\w*|log\w*|show|tell|give)\b"
)


def is_covered(text: str, named: re.Pattern[str]) -> bool:
    """What is named is what the question asks for: hardly a word with a meaning of its own is left beside it."""
    rest = _NO_CONTENT.sub(" ", named.sub(" ", text))
    return len(set(tokenize(rest)) - plain_words()) <= MOST_LEFT
