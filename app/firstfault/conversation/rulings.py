"""Which plain answer is the one to this question? The ways of asking nearest to it, by words and by vectors.

Vectors find another wording of the same question, words tell apart what vectors hold for alike (Xid 63 and
Xid 64, raise and lower). Without vectors the words alone must agree.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from firstfault.conversation.asked import Asked
from firstfault.conversation.doubts import read_doubts, said_by
from firstfault.knowledge_base.rulings import Ruling, load_rulings
from firstfault.knowledge_base.search import holds_word
from firstfault.knowledge_base.tokens import tokenize
from firstfault.paths import cache_folder, knowledge_folder
from firstfault_tools.expressions import expression

NearQuestions = Callable[[str], Mapping[str, float]]
"""Phrases of rulings near to a text, with their cosine; empty without vectors."""
ALIKE = 0.62
"""Least likeness by words where there are no vectors; chosen on evals/questions/dev.yaml and dev2.yaml."""
NEAR, WORDS_SHARE = 0.945, 0.12
"""Least cosine plus share of the likeness by words, and that share; chosen on the same questions."""
ITS_PAGE, NOT_FOUND = (0.03, 0.015, 0.015), -0.01
"""What a place of the ruling's page among the pages found adds, and what a page that was not found takes."""
FITS = 0.02
"""What an answer of yes, no or only if adds to such a question and takes from another, of a cosine; five times that of words."""
SAME_FORM = 0.1
"""What the same way of asking adds to a likeness by words, and another takes."""
UNKNOWN = 4.0
"""Weight of a word that no phrase holds; that of a word in one phrase of 1,200 is 7."""
_OPEN = expression(
    r"(?i)\b(?:what|how|which|where|when|who|why)\b(?! (?:is|are) (?:ok|safe))[^?\n]{0,14}\b(?:do|does|can|should|is|are|would|will)\b"
)
"""A question that yes or no does not answer, although it holds an auxiliary verb."""
_FORMS = (
    expression(r"(?i)^\W*(?:\w+,? )?(?:is|are|was|can|could|may|should|shall|must|do|does|did|will|would|has|have)\b"),
    expression(r"(?i)\bhow (?:do|can|to|should|would) ?(?:i|we|you)?\b"),
    expression(r"(?i)\bwhy\b|\bcauses?\b|\breasons?\b"),
    expression(r"(?i)\bwhat (?:do|should|can) (?:i|we) do\b|\bwhat (?:now|to do)\b"),
    expression(r"(?i)\bwhat(?:.s| is| are| does)\b|\bmean"),
    expression(r"(?i)\bhow (?:much|many|often|long|big|large)\b"),
)  # fmt: skip
_RULES = expression(r"(?i)^(?:yes|no|only if|only)\b")
_ASKS_YES_OR_NO = expression(
    r"(?i)^\W*(?:\w+,? )?(?:is|are|was|can|could|may|should|shall|must|do|does|did|will|would|has|have)\b|"
    r"\b(?:should|can|must|may|could) (?:i|we|one|it|you)\b|\b(?:do|does) (?:i|we|it)\b|\b(?:safe|worth|ok|okay|enough|necessary|need(?:ed)?|worry|normal|care|usable|required)\b"
)


_YES_OR_NO_TOO = expression(
    r"(?i)(?:[,;:.?!] ?|\b(?:and|or|but|so) )(?:so )?(?:is|are|can|could|may|should|shall|must|do|does|will|would) "
    r"(?:i|we|it|this|that|they|there|one|the|a|(?!be\b)[\w-]{2,20} [\w-]{2,20})\b"
)
"""A second clause that asks for yes or no, behind one that does not."""
_CLAUSES = expression(
    r"(?<=[?!.;]) +|,? \b(?:and|but|or) (?=(?:what|which|how|why|when|where|who|is|are|can|could|should|do|does|will|would|if)\b)|"
    r"[,:] +(?=(?:what|which|how|why|when|where|should|can|is|are|do|does|will|would)\b)"
)
FEWEST, AHEAD = 3, 0.04
"""Words below which a clause of a question has no subject of its own; how much nearer than the first another ruling must be to it."""


