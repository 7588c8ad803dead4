"""Which lines are known? Failure signatures: data in YAML files, compiled for one linear-time pass.

google-re2's `Set` says which patterns match a block of text; only blocks with a match are looked at
line by line. For short logs the set holds only what they can match (narrowing.py).
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, overload

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Complaint, Level
from firstfault_tools.knowledge.pack import load_pressed, read_yaml
from firstfault_tools.log.gate import GateBook
from firstfault_tools.log.literals import read_literals, required_literals, write_literals

_FIELDS = ("title", "category", "level", "patterns", "root_cause", "page")

WHOLE_MEMORY, NARROW_MEMORY = 512 << 20, 32 << 20
"""Bytes that the automaton of all patterns may take, and of those that one text may match."""

NARROWED_SETS = 8
"""Narrowed sets that a process keeps: the logs of one job need the same one."""

FEW_PATTERNS = 64
"""So few are compiled as one set; more hold those that every text may match, which are compiled once for all."""


@dataclass(frozen=True, slots=True)
class NextArtefact:
    """What would settle an open question, why, and the command that collects it.

    run_on: where, a name of run_places.json or words; empty where the command tells. supports_if, refutes_if: what it
    shows where the signature's cause is the one, and where it is not.
    """

    what: str
    why: str
    command: str
    run_on: str = ""
    supports_if: str = ""
    refutes_if: str = ""
    then: str = ""


@dataclass(frozen=True, slots=True)
class Signature:
    """One known kind of line; CONTRIBUTING.md describes the file format."""

    id: str
    title: str
    category: Category | None
    level: Level
    rank_is_speaker: bool
    patterns: tuple[str, ...]
    unless: tuple[str, ...]
    needs: tuple[str, ...]
    without: tuple[str, ...]
    root_cause: str
    page: str
    next: tuple[NextArtefact, ...]
    fix: str = ""
    """How that fix of the page begins which mends what this line shows; empty where the page has one cause."""
    at_least: int = 1
    """Matching lines below which it is no hit: a notice that one event a line makes a fault in numbers."""
    roles: frozenset[FindingRole] = frozenset()
    """What is true of the line beside level and category; rules ask for it and name no signature."""
    opening: str = ""
    """How `root_cause` begins, where a rule may know better than the line what it means."""
    explains: Mapping[Complaint, float] = field(default_factory=dict)
    """Complaints that the line accounts for where it is no fault by itself, with `Finding.explains`'s weight."""


def parse_signature(row: Mapping[str, Any], name: str) -> Signature:
    """Signature from a parsed YAML mapping; errors name the file and the field."""
    for wanted in _FIELDS:
        if wanted not in row:
            raise UnreadableArtefact(f"signature {name}: field '{wanted}' is missing")
    try:
        return Signature(
            id=str(row["id"]),
            title=str(row["title"]),
            category=Category(row["category"]) if row["category"] else None,
            level=Level(row["level"]),
            rank_is_speaker=row.get("rank") == "line",
            patterns=tuple(map(str, row["patterns"])),
            unless=tuple(map(str, row.get("unless") or ())),
            needs=tuple(map(str, row.get("needs") or ())),
            without=tuple(map(str, row.get("without") or ())),
            root_cause=str(row["root_cause"]),
            page=str(row["page"]),
            next=tuple(
                NextArtefact(**{str(k): str(v) for k, v in n.items()})
                for n in row.get("next") or ()
            ),
            fix=str(row.get("fix") or ""),
            at_least=int(row.get("at_least") or 1),
            roles=frozenset(map(FindingRole, row.get("roles") or ())),
            opening=str(row.get("opening") or ""),
            explains={Complaint(k): float(v) for k, v in (row.get("explains") or {}).items()},
        )
    except (ValueError, TypeError, KeyError) as error:
        raise UnreadableArtefact(f"signature {name}: {error}") from error


