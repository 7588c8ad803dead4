"""How do people say it? Phrases that lead to a page, and everyday words for the pages' own words.

Both are data below `knowledge/search/`; a knowledge folder without them is searched by its text alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any

from firstfault.errors import CannotAnalyse
from firstfault.knowledge_base.tokens import tokenize
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.knowledge.pack import load_rows, read_yaml

SAID_WEIGHT = 0.5
"""Weight of a word that only stands for a word of the query; chosen on the dev questions."""
NUMBER_WEIGHT = 0.4
"""Weight of a bare number; chosen on the dev questions."""
_EAST_ASIAN = expression("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")


@dataclass(frozen=True)
class Vocabulary:
    """`phrases`: page id -> phrases. `words`: (what is said, what pages call it) pairs."""

    phrases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    words: tuple[tuple[str, str], ...] = ()

    def weigh_words(self, query: str) -> dict[str, float]:
        """Token -> weight: words of the query count 1, words that stand for them SAID_WEIGHT."""
        weights: dict[str, float] = {}
        if self._pattern is not None:
            for match in self._pattern.finditer(query.lower()):
                for token in self._means[" ".join(match[1].split())]:
                    weights[token] = SAID_WEIGHT
        for token in tokenize(query):
            # a number that names an error is joined to its word (xid#79); alone it is a mere amount
            weights[token] = NUMBER_WEIGHT if token.isdecimal() else 1.0
        return weights

    @cached_property
    def _means(self) -> dict[str, list[str]]:
        return {said: tokenize(means) for said, means in self.words}

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        """One alternation, longest first; a lookahead lets matches overlap."""
        if not self.words:
            return None
        whole: list[str] = []
        inside: list[str] = []
        for said in sorted(self._means, key=len, reverse=True):
            text = re.escape(said).replace("\\ ", r"\s+")
            (inside if _EAST_ASIAN.search(said) else whole).append(text)
        parts = [rf"(?<!\w)(?:{'|'.join(whole)})(?!\w)"] if whole else []
        return re.compile(f"(?=({'|'.join([*parts, *inside])}))")


def load_vocabulary(folder: Path, pack: Path | None = None) -> Vocabulary:
    """Vocabulary below `folder`, where it exists. Errors name the file and the entry."""
    if not folder.is_dir():
        return Vocabulary()
    phrases: dict[str, tuple[str, ...]] = {}
    words: list[tuple[str, str]] = []
    for row in load_rows(folder, ".yaml", _read_file, pack):
        for page, said in row["phrases"]:
            phrases[page] = (*phrases.get(page, ()), *said)
        words += [(said, means) for said, means in row["words"]]
    return Vocabulary(phrases, tuple(words))


def _read_file(file: Path) -> dict[str, Any]:
    """A mapping of page -> phrases, or a list of {said, means}."""
    content = read_yaml(file.read_text(encoding="utf-8"))
    row: dict[str, Any] = {"phrases": [], "words": []}
    if isinstance(content, dict):
        for page, said in content.items():
            if not isinstance(said, list):
                raise CannotAnalyse(f"{file}: {page}: expected a list of phrases")
            row["phrases"].append([str(page), [str(s) for s in said]])
        return row
    if not isinstance(content, list):
        raise CannotAnalyse(f"{file}: expected page: [phrases], or a list of {{said, means}}")
    for entry in content:
        if not isinstance(entry, dict) or not entry.keys() >= {"said", "means"}:
            raise CannotAnalyse(f"{file}: {entry}: expected {{said: [...], means: words}}")
        row["words"] += [
            [" ".join(str(said).lower().split()), str(entry["means"])] for said in entry["said"]
        ]
    return row
