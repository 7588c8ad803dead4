"""Which words of a question carry no meaning of their own?"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from firstfault.knowledge_base.tokens import tokenize
from firstfault_tools.knowledge.pack import read_yaml

TABLE = Path(__file__).with_name("facts.yaml")


@cache
def plain_words(kind: str = "stop") -> frozenset[str]:
    """Words of facts.yaml's list of that name."""
    return frozenset(tokenize(read_yaml(TABLE.read_text(encoding="utf-8"))["plain_words"][kind]))
