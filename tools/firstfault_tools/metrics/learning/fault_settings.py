"""Which setting explains that numbers broke or that an index is out of range? Read off log and question.

A verdict on numbers names what was seen: NaN since step 0, a loss scale at its minimum, a device-side
assert. What an engineer says aloud is the setting behind it: fp16 for a model pretrained in bfloat16, a
learning rate made for another batch, a length limit shorter than every prompt. fault_settings.json lists
for each kind of fault which values bear on it and how they must compare.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import translate
from functools import cache
from pathlib import Path
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Evidence, Finding
from firstfault_tools.hardware.excerpt import keep_marked, quote_line
from firstfault_tools.kept_forms import compile_kept

TABLE = Path(__file__).with_name("fault_settings.json")
MOST_LINES, LONGEST, QUOTE = 4_000, 4_000, 100
MOST_SAID = 3
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq,
}  # fmt: skip
_COMMAND = ("$ ", ">>> ", "In [", "# python", "print(")
_NAMES = expression(r"['\"][^'\"]{1,80}['\"]")

Lines = Sequence[tuple[str, Sequence[tuple[int, str]]]]
"""(file, its numbered lines)."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A value as it was read. words: what was read, for a quote. evidence: None for the question."""

    value: str
    words: str
    evidence: tuple[Evidence, ...] = ()

    def __format__(self, spec: str) -> str:
        if spec == "quote":
            return f"`{self.words}`"
        if spec == "last":
            return str(int(float(self.value)) - 1)
        return self.value

    def number(self) -> float | None:
        """The value as a number, where it is one."""
        try:
            return float(self.value.replace(",", ""))
        except ValueError:
            return None


@cache
def _table() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return found


def groups_of(finding: Finding) -> frozenset[str]:
    """Groups of faults that a finding belongs to; empty where no setting is looked for."""
    out = set()
    for group, entries in _table()["faults"].items():
        if any(_is_of(finding, entry) for entry in entries):
            out.add(group)
    return frozenset(out)


def _is_of(finding: Finding, entry: str) -> bool:
    """Whether a finding is of a kind, or of a kind with words in its title (`kind ~ words`)."""
    kind, _, words = entry.partition(" ~ ")
    if "*" in kind:
        same = compile_kept(translate(kind)).match(finding.kind) is not None
    else:
        same = finding.kind == kind
    return same and (not words or bool(re.search(words, finding.title)))


def explain_by_settings(
    finding: Finding, lines: Lines, question: str, beside: Iterable[Finding] = ()
) -> Finding:
    """The finding with the deciding settings in its title, each quoted; unchanged where none decides.

    beside: the other findings of the incident.
    """
    groups = groups_of(finding)
    rows = [row for row in _table()["rows"] if groups.intersection(row["faults"])]
    if not rows:
        return finding
    facts = _Facts(finding, lines, question, tuple(beside))
    said = []
    for row in rows:
        if _holds(row, facts):
            said.append(row)
            if row.get("final") or len(said) >= MOST_SAID:
                break
    for row in said:
        finding = _tell(finding, row, {name: facts[name] for name in row["all"]})
    return finding


