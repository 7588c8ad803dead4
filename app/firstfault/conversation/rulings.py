"""Which plain answer is the one to this question? The ways of asking nearest to it, by words and by vectors.

Vectors find another wording of the same question, words tell apart what vectors hold for alike (Xid 63 and
Xid 64, raise and lower). Without vectors the words alone must agree.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache

from firstfault.conversation.asked import Asked
from firstfault.conversation.conditions import conditions_of
from firstfault.conversation.doubts import read_doubts, said_by
from firstfault.conversation.forms import Form, asks_yes_or_no, asks_yes_or_no_too, read_form
from firstfault.knowledge_base.rulings import Ruling, load_rulings
from firstfault.knowledge_base.suggestion import holds_word
from firstfault.knowledge_base.tokens import tokenize
from firstfault.paths import cache_folder, knowledge_folder
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

NearQuestions = Callable[[str], Mapping[str, float]]
"""Phrases of rulings near to a text, with their cosine; empty without vectors."""
ALIKE = 0.62
"""Least likeness by words where there are no vectors; chosen on evals/questions/dev.yaml and dev2.yaml."""
NEAR, WORDS_SHARE = 1.03, 0.12
"""Least likeness in all, and the share of that by words: of 265 questions put down unseen 3 right answers were below it,
of 40 others 10 wrong ones and no right one."""
PLAIN, PLAIN_NEAR, PLAIN_SHARE = 1.1, 0.9, 0.7
"""Likeness, cosine and share of words from which a plain answer goes before what only the wording suggests."""
ITS_PAGE, NOT_FOUND = (0.03, 0.015, 0.015), -0.01
"""What a place of the ruling's page among the pages found adds, and what a page that was not found takes."""
FITS = 0.02
"""What an answer of yes, no or only if adds to such a question and takes from another, of a cosine; five times that of words."""
SAME_FORM = 0.1
"""What the same way of asking adds to a likeness by words, and another takes."""
COVERS, UNHELD = 0.2, 5.0
"""What it adds to a cosine that an answer holds all words of the question, and the weight of a word that no answer holds.
Each of 700 ways of asking, looked for among the others of its answer: 0.30 found first without it, 0.38 with it."""
UNKNOWN = 4.0
"""Weight of a word that no phrase holds; that of a word in one phrase of 1,200 is 7."""
_RULES = expression(r"(?i)^(?:yes|no|only if|only)\b")
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
    form: Form | None
    ruling: Ruling
    conditions: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Table:
    """weights: by rarity among the ways of asking; held, rarity: the words of each ruling, and their rarity among these."""

    phrases: tuple[_Phrase, ...]
    weights: Mapping[str, float]
    held: Mapping[str, frozenset[str]]
    rarity: Mapping[str, float]

    def weigh(self, words: frozenset[str]) -> float:
        return sum(self.weights.get(w, UNKNOWN) for w in words)

    def cover(self, words: frozenset[str], ruling: str) -> float:
        """Share of the words, by rarity, that the ruling says or is asked with."""
        whole = sum(self.rarity.get(w, UNHELD) for w in words)
        common = words & self.held[ruling]
        return sum(self.rarity[w] for w in common) / whole if whole else 0.0


@cache
def rulings() -> tuple[Ruling, ...]:
    """The installed rulings."""
    return load_rulings(knowledge_folder() / "rulings", cache_folder() / "rulings.pack")


@cache
def _table() -> _Table:
    """Every way of asking, with the rarity of its words."""
    phrases = tuple(
        _Phrase(i, frozenset(tokenize(text)), read_form(text), ruling, conditions_of(text))
        for ruling in rulings()
        if not ruling.intent
        for i, text in ruling.phrases.items()
    )
    held: dict[str, frozenset[str]] = {}
    for p in phrases:
        held[p.ruling.id] = held.get(p.ruling.id, said_by(p.ruling)) | p.words
    weights, rarity = _rarity([p.words for p in phrases]), _rarity(held.values())
    return _Table(phrases, weights, held, rarity)


def _rarity(texts: Collection[frozenset[str]]) -> dict[str, float]:
    holders = Counter(w for words in texts for w in words)
    return {w: math.log(1 + len(texts) / n) for w, n in holders.items()}


def is_known(word: str) -> bool:
    """Some page or way of asking holds the word."""
    return word in _table().weights or holds_word(word)


@dataclass(frozen=True, slots=True)
class Meant:
    """The way of asking about an incident that is nearest to a question. near: its cosine; beside: that of the nearest plain answer."""

    intent: str = ""
    near: float = 0.0
    beside: float = 0.0

    def is_sure(self, least: float, behind: float = 0.0) -> bool:
        """It is so near, and no plain answer is nearer by more than `behind`."""
        return bool(self.intent) and self.near >= least and self.near >= self.beside - behind


def nearest_intent(near: Mapping[str, float]) -> Meant:
    """The intent about an incident whose way of asking is nearest; without one where none is near."""
    by_phrase = {i: r for r in rulings() for i in r.phrases}
    own = {i: v for i, v in near.items() if i in by_phrase and by_phrase[i].intent}
    if not own:
        return Meant()
    best = max(own, key=lambda i: own[i])
    beside = max((v for i, v in near.items() if i not in own), default=0.0)
    return Meant(by_phrase[best].intent, own[best], beside)


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
    ranked = _rank(asked, near, pages)
    best, score = max(ranked, key=lambda r: r[1], default=(None, 0.0))
    if best is None or score < (NEAR if near else ALIKE):
        return None
    rules_only = not best.ruling.forms and _RULES.match(best.ruling.say) is not None
    if best.form is Form.SHOULD and rules_only and not _asks_rule(asked.text):
        return None
    if beside is not None and near:
        beside |= _hardly_behind(ranked, best, score)
    return best.ruling