class Signatures(Sequence[Signature]):
    """Signatures of a pack, each made when it is asked for: a log matches a handful of them."""

    def __init__(self, content: dict[str, Any]) -> None:
        self._content = content
        self._made: dict[int, Signature] = {}

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Where each signature stands, by its id."""
        return {name: place for place, name in enumerate(self._content["ids"])}

    @property
    def patterns(self) -> Sequence[Sequence[str]]:
        """The patterns of each."""
        patterns: Sequence[Sequence[str]] = self._content["patterns"]
        return patterns

    @property
    def conditions(self) -> Sequence[str]:
        """What they need and what speaks against them, without repeats, in order."""
        conditions: Sequence[str] = self._content["conditions"]
        return conditions

    @property
    def roles(self) -> Sequence[tuple[str, int]]:
        """Every role, and the place of a signature that plays it."""
        roles: Sequence[tuple[str, int]] = self._content["roles"]
        return roles

    def __len__(self) -> int:
        return len(self._content["rows"])

    @overload
    def __getitem__(self, place: int) -> Signature: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Signature]: ...
    def __getitem__(self, place: int | slice) -> Signature | Sequence[Signature]:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(len(self)))]
        made = self._made.get(place)
        if made is None:
            row = marshal.loads(self._content["rows"][place])
            made = self._made[place] = parse_signature(row, str(row.get("id")))
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Signatures, (self._content,)


def load_signatures(folder: Path, pack: Path | None = None) -> Signatures:
    """All signatures below `folder`, in path order; from the pack where it is fresh."""
    content = load_pressed(folder, ".yaml", _read_file, _press, pack)
    read_literals(content["literals"])
    return Signatures(content)


def _press(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What `Signatures` holds, as plain data. Raises UnreadableArtefact where a row is no signature."""
    told = _tell([parse_signature(row, str(row.get("id"))) for row in rows])
    own = (p for patterns in told["patterns"] for p in patterns)
    return {
        **told,
        "rows": [marshal.dumps(row) for row in rows],
        "literals": write_literals([*own, *told["conditions"]]),
    }


def _tell(signatures: Sequence[Signature]) -> dict[str, Any]:
    """What is asked of all signatures together."""
    conditions = dict.fromkeys(p for s in signatures for p in (*s.needs, *s.without))
    return {
        "ids": [s.id for s in signatures],
        "patterns": [list(s.patterns) for s in signatures],
        "conditions": list(conditions),
        "roles": [(role.value, place) for place, s in enumerate(signatures) for role in s.roles],
        "rows": [],
    }


def _read_file(file: Path) -> dict[str, Any]:
    row = read_yaml(file.read_text(encoding="utf-8"))
    if not isinstance(row, dict):
        raise UnreadableArtefact(f"{file}: expected one mapping; see CONTRIBUTING.md")
    if not row.get("source"):
        raise UnreadableArtefact(
            f"{file}: field 'source' is missing: name the issue, document or run in which the line was seen"
        )
    # who reads or prunes the files wants these, a diagnosis does not
    for name in ("samples", "source", "versions"):
        row.pop(name, None)
    return row


@dataclass(frozen=True, slots=True)
class Matches:
    """What a text matched: indices of signatures, conditions and marks (structure and secrets)."""

    signatures: tuple[int, ...]
    conditions: tuple[int, ...]
    marks: tuple[int, ...]
    patterns: tuple[int, ...] = ()
    """Indices into `SignatureSet.patterns` of everything that matched."""


