"""Does the log say it at all? Lines that hold what is asked for, or that none does and what would show it."""

from __future__ import annotations

import re
from functools import cache

from firstfault.conversation.blocks import write_block
from firstfault.conversation.checked import lies_elsewhere, lies_in
from firstfault.conversation.evidence import Line
from firstfault.conversation.facts import Facts
from firstfault.conversation.spoken_of import NEAREST, quote_lines, same_words, tell_nearest
from firstfault.conversation.topics import topics_in
from firstfault.conversation.words import TABLE, plain_words
from firstfault.knowledge_base.tokens import tokenize
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Verdict
from firstfault_tools.knowledge.pack import read_yaml

MOST = 4
_ASKS = expression(
    r"(?i)\b(?:do|does|did) (?:the |any |these |our )?(?:logs?|lines?|files?|it|rank \d+|anyone|anybody|anything)\b[^?\n]{0,12}\b(?:say|"
    r"mention|show|contain|print|have|report|tell|complain)\w*\b(?: (?:us|me))?(?: (?:anything|something|any (?:word|sign|hint|"
    r"trace)))?(?: (?:about|of|on))?(?P<one> [^?\n]{2,80})|"
    r"\b(?:is|are|was|were) there\b(?: (?:any|an?|some|other|more))?(?P<two> [^?\n]{2,80})|"
    r"\b(?:any|no) (?P<three>[\w -]{2,50}?) (?:in|at|on|reported|logged|seen|found|visible)\b[^?\n]{0,30}(?:\?|$)|"
    r"^\W*any (?P<four>[\w -]{2,50})\?|\b(?:did|do) (?:we|you|i) (?:see|have|get|find)\b(?: (?:any|an?|some))(?P<five> [^?\n]{2,80})"
)
_EMPTY = frozenset(
    tokenize(
        "log logs line lines file say anything something before after crash fault hang error errors it run job "
        "message messages early sign signs"
    )
)
_CHANGES = expression(
    r"(?i)\bdiffers?\b|\bchanged\b|\bdiff (?:to|with|from|against)\b|[\w'\"] ?(?:->|=>) ?[\w'\"]|\binstead of\b|\b(?:upgraded|downgraded|"
    r"switched|moved)\b (?:from|to)\b|\bnew (?:image|commit|version|driver)\b|\blast good\b"
)
_NO_CHANGE = expression(r"\.(?:cc|cpp|cu|h):\d+ -> \d|frame #")
"""NCCL's trace of an error going up, which also prints an arrow."""
_EITHER = expression(
    r"(?i)(?:\b(?:is|was|are|were|be)\b(?: (?:it|this|that|they|the \w+))?|[,:]|^)\s*(?P<list>[^?\n,]{2,40}(?:, ?[^?\n,]{2,40}){0,3},? or [^?\n,]{2,40})"
)
_CUT = expression(r"(?i),? \bor\b |, ")
_NO_OPTION = expression(
    r"(?i)^(?:what|else|not|so|something(?: else)?|anything(?: else)?|both|neither|no|rather)\W*$"
)
_OOM = expression(r"(?i)\boom\b")
_LEADING = expression(r"(?i)^(?:it|this|that|the|an?|from|in|on)\s+(?:the |an? )?")
_OTHERS = expression(r"\bpod/(?P<pod>[\w.-]{3,80})|\b[Jj]ob(?:[Ii]d)?[= ](?P<job>\d{3,12})")
_STRUCK = expression(r"(?i)evict|oomkill|killed|preempt|fail|error|drain|reclaim")


def tell_log_says(f: Facts) -> str:
    """Yes with the lines, or no with what was searched."""
    asked = _ASKS.search(f.text)
    what = next((g for g in asked.groups() if g), "").strip() if asked is not None else ""
    words = set(tokenize(what)) - plain_words() - _EMPTY
    if not words or not what:
        return ""
    lines = [x for x in f.evidence.lines if words <= set(tokenize(x.text))]
    lines = lines or [x for x in f.evidence.lines if all(w.split("#")[0] in x.text.lower() for w in words)]  # fmt: skip
    if lines:
        many = f"{len(lines)} lines hold" if len(lines) > 1 else "one line holds"
        return f"Yes: {many} it, first {f.at(lines[0])}.\n\n{quote_lines(f, lines[:MOST])}\n\nThe verdict: {f.cause} {f.main}."
    count, files = len(f.evidence.lines), len(f.question.artefacts)
    shown = next((x.check for x in topics_in(what) if x.check), "")
    then = f" This would show it{f' on {f.host}' if f.host else ''}:\n\n{write_block(shown)}" if shown else ""  # fmt: skip
    return f"No: none of the {count:,} lines read ({files} file{'s' if files != 1 else ''}) holds {what!r}.{then}"


@cache
def _absent() -> tuple[tuple[re.Pattern[str], str, str], ...]:
    rows = read_yaml(TABLE.read_text(encoding="utf-8"))["absent"]
    return tuple((re.compile(r["say"], re.I), r["what"], r["where"]) for r in rows)


def asks_of_people(text: str) -> bool:
    """Whether somebody did it by hand: no log tells."""
    return any(say.search(text) for say, _, _ in _absent()[:2])


def is_of_incident(f: Facts) -> bool:
    """A word of the question stands in the evidence, or it is for a thing of which it is known that a log does not hold it."""
    if any(say.search(f.text) for say, _, _ in _absent()):
        return True
    words = {w for w in tokenize(f.text) if len(w) > 2} - plain_words()
    if words & set(tokenize(f.diagnosis.root_cause)):
        return True
    return any(words & set(tokenize(x.text)) for x in f.evidence.lines)


