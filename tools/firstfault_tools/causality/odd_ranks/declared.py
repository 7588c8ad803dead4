"""Which rank differs by what programs found when they compared ranks themselves?

Some libraries check that all ranks agree and raise on each rank that sees a difference: every message
holds one or two statements "rank N has X". One message blames nobody; the statements of all messages
together leave one rank, or one node, in the minority. Signatures that capture two counts (odd_one.py)
read DDP's check; here are those that name hosts or hold more than a count.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import field

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.odd_ranks.minority import (
    Minority,
    begin_sentence,
    host_by_exits,
    is_node,
    quote_few,
    say_solo,
    solo_words,
    start_of,
)
from firstfault_tools.causality.odd_ranks.standings import explain_gathers
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import (
    Category,
    Confidence,
    Finding,
    Level,
    Strength,
    Together,
)
from firstfault_tools.kind_pages import page_of_kind
from firstfault_tools.log.digest import Line
from firstfault_tools.log.scan import make_line

MOST_LINES = 4_096


@dataclass(frozen=True, slots=True)
class Check:
    """A check that a library makes. what: the thing compared, in words. means: what it tells.

    pattern: groups a and x (a rank and its value), b and y (another one's). Where b is missing the
    value y is that of rank 0, or of all others where `rest` is set. Ranks that print nothing agree
    with the reference if `silent` is set. own: the group that names the rank that prints.
    """

    name: str
    literal: str
    pattern: re.Pattern[str]
    what: str
    means: str
    category: Category
    page: str | None
    rest: bool = False
    silent: bool = False
    own: str = "a"
    opening: str = ""
    """What the one did, where the values by themselves say it to nobody."""


CHECKS = (
    Check(
        "versions",
        "Mismatched NCCL version detected",
        expression(
            r"Mismatched NCCL version detected : rank (?P<b>\d+) version (?P<y>\d+) rank (?P<a>\d+) version (?P<x>\d+)"
        ),
        "NCCL version {}",
        "its node runs another image or library than the others",
        Category.ENVIRONMENT,
        "mixed-software-versions",
    ),
    Check(
        "iterations",
        "in the metadata while max iteration across the ranks is",
        expression(
            r"on rank (?P<a>\d+) found iteration (?P<x>-?\d+) in the metadata while max iteration across the ranks is (?P<y>\d+)"
        ),
        "iteration {} in the checkpoint's tracker",
        "it does not see the storage that the others see, or an old copy of it",
        Category.CHECKPOINT,
        None,
        rest=True,
        silent=True,
    ),
    Check(
        "collectives",
        "is running collective",
        expression(
            r"Rank (?P<a>\d+) is running collective: (?:CollectiveFingerPrint)?\(?(?P<x>.{1,160}?)"
            r"(?:, TensorDtypes.{0,400}?)?\)*, but Rank (?P<b>\d+) is running collective: "
            r"(?:CollectiveFingerPrint)?\(?(?P<y>.{1,160}?)(?:, TensorDtypes|\)|$)"
        ),
        "the collective {}",
        "it took another path through the code",
        Category.CODE_BUG,
        "collective-divergence",
        opening="called another collective than the other {most} ranks",
    ),
    Check(
        "integers",
        "disagreement between rank0 and rank",
        expression(
            r"disagreement between rank0 and rank\d+: rank(?P<b>0): (?P<y>.{1,120}?), rank(?P<a>\d+): (?P<x>.{1,120})"
        ),
        "{}",
        "it fetched its parameters in another order, so it took another path through the code",
        Category.CODE_BUG,
        "deepspeed-zero3",
        silent=True,
    ),
)
_LITERALS = tuple(check.literal for check in CHECKS)


@dataclass(slots=True)
class Statements:
    """What the messages of one check say: value and line of each rank, in order."""

    values: dict[int, str] = field(default_factory=dict)
    lines: dict[int, Line] = field(default_factory=dict)
    hosts: dict[int, str] = field(default_factory=dict)
    others: str | None = None
    """Value of all ranks that printed nothing, where the message gives it."""

    def add(self, rank: int, value: str, line: Line, own: bool) -> None:
        self.values.setdefault(rank, value)
        if own or rank not in self.lines:
            self.lines[rank] = line
        if own and line.place.host is not None:
            self.hosts.setdefault(rank, line.place.host)


def find_in_incident(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """Ranks in the minority of what libraries compared."""
    said = _read(incident)
    out = []
    for check in CHECKS:
        if check.name in said:
            found = _judge(incident, check, said[check.name])
            out += [found] if found is not None else []
    return out


def _read(incident: LogIncident) -> dict[str, Statements]:
    said: dict[str, Statements] = defaultdict(Statements)
    left = MOST_LINES
    for digest in incident.digests:
        for run in digest.kept.runs:
            if not run.holds(_LITERALS):
                continue
            for number, text in enumerate(run.texts(), run.first):
                check = next((c for c in CHECKS if c.literal in text), None)
                match = check.pattern.search(text[:4000]) if check is not None else None
                if check is None or match is None:
                    continue
                left -= 1
                if left < 0:
                    return said
                line = make_line(digest.file, number, text, digest.year)
                _note(said[check.name], check, match, line)
    return said


def _note(said: Statements, check: Check, match: re.Match[str], line: Line) -> None:
    groups = match.groupdict()
    rank = int(groups["a"]) if groups["a"] else line.place.rank
    if rank is None:
        return
    said.add(rank, groups["x"], line, True)
    if groups.get("b"):
        said.add(int(groups["b"]), groups["y"] or "", line, False)
    elif check.rest:
        said.others = groups["y"]
    else:
        said.values.setdefault(0, "")


def _judge(incident: LogIncident, check: Check, said: Statements) -> Finding | None:
    votes = _count_votes(incident, check, said)
    if len(votes) != 2:
        return None
    (usual, most), (value, few) = votes.most_common(2)
    ranks = sorted(r for r, v in said.values.items() if v == value)
    # half against half, or one against one, blames nobody
    if few >= most or not ranks or most < 2:
        return None
    few_ones = _minority(incident, check, said, ranks, most)
    if few_ones is None:
        return None
    odd = said.lines.get(ranks[0]) or next(iter(said.lines.values()))
    reason = solo_words(incident, few_ones.rank, odd) if few_ones.rank is not None else []
    title = _tell(check, few_ones, value, usual, most) + say_solo(reason)
    own = [said.lines[r] for r in ranks[1:2] if r in said.lines]
    rest = [said.lines[r] for r in sorted(said.lines) if r not in ranks]
    return Finding(
        kind=f"ranks.odd_{check.name}",
        title=begin_sentence(title),
        level=Level.CAUSE,
        category=check.category,
        confidence=Confidence.CONFIRMED,
        evidence=quote_few(few_ones, list(dict.fromkeys([odd, *own, *rest[:2], *reason]))),
        rank=few_ones.rank,
        host=few_ones.host,
        time=min((v.time for v in said.lines.values() if v.time is not None), default=None),
        page=check.page or page_of_kind(f"ranks.odd_{check.name}"),
        facts={
            "value": value,
            "usual": usual,
            "ranks": ranks,
            "others": most,
            "starts_at": start_of(incident, [*said.lines.values(), *reason]),
            "survived": incident.survived(odd),
        },
        strength=Strength(Together.STATED),
    )


def _count_votes(incident: LogIncident, check: Check, said: Statements) -> Counter[str]:
    """How many ranks have each value; silent ones agree with the reference where the check says so."""
    votes = Counter(said.values.values())
    reference = said.others if said.others is not None else said.values.get(0)
    if check.silent and reference is not None:
        highest = max(incident.ranks_seen | set(said.values))
        quiet = max(incident.world_size or 0, highest + 1) - len(said.values)
        if quiet > 0:
            votes[reference] += quiet
    return votes


def _tell(check: Check, few: Minority, value: str, usual: str, most: int) -> str:
    """Who has what, what the others have, and what that means."""
    values = (
        f"{'has' if len(few.ranks) == 1 else 'have'} {check.what.format(value or 'other values')}, "
        f"the other {most} ranks have {usual or 'another'}"
    )
    if check.opening:
        told = f"{few.called()} {check.opening.format(most=most)}: {check.means}; it {values}"
    else:
        told = f"{few.called()} {values}: {check.means}"
    return told + (explain_gathers(value, usual) if check.name == "collectives" else "")


def _minority(
    incident: LogIncident, check: Check, said: Statements, ranks: list[int], most: int
) -> Minority | None:
    hosts = {said.hosts.get(r) or incident.placement.host_of(r) for r in ranks} - {None}
    host = hosts.pop() if len(hosts) == 1 else host_by_exits(incident, ranks)
    if len(ranks) == 1:
        # software is a node's, whichever of its ranks speaks
        of_node = check.category is Category.ENVIRONMENT and host is not None
        return Minority(tuple(ranks), None if of_node else ranks[0], host)
    if host is None and not (is_node(ranks) and most >= len(ranks)):
        return None
    return Minority(tuple(ranks), None, host)
