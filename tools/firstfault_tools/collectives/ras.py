"""Which rank holds a communicator up, according to NCCL's own RAS service?

INCOMPLETE and DEAD name processes that do not answer. MISMATCH says that ranks have launched different
numbers of operations, which is normal while a job runs: it counts only if a second query shows the
same numbers (NVIDIA's page on RAS).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from firstfault_tools.collectives.ras_report import (
    Communicator,
    RasReport,
    looks_like_ras,
    parse_ras,
)
from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import ToolError, UnreadableArtefact
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Json, Level
from firstfault_tools.registry import Artefact, Reader, Reading

MAX_QUOTES = 12


@dataclass(frozen=True, slots=True)
class Lag:
    """One communicator's disagreement: ranks behind the others, with their counts.

    crossed: operations which show that the ranks called different things, and nobody fell behind.
    """

    label: str
    operation: str
    behind: tuple[tuple[int, int], ...]
    expected: int
    crossed: str


def recognise(name: str, head: bytes) -> bool:
    """Whether an artefact is an answer of ncclras, by its first bytes."""
    return looks_like_ras(head)


def read(artefacts: tuple[Artefact, ...]) -> Reading:
    """Findings over all queries of the incident, oldest first. Raises `ToolError` if none parses."""
    reports: list[RasReport] = []
    refused: list[ToolError] = []
    for artefact in sorted(artefacts, key=lambda a: a.name):
        try:
            reports.extend(parse_ras(artefact.data(), artefact.name))
        except ToolError as error:
            refused.append(error)
    if not reports:
        raise refused[0] if refused else UnreadableArtefact("no RAS answer was given")
    reports.sort(key=lambda r: r.timestamp)  # text answers carry none and keep the order of names
    findings = analyse(reports)
    skipped: list[Json] = [str(error) for error in refused]
    return Reading(tuple(findings), {"queries": len(reports), "unreadable": skipped})


def analyse(reports: list[RasReport]) -> list[Finding]:
    """Findings of the newest answer, weighed against the ones before."""
    newest = reports[-1]
    findings = [*_absent(newest), *_errors(newest), *_lags(reports)]
    if not findings:
        findings.append(
            Finding(
                kind="collective.ras_ok",
                title="RAS found every process answering and every communicator in step",
                level=Level.CONTEXT,
                confidence=Confidence.CONFIRMED,
                evidence=(Evidence(newest.file, newest.first_line, "Job summary"),),
            )
        )
    if newest.timeouts and newest.timeout_line:
        number, text = newest.timeout_line
        findings.append(
            Finding(
                kind="collective.ras_timeout",
                title=f"RAS met {newest.timeouts} timeouts while it gathered the data",
                level=Level.SYMPTOM,
                category=Category.COMMUNICATION,
                evidence=(Evidence(newest.file, number, text),),
            )
        )
    return findings


def _absent(report: RasReport) -> list[Finding]:
    """One finding for the processes that do not answer; dead ones first."""
    world = max((c.size for c in report.communicators.values()), default=0)
    missing = [
        (comm, rank)
        for comm in report.communicators.values()
        for rank in dict.fromkeys(comm.missing)
    ]
    processes = report.dead or report.missing
    if not missing and not processes:
        return []
    whole = {rank for comm, rank in missing if comm.size == world}
    rank = min(whole, default=None)
    place = processes[0][2] if processes else missing[0][0].places.get(missing[0][1])
    dead = bool(report.dead) or any(rank in comm.dead for comm, rank in missing)
    who = f"rank {rank}" if rank is not None else "a process"
    where = f" (process {place.pid} on {place.node}, GPU {place.gpu})" if place else ""
    count = max(len(processes), len(whole) or len(missing))
    more = f" and {count - 1} more" if count > 1 else ""
    state = "is considered dead by RAS" if dead else "does not answer RAS"
    return [
        Finding(
            kind="collective.dead_rank" if dead else "collective.unresponsive_rank",
            title=f"{who}{where}{more} {state}: it crashed, was stopped, or its host is unreachable",
            level=Level.SYMPTOM,
            category=Category.COMMUNICATION,
            confidence=Confidence.POSSIBLE,
            evidence=_quote_absent(report, missing),
            rank=rank,
            host=place.node if place else None,
            gpu=place.gpu if place else None,
            page="peer-exited",
            facts={"missing_ranks": sorted(whole)[:64], "dead": dead},
        )
    ]


def _quote_absent(
    report: RasReport, missing: Sequence[tuple[Communicator, int]]
) -> tuple[Evidence, ...]:
    """The rows of the processes and of the communicators that miss them, else one in words."""
    processes = report.dead or report.missing
    quotes = [Evidence(report.file, n, t, host=p.node) for n, t, p in processes]
    for comm, _ in missing:
        quotes.extend(Evidence(report.file, n, t) for n, t in comm.lines[:3])
    if not quotes and missing:
        text = f"missing rank {missing[0][1]} of communicator {missing[0][0].label}"
        quotes.append(Evidence(report.file, 0, text))
    return tuple(dict.fromkeys(quotes))[:MAX_QUOTES]


def _errors(report: RasReport) -> list[Finding]:
    findings = []
    for comm in report.communicators.values():
        for rank, error in sorted(comm.errors.items())[:8]:
            place = comm.places.get(rank)
            quotes = [Evidence(report.file, n, t) for n, t in comm.lines[:MAX_QUOTES]]
            findings.append(
                Finding(
                    kind="collective.ras_error",
                    title=f"rank {rank} of communicator {comm.label} reports {error}",
                    level=Level.FAILURE,
                    category=Category.COMMUNICATION,
                    evidence=tuple(quotes) or (Evidence(report.file, 0, f"rank {rank}: {error}"),),
                    rank=rank,
                    host=place.node if place else None,
                    gpu=place.gpu if place else None,
                )
            )
    return findings


def _lags(reports: list[RasReport]) -> list[Finding]:
    newest = reports[-1]
    world = max((c.size for c in newest.communicators.values()), default=0)
    found = []
    for label, comm in newest.communicators.items():
        lag = lag_of(comm)
        if lag is None:
            continue
        before = [r.communicators[label] for r in reports[:-1] if label in r.communicators]
        stands = any(lag_of(old) == lag for old in before)
        found.append((not stands, _lag_finding(newest, comm, lag, stands, world, len(reports))))
    found.sort(key=lambda pair: pair[0])
    ordered = [finding for _, finding in found]
    stuck = [f for f in ordered if f.kind == "collective.lagging_rank"]
    if len({f.rank for f in stuck}) > 1 and all(f.rank is not None for f in stuck):
        # Each is behind where the other is ahead: a circle, in which nobody is the straggler.
        return [_circle(stuck), *(f for f in ordered if f not in stuck)]
    return ordered


def _circle(stuck: list[Finding]) -> Finding:
    parts = "; ".join(f.opening for f in stuck[:4])
    return replace(
        stuck[0],
        kind="collective.order",
        title=f"the ranks wait for each other on different communicators: {parts}",
        category=Category.CODE_BUG,
        evidence=tuple(e for f in stuck for e in f.evidence)[:MAX_QUOTES],
        rank=None,
        host=None,
        gpu=None,
    )


def lag_of(comm: Communicator) -> Lag | None:
    """Ranks of a communicator that launched fewer operations than the rest; None if all agree."""
    for operation, counts in comm.counts.items():
        named = {r: n for r, n in counts.items() if r >= 0}
        values = [*named.values(), *([counts[-1]] if -1 in counts else [])]
        values += [comm.majority[operation]] if operation in comm.majority else []
        if len(set(values)) < 2:
            continue
        most = max(values)
        behind = tuple(sorted((r, n) for r, n in named.items() if n < most))
        return Lag(comm.label, operation, behind, most, _crossed(comm))
    return None


def _crossed(comm: Communicator) -> str:
    """Operations that show that ranks called something else rather than fell behind; "" for none.

    Either different ranks are behind in different operations, or a rank never launched an operation
    that others did, although it launched others or the answer does not say.
    """
    behind: dict[str, frozenset[int]] = {}
    for operation, counts in comm.counts.items():
        most = max(counts.values(), default=0)
        late = frozenset(r for r, n in counts.items() if n < most)  # -1: those not named
        if late:
            behind[operation] = late
    for first, second in combinations(behind, 2):
        if not behind[first] & behind[second]:
            return f"{first}, {second}"
    for operation, late in behind.items():
        never = [r for r in late if r >= 0 and comm.counts[operation][r] == 0]
        if never and operation != "collective" and not _launched_nothing(comm, never[0]):
            return operation
    return ""


def _launched_nothing(comm: Communicator, rank: int) -> bool:
    """Whether the answer lists all operations of a rank (JSON does) and all are zero."""
    known = [counts[rank] for counts in comm.counts.values() if rank in counts]
    return len(known) > 1 and not any(known)


def _lag_finding(
    report: RasReport, comm: Communicator, lag: Lag, stands: bool, world: int, queries: int
) -> Finding:
    ranks = [r for r, _ in lag.behind]
    exact = comm.size == world or world == 0
    opening = _tell_lag(comm, lag)
    quotes = [Evidence(report.file, n, t) for n, t in comm.lines[:MAX_QUOTES]]
    if not quotes:
        text = ", ".join(f"rank {r}: {lag.operation} {n}" for r, n in lag.behind[:8])
        quotes = [Evidence(report.file, 0, f"{text}, others {lag.expected}")]
    reason = "the numbers moved" if queries > 1 else "one query alone proves nothing"
    facts: dict[str, Json] = {
        "behind_ranks": list(ranks[:64]),
        "expected_operation": lag.expected,
        "confirmed_by_second_query": stands,
    }
    again = "run `ncclras -v` again ten seconds later and compare"
    explains: dict[str, Json] = {"explains": {"stalled": 0.6}} if ranks else {}
    found = Finding(
        kind="collective.ras_mismatch",
        title=f"{opening}; {reason}: a job that communicates looks like this too",
        opening=opening,
        level=Level.CONTEXT,
        category=None,
        confidence=Confidence.POSSIBLE,
        evidence=tuple(quotes),
        rank=ranks[0] if ranks and exact and not lag.crossed else None,
        page="nccl-ras",
        facts={**facts, "next": again, **explains},
    )
    if not stands:
        return found
    place = comm.places.get(ranks[0]) if ranks else None
    return replace(
        found,
        kind="collective.different_operations" if lag.crossed else "collective.lagging_rank",
        title=f"{opening}; two queries show the same numbers, so it is stuck",
        level=Level.FAILURE,
        category=Category.CODE_BUG if lag.crossed else Category.COMMUNICATION,
        confidence=Confidence.LIKELY,
        host=place.node if place else None,
        gpu=place.gpu if place else None,
        page="collective-divergence",
        facts={**facts, "next": ""},
    )


def _tell_lag(comm: Communicator, lag: Lag) -> str:
    """Who launched only up to which operation, or that they launched different ones."""
    if lag.crossed:
        return f"the ranks of communicator {lag.label} launched different operations: {lag.crossed}"
    launched = f"launched {lag.operation} only up to"
    if not lag.behind:
        return f"some ranks {launched} below {lag.expected} on communicator {lag.label}"
    ranks = [r for r, _ in lag.behind]
    place = comm.places.get(ranks[0])
    who = f"rank{'s' * (len(ranks) != 1)} {', '.join(map(str, ranks[:8]))}"
    where = f" (GPU {place.gpu}, process {place.pid} on {place.node})" if place else ""
    at = f"operation {lag.behind[0][1]} of {lag.expected}"
    return f"{who}{where} {launched} {at} on communicator {lag.label}"


SIGNS = ('"communicators"', "Job summary", "Comms")

READER = Reader(
    name="nccl_ras",
    summary="Answers of NCCL's RAS service (ncclras): dead, silent and lagging ranks",
    recognise=recognise,
    read=read,
    series=True,
)
