"""Which amounts stand in a sentence, and what does each count? Every number with its unit and its quantity (amounts.yaml)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from firstfault.conversation.budgets import read_token_budget
from firstfault.conversation.quantities import read_card_spans
from firstfault.conversation.shardings import named_shardings
from firstfault.conversation.times import seconds_of
from firstfault.conversation.widths import read_parts, read_widths
from firstfault_tools.dataclass import dataclass
from firstfault_tools.knowledge.pack import read_yaml

TABLE = Path(__file__).with_name("amounts.yaml")
_NUMBER = re.compile(
    r"(?<![\w.,])(?:\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?:\.\d{1,8})?(?:e[-+]?\d{1,2})?(?!\d)", re.I
)
_JOINED = re.compile(
    r"(?i)\b(tp|pp|dp|ep|cp|vpp|vp|mbs|gbs|bs|ga|seq|top|rank|world|layers|hidden|vocab)[-=_]?(?=\d)"
)
_PACE = re.compile(
    r"(?i)(?P<what>\d (?:\w{1,12} )?(?:failures?|crash(?:es)?|interruptions?|outages?|restarts?|preemptions?|hangs?)) (?:a|per|each|every) (?P<unit>day|week|month)\b"
)
_LETTERS = re.compile(r"(?i)\b([rmpv])\s?=\s?(?=\d)")
_OF_LETTERS = {"r": "rank", "m": "micro-batches", "p": "pp", "v": "vpp"}
_TIMES = re.compile(r"(?i)(?<=\d)\s?[x×*]\s?(?=\d)")
_CARDS = re.compile(
    r"(?i)(?<![\w.])(\d{1,5}) ?[x×*] ?(\d{2,3}) ?g(?:i?b)?\b(?! ?/|ps|its?|b(?:it|ps))(?! (?:nics?|ports?|ib|links?|hcas?))"
)
"""Cards by number and memory ("8x80GB")."""
_NAMES = re.compile(
    r"(?i)\b(?:llama|qwen|mistral|gpt|gemma|phi|deepseek|olmo|yi|falcon|opt)[- ]?v?\d(?:\.\d)?(?=[- ]|$)|\b(?:zero|deepspeed)[-_ ]?(?:stage[- ]?)?[0-3]\b"
    r"(?:(?: ?(?:,|/|&|and|or|vs\.?) ?)+[0-3]\b(?! ?[bx]))*|\bfsdp\d|\b(?:bf|fp|u?int|nf)\d{1,2}\b|\b\d{1,2}-?\s?bit\b|\b1f1b\b|"
    r"\b\d{1,2}x\d{1,3}b\b|\b(?:2|two|both)(?= (?:(?:fp32|bf16|fp16|8-?bit|adam) ){0,2}moments)|\badamw?\d{1,2}\b|\bpython ?3\.\d+|\bcuda ?\d{2}(?:\.\d)?"
)
"""Numbers that are part of a name."""
_SCALES = {"": 1.0, "k": 1e3, "thousand": 1e3, "m": 1e6, "mn": 1e6, "million": 1e6, "mio": 1e6, "b": 1e9, "bn": 1e9, "billion": 1e9, "t": 1e12, "trillion": 1e12}  # fmt: skip
_SCALE = re.compile(r"[ -]?(k|thousand|mn|million|mio|m|bn|billion|b|trillion|t)(?![a-z\d/])", re.I)
_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}
_TOKENS_RATE = re.compile(
    r"\s?(k|m|b|thousand|million|mio)? ?(?:tok(?:en)?s?\s?(?:(?:/|per |a )\s?(?P<between>gpu|card|device)\s?)?(?:/|per |a )\s?s(?:ec(?:ond)?)?\b|tps\b)"
    r"(?P<each>\s?(?:/|per|a|each|on each|and|por|pro)\s?(?:gpu|card|device)s?\b)?",
    re.I,
)
_SAMPLES_RATE = re.compile(r"\s?(k|m)? ?(?:samples|images|sequences|records|examples)\s?(?:/|per |a )\s?s(?:ec(?:ond)?)?\b", re.I)  # fmt: skip
_RATE = re.compile(
    r"\s?(?P<p>[kmgt])(?P<i>i?)(?P<u>b)(?P<long>its?|ytes?)?\s?(?P<per>/\s?|p|per |a )s(?:ec(?:ond)?)?\b", re.I
)  # fmt: skip
_PORT = re.compile(r"\s?(?P<p>G)(?:bit|b|be)?\b(?![- ]?(?:gpu|card|vram|mem|ram|i?b\b))")
_FLOPS = re.compile(
    r"\s?(?P<p>[tpge])(?:era|eta|iga|xa)?flops?(?:/s| per s(?:ec(?:ond)?)?)?\b", re.I
)
_ENERGY = re.compile(r"\s?(?P<p>[km]?)wh\b", re.I)
_WATTS = re.compile(r"\s?(?P<p>[km]?)w(?:atts?)?\b", re.I)
_MONEY = re.compile(r"\s?(?:[$€£]|dollars?\b|usd\b|euros?\b|eur\b|bucks\b)", re.I)
_PERCENT = re.compile(r"\s?(?:%|percent\b|pct\b|prozent\b)", re.I)
_TIME = re.compile(
    r"\s?-?(?P<t>ms|µs|us|secs?|seconds?|sekunden?|s|mins?|minutes?|minuten?|hrs?|hours?|h|stunden?|days?|d|tagen?|tage|weeks?|wochen?|months?|years?|yr)\b",
    re.I,
)
_BYTES = re.compile(r"\s?(?P<p>[kmgtp])(?P<i>i?)b(?:ytes?)?\b|\s?(?P<plain>bytes?)\b", re.I)
ROOM = 60
"""Characters before a number in which its words stand; after it half as many."""
_FILLER = r"(?P<gap>[\s=:~(,]*(?:(?:of|is|are|was|about|around|roughly|approx\.?|some|at|a|size|the|only|with|to|by|=|~|ca\.?)[\s=:~(]+){0,3})"
_BEHIND = r"^(?P<gap>[\s\-)]{0,3})"


@dataclass(frozen=True, slots=True)
class Mention:
    """One number of a sentence. value: in base units (seconds, bytes, bytes a second, watts); scale: letter behind it."""

    value: float
    kind: str
    raw: str
    start: int
    end: int
    scale: str = ""


@dataclass(frozen=True, slots=True)
class Amount:
    """A number with what it counts. at: its place among the numbers of the sentence; alone: by its size, no word stands beside it."""

    name: str
    value: float
    at: int
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """All amounts of a sentence, in order, and what it says in words. parts: bytes a parameter of each that is listed; claimed: where the words stand that name an amount."""

    text: str
    mentions: tuple[Mention, ...]
    amounts: tuple[Amount, ...]
    flags: frozenset[str]
    shardings: tuple[str, ...]
    widths: tuple[float, ...]
    parts: Mapping[str, float]
    claimed: tuple[tuple[int, int], ...]

    def values(self, name: str) -> list[Amount]:
        """The different amounts of one quantity, in order."""
        found = {a.value: a for a in reversed(self.amounts) if a.name == name}
        return sorted(found.values(), key=lambda a: a.at)

    def twins(self, at: int) -> set[int]:
        """Places at which the same amount stands again."""
        one = self.mentions[at]
        same = {
            i for i, m in enumerate(self.mentions) if (m.value, m.kind) == (one.value, one.kind)
        }
        told = {(a.name, a.value) for a in self.amounts if a.at == at}
        return same | {a.at for a in self.amounts if (a.name, a.value) in told}


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity of the table."""

    name: str
    kind: str
    before: re.Pattern[str] | None
    behind: re.Pattern[str] | None
    least: float
    most: float
    zero: bool
    needs: str
    unless: str
    never: re.Pattern[str] | None
    scale: str
    alone: float
    alone_scale: str
    alone_least: float
    kilo: bool
    far: bool
    say: str


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    content: Mapping[str, Mapping[str, Any]] = read_yaml(TABLE.read_text(encoding="utf-8"))
    return content


