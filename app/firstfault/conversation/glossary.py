"""What do the terms of the field mean, in one plain sentence each?"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from firstfault_tools.knowledge.pack import read_yaml

GLOSSARY = Path(__file__).with_name("glossary.yaml")
MAX_TERMS = 6


@cache
def load_glossary() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Terms with their plain sentence."""
    rows = read_yaml(GLOSSARY.read_text(encoding="utf-8"))["terms"]
    return tuple((re.compile(r["word"], re.IGNORECASE), r["say"]) for r in rows)


def define_each(names: tuple[str, ...]) -> list[str]:
    """One sentence for each name; empty where one of them is not known."""
    found = [next((say for word, say in load_glossary() if word.fullmatch(n) or word.search(n)), "") for n in names]  # fmt: skip
    return found if all(found) and len(set(found)) == len(found) else []


def explain_terms(text: str) -> list[str]:
    """Plain sentences for the terms that `text` uses."""
    return [say for word, say in load_glossary() if word.search(text)][:MAX_TERMS]


_ASKS_TERM = re.compile(
    r"(?i)^\W*(?:what(?:.?s| is| are| does)|explain|define|meaning of|was ist|qu.est-ce que|что такое|什么是)\b\W*"
    r"(?:an? |the |ein |eine |le |la )?(?P<term>[\w./ -]{2,40})"
)


def define_asked(text: str) -> str:
    """The sentence on the term that a question asks for ("what is MIG"); '' where none is asked for or known."""
    found = _ASKS_TERM.search(text)
    return next(iter(explain_terms(found["term"])), "") if found is not None else ""