@dataclass(frozen=True, slots=True)
class _Phrase:
    id: str
    words: frozenset[str]
    form: int
    ruling: Ruling


@dataclass(frozen=True, slots=True)
class _Table:
    phrases: tuple[_Phrase, ...]
    weights: Mapping[str, float]

    def weigh(self, words: frozenset[str]) -> float:
        return sum(self.weights.get(w, UNKNOWN) for w in words)


@cache
def rulings() -> tuple[Ruling, ...]:
    """The installed rulings."""
    return load_rulings(knowledge_folder() / "rulings", cache_folder() / "rulings.json")


@cache
def _table() -> _Table:
    """Every way of asking, with the rarity of its words."""
    phrases = tuple(
        _Phrase(i, frozenset(tokenize(text)), _form(text), ruling)
        for ruling in rulings()
        if not ruling.intent
        for i, text in ruling.phrases.items()
    )
    holders = Counter(w for p in phrases for w in p.words)
    weights = {w: math.log(1 + len(phrases) / n) for w, n in holders.items()}
    return _Table(phrases, weights)


def is_known(word: str) -> bool:
    """Some page or way of asking holds the word."""
    return word in _table().weights or holds_word(word)


def _form(text: str) -> int:
    return next((n for n, form in enumerate(_FORMS) if form.search(text)), -1)


ABOUT = 0.90
"""Cosine from which a question is one about the incident at hand; chosen on evals/questions/dev4.yaml."""


OF_RUN = 0.02
"""How much of that likeness a question gains that speaks of the run at hand ("did we", "it")."""


def nearest_intent(near: Mapping[str, float], of_run: bool = False) -> str:
    """The intent about an incident whose way of asking is nearest; '' where a plain answer is nearer, or none is near."""
    by_phrase = {i: r for r in rulings() for i in r.phrases}
    own = {i: near[i] for i in near if i in by_phrase and by_phrase[i].intent}
    if not own:
        return ""
    best, gain = max(own, key=lambda i: own[i]), OF_RUN if of_run else 0.0
    ahead = own[best] + gain >= max(near.values())
    return by_phrase[best].intent if ahead and own[best] + gain >= ABOUT else ""


def find_ruling(
    asked: Asked,
    near: Mapping[str, float],
    pages: Sequence[str] = (),
    beside: dict[str, float] | None = None,
) -> Ruling | None:
    """The ruling nearest to the question; None where none is near.

    near: phrase -> cosine, {} for words alone; pages: those found for the question, best first; beside: filled
    with those hardly behind it, id -> likeness.
    """
    placed = dict(zip(pages, ITS_PAGE, strict=False))
    words, table = frozenset(tokenize(asked.text)), _table()
    if len(words) < 2 and not near:
        return None
    whole, form = table.weigh(words), _form(asked.text)
    yes_or_no = _ASKS_YES_OR_NO.search(asked.text) is not None and _OPEN.search(asked.text) is None
    either = _YES_OR_NO_TOO.search(asked.text) is not None
    doubts = read_doubts(asked.text)
    best: _Phrase | None = None
    score = 0.0
    seen: dict[str, float] = {}
    for phrase in table.phrases:
        common = words & phrase.words
        if (phrase.id not in near) if near else (len(common) < 2):
            continue
        alike = _alike(
            2 * table.weigh(common) / (whole + table.weigh(phrase.words) or 1.0), form, phrase.form
        )
        place = placed.get(phrase.ruling.page, NOT_FOUND)
        value = near[phrase.id] + WORDS_SHARE * alike + place if near else alike
        value += _fit(phrase.ruling, yes_or_no, either, bool(near))
        value -= (doubts.weigh(phrase.form, phrase.words | said_by(phrase.ruling))) if near else 0.0
        if not _names_fit(words, phrase.words):
            continue
        seen[phrase.ruling.id] = max(value, seen.get(phrase.ruling.id, 0.0))
        if value > score:
            best, score = phrase, value
    if best is None or score < (NEAR if near else ALIKE):
        return None
    if best.form == 0 and _RULES.match(best.ruling.say) and not (yes_or_no or either):
        return None
    if beside is not None and near:
        beside |= {
            i: v for i, v in seen.items() if v >= max(NEAR, score - CLOSE) and i != best.ruling.id
        }
    return best.ruling