def is_told_plainly(asked: Asked, near: Mapping[str, float]) -> bool:
    """A plain answer is so near, and holds so many of its words, that nothing else can be meant."""
    best, score = max(_rank(asked, near, ()), key=lambda r: r[1], default=(None, 0.0))
    words = frozenset(tokenize(asked.text))
    return (
        bool(near) and best is not None and score >= PLAIN
        and near[best.id] >= PLAIN_NEAR and _table().cover(words, best.ruling.id) >= PLAIN_SHARE
    )  # fmt: skip


def _rank(
    asked: Asked, near: Mapping[str, float], pages: Sequence[str]
) -> list[tuple[_Phrase, float]]:
    """Every way of asking that could be meant, with its likeness."""
    placed = dict(zip(pages, ITS_PAGE, strict=False))
    words, table = frozenset(tokenize(asked.text)), _table()
    if len(words) < 2 and not near:
        return []
    whole, form = table.weigh(words), read_form(asked.text)
    yes_or_no, either = asks_yes_or_no(asked.text), asks_yes_or_no_too(asked.text)
    doubts, conditions = read_doubts(asked.text), conditions_of(asked.text)
    out = []
    for phrase in table.phrases:
        common = words & phrase.words
        if (phrase.id not in near) if near else (len(common) < 2):
            continue
        if not phrase.conditions <= conditions or not _names_fit(words, phrase.words):
            continue
        both = whole + table.weigh(phrase.words) or 1.0
        value = _alike(2 * table.weigh(common) / both, form, phrase.form)
        if near:
            value = near[phrase.id] + WORDS_SHARE * value + placed.get(phrase.ruling.page, NOT_FOUND)  # fmt: skip
            value += COVERS * table.cover(words, phrase.ruling.id)
            value -= doubts.weigh(phrase.form, phrase.words | said_by(phrase.ruling))
        out.append((phrase, value + _fit(phrase.ruling, yes_or_no, either, bool(near))))
    return out


def _hardly_behind(
    ranked: Sequence[tuple[_Phrase, float]], best: _Phrase, score: float
) -> dict[str, float]:
    """Rulings with their likeness, where it is nearly that of the best."""
    seen: dict[str, float] = {}
    for phrase, value in ranked:
        if phrase.ruling.id != best.ruling.id and value >= max(NEAR, score - CLOSE):
            seen[phrase.ruling.id] = max(value, seen.get(phrase.ruling.id, 0.0))
    return seen


def _asks_rule(text: str) -> bool:
    return asks_yes_or_no(text) or asks_yes_or_no_too(text)


def _alike(words: float, form: Form | None, other: Form | None) -> float:
    """Likeness by words, and by the way of asking where both have one."""
    if form is None or other is None:
        return words
    return words + (SAME_FORM if other is form else -SAME_FORM)


def _fit(ruling: Ruling, yes_or_no: bool, either: bool, near: bool) -> float:
    """What the form of an answer adds: yes, no or only if to such a question, other words to another."""
    of_form, rules = ruling.opening(Form.SHOULD) != "", _RULES.match(ruling.say) is not None
    if either:
        return FITS if near and (rules or of_form) else 0.0
    fit = FITS if of_form or rules == yes_or_no else -FITS
    return fit if near else 5 * fit


_LIKE = {Form.HOW: Form.DO, Form.DO: Form.HOW}
"""A form whose answer serves where a ruling has none of the form asked."""


def say_in_form(ruling: Ruling, text: str) -> str:
    """The answer, begun as the question is put: a verdict where one is asked for, else how, why or what to do.

    Where something is only named or pasted, it begins with the first sentence that the ruling has for a form.
    """
    form = read_form(text)
    opening = (_asks_rule(text) and ruling.opening(Form.SHOULD)) or ruling.opening(form)
    if not opening and form in _LIKE:
        opening = ruling.opening(_LIKE[form])
    if not opening and form is None and ruling.forms:
        opening = ruling.forms[0][1]
    return f"{opening} {ruling.say}".strip()


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
    if first is not None and near and (other := _holds_the_rest(asked, near, pages, first)) is not None:  # fmt: skip
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


RARE = 3.8
"""Rarity among the answers from which a word of a question names a thing of its own."""


def _holds_the_rest(
    asked: Asked, near: Mapping[str, float], pages: Sequence[str], first: Ruling
) -> Ruling | None:
    """The answer that holds a rare word of the question which the first lacks; None where it lacks none or none is near."""
    table = _table()
    lacks = {w for w in tokenize(asked.text) if table.rarity.get(w, 0.0) >= RARE} - table.held[first.id]  # fmt: skip
    best, most = None, (0.0, 0.0)
    for phrase, value in _rank(asked, near, pages) if lacks else ():
        own = lacks & phrase.words
        gain = (sum(table.rarity[w] for w in own), value)
        if (
            own
            and phrase.ruling.id != first.id
            and value >= NEAR
            and near[phrase.id] >= PLAIN_NEAR
            and gain > most
        ):
            best, most = phrase.ruling, gain
    return best


def _nearest(ruling: Ruling, near: Mapping[str, float]) -> float:
    """Cosine of the ruling's nearest way of asking; that of the farthest looked at where none of its is."""
    return max(
        (near[i] for i in ruling.phrases if i in near), default=min(near.values(), default=0.0)
    )


def _names_fit(asked: frozenset[str], phrase: frozenset[str]) -> bool:
    """A code that the question names (an Xid, an exit code) is that of the phrase: the catalogue knows the others."""
    of_asked = {w for w in asked if "#" in w}
    return not of_asked or bool(of_asked & {w for w in phrase if "#" in w})
