"""Which quantity or setting of the log does a question name, and what was it? Keys and values as the lines print them.

A key is named by its own words ("data_wait", "save interval") or by one of the field's (records.yaml: "tp" is
tensor_model_parallel_size). The answer is the value at the moment that is asked for: at a step, at the start, before
the fault, or how it ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from firstfault.conversation.evidence import Line
from firstfault.conversation.facts import Facts
from firstfault.conversation.words import plain_words
from firstfault.knowledge_base.tokens import tokenize
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.knowledge.pack import read_yaml

TABLE = Path(__file__).with_name("records.yaml")
LONGEST, MOST_KEYS, MOST_LEFT = 2_000, 3, 3
"""Characters of a line, keys of an answer, and words of a question beside its key above which another thing is asked."""
_VALUE = r"[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?(?:\s?(?:[KMGT]i?B|ms|us|s|%|it/s)\b)?"
_SAID = rf"{_VALUE}|nan|inf|-?[A-Za-z][\w./+:-]{{0,60}}|/[\w./-]{{1,80}}"
_STATED = (
    rf"{_VALUE}|nan|inf|(?i:true|false|none)|/[\w./-]{{1,80}}|[A-Za-z][\w./+-]*[\d_./][\w./+-]*"
)
"""What stands behind a colon in prose may be any word: a value is a number, a path, a switch or a name with figures."""
_PAIRS = (
    expression(rf"['\"]?(?P<key>[A-Za-z][\w./@-]{{0,60}})['\"]?\s?=\s{{0,3}}['\"]?(?P<value>{_SAID})"),
    expression(rf"(?P<key>[A-Za-z][\w./@-]{{0,60}}):(?=[\s\d-])\s{{0,3}}(?P<value>{_STATED})"),
    expression(rf"['\"](?P<key>[A-Za-z][\w./@-]{{0,60}})['\"]:\s{{0,3}}['\"]?(?P<value>{_SAID})"),
    expression(rf"--(?P<key>[a-z][\w-]{{1,60}})[ =](?P<value>{_SAID})"),
    expression(rf"(?P<key>[A-Za-z_][\w.]{{1,60}}) \.{{3,80}} (?P<value>{_SAID})"),
    expression(rf"(?:^|[|,;>] ?|>> ? ?)(?P<key>[A-Za-z][\w ./()-]{{2,60}}?)\s?[:=]\s{{1,4}}(?P<value>{_SAID})"),
    expression(rf"\b(?P<key>(?:[A-Za-z][\w/.]{{1,30}} )?[A-Za-z][\w/.]{{1,30}}) (?P<value>{_VALUE})(?![\w.])"),
)  # fmt: skip
_PARTS = expression(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_TRENDS = expression(
    r"(?i)\b(?:improv\w*|grow\w*|grew|increas\w*|decreas\w*|ris(?:e|es|ing)|rose|f[ae]ll\w*|drop\w*|chang\w*|go(?:ing)? (?:up|down)|"
    r"went|trend|converg\w*|get(?:ting)? (?:better|worse)|stable|over time|develop\w*)\b"
)
_BEGINS = expression(r"(?i)\b(?:at the (?:start|beginning)|in the beginning|initial\w*|first)\b")
_JUDGES = expression(
    r"(?i)\b(?:symptoms?|causes?|reason|blame|matter|related|culprit|harmless|dangerous)\b"
)
"""What a value means is asked, and not the value."""
_PER_STEP = expression(r"(?i)\b(?:per|a|each) (?:step|iteration)\b|\bhow (?:fast|quickly)\b")


@dataclass(frozen=True, slots=True)
class _Name:
    """A quantity of the field. say: how people put it; key: how logs name it."""

    say: re.Pattern[str]
    key: re.Pattern[str]


@cache
def _names() -> tuple[_Name, ...]:
    rows = read_yaml(TABLE.read_text(encoding="utf-8"))["names"]
    return tuple(_Name(re.compile(r["say"], re.I), re.compile(r["key"], re.I)) for r in rows)


@cache
def _no_keys() -> frozenset[str]:
    """Words that name a place or a thing rather than a quantity."""
    return plain_words() | frozenset(read_yaml(TABLE.read_text(encoding="utf-8"))["no_keys"].split())  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """One key with its values, in order of the lines."""

    key: str
    values: tuple[tuple[Line, str], ...]


def tell_record(f: Facts) -> str:
    """The values of the keys that the question names; '' where it names none that is printed."""
    if _JUDGES.search(f.text):
        return ""
    columns = find_columns(f)
    words = {w for w in tokenize(f.text) if w.isalpha()} - _no_keys()
    if columns and len(words - {w for c in columns for w in _words_of(c.key)}) > MOST_LEFT:
        return ""
    return " ".join(_say(f, c) for c in columns[:MOST_KEYS])


_STEP = expression(r"(?i)\b(?:at|on|in|of|for) (?:the )?(?:step|iteration|iter) #?(\d{1,9})\b")


def tell_at_step(f: Facts) -> str:
    """A quantity at the step that is named; '' where none is, or the line of the step prints no such key."""
    named = _STEP.search(f.text)
    columns = find_columns(f) if named is not None else []
    if named is None or not columns:
        return ""
    step, c = int(named[1]), columns[0]
    stepped = [(x, v) for x, v in c.values if x.step is not None]
    own = next(((x, v) for x, v in stepped if x.step == step), None)
    if own is not None:
        return f"{c.key} at step {step} is {own[1]}, {f.at(own[0])}."
    if not stepped:
        return ""
    line, value = min(stepped, key=lambda p: abs((p[0].step or 0) - step))
    return f"No line prints {c.key} at step {step}; the nearest is {value} at step {line.step}, {f.at(line)}."


def find_columns(f: Facts) -> list[Column]:
    """Keys of the lines that the question names, the most closely named first."""
    asked = [n for n in _names() if n.say.search(f.text)]
    words = {w for w in tokenize(f.text.replace("_", " ").replace("/", " ")) if w.isalpha()} - _no_keys()  # fmt: skip
    table: dict[str, list[tuple[Line, str]]] = {}
    for line in f.evidence.lines:
        for key, value in _pairs(line.text[:LONGEST]):
            table.setdefault(key, []).append((line, value))
    scores: dict[str, float] = {}
    text = f.text.lower()
    for key in table:
        own = _words_of(key)
        if any(c in key for c in "_/.") and key.lower() in text:
            scores[key] = 5.0
        elif any(n.key.fullmatch(key) for n in asked):
            scores[key] = 3.0
        elif own and own <= words and (len(own) > 1 or len(next(iter(own))) > 3):
            scores[key] = 1.0 + len(own)
        elif len(words) > 1 and words <= own:
            scores[key] = 1.0 + len(words) / len(own)
    if asked and not any(v >= 3.0 for v in scores.values()):
        return []  # the field's own name of another quantity ("host memory" is no "memory")
    best = max(scores.values(), default=0.0)
    chosen = [k for k in scores if scores[k] == best]
    chosen.sort(key=lambda k: (-len(table[k]), len(k)))
    return [Column(k, tuple(table[k])) for k in _one_each(chosen, asked)]


def _one_each(keys: Sequence[str], asked: Sequence[_Name]) -> list[str]:
    """One key for each quantity that is named, else the one most often printed."""
    if not asked:
        return list(keys[:1])
    found = [next((k for k in keys if n.key.fullmatch(k)), "") for n in asked]
    return list(dict.fromkeys(k for k in found if k)) or list(keys[:1])


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    seen = set()
    for pattern in _PAIRS:
        for match in pattern.finditer(text):
            key = match["key"].strip(" .")
            if match.start("value") not in seen:
                seen.add(match.start("value"))
                yield key, match["value"].strip(" ,")


def _words_of(key: str) -> frozenset[str]:
    return frozenset(w for p in _PARTS.findall(key) for w in tokenize(p)) - {"mean", "size", "num", "per"}  # fmt: skip


def _say(f: Facts, c: Column) -> str:
    """One quantity at the moment that is asked for."""
    values = c.values
    if len({v for _, v in values}) == 1:
        line, value = values[0]
        return f"{c.key} is {value}, {f.at(line)}."
    first = f.first_line
    own = first is not None and any((x.file, x.number) == (first.file, first.number) for x, _ in values)  # fmt: skip
    before = [p for p in values if first is None or own or p[0].file != first.file or p[0].number <= first.number]  # fmt: skip
    (begin, one), (end, last) = values[0], (before or list(values))[-1]
    numbers = [x for _, v in values if (x := _number(v)) is not None]
    if len(numbers) < len(values) or _TRENDS.search(f.text) is None:
        if _BEGINS.search(f.text):
            return f"{c.key} is {one} at first, {f.at(begin)}."
        span = f"; it began at {one} ({f.at(begin)})" if begin.number != end.number else ""
        wide = f" and lay between {min(numbers):g} and {max(numbers):g} in {len(values)} lines" if len(numbers) == len(values) else ""  # fmt: skip
        return f"{c.key} is {last} in the last line before the fault that has it, {f.at(end)}{span}{wide}."
    change = (_number(last) or 0.0) - numbers[0]
    word = "rose" if change > 0 else "fell" if change < 0 else "stayed"
    steps = (end.step or 0) - (begin.step or 0)
    pace = f", {abs(change) / steps:.3g} a step" if steps > 0 and _PER_STEP.search(f.text) else ""
    return f"{c.key} {word} from {one} ({f.at(begin)}) to {last} ({f.at(end)}){pace}, between {min(numbers):g} and {max(numbers):g} in {len(values)} lines."


def _number(text: str) -> float | None:
    found = re.match(r"[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?", text)
    return float(found[0].replace(",", "")) if found is not None else None
