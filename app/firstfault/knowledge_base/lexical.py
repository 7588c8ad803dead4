"""Which pages and passages share rare words with the question? BM25F over log-aware tokens.

BM25F weighs the fields of a page (title, tags, symptoms, ...) before term saturation. What a posting
adds to a score depends on the pages only, so it is computed once and kept as one file; a search adds
up numbers.
"""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from firstfault.knowledge_base import postings as postings_module
from firstfault.knowledge_base import tokens as tokens_module
from firstfault.knowledge_base.postings import K1, Postings, choose_postings, rarity
from firstfault.knowledge_base.postings_file import read_postings, write_postings
from firstfault.knowledge_base.tokens import tokenize
from firstfault_tools.dataclass import dataclass
from firstfault_tools.knowledge.pack import own_file, stamp_files

if TYPE_CHECKING:
    from firstfault.knowledge_base.passages import Passage
    from firstfault.knowledge_base.vocabulary import Vocabulary

B = 0.5
TITLE, TAGS, PHRASES, OTHER = "title", "tags", "phrases", "other"
PAGE_WEIGHTS: Mapping[str, float] = {
    TITLE: 3.0,
    TAGS: 2.0,
    PHRASES: 2.0,
    "Summary": 1.5,
    "Symptoms": 2.0,
    "Why it happens": 0.5,
    "Why it is harmless": 0.5,
    "How to confirm": 0.3,
    "Fix now": 0.3,
    "Fix for good": 0.3,
    OTHER: 0.3,
    "What it is not": 0.1,
}
"""Weight of a page's parts, chosen on the dev questions. What a page is not speaks of other pages."""
PASSAGE_WEIGHTS: Mapping[str, float] = {TITLE: 1.0, TAGS: 1.0, OTHER: 1.5}

_PARTS = ("pages", "passages", "phrases")
_CODE = (str(tokens_module.__file__), str(postings_module.__file__), __file__)
"""What the numbers of the postings come from, beside the texts."""

Fields = Mapping[str, list[str]]