class _Facts:
    """Facts by name, each read when it is first asked for."""

    def __init__(
        self, finding: Finding, lines: Lines, question: str, beside: tuple[Finding, ...]
    ) -> None:
        self._finding, self._lines, self._question = finding, lines, question[:4000]
        self._beside = beside
        self._known: dict[str, Fact | None] = {}

    def get(self, name: str) -> Fact | None:
        if name not in self._known:
            self._known[name] = self._read(_table()["facts"][name])
        return self._known[name]

    def __getitem__(self, name: str) -> Fact:
        fact = self.get(name)
        if fact is None:
            raise KeyError(name)
        return fact

    def _read(self, entry: Mapping[str, Any]) -> Fact | None:
        if "finding" in entry:
            value = self._finding.fact(entry["finding"])
            if value is None or value is False:
                return None
            shown = f"{value:.4g}" if isinstance(value, float) else str(value)
            return Fact(shown, shown)
        if "kinds" in entry:
            return self._read_kinds(entry["kinds"])
        found = self._read_log(entry) if "log" in entry else None
        if found is None and "question" in entry:
            match = _compile(entry["question"]).search(self._question)
            if match is not None:
                found = Fact(_value(match), _words(match[0]))
        return found

    def _read_kinds(self, kinds: Sequence[str]) -> Fact | None:
        """The deepest of several findings, first kind first; all of them are quoted."""
        found = [f for kind in kinds for f in self._beside if _is_of(f, kind)]
        if not found or not found[0].evidence:
            return None
        title = re.split(r"[:;(]| on the GPU of| on rank", found[0].title, maxsplit=1)[0].strip()
        title = re.sub(r"^(?:an?|the) ", "", title)
        places = tuple(dict.fromkeys(e for f in found for e in f.evidence[:1]))
        return Fact(title, title, places)

    def _read_log(self, entry: Mapping[str, Any]) -> Fact | None:
        pattern = _compile(entry["log"])
        unless = _compile(entry["unless"]) if "unless" in entry else None
        take, out = entry.get("take", "first"), []
        for file, lines in self._lines:
            after = dict(lines) if len(lines) < 100_000 else {}
            for number, text in keep_marked(lines, entry["words"])[:MOST_LINES]:
                text = text[:LONGEST]
                # a block of a configuration and its first entry; a pasted command and what it prints
                if text.rstrip().endswith("{") or text.lstrip().startswith(_COMMAND):
                    text = f"{text.rstrip()} {after.get(number + 1, '').strip()[:LONGEST]}"
                match = pattern.search(text)
                if match is None or (unless is not None and unless.search(text)):
                    continue
                value = _value(match)
                if entry.get("count"):
                    value = str(len(_NAMES.findall(value)))
                quoted = (
                    text
                    if number + 1 not in after or len(text) <= len(after[number])
                    else after[number]
                )
                fact = Fact(value, _words(match[0]), (quote_line(file, number, quoted),))
                if take == "first":
                    return fact
                out.append(fact)
        if not out:
            return None
        return out[-1] if take == "last" else max(out, key=lambda f: f.number() or 0.0)


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return expression(pattern, re.IGNORECASE)


def _value(match: re.Match[str]) -> str:
    return next((v for v in match.groups() if v), match[0]).strip()


def _words(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= QUOTE else f"{flat[: QUOTE // 2].rstrip()} … {flat[-QUOTE // 2 :].lstrip()}"  # fmt: skip


def _holds(row: Mapping[str, Any], facts: _Facts) -> bool:
    if any(facts.get(name) is None for name in row["all"]):
        return False
    if any(facts.get(name) is not None for name in row.get("none", ())):
        return False
    for left, sign, right, *factor in row.get("compare", ()):
        one, other = _number(left, facts), _number(right, facts)
        if one is None or other is None:
            return False
        if not _COMPARE[sign](one, other * (factor[0] if factor else 1.0)):
            return False
    return True


def _number(term: str | float, facts: _Facts) -> float | None:
    if not isinstance(term, str):
        return float(term)
    fact = facts.get(term)
    return fact.number() if fact is not None else None


def _tell(finding: Finding, row: Mapping[str, Any], facts: Mapping[str, Fact]) -> Finding:
    words = row["says"].format_map(facts)
    title = finding.title.rstrip(".")
    if row.get("everywhere"):
        title = re.sub(r" on rank \d+", "", title, count=1)
    if row.get("first"):
        title = f"{words[0].upper()}{words[1:]}. Seen of it: {title[0].lower()}{title[1:]}"
    else:
        title = f"{title}; {words}"
    places = [e for fact in facts.values() for e in fact.evidence]
    known = {(e.file, e.line) for e in finding.evidence}
    added = tuple(e for e in dict.fromkeys(places) if (e.file, e.line) not in known)
    return replace(
        finding,
        title=title,
        category=Category(row["category"]) if "category" in row else finding.category,
        page=row.get("page", finding.page),
        rank=None if row.get("everywhere") else finding.rank,
        evidence=(*finding.evidence, *added[:6]),
        facts={**finding.facts, "setting": row["id"]},
    )
