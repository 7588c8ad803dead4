"""Who are the few that differ from all others: one rank, the ranks of one host, or nobody to name?"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.causality.attribution import first_place
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Evidence
from firstfault_tools.log.digest import Line
from firstfault_tools.log.place import name_ranks

NODE_SIZES = (2, 4, 8, 16)
LOOK_BACK, OTHER_LOGS = 400, 3
_ALARM = expression(
    r"(?i)\bwarn|\berror|not found|missing|absent|fall(?:ing)? ?back|skip|without|default|stale|cached?\b|\bold\b|\blocal\b|overrid|sourcing|using|instead"
)
_NOISE = expression(
    r"FutureWarning|DeprecationWarning|UserWarning|ProcessGroup|TCPStore|Traceback|File \"|socket\.cpp|OMP_NUM|NCCL (?:INFO|WARN)|\[c10d\]"
)
_SHAPE = expression(r"[\d\W_]+")


@dataclass(frozen=True, slots=True)
class Minority:
    """The few. rank: where it is one. host: where it is known, or all of them are on it."""

    ranks: tuple[int, ...]
    rank: int | None
    host: str | None

    def called(self) -> str:
        """The few in words: `rank 5 (n3)`, `n3 (ranks 16-23)`, `ranks 16-23 (one node)`."""
        if self.rank is not None:
            return f"rank {self.rank}" + (f" ({self.host})" if self.host else "")
        if not self.ranks:
            return self.host or "one of them"
        names = name_ranks(self.ranks)
        return f"{self.host} ({names})" if self.host else f"{names} (one node)"


def begin_sentence(text: str) -> str:
    """With a capital letter, unless the text begins with the name of a host."""
    return text[0].upper() + text[1:] if text.startswith("rank") else text


def single_out(
    odd: Sequence[tuple[int | None, str | None]], rest: Sequence[tuple[int | None, str | None]]
) -> Minority | None:
    """The minority if it is one rank, one host or all seen ranks of one node; else None.

    odd, rest: (rank, host) of each, either of them None where unknown.
    """
    if not odd or len(rest) < 2:
        return None
    ranks = tuple(sorted(r for r, _ in odd if r is not None))
    hosts = {h for _, h in odd}
    if len(odd) == 1:
        rank, host = odd[0]
        return Minority(ranks, rank, host)
    others = {h for _, h in rest}
    if len(hosts) == 1 and None not in hosts and not hosts & others:
        return Minority(ranks, None, next(iter(hosts)))
    if None in others and len(ranks) == len(odd) and is_node(ranks) and len(rest) >= 2 * len(odd):
        return Minority(ranks, None, None)
    return None


def is_block(ranks: Sequence[int]) -> bool:
    """More than one rank without a gap; sorted."""
    return len(ranks) > 1 and ranks[-1] - ranks[0] == len(ranks) - 1


def is_node(ranks: Sequence[int]) -> bool:
    """As many adjacent ranks as a node has GPUs, beginning at a multiple of their number."""
    return is_block(ranks) and len(ranks) in NODE_SIZES and ranks[0] % len(ranks) == 0


def host_by_exits(incident: LogIncident, ranks: Sequence[int]) -> str | None:
    """The host on which the launcher saw all of these ranks end, where labels are ranks."""
    hosts = set()
    for exit_ in incident.exits:
        told = re.search(r"\btasks? ([\d,-]+)", exit_.line.text)
        if exit_.host is None or told is None:
            continue
        tasks = _numbers(told[1])
        if tasks & set(ranks):
            hosts.add(exit_.host if tasks <= set(ranks) else None)
    return hosts.pop() if len(hosts) == 1 else None


def _numbers(text: str) -> set[int]:
    out: set[int] = set()
    for part in text.split(",")[:256]:
        low, _, high = part.partition("-")
        if low.isdecimal():
            out |= set(range(int(low), min(int(high), int(low) + 4096) + 1 if high.isdecimal() else int(low) + 1))  # fmt: skip
    return out


def solo_words(incident: LogIncident, rank: int, before: Line) -> list[Line]:
    """The telling line that only `rank` wrote before the difference showed, if there is one."""
    digest = incident.digest_of(before.file)
    alone = digest.name_rank == rank
    said: dict[str, list[Line]] = defaultdict(list)
    for line in incident.lines_before(before, LOOK_BACK):
        said[_shape(line.message)].append(line)
    elsewhere = _shapes_elsewhere(incident, before.file) if alone else set()
    for shape, lines in said.items():
        own = [n for n in lines if alone or rank in (n.place.rank, n.place.task)]
        if len(own) != len(lines) or len(own) > 2 or shape in elsewhere:
            continue
        if _ALARM.search(own[0].message) and not _NOISE.search(own[0].text):
            return own[:1]
    return []


def _shape(message: str) -> str:
    return _SHAPE.sub("", message)[:60]


def _shapes_elsewhere(incident: LogIncident, file: str) -> set[str]:
    from firstfault_tools.log.prefix import read_prefix

    out = set()
    for digest in [d for d in incident.digests if d.file != file][:OTHER_LOGS]:
        for _, text in digest.kept[:LOOK_BACK]:
            out.add(_shape(text[read_prefix(text)[1] :]))
    return out


def start_of(incident: LogIncident, lines: Sequence[Line]) -> int:
    """Number of the first of these lines, or of the traceback that it ends."""
    return min(first_place(incident, line)[2] for line in lines)


def say_solo(words: Sequence[Line]) -> str:
    """Such a line in the words of a finding, or nothing."""
    return f"; it alone said before: {' '.join(words[0].message.split())[:160]!r}" if words else ""


def quote_few(few: Minority, lines: Sequence[Line]) -> tuple[Evidence, ...]:
    """The lines as evidence; the first of them is that of the few."""
    own, *others = (line.evidence() for line in lines)
    return replace(own, rank=few.rank, host=few.host or own.host), *others