def _alike(words: float, form: int, other: int) -> float:
    """Likeness by words, and by the way of asking where both have one."""
    return words + (0.0 if form < 0 or other < 0 else SAME_FORM if other == form else -SAME_FORM)


def _fit(ruling: Ruling, yes_or_no: bool, either: bool, near: bool) -> float:
    """What the form of an answer adds: yes, no or only if to such a question, other words to another."""
    fit = FITS if (_RULES.match(ruling.say) is not None) == yes_or_no else -FITS
    if either:
        return FITS if near and _RULES.match(ruling.say) is not None else 0.0
    return fit if near else 5 * fit


CLOSE = 0.02
"""How little a second plain answer may be behind the first to stand below it."""
SHORT, NEW = 480, 0.5
"""Characters of an answer that a second one completes, and the share of that one's words which the first must not have."""


def _is_new(first: Ruling, other: Ruling) -> bool:
    """The other answer says something that the first does not."""
    words = set(tokenize(other.say))
    return bool(words) and len(words - set(tokenize(first.say))) / len(words) >= NEW


def _completes(first: Ruling, beside: Mapping[str, float]) -> Ruling | None:
    """The answer next to a short one that adds to it; None where the first is whole or none adds.

    One that begins with a verdict answers a question of its own, which below another reads as a second, contrary one.
    """
    if len(first.say) > SHORT:
        return None
    by_id = {r.id: r for r in rulings()}
    for i in sorted(beside, key=lambda x: -beside[x]):
        other = by_id[i]
        if _RULES.match(other.say) is None and _is_new(first, other):
            return other
    return None


def find_rulings(
    asked: Asked, near_questions: NearQuestions, pages: Sequence[str] = ()
) -> list[Ruling]:
    """The ruling for a question, and one for a clause that the first does not answer; at most two."""
    near = near_questions(asked.text)
    beside: dict[str, float] = {}
    first = find_ruling(asked, near, pages, beside)
    out = [first] if first is not None else []
    clauses = [c.strip() for c in _CLAUSES.split(asked.text)]
    if first is not None and (other := _completes(first, beside)) is not None:
        return [first, other]
    if len(clauses) < 2 or not near:
        return out
    for clause in clauses[:4]:
        if len(set(tokenize(clause))) < FEWEST:
            continue
        of_clause = near_questions(clause)
        other = find_ruling(replace(asked, text=clause), of_clause)
        if other is None or other in out:
            continue
        ahead = _nearest(other, of_clause) - max((_nearest(r, of_clause) for r in out), default=0.0)
        if not out or (ahead >= AHEAD and _is_new(out[0], other)):
            out.append(other)
    return out[:2]


def _nearest(ruling: Ruling, near: Mapping[str, float]) -> float:
    """Cosine of the ruling's nearest way of asking; that of the farthest looked at where none of its is."""
    return max(
        (near[i] for i in ruling.phrases if i in near), default=min(near.values(), default=0.0)
    )


def _names_fit(asked: frozenset[str], phrase: frozenset[str]) -> bool:
    """A code that the question names (an Xid, an exit code) is that of the phrase: the catalogue knows the others."""
    of_asked = {w for w in asked if "#" in w}
    return not of_asked or bool(of_asked & {w for w in phrase if "#" in w})