@dataclass(frozen=True)
class LexicalIndex:
    """Postings of whole pages and of their passages, both in page order."""

    page_ids: tuple[str, ...]
    pages: Postings
    passages: Postings
    phrases: Postings
    owners: Sequence[int]
    """Page number of every phrase."""

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {page: number for number, page in enumerate(self.page_ids)}

    def score_pages(
        self,
        weights: Mapping[str, float],
        limit: int,
        also: Iterable[str] = (),
        keep: Callable[[str], bool] | None = None,
    ) -> dict[str, float]:
        """Page id -> BM25F score of the best page, of `also`, and of all that can be among the `limit`
        best that `keep` accepts."""
        numbers = [self._numbers[page] for page in also if page in self._numbers]
        accept = None if keep is None else lambda number: keep(self.page_ids[number])
        scores = self.pages.narrow(weights, limit, also=numbers, keep=accept)
        return {self.page_ids[n]: score for n, score in scores.items()}

    def compare_phrases(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Page id -> cosine (0..1) between the query and the phrase of the page nearest to it."""
        known = self.phrases
        square = sum((w * known.rarity(t)) ** 2 for t, w in weights.items())
        best: dict[str, float] = {}
        for number, value in known.score(weights).items():
            page = self.page_ids[self.owners[number]]
            best[page] = max(best.get(page, 0.0), value / math.sqrt(square))
        return best


def build_lexical(
    passages: Sequence[Passage],
    vocabulary: Vocabulary,
    file: Path | None = None,
    identity: str = "",
) -> LexicalIndex:
    """Index of `passages` and their pages, from `file` where it fits them, else built and kept.

    identity: what changes with the texts; without one they are read through for it.
    """
    identity = identity or _identity(passages, vocabulary)
    kept = read_lexical(file, identity)
    if kept is not None:
        return kept
    pages: dict[str, defaultdict[str, list[str]]] = {}
    parts: list[Fields] = []
    for passage in passages:
        text = tokenize(passage.text)
        title = tokenize(f"{passage.title} {passage.page.replace('-', ' ')}")
        tags = tokenize(" ".join(passage.tags))
        heading = tokenize(passage.heading)
        parts.append({TITLE: title, TAGS: heading + tags, OTHER: text})
        fields = pages.setdefault(passage.page, defaultdict(list))
        fields[TITLE], fields[TAGS] = title, tags
        fields[passage.heading if passage.heading in PAGE_WEIGHTS else OTHER] += text
    for page, fields in pages.items():
        fields[PHRASES] = tokenize("\n".join(vocabulary.phrases.get(page, ())))
    phrases = [
        (number, tokenize(phrase))
        for number, (page, fields) in enumerate(pages.items())
        for phrase in (" ".join(fields[TITLE]), *vocabulary.phrases.get(page, ()))
    ]
    index = LexicalIndex(
        tuple(pages),
        build_postings(list(pages.values()), PAGE_WEIGHTS),
        build_postings(parts, PASSAGE_WEIGHTS),
        build_cosines([words for _, words in phrases]),
        [number for number, _ in phrases],
    )
    _keep(file, identity, index)
    return index


def build_postings(documents: Sequence[Fields], weights: Mapping[str, float]) -> Postings:
    """BM25F (Robertson and Zaragoza 2009, section 3.6): weigh, normalise by field length, saturate."""
    count = max(len(documents), 1)
    mean = {f: sum(len(d.get(f, ())) for d in documents) / count or 1.0 for f in weights}
    entries: defaultdict[str, tuple[list[int], list[float]]] = defaultdict(lambda: ([], []))
    for number, document in enumerate(documents):
        frequency: defaultdict[str, float] = defaultdict(float)
        for name, words in document.items():
            scale = weights[name] / (1 - B + B * len(words) / mean[name])
            for word, times in Counter(words).items():
                frequency[word] += scale * times
        for word, value in frequency.items():
            numbers, values = entries[word]
            numbers.append(number)
            values.append(value)
    out: dict[str, tuple[Sequence[int], Sequence[float]]] = {}
    for word, (numbers, values) in entries.items():
        scale = rarity(len(documents), len(numbers)) * (K1 + 1)
        out[word] = (numbers, [round(scale * v / (K1 + v), 4) for v in values])
    return choose_postings(len(documents), out)


def build_cosines(phrases: Sequence[Sequence[str]]) -> Postings:
    """Postings whose sum, over the length of the query's vector, is the cosine of rarities."""
    holders = Counter(word for words in phrases for word in set(words))
    entries: defaultdict[str, tuple[list[int], list[float]]] = defaultdict(lambda: ([], []))
    for number, words in enumerate(phrases):
        rarities = {word: rarity(len(phrases), holders[word]) for word in set(words)}
        length = math.sqrt(sum(r * r for r in rarities.values())) or 1.0
        for word, value in rarities.items():
            entries[word][0].append(number)
            entries[word][1].append(round(value * value / length, 4))
    return choose_postings(len(phrases), entries)


def kept_lexical(knowledge: Path, cache_files: Path) -> tuple[Path | None, str]:
    """Where the lexical index of a knowledge folder is kept, and what it depends on."""
    pages = stamp_files(knowledge / "pages", ".md")
    phrases = stamp_files(knowledge / "search", ".yaml")
    return own_file(knowledge, cache_files / "lexical.pack"), repr((_stamp_code(), pages, phrases))


def _stamp_code() -> list[tuple[int, int]]:
    """Time of change and size of the code that makes postings."""
    return [(told.st_mtime_ns, told.st_size) for told in map(os.stat, _CODE)]


def _identity(passages: Iterable[Passage], vocabulary: Vocabulary) -> str:
    """Hash of everything the postings depend on: texts, phrases, weights and the code itself."""
    import hashlib

    digest = hashlib.sha256()
    for code in _CODE:
        digest.update(Path(code).read_bytes())
    for passage in passages:
        digest.update(f"{passage.id}\x1f{passage.indexed}\x1e".encode())
    digest.update(repr(sorted(vocabulary.phrases.items())).encode())
    return digest.hexdigest()


def read_lexical(file: Path | None, identity: str) -> LexicalIndex | None:
    """The index kept under this identity."""
    kept = read_postings(file, identity) if file is not None else None
    if kept is None:
        return None
    head, parts = kept
    try:
        return LexicalIndex(page_ids=tuple(head["page_ids"]), owners=head["owners"], **parts)
    except (LookupError, TypeError):
        return None  # a damaged cache file is rebuilt


def _keep(file: Path | None, identity: str, index: LexicalIndex) -> None:
    if file is None:
        return
    head = {"page_ids": index.page_ids, "owners": index.owners}
    parts = {name: getattr(index, name) for name in _PARTS}
    write_postings(file, identity, head, parts)
