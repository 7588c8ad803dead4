"""Who wrote a line, and in whose file does it stand? Places read from prefixes and names of files.

Prefixes are peeled off one after the other; what remains is the body. Each form says in its data which
facts it tells (prefixes.json, with the source of the format). A rank that only occurs inside the body
counts where the format is known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.place import NOWHERE, Place

Facts: TypeAlias = dict[str, int | str]
"""Fields of a place by name."""

HEAD = 400
"""Characters of a line in which its writer is told."""

MOST_PREFIXES = 8
WORTH_A_SET, SET_MEMORY = 2_000, 64 << 20
"""Lines after which one automaton of all forms, of so many bytes at most, is worth its making."""

ERROR_CODE = expression(r"E[A-Z]\d{4}(?=:|$)|ERR\d{4,5}(?=:|$)")
"""Codes of CANN and of the Ascend extension that begin a message where others put a host."""

_RAISED = ("Error", "Exception", "Warning", "Exit", "Interrupt")
"""How the type of an exception ends, which stands before its message as a host would."""

_NO_HOSTS = frozenset(
    [
        "warning",
        "error",
        "info",
        "debug",
        "critical",
        "note",
        "traceback",
        "epoch",
        "train",
        "step",
        "valid",
    ]
)
_NUMBERS = frozenset({"rank", "local_rank", "node_rank", "task", "replica", "pid", "gpu"})
_RANK_WORDS = ("ank", "RANK", ".py:")
"""Without one of these no form finds a rank in the body."""

_MEMBER = expression(
    r"(?:[a-z0-9][a-z0-9.-]{0,200}-)?(?:worker|master|chief|trainer|learner|replica)-(\d{1,5})(?:-[a-z0-9]{5})?"
)
"""Name of one of several workers or pods, by its role and number."""


@dataclass(frozen=True, slots=True)
class Form:
    """One format of a prefix: the pattern's groups are names of facts. kind: what else holds for it.

    bar: only before more text. host: only where no host is told yet. task: only where no task or rank is.
    mpi: the number counts as the rank where nothing else tells one. pod: a pod's host name is its own name.
    """

    name: str
    pattern: re.Pattern[str]
    kind: str
    source: str
    begins: str
    """Characters that the prefix can begin with; '' where that says too little to look for them."""


@cache
def read_forms(group: str) -> tuple[Form, ...]:
    """Forms of `prefixes`, `bodies` or `files`."""
    rows = json.loads(Path(__file__).with_name("prefixes.json").read_text(encoding="utf-8"))[group]
    return tuple(
        Form(
            row["name"],
            expression(row["pattern"], re.I if row.get("flags") else 0),
            row.get("kind", ""),
            row["source"],
            row.get("begins", ""),
        )
        for row in rows
    )


@cache
def _forms_at(first: str) -> tuple[Form, ...]:
    """Forms of a prefix that can begin with a character."""
    return tuple(f for f in read_forms("prefixes") if not f.begins or (first and first in f.begins))


_LOOKAHEAD = expression(
    r"\(\?[=!](?:[^()\\\[]|\\.|\[[^\]]*\]|\((?:[^()\\\[]|\\.|\[[^\]]*\])*\))*\)"
)


@cache
def _form_set() -> Any:
    """One automaton of all forms of prefixes; without what they look ahead for, so it finds too many, never too few."""
    import re2

    options = re2.Options()
    options.max_mem = SET_MEMORY
    options.log_errors = False
    forms = re2.Set.MatchSet(options)
    for form in read_forms("prefixes"):
        flags = "(?i)" if form.pattern.flags & re.I else ""
        forms.Add(flags + _LOOKAHEAD.sub("", form.pattern.pattern))
    forms.Compile()
    return forms


def _possible_forms(head: str, offset: int) -> Iterable[Form]:
    """Forms of which one may stand at an offset, in their order."""
    rest = head[offset:]
    # other characters are of other classes to `re` than to google-re2
    if _read_head.cache_info().misses < WORTH_A_SET or not (rest.isascii() and rest.isprintable()):
        return _forms_at(rest[:1].strip() or rest.lstrip()[:1])
    forms = read_forms("prefixes")
    return [forms[index] for index in sorted(_form_set().Match(rest) or ())]


def read_prefix(text: str) -> tuple[Place, int]:
    """Place of the writer of a normalised line, and the offset at which its body begins."""
    return _read_head(text[:HEAD])


@lru_cache(maxsize=16_384)
def _read_head(head: str) -> tuple[Place, int]:
    # several readers ask for the same line, and a log repeats many
    facts: Facts = {}
    offset, weak = 0, None
    for _ in range(MOST_PREFIXES):
        step = _peel(head, offset, facts)
        if step is None:
            break
        form, offset = step
        weak = facts["task"] if form.kind == "mpi" else weak
    if "rank" not in facts and (rank := _find_rank(head, offset)) is not None:
        facts["rank"] = rank
    if weak is not None:
        facts.setdefault("rank", weak)
    return (Place(**facts) if facts else NOWHERE), offset  # type: ignore[arg-type]


def _peel(head: str, offset: int, facts: Facts) -> tuple[Form, int] | None:
    """The form of the prefix at an offset and its end; what it tells is noted."""
    for form in _possible_forms(head, offset):
        match = form.pattern.match(head, offset)
        if match is None or match.end() == offset:
            continue
        groups = match.groupdict()
        host = groups.get("host") or ""
        if form.kind == "host" and (
            "host" in facts
            or host.lower() in _NO_HOSTS
            or ERROR_CODE.fullmatch(host)
            or host.endswith(_RAISED)
        ):
            continue
        if form.kind == "task" and ("task" in facts or "rank" in facts):
            continue
        if form.kind == "bar" and match.end() >= len(head.rstrip()):
            continue
        _note(facts, groups, form.kind)
        return form, match.end()
    return None


def _note(facts: Facts, groups: Mapping[str, str | None], kind: str = "") -> None:
    """Add what a form tells to the facts; what was told before it stays."""
    told: Facts = {
        name: int(value) if name in _NUMBERS else value
        for name, value in groups.items()
        if value is not None
    }
    if kind == "pod":
        told["host"] = told["pod"]
    name = told.get("pod") or told.get("host")
    if isinstance(name, str) and (member := _MEMBER.fullmatch(name)) is not None:
        told |= {"pod": name, "replica": int(member[1])}
    if isinstance(host := told.get("host"), str):
        told["host"] = host.removeprefix("slurmstepd-")
    for name, value in told.items():
        facts.setdefault(name, value)


def _find_rank(head: str, offset: int) -> int | None:
    """Rank that the body names in a known form."""
    if not any(word in head for word in _RANK_WORDS):
        return None
    for form in read_forms("bodies"):
        match = form.pattern.search(head, offset)
        if match is not None:
            return int(next(v for v in match.groupdict().values() if v is not None))
    return None


def read_file_name(name: str) -> Place:
    """Place that the path of a log tells: its own rank, or its rank on a numbered node."""
    facts: Facts = {}
    for form in read_forms("files"):
        match = form.pattern.search(name)
        if match is not None and not ("local_rank" in facts and "rank" in match.groupdict()):
            _note(facts, match.groupdict())
    return Place(**facts) if facts else NOWHERE  # type: ignore[arg-type]
