"""In what do two configurations differ, and how does one with some of the differences look?

JSON and YAML are compared key by key; every other text line by line, in blocks (difflib).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter, UnreadableArtefact
from firstfault_tools.knowledge.pack import read_yaml

MOST_DIFFERENCES = 512
MISSING = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference: its name, where it lies, and what stands there in the good and in the bad one."""

    name: str
    path: tuple[str, ...]
    good: Any
    bad: Any


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two configurations. lines: the good one's lines where they were compared as text."""

    form: str
    differences: tuple[Difference, ...]
    base: Any


def compare_texts(good: str, bad: str, name: str) -> Comparison:
    """All differences. Raises UnreadableArtefact where a file is broken, InvalidParameter where there is none."""
    form = name.rpartition(".")[2].lower()
    form = {"yml": "yaml"}.get(form, form)
    if form in ("json", "yaml"):
        both = [_load(text, form, name) for text in (good, bad)]
        if all(isinstance(b, Mapping) for b in both):
            found = tuple(_compare(both[0], both[1], ()))
            return _checked(Comparison(form, found, both[0]))
    lines = good.splitlines(keepends=True), bad.splitlines(keepends=True)
    matcher = difflib.SequenceMatcher(None, *lines, autojunk=False)
    blocks = [
        Difference(_name_block(lines[0][a:b], lines[1][c:d], a), (str(a), str(b)), lines[0][a:b], lines[1][c:d])
        for what, a, b, c, d in matcher.get_opcodes()
        if what != "equal"
    ]  # fmt: skip
    return _checked(Comparison("text", tuple(blocks), lines[0]))


def _checked(comparison: Comparison) -> Comparison:
    if not comparison.differences:
        raise InvalidParameter("bad", "is the same as the good one")
    if len(comparison.differences) > MOST_DIFFERENCES:
        raise InvalidParameter("bad", f"differs in {len(comparison.differences)} places; at most {MOST_DIFFERENCES}")  # fmt: skip
    return comparison


def _load(text: str, form: str, name: str) -> Any:
    import yaml

    try:
        return json.loads(text) if form == "json" else read_yaml(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UnreadableArtefact(f"{name}: is no {form}: {error}") from error


def _compare(good: Any, bad: Any, path: tuple[str, ...]) -> Iterator[Difference]:
    if isinstance(good, Mapping) and isinstance(bad, Mapping):
        for key in dict.fromkeys((*good, *bad)):
            yield from _compare(good.get(key, MISSING), bad.get(key, MISSING), (*path, key))
    elif good is MISSING or bad is MISSING or good != bad or type(good) is not type(bad):
        name = f"{'.'.join(map(str, path))}: {_say(good)} -> {_say(bad)}"
        yield Difference(name, path, good, bad)


def _say(value: Any) -> str:
    return "absent" if value is MISSING else json.dumps(value, default=str)[:80]


def _name_block(good: Sequence[str], bad: Sequence[str], at: int) -> str:
    def say(lines: Sequence[str]) -> str:
        return " / ".join(line.strip() for line in lines)[:80] or "absent"

    return f"line {at + 1}: {say(good)} -> {say(bad)}"


def apply_differences(comparison: Comparison, chosen: Sequence[str]) -> str:
    """Text of the good configuration with the chosen differences of the bad one."""
    wanted = [d for d in comparison.differences if d.name in set(chosen)]
    if comparison.form == "text":
        lines = list(comparison.base)
        for d in sorted(wanted, key=lambda d: -int(d.path[0])):
            lines[int(d.path[0]) : int(d.path[1])] = d.bad
        return "".join(lines)
    made = json.loads(json.dumps(comparison.base, default=str))
    for d in wanted:
        inner = made
        for key in d.path[:-1]:
            inner = inner.setdefault(key, {})
        if d.bad is MISSING:
            inner.pop(d.path[-1], None)
        else:
            inner[d.path[-1]] = d.bad
    return json.dumps(made, indent=1, default=str) + "\n"