@dataclass(frozen=True)
class SignatureSet:
    """All patterns of all signatures, compiled together with conditions and marks.

    Conditions are the `needs` and `without` patterns: only the whole incident can decide them. Marks
    are patterns of the scanner itself (tracebacks, watchdog lines, secrets).
    """

    signatures: Sequence[Signature]
    marks: tuple[str, ...] = ()
    only: tuple[int, ...] | None = None
    """Indices of the patterns that are tried, None for all."""

    def with_role(self, role: FindingRole) -> frozenset[int]:
        """Indices of the signatures that play a part."""
        return self._by_role.get(role, frozenset())

    @cached_property
    def _by_role(self) -> Mapping[FindingRole, frozenset[int]]:
        found: dict[FindingRole, set[int]] = {}
        for name, index in self._known.roles:
            found.setdefault(FindingRole(name), set()).add(index)
        return {role: frozenset(own) for role, own in found.items()}

    @cached_property
    def conditions(self) -> tuple[str, ...]:
        """Every `needs` and `without` pattern, without repeats, in order."""
        return tuple(self._known.conditions)

    @cached_property
    def _known(self) -> Signatures:
        """What can be told of all signatures without making them."""
        known = self.signatures
        return known if isinstance(known, Signatures) else Signatures(_tell(known))

    def find(self, name: str) -> Signature | None:
        """The signature of this id."""
        place = self._known.places.get(name)
        return None if place is None else self.signatures[place]

    @cached_property
    def patterns(self) -> tuple[str, ...]:
        """Every pattern of signatures, conditions and marks, in the order of the compiled set."""
        own = (p for patterns in self._known.patterns for p in patterns)
        return (*own, *self.conditions, *self.marks)

    @cached_property
    def gates(self) -> GateBook:
        """Gates of all patterns, compiled when a large log needs them."""
        first = len(self.owners)
        told = range(first, first + len(self.conditions))
        tried = range(len(self.patterns)) if self.only is None else self.only
        return GateBook(self.patterns, told, frozenset(range(len(self.patterns))).difference(tried))

    def __getstate__(self) -> dict[str, Any]:
        """Only the data: what is compiled is compiled again where a copy arrives."""
        return {"signatures": self.signatures, "marks": self.marks, "only": self.only}

    def narrow(self, only: tuple[int, ...]) -> SignatureSet:
        """This set for texts that only the patterns `only` can match."""
        return replace(self, only=only)

    @property
    def is_compiled(self) -> bool:
        """A long log came before, so that all patterns are compiled."""
        return "_sets" in self.__dict__

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """Index of the signature of every pattern; those beyond are conditions and marks."""
        return tuple(i for i, patterns in enumerate(self._known.patterns) for _ in patterns)

    @cached_property
    def _sets(self) -> tuple[tuple[Any, Sequence[int]], ...]:
        """Compiled sets, each with the indices of its patterns.

        Of a narrowed set those that every text may match are one of their own, which is compiled once.
        """
        patterns = self.patterns
        if self.only is None:
            return ((_compile_set(patterns, WHOLE_MEMORY), range(len(patterns))),)
        if len(self.only) <= FEW_PATTERNS:
            return ((_compile_narrowed(tuple(patterns[i] for i in self.only)), self.only),)
        always = [i for i in self.only if required_literals(patterns[i]) is None]
        told = [i for i in self.only if required_literals(patterns[i]) is not None]
        return tuple(
            (_compile_narrowed(tuple(patterns[i] for i in some)), some)
            for some in (always, told)
            if some
        )

    @cached_property
    def _compiled(self) -> dict[str, re.Pattern[str]]:
        return {}

    def expression(self, pattern: str) -> re.Pattern[str]:
        """Compiled `re` form of one pattern, made at first use."""
        found = self._compiled.get(pattern)
        if found is None:
            found = expression(pattern, short=0)
            self._compiled[pattern] = found
        return found

    def match(self, text: bytes) -> Matches | None:
        """What a line or block matches; None for nothing, the usual case."""
        found = [places[i] for compiled, places in self._sets for i in compiled.Match(text) or ()]
        if not found:
            return None
        owners = self.owners
        conditions_end = len(owners) + len(self.conditions)
        return Matches(
            tuple(sorted({owners[i] for i in found if i < len(owners)})),
            tuple(i - len(owners) for i in found if len(owners) <= i < conditions_end),
            tuple(i - conditions_end for i in found if i >= conditions_end),
            tuple(found),
        )

    def captures(self, index: int, text: str) -> dict[str, str] | None:
        """Named groups of the first pattern of signature `index` that matches `text`.

        None where no pattern matches the text as Unicode, or an `unless` pattern does.
        """
        signature = self.signatures[index]
        if any(self.expression(p).search(text) for p in signature.unless):
            return None
        for pattern in signature.patterns:
            match = self.expression(pattern).search(text)
            if match is not None:
                return {k: v.strip() for k, v in match.groupdict().items() if v is not None}
        return None


def _compile_set(patterns: Iterable[str], memory: int) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = memory
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1
    compiled = re2.Set.SearchSet(options)
    for pattern in patterns:
        # (?m) lets ^ and $ mean lines when a whole block is tried at once
        compiled.Add(f"(?m:{pattern})".encode())
    compiled.Compile()
    return compiled


@lru_cache(maxsize=NARROWED_SETS)
def _compile_narrowed(patterns: tuple[str, ...]) -> Any:
    return _compile_set(patterns, NARROW_MEMORY)


def fill_template(template: str, values: Mapping[str, object]) -> str:
    """`template` with {captures} filled in; a `[bracketed]` part with a missing value drops out."""

    def optional(match: re.Match[str]) -> str:
        names = re.findall(r"\{(\w+)\}", match[1])
        if not names:
            return match[0]
        return match[1] if all(values.get(n) not in (None, "") for n in names) else ""

    def known(match: re.Match[str]) -> str:
        value = values.get(match[1])
        return "?" if value is None or value == "" else str(value)

    text = re.sub(r"\[([^\[\]]*)\]", optional, template)
    text = re.sub(r"\{(\w+)\}", known, text)
    return re.sub(r"\s{2,}", " ", text).strip()