@cache
def load_rows() -> Mapping[str, Row]:
    """Every quantity that a number may count."""
    return {n: _row(n, r) for n, r in _table()["quantities"].items()}


def _row(name: str, r: Mapping[str, object]) -> Row:
    far = f"(?P<gap>[^.;,?\\d]{{0,{r['far']}}})" if "far" in r else _FILLER
    before = re.compile(f"(?P<word>{r['b']}){far}$", re.I) if "b" in r else None
    behind = re.compile(f"{_BEHIND}(?P<word>{r['a']})", re.I) if "a" in r else None
    never = re.compile(str(r["never"]), re.I) if "never" in r else None
    return Row(
        name, str(r["kind"]), before, behind, float(str(r.get("min", 0))), float(str(r.get("max", 1e30))), bool(r.get("zero")),
        str(r.get("needs", "")), str(r.get("unless", "")), never, str(r.get("scale", "")), float(str(r.get("alone", -1))),
        str(r.get("alone_scale", "")), float(str(r.get("alone_min", 0))), bool(r.get("kilo")), "far" in r, str(r.get("say", "{}")),
    )  # fmt: skip


@cache
def _flags() -> Mapping[str, re.Pattern[str]]:
    return {n: re.compile(p, re.I) for n, p in _table()["flags"].items()}


