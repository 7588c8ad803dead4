"""Which lines speak of what a question names, and is that what the verdict is about? By words, their rarity and what means the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from firstfault.conversation.blocks import write_quote
from firstfault.conversation.evidence import Line
from firstfault.conversation.facts import Facts
from firstfault.conversation.named_events import relate, say_relation
from firstfault.conversation.words import TABLE, plain_words
from firstfault.knowledge_base.tokens import tokenize
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.knowledge.pack import read_yaml

MOST = 3
"""Lines that are shown."""
SAID_AGAIN = 0.25
"""What a word still counts for a further line, once a line with it is shown."""
NEXT_BEST = 0.4
"""Share of the first line's weight below which a further line adds too little."""
LEAST_SHARE, LEAST_WEIGHT = 0.28, 2.3
"""Share of the weight of a question that a line must hold to be near it, and that weight itself: one word of a tenth of the lines."""
HELD = 0.34
"""Share of the weight of what the evidence knows of a question below which the verdict is about something else."""
UNKNOWN = 0.2
"""Weight of a word that no line holds, as a share of that of one in a single line."""
NEAREST = "The lines that were read do not answer that outright; nearest to it"
_NAME_LIKE = expression(r"[\d_./]")
_DIGITS = expression(r"\d+")
_EMPTY = frozenset(
    tokenize(
        "much many long often exact real just still happen happened thing things say says said really please pls die died dies dead line one "
        "sentence short fail failed fails crash crashed stop stopped kill killed hang hung break broke run job training first last wrong go went"
    )
)


@cache
def same_words() -> dict[str, frozenset[str]]:
    """Of each word those by which lines say the same (records.yaml)."""
    rows = read_yaml(TABLE.with_name("records.yaml").read_text(encoding="utf-8"))["same"]
    groups = [frozenset(t for w in row.split() for t in tokenize(w)) for row in rows]
    return {w: g for g in groups for w in g}


@dataclass(frozen=True)
class Spoken:
    """What a question speaks of. groups: a word with those that mean the same; weights: by rarity among the lines; held: lines with the places of the groups in them."""

    groups: tuple[frozenset[str], ...]
    weights: tuple[float, ...]
    known: tuple[bool, ...]
    held: tuple[tuple[Line, frozenset[int]], ...]

    def weigh(self, places: frozenset[int]) -> float:
        return sum(self.weights[i] for i in places)

    def tells(self, places: frozenset[int]) -> bool:
        """Two things of the question, or one by its name: a lone word stands in many a line by chance."""
        return len(places) > 1 or any(_NAME_LIKE.search(w) for i in places for w in self.groups[i])

    @property
    def whole(self) -> float:
        return sum(self.weights)


def read_spoken(f: Facts) -> Spoken:
    """The words of a question that mean something, against the lines."""
    words = sorted(set(tokenize(f.text)) - plain_words() - _EMPTY)
    groups = tuple(frozenset({w}) | same_words().get(w, frozenset()) for w in words)
    held: list[tuple[Line, frozenset[int]]] = []
    counts = [0] * len(groups)
    for line in f.evidence.lines:
        own = frozenset(tokenize(line.text))
        places = frozenset(i for i, g in enumerate(groups) if g & own)
        for i in places:
            counts[i] += 1
        if places:
            held.append((line, places))
    total = max(1, len(f.evidence.lines))
    most = math.log(total + 1)
    weights = tuple(math.log((total + 1) / (n + 1)) if n else UNKNOWN * most for n in counts)
    return Spoken(groups, weights, tuple(n > 0 for n in counts), tuple(held))


def find_nearest(spoken: Spoken) -> list[Line]:
    """The lines that hold most of it, each of another kind; [] where none is near."""
    found: list[Line] = []
    kinds: set[str] = set()
    left = dict(enumerate(spoken.weights))
    first = 0.0
    while len(found) < MOST:
        best, line, places = 0.0, None, frozenset[int]()
        for candidate, own in spoken.held:
            value = sum(left[i] for i in own)
            if value > best and _kind(candidate) not in kinds and spoken.tells(own):
                best, line, places = value, candidate, own
        if line is None or best < max(LEAST_WEIGHT, LEAST_SHARE * spoken.whole, NEXT_BEST * first):
            break
        first = first or best
        found.append(line)
        kinds.add(_kind(line))
        for i in places:
            left[i] *= SAID_AGAIN
    return sorted(found, key=lambda x: (x.file, x.number))


def _kind(line: Line) -> str:
    return _DIGITS.sub("#", line.text)[:200]


def is_foreign(f: Facts, spoken: Spoken) -> bool:
    """The evidence knows what the question names, and the verdict does not speak of it."""
    known = frozenset(i for i, there in enumerate(spoken.known) if there)
    if spoken.weigh(known) < LEAST_WEIGHT:
        return False
    d = f.diagnosis
    wanted = d.hypotheses[0].for_ if d.hypotheses else ()
    quotes = " ".join(c.quote for c in d.citations if c.n in wanted)
    said = set(tokenize(f"{d.root_cause} {f.place} {quotes} {d.category.value if d.category else ''}"))  # fmt: skip
    of_verdict = frozenset(i for i in known if spoken.groups[i] & said)
    return spoken.weigh(of_verdict) < HELD * spoken.weigh(known)


def quote_lines(f: Facts, lines: Sequence[Line]) -> str:
    """Lines with their places, to be read."""
    return "\n".join(f"- {f.at(x)}\n{write_quote(x.text.strip()[:400], 2)}" for x in lines)


def tell_foreign(f: Facts) -> str:
    """Of a reason that is asked for something beside the verdict: what the lines say of it, and that they give no reason; '' where the verdict is about it."""
    spoken = read_spoken(f)
    lines = find_nearest(spoken) if is_foreign(f, spoken) else []
    if not lines:
        return ""
    relation = relate(f, f.evidence, lines[0])
    when = f" ({say_relation(f, relation)})" if relation.seconds is not None and not relation.is_fault else ""  # fmt: skip
    return (
        f"The lines that were read give no reason for that by themselves; these speak of it:\n\n{quote_lines(f, lines)}\n\n"
        f"The first fault is something else{when}: {f.cause}{f.where if f.diagnosis.place and f.diagnosis.place not in f.cause else ''} {f.main}."
    )


def tell_nearest(f: Facts) -> str:
    """The lines nearest to a question that nothing answers; '' where none is near."""
    lines = find_nearest(read_spoken(f))
    if not lines:
        return ""
    return f"{NEAREST}:\n\n{quote_lines(f, lines)}"