def tell_absent(f: Facts) -> str:
    """That the log does not hold what is asked for, where it would stand, and what the log does show."""
    where = next(((what, place) for say, what, place in _absent() if say.search(f.text)), None)
    shows = f"What it does show: {f.cause}{f.where if f.diagnosis.place and f.diagnosis.place not in f.cause else ''} {f.main}."
    if where is None and (near := tell_nearest(f)):
        return f"{near}\n\n{shows}"
    if where is None:
        return f"The log does not show that: none of the {len(f.evidence.lines):,} lines read answers it. {shows}"
    near = tell_nearest(f)
    lines = f"\n\n{near.replace(NEAREST, 'Nearest to it', 1)}\n\n" if near else " "
    return f"The log does not show that: no line that was read gives {where[0]}. It would stand in {where[1]}.{lines}{shows}"


def tell_normal(f: Facts) -> str:
    """Whether what is seen is normal, by the verdict."""
    sound = f.diagnosis.verdict is Verdict.HEALTHY
    head = "Yes, by what was read" if sound else "No" if f.diagnosis.verdict is Verdict.FAULT else "Not shown"  # fmt: skip
    return f"{head}: {f.cause} {f.main}."


def tell_changes(f: Facts) -> str:
    """Lines that tell of a difference to an earlier run; where none does, how to find it."""
    found = [x for x in f.evidence.lines if _CHANGES.search(x.text) and not _NO_CHANGE.search(x.text)]  # fmt: skip
    if not found:
        return (
            f"The log does not say: no line that was read tells of a change. Hold the last good run against this one: "
            f"`firstfault compare GOOD BAD` (settings, environment, versions, speed). What this log shows: {f.cause} {f.main}."
        )
    short = "; ".join(x.text.strip()[:120] for x in found[:MOST])
    return f"By the log itself this changed: {short} ({', '.join(f.at(x) for x in found[:MOST])}). Whether it matters: {f.cause} {f.main}."


def tell_either(f: Facts) -> str:
    """Which of several options is meant by the verdict; '' where none or more than one is."""
    found = _EITHER.search(f.text)
    if found is None:
        return ""
    options = [_LEADING.sub("", x.strip()) for x in _CUT.split(found["list"])]
    options = [x for x in options if x and not _NO_OPTION.match(x)]
    said = f"{f.diagnosis.root_cause} {f.diagnosis.place}".lower()
    lead = f.diagnosis.hypotheses[0] if f.diagnosis.hypotheses else None
    fits = []
    for option in options:
        topics = topics_in(option)
        own = set(tokenize(_OOM.sub("memory", option))) - plain_words() - {"it"}
        elsewhere = lead is not None and lies_elsewhere(lead, option)
        named = bool(own) and own <= set(tokenize(said)) and not elsewhere
        kind = any(f.diagnosis.category is t.categories[0] for t in topics if t.categories)
        lies = lead is not None and lies_in(lead, option)
        # its own words say more than the part that it shares with another option
        fits.append(3 * named + 2 * lies + kind)
    best = max(fits, default=0)
    if not best or fits.count(best) > 1:
        return ""
    name = options[fits.index(best)]
    rest = [x for x in options if x is not name]
    not_it = f", not {' or '.join(rest)}" if rest else ""
    return f"{name[:1].upper()}{name[1:]}{not_it}, by what was read: {f.cause}{f.where if f.diagnosis.place not in f.cause else ''} {f.main}."


_AMOUNTS = frozenset(
    [
        "much",
        "many",
        "long",
        "often",
        "high",
        "big",
        "large",
        "low",
        "fast",
        "exact",
        "real",
        "just",
        "still",
    ]
)
COVERED = 0.6
"""Share of the words of a question, by their rarity among the lines, that a line must hold to answer it."""


def tell_lines(f: Facts) -> str:
    """Lines that hold nearly all that a question about the run speaks of; '' where none does."""
    words = set(tokenize(f.text)) - plain_words() - _AMOUNTS
    groups = [frozenset({w}) | same_words().get(w, frozenset()) for w in sorted(words)]
    lines = f.evidence.lines
    held = [(x, frozenset(tokenize(x.text))) for x in lines]
    counts = [sum(bool(g & own) for _, own in held) for g in groups]
    weights = [1 / (1 + n / max(1, len(lines)) * RARE) if n else 1.0 for n in counts]
    whole = sum(weights)
    if len(groups) < 2 or not whole:
        return ""
    scored = [(sum(w for g, w in zip(groups, weights, strict=True) if g & own) / whole, x) for x, own in held]  # fmt: skip
    best = max((s for s, _ in scored), default=0.0)
    if best < COVERED:
        return ""
    found = [x for s, x in scored if s >= best - 1e-9]
    return f"The log says this, {f.at(found[0])}:\n\n{quote_lines(f, found[:MOST])}\n\nThe verdict: {f.cause} {f.main}."


RARE = 20.0
"""How quickly a word loses weight with the share of lines that hold it."""


def find_other_victims(f: Facts) -> list[Line]:
    """Lines by which something that is not of this job was struck too: other pods, other jobs."""
    own: dict[str, int] = {}
    rows = []
    for line in f.evidence.lines:
        for match in _OTHERS.finditer(line.text):
            name = match["pod"] or match["job"]
            stem = re.sub(r"(?:-[a-z]+)?-\d+$|-[0-9a-f]{4,10}-\w{5}$", "", name)
            own[stem] = own.get(stem, 0) + 1
            rows.append((stem, line))
    most = max(own, key=lambda s: own[s], default="")
    return [line for stem, line in rows if stem != most and _STRUCK.search(line.text)]