def read_amounts(text: str) -> Reading:
    """Every number of a sentence with what it counts, as far as its words tell."""
    plain = _spell(text)
    mentions = tuple(_mentions(plain))
    parts = read_parts(text)
    flags = frozenset(n for n, p in _flags().items() if p.search(text)) | _listed(parts)
    amounts, claimed = _bind(plain, mentions, flags, read_token_budget(text))
    return Reading(plain, mentions, amounts, flags, tuple(_shardings(text)), tuple(read_widths(text)), parts, claimed)  # fmt: skip


def _listed(parts: Mapping[str, float]) -> frozenset[str]:
    """That the sentence itself tells which parts of the optimizer are kept."""
    return frozenset({"listed"} if {"master_width", "moment_width"} & set(parts) else ())


def _spell(text: str) -> str:
    """The sentence with cards as GPUs, names without their digits, and joined words apart ("TP8", "8x400G")."""
    for start, end in reversed(read_card_spans(text)):
        text = f"{text[:start]}gpu{text[end:]}"
    text = _PACE.sub(r"\g<what> in 1 \g<unit>", text)
    text = _NAMES.sub(lambda m: re.sub(r"\d", "_", m[0]), text)
    text = _CARDS.sub(r"\1 gpus with \2 GB vram", text)
    text = _TIMES.sub(" x ", text)
    text = _LETTERS.sub(lambda m: f"{_OF_LETTERS[m[1].lower()]} ", text)
    return _JOINED.sub(r"\1 ", text)


def _shardings(text: str) -> list[str]:
    """Ways of sharding by the name of what they divide; FSDP divides all."""
    named = [
        "zero3" if s == "fsdp" else "whole" if s == "ddp" else s for s in named_shardings(text)
    ]
    if re.search(r"(?i)\b(?:distributed|sharded)[-_ ]optimi[sz]er\b", text) and not re.search(
        r"(?i)\b(?:no|without)(?: a| the)? distributed[-_ ]optimi[sz]er", text
    ):
        named = named or ["zero1"]
    if (
        re.search(r"(?i)\bfull(?:y)?[- ]shard|\bsharded\b(?! optim)", text)
        and "unsharded" not in text.lower()
    ):
        named = named or ["zero3"]
    return list(dict.fromkeys(named)) or ["whole"]


def _mentions(text: str) -> Iterator[Mention]:
    for m in _NUMBER.finditer(text):
        value = float(m[0].replace(",", ""))
        if text[max(0, m.start() - 2) : m.start()].rstrip()[-1:] in ("$", "€", "£"):
            yield Mention(value, "money", m[0], m.start(), m.end())
            continue
        kind, factor, end, scale = _unit(text, m.end())
        yield Mention(value * factor, kind, text[m.start() : end].strip(), m.start(), end, scale)


def _unit(text: str, at: int) -> tuple[str, float, int, str]:
    """(kind, factor to base units, end, scale) of the unit that stands at a place."""
    for kind, pattern, factor in _UNITS:
        if (u := pattern.match(text, at)) is not None:
            each = kind == "tokens_rate" and (u["each"] or u["between"])
            return f"{kind}_each" if each else kind, factor(u), u.end(), ""
    if (u := _SCALE.match(text, at)) is not None:
        return "n", _SCALES[u[1].lower()], u.end(), u[1].lower()[0]
    return "n", 1.0, at, ""


