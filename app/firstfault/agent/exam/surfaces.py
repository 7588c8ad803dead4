"""How does an incident look on another day? Names, addresses, dates, process ids, ports and ranks by seed.

What happened stays; what it is called changes, in the log, in the question and in what a right answer
holds, so that an exam cannot be learnt by heart.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.prefix import read_prefix

_HOST = expression(
    r"(?i)(?<![\w./<-])(?:ip-\d+-\d+-\d+-\d+|(?:[a-z]{2,12}-){0,3}(?:node|host|worker|compute|dgx|hgx|gpu|srv|rack)[-_]?\d{1,6})(?![\w-])(?!\s*[:=]\s*\d{1,2}\b)"
)
_ADDRESS = expression(r"(?<![\w.])(?:10|172|192)\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![\w.]*\.\d)")
_DATE = expression(r"\b(20[12]\d)-(\d\d)-(\d\d)(?=[T _])")
_PROCESS = expression(r"(?i)\b(pid:? ?|pid=)(\d{3,7})\b")
_RANK = expression(
    r"(?i)\b(ranks? ?[:=#]? ?|rank_|local_rank: ?|gpu ?|cuda:|device ?[:=]? ?)(\d{1,2})\b|(\[(?:rank ?|default))(\d{1,2})(?=\])"
)
_NO_HOST = expression(r"(?i)^(?:gpu|rank)[-_ ]?\d{1,2}$")
_STEMS = ("kestrel", "tern", "plover", "heron", "dunlin", "avocet", "merlin", "siskin")


@dataclass(frozen=True, slots=True)
class Incident:
    """One question of the exam. `swap`: two ranks whose parts may be exchanged throughout."""

    id: str
    kind: str
    question: str
    files: Mapping[str, str]
    categories: tuple[str | None, ...]
    rank: int | None
    must_mention: tuple[str, ...]
    must_not_claim: tuple[str, ...]
    healthy: bool
    undecided: bool
    misleading: bool = False
    """The loudest line names another kind of cause."""
    swap: tuple[int, int] | None = None


def vary(incident: Incident, seed: int) -> Incident:
    """The same incident with another surface; seed 0 leaves it as it is."""
    if seed == 0:
        return incident
    chance = random.Random(f"{seed} {incident.id}")
    whole = "\n".join(incident.files.values())
    names = _rename(whole, chance)
    days = chance.randint(-400, 60)
    shift = chance.randint(11, 899)
    swap = incident.swap if incident.swap and chance.random() < 0.7 else None

    def change(text: str) -> str:
        for old, new in names.items():
            text = re.sub(rf"(?<![\w.-]){re.escape(old)}(?![\w-])", new, text)
        text = _DATE.sub(lambda m: _move(m, days), text)
        text = _PROCESS.sub(lambda m: f"{m[1]}{int(m[2]) + shift}", text)
        return _exchange(text, swap) if swap else text

    files = {name: change(text) for name, text in incident.files.items()}
    if len(files) == 1:
        files = {name: _reorder(text, chance) for name, text in files.items()}
    rank = incident.rank
    if swap and rank in swap:
        rank = swap[1 - swap.index(rank)]
    return replace(incident, files=files, question=change(incident.question), rank=rank)


def _rename(text: str, chance: random.Random) -> dict[str, str]:
    """Other names for hosts and addresses, the same for the same."""
    hosts = {m for m in _HOST.findall(text) if not _NO_HOST.match(m)}
    stem = chance.choice(_STEMS)
    first = chance.randint(10, 800)
    out = {
        h: f"{stem}-{first + n * chance.randint(1, 3):03d}" for n, h in enumerate(sorted(hosts), 1)
    }
    net = f"10.{chance.randint(20, 250)}.{chance.randint(1, 250)}"
    addresses = sorted(set(_ADDRESS.findall(text)))
    out |= {a: f"{net}.{5 + n}" for n, a in enumerate(addresses)}
    taken = set(out.values())
    return out if len(taken) == len(out) and len(addresses) < 200 else {}


def _move(found: re.Match[str], days: int) -> str:
    try:
        moved = date(int(found[1]), int(found[2]), int(found[3])) + timedelta(days=days)
    except ValueError:
        return found[0]
    return moved.isoformat()


def _exchange(text: str, swap: tuple[int, int]) -> str:
    one, other = (str(r) for r in swap)

    def other_of(number: str) -> str:
        return other if number == one else one if number == other else number

    return _RANK.sub(
        lambda m: f"{m[1]}{other_of(m[2])}" if m[2] is not None else f"{m[3]}{other_of(m[4])}", text
    )


def _reorder(text: str, chance: random.Random) -> str:
    """Neighbouring lines of different ranks that differ in their numbers alone change places."""
    lines = text.split("\n")
    at = 0
    while at + 1 < len(lines):
        here, there = lines[at], lines[at + 1]
        ranks = read_prefix(here)[0].rank, read_prefix(there)[0].rank
        alike = re.sub(r"\d+", "#", here) == re.sub(r"\d+", "#", there)
        if None not in ranks and ranks[0] != ranks[1] and alike and chance.random() < 0.5:
            lines[at], lines[at + 1] = there, here
            at += 1
        at += 1
    return "\n".join(lines)