def _rate(u: re.Match[str]) -> float:
    """Bytes of a rate: "Gb/s", "Gbit/s" and "gbps" are bits, "GB/s" and "gb/s" bytes."""
    small = u["u"] == "b"
    bits = (small and (u["p"].isupper() or u["per"].lower() == "p")) or (u["long"] or "").lower().startswith("it")  # fmt: skip
    return _power(u["p"], u["i"]) / (8.0 if bits else 1.0)


def _seconds(u: re.Match[str]) -> float:
    unit = u["t"].lower()
    unit = next((e for g, e in _GERMAN if unit.startswith(g)), unit)
    return 1e-6 if unit in ("us", "µs") else seconds_of(unit)


_GERMAN = (("tag", "d"), ("woch", "w"), ("stun", "h"))


def _power(prefix: str, binary: str) -> float:
    return (1024.0 if binary else 1000.0) ** ("kmgtp".index(prefix.lower()) + 1)


_UNITS: tuple[tuple[str, re.Pattern[str], Callable[[re.Match[str]], float]], ...] = (
    ("tokens_rate", _TOKENS_RATE, lambda u: _SCALES[(u[1] or "").lower()]),
    ("samples_rate", _SAMPLES_RATE, lambda u: _SCALES[(u[1] or "").lower()]),
    ("rate", _RATE, _rate),
    ("flops", _FLOPS, lambda u: _PREFIX[u["p"].lower()]),
    ("energy", _ENERGY, lambda u: _PREFIX[u["p"].lower()]),
    ("watts", _WATTS, lambda u: _PREFIX[u["p"].lower()]),
    ("money", _MONEY, lambda _: 1.0),
    ("percent", _PERCENT, lambda _: 0.01),
    ("bytes", _BYTES, lambda u: 1.0 if u["plain"] else _power(u["p"], u["i"])),
    ("rate", _PORT, lambda _: 1e9 / 8),
    ("time", _TIME, _seconds),
)
"""Units in the order in which they are tried, each with its factor to base units."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """A quantity whose words stand beside a number. gap: characters between; span: of the words."""

    gap: float
    length: int
    order: int
    name: str
    at: int
    span: tuple[int, int]
    value: float
    ahead: bool = False


def _bind(
    text: str, mentions: tuple[Mention, ...], flags: frozenset[str], budget: float | None
) -> tuple[tuple[Amount, ...], tuple[tuple[int, int], ...]]:
    """Words and numbers that belong together, the nearest first; each serves once."""
    claims: list[_Claim] = []
    for at, mention in enumerate(mentions):
        for order, row in enumerate(load_rows().values()):
            claims += _claims(text, mentions, at, mention, order, row, flags)
        if budget is not None and mention.value == budget and mention.scale in ("b", "t"):
            claims.append(_Claim(-1, 0, 0, "tokens", at, (mention.start, mention.end), budget))
    readings = [_take(claims, text, mentions, ahead) for ahead in (False, True)]
    _, found, taken = min(readings, key=lambda r: r[0])
    return _settle(_share(text, mentions, found)), tuple(taken)


UNREAD, ALONE = 200.0, 100.0
"""What a number costs that nothing is said of, and one that is told by its size alone: more than any words far from it."""


def _take(
    claims: list[_Claim], text: str, mentions: tuple[Mention, ...], ahead: bool
) -> tuple[float, dict[int, Amount], list[tuple[int, int]]]:
    """(cost, amounts, words used) where words stand before their numbers (`seq 4096 vocab 32000`), or behind them."""
    taken: list[tuple[int, int]] = []
    found: dict[int, Amount] = {}
    cost = 0.0

    def rank(c: _Claim) -> tuple[float, int, int, int]:
        return c.gap + 0.5 * (c.ahead is not ahead), -c.length, c.order, c.at

    for c in sorted(claims, key=rank):
        if c.at in found or any(c.span[0] < b and a < c.span[1] for a, b in taken):
            continue
        taken.append(c.span)
        found[c.at] = Amount(c.name, c.value, c.at, c.gap >= ALONE)
        cost += c.gap - c.length / UNREAD
    return cost + UNREAD * (len(mentions) - len(found)), found, taken


_NEXT = re.compile(r"(?i)^\s?(?:to|vs\.?|versus|or|and|/|,|->|→)\s?$")
_AGAIN = re.compile(
    r"(?i)(?<!\w)(?:and|or|vs\.?|versus|with|w/|on|for|instead of|to|if|we|i|->)\s?(?:with |on |for |it.?s )?$"
)


def _share(
    text: str, mentions: tuple[Mention, ...], found: dict[int, Amount]
) -> tuple[Amount, ...]:
    """Amounts with those whose noun is left out: "from 256 to 512 GPUs", "with 8 micro-batches, and with 16"."""
    out = dict(found)
    for at, m in enumerate(mentions):
        if at in out and not (out[at].alone and m.kind == "n" and not m.scale):
            continue
        after = out.get(at + 1)
        if (
            after is not None
            and mentions[at + 1].kind == m.kind
            and _NEXT.match(text[m.end : mentions[at + 1].start])
        ):
            out[at] = Amount(after.name, m.value, at)
            continue
        before = next((out[i] for i in range(at - 1, -1, -1) if i in out and mentions[i].kind == m.kind and out[i].name not in _NO_COUNTS), None)  # fmt: skip
        bare = _NOUN.match(text, m.end) is None
        if bare and before is not None and _AGAIN.search(text[max(0, m.start - 24) : m.start]):
            out[at] = Amount(before.name, m.value, at)
    return tuple(out[i] for i in sorted(out))


_NOUN = re.compile(
    r"(?i)\s?(?!(?:and|or|vs|versus|at|in|if|instead|over|per|same|for|on|with|to|is|what|how|do|does)\b)[a-z]{2,}"
)
"""A noun of its own behind a number."""
_NO_COUNTS = frozenset({"failure_count", "at_step", "rank"})


def _may_count(row: Row, value: float, mention: Mention, text: str, flags: frozenset[str]) -> bool:
    """Whether a number can be of a quantity by its unit, its size and what the sentence says."""
    if (row.needs and row.needs not in flags) or row.unless in flags:
        return False
    if row.never is not None and row.never.match(text, mention.end):
        return False
    if value == 0:
        return row.zero
    return row.least <= value <= row.most and (row.kind != "share" or value <= 1)


def _claims(
    text: str, mentions: tuple[Mention, ...], at: int, mention: Mention, order: int, row: Row, flags: frozenset[str]
) -> Iterator[_Claim]:  # fmt: skip
    """Readings of one number as one quantity."""
    if ("n" if row.kind == "share" else row.kind) != mention.kind:
        return
    # lengths are told in units of 1,024
    value = mention.value * (1.024 if row.kilo and mention.scale == "k" else 1.0)
    scaled = not row.scale or mention.scale in tuple(row.scale)
    if not _may_count(row, value, mention, text, flags) or not (scaled or value >= 1e7):
        return
    start = max(0, mention.start - ROOM)
    if row.before is not None and (m := row.before.search(text[start : mention.start])) is not None:
        span = start + m.start("word"), start + m.end("word")
        gap = len(m["gap"]) if row.far else min(1, len(m["gap"]))
        yield _Claim(gap, len(m["word"]), order, row.name, at, span, value, True)
    behind = text[mention.end : mention.end + ROOM]
    if row.behind is not None and (m := row.behind.match(behind)) is not None and m["word"]:
        span = mention.end + m.start("word"), mention.end + m.end("word")
        yield _Claim(len(m["gap"]), len(m["word"]), order, row.name, at, span, value)
    if row.alone >= 0 and value >= row.alone_least and scaled and (not row.alone_scale or mention.scale in tuple(row.alone_scale)):  # fmt: skip
        yield _Claim(ALONE + row.alone, 0, order, row.name, at, (mention.start, mention.end), value)


MOST_IN_A_NODE = 16


def _settle(amounts: tuple[Amount, ...]) -> tuple[Amount, ...]:
    """What only several amounts together tell: a few GPUs behind a number of nodes are those of one node."""
    nodes = [a for a in amounts if a.name == "nodes"]
    gpus = [a for a in amounts if a.name == "gpus"]
    if nodes and len(gpus) == 1 and gpus[0].value <= MOST_IN_A_NODE and gpus[0].at > nodes[0].at and not any(a.name == "per_node" for a in amounts):  # fmt: skip
        return tuple(Amount("per_node", a.value, a.at) if a is gpus[0] else a for a in amounts)
    return amounts
