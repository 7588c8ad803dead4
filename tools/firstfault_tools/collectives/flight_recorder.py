"""Which rank broke the collectives, according to the flight-recorder dumps of all ranks?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from firstfault_tools.collectives.alignment import MatchState, Step
from firstfault_tools.collectives.blame import Blame, Fault, Wait, explain
from firstfault_tools.collectives.plain_pickle import pause_collection
from firstfault_tools.collectives.recorder_dump import (
    Dump,
    Entry,
    looks_like_dump,
    rank_of_name,
    read_dump,
)
from firstfault_tools.errors import ToolError, UnreadableArtefact
from firstfault_tools.facts import known
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Json, Level
from firstfault_tools.registry import Artefact, Reader, Reading

MAX_QUOTES = 16
# Entries kept over all ranks, and of each at least: what a hang needs is at the end of the buffer.
ENTRIES_OF_ALL = 300_000
ENTRIES_OF_ONE = 400

_PAGES = {
    Fault.MISMATCH: "collective-divergence",
    Fault.NEVER_ENTERED: "collective-divergence",
    Fault.ORDER: "collective-divergence",
    Fault.NO_DUMP: "peer-exited",
    Fault.NOT_STARTED: "collective-timeout",
    Fault.STALLED: "collective-timeout",
    Fault.UNDECIDED: "flight-recorder",
}
_WHAT_DIFFERS = {
    MatchState.COLLECTIVE_TYPE_MISMATCH: "different operations",
    MatchState.SIZE_OR_SYNTAX_MISMATCH: "different sizes",
    MatchState.COLLECTIVE_DTYPE_MISMATCH: "different data types",
}


def recognise(name: str, head: bytes) -> bool:
    """Whether an artefact is a flight-recorder dump, by its first bytes."""
    return looks_like_dump(head)


def read(artefacts: tuple[Artefact, ...]) -> Reading:
    """One verdict over all dumps of the incident. Raises `ToolError` where none could be read."""
    with pause_collection():
        dumps, refused = read_all(artefacts)
        if not dumps:
            raise refused[0] if refused else UnreadableArtefact("no flight-recorder dump was given")
        reading = report(explain(dumps), dumps)
    skipped: list[Json] = [str(error) for error in refused]
    return Reading(reading.findings, {**reading.data, "unreadable": skipped})


def read_all(artefacts: tuple[Artefact, ...]) -> tuple[dict[int, Dump], list[ToolError]]:
    """Dumps by rank, and the errors of those that could not be read."""
    dumps: dict[int, Dump] = {}
    refused: list[ToolError] = []
    unnamed: list[Artefact] = []
    last = max(ENTRIES_OF_ONE, ENTRIES_OF_ALL // max(1, len(artefacts)))
    for artefact in artefacts:
        if rank_of_name(artefact.name) is None:
            unnamed.append(artefact)
            continue
        try:
            dump = read_dump(artefact.data(), artefact.name, last=last)
        except ToolError as error:
            refused.append(error)
            continue
        kept = dumps.get(dump.rank)
        # The same rank twice: two runs' dumps were mixed, or a copy; the later record wins.
        if kept is None or _newest(dump) > _newest(kept):
            dumps[dump.rank] = dump
    for artefact in unnamed:
        try:
            dump = read_dump(artefact.data(), artefact.name, _only_gap(dumps), last)
            dumps.setdefault(dump.rank, dump)
        except ToolError as error:
            refused.append(error)
    return dumps, refused


def _newest(dump: Dump) -> int:
    return max((e.created_ns for e in dump.entries), default=0)


def _only_gap(dumps: Mapping[int, Dump]) -> int | None:
    """The one rank of the process groups that has no dump yet; None where there are more or none."""
    members = {r for d in dumps.values() for g in d.groups.values() for r in g.ranks}
    gaps = members - dumps.keys()
    return gaps.pop() if len(gaps) == 1 else None


def report(blame: Blame, dumps: Mapping[int, Dump]) -> Reading:
    """The verdict as findings, the first fault first, and a summary for the page."""
    findings = [_verdict(blame, dumps)]
    if blame.fault is not Fault.AGREED and blame.last_agreed is not None:
        findings.append(_agreement(blame.last_agreed, dumps))
    return Reading(tuple(findings), _summary(blame, dumps))


def _verdict(blame: Blame, dumps: Mapping[int, Dump]) -> Finding:
    rank = blame.ranks[0] if blame.ranks else None
    title, level, category, confidence = _words(blame, dumps)
    time_ns = blame.wait.entry.created_ns if blame.wait else 0
    time_ns = time_ns or (blame.step.created_ns if blame.step else 0)
    return Finding(
        kind=f"collective.{blame.fault}",
        title=title,
        level=level,
        category=category,
        confidence=confidence,
        evidence=_evidence(blame, dumps),
        rank=rank,
        time=time_ns / 1e9 if time_ns else None,
        page=_PAGES.get(blame.fault),
        facts=_facts(blame, dumps),
    )


def _words(
    blame: Blame, dumps: Mapping[int, Dump]
) -> tuple[str, Level, Category | None, Confidence]:
    fault, wait, step = blame.fault, blame.wait, blame.step
    suspects = _ranks(blame.ranks)
    if fault is Fault.MISMATCH:
        return _mismatch(blame), Level.CAUSE, Category.CODE_BUG, Confidence.CONFIRMED
    if fault is Fault.NEVER_ENTERED and wait is not None:
        others = _ranks(tuple(r for r, w in blame.waiting.items() if w.label == wait.label))
        verb = "entered" if wait.step else "posted the other half of"
        last = _last_entry(dumps[blame.ranks[0]])
        after = f"; its last call was {last.op} seq {last.seq}{last.where}" if last else ""
        title = (
            f"{suspects} never {verb} {wait.label}; {others} waits there{wait.entry.where}{after}"
        )
        return title, Level.FAILURE, Category.CODE_BUG, Confidence.LIKELY
    if fault is Fault.ORDER:
        places = "; ".join(
            f"rank {r} waits in {w.label}{w.entry.where}"
            for r, w in sorted(blame.waiting.items())[:8]
        )
        title = f"the ranks wait for each other in a circle: {places}"
        return title, Level.CAUSE, Category.CODE_BUG, Confidence.CONFIRMED
    if fault is Fault.NO_DUMP and wait is not None:
        title = (
            f"{suspects} left no flight-recorder dump and is not seen in {wait.label}, where rank "
            f"{wait.entry.rank} waits{wait.entry.where}: dead, stuck before it could dump, or its "
            "file is missing here"
        )
        # What the survivors see. Whatever ended that rank speaks elsewhere, and goes before this.
        return title, Level.SYMPTOM, Category.COMMUNICATION, Confidence.POSSIBLE
    if fault is Fault.NOT_STARTED and step is not None:
        title = (
            f"all ranks called {step.name}, but the GPU of {suspects} never started it: earlier "
            "work on its stream is stuck"
        )
        return title, Level.FAILURE, None, Confidence.LIKELY
    if fault is Fault.STALLED:
        what = step.name if step else wait.label if wait else "the operation"
        title = (
            f"all ranks called {what} alike and it did not complete: the dumps do not say whose "
            "GPU or link is at fault"
        )
        return title, Level.SYMPTOM, Category.COMMUNICATION, Confidence.POSSIBLE
    if fault is Fault.UNDECIDED and wait is not None:
        title = (
            f"undecided: rank {wait.entry.rank} waits in {wait.label}{wait.entry.where}, and the "
            f"dumps of {_ranks(wait.undumped)} are not here"
        )
        return title, Level.SYMPTOM, Category.COMMUNICATION, Confidence.UNKNOWN
    count = len(dumps)
    title = f"the {count} dump{'s' * (count != 1)} agree on every collective they hold"
    return title, Level.CONTEXT, None, Confidence.CONFIRMED


def _mismatch(blame: Blame) -> str:
    step, wait = blame.step, blame.wait
    if step is None and wait is not None and wait.transfer is not None:
        partner = wait.transfer.partner
        return (
            f"send and receive differ in size: {wait.entry}, against {partner}"
            if partner
            else f"send without receive: {wait.entry}"
        )
    assert step is not None
    exchange = any(e.op.startswith("all_to_all") for e in step.entries.values())
    if blame.match is MatchState.SIZE_OR_SYNTAX_MISMATCH and exchange:
        kind = "sizes that do not fit together"
    else:
        kind = _WHAT_DIFFERS[blame.match]
    calls: dict[str, list[int]] = {}
    for rank, entry in sorted(step.entries.items()):
        calls.setdefault(_call(entry), []).append(rank)
    parts = "; ".join(f"{_ranks(tuple(r))}: {c}" for c, r in list(calls.items())[:6])
    blamed = f", {_ranks(step.odd)} against the rest" if step.odd else ""
    return f"the ranks entered collective {step.seq} of {step.group.label} with {kind}{blamed}: {parts}"


def _call(entry: Entry) -> str:
    dtypes = "/".join(dict.fromkeys((*entry.input_dtypes, *entry.output_dtypes)))
    sizes = f"{list(map(list, entry.input_sizes[:3]))} to {list(map(list, entry.output_sizes[:3]))}"
    return f"{entry.op} {sizes} {dtypes}{entry.where}"


def _ranks(ranks: tuple[int, ...]) -> str:
    if not ranks:
        return "no rank"
    shown = ", ".join(map(str, ranks[:8])) + (
        f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    )
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


def _last_entry(dump: Dump) -> Entry | None:
    return dump.entries[-1] if dump.entries else None


def _evidence(blame: Blame, dumps: Mapping[int, Dump]) -> tuple[Evidence, ...]:
    quotes: list[Evidence] = []
    for rank in blame.ranks:
        if rank in dumps and not (blame.step and rank in blame.step.entries):
            quotes.append(_absence(dumps[rank], blame.wait))
    if blame.step is not None:
        order = sorted(blame.step.entries, key=lambda r: (r not in blame.step.odd, r))  # type: ignore[union-attr]
        quotes.extend(_quote(dumps[r], blame.step.entries[r]) for r in order)
    shown = tuple(blame.step.entries.values()) if blame.step is not None else ()
    for rank, wait in sorted(blame.waiting.items()):
        if wait.entry not in shown:
            quotes.append(_quote(dumps[rank], wait.entry))
    return tuple(quotes[:MAX_QUOTES])


def _quote(dump: Dump, entry: Entry) -> Evidence:
    time = entry.created_ns / 1e9 if entry.created_ns else None
    return Evidence(file=dump.file, line=0, text=str(entry), rank=dump.rank, time=time)


def _absence(dump: Dump, wait: Wait | None) -> Evidence:
    group = wait.entry.group if wait else ""
    counters = dump.progress.get(group)
    last = _last_entry(dump)
    seq = f" seq {wait.entry.seq}" if wait else ""
    text = f"rank {dump.rank}: no entry for group {group}{seq}"
    if counters is not None:
        text += f"; last enqueued {counters.enqueued}, last completed {counters.completed}"
    if last is not None:
        text += f"; last entry: {last}"
    return Evidence(file=dump.file, line=0, text=text, rank=dump.rank)


def _agreement(step: Step, dumps: Mapping[int, Dump]) -> Finding:
    rank = min(step.entries)
    entry = next((e for e in step.entries.values() if e.frames), step.entries[rank])
    return Finding(
        kind="collective.last_agreed",
        title=f"the last collective that all dumped ranks completed alike is {step.name}{entry.where}",
        level=Level.CONTEXT,
        confidence=Confidence.CONFIRMED,
        evidence=(_quote(dumps[entry.rank], entry),),
        time=step.created_ns / 1e9 if step.created_ns else None,
        facts={"seq": step.seq, "process_group": step.group.name},
    )


def _facts(blame: Blame, dumps: Mapping[int, Dump]) -> dict[str, Json]:
    facts: dict[str, Json] = {
        "match_state": str(blame.match),
        "suspect_ranks": list(blame.ranks),
        "dumped_ranks": len(dumps),
        "missing_dumps": list(_missing_dumps(dumps))[:64],
    }
    if blame.step is not None:
        entries = blame.step.entries.values()
        facts |= {
            "seq": blame.step.seq,
            "process_group": blame.step.group.name,
            "operation": Counter(e.op for e in entries).most_common(1)[0][0],
            "timeout_ms": max(e.timeout_ms for e in entries),
        }
    user = blame.wait.entry.user_frame if blame.wait else None
    return facts | known(user_frame=None if user is None else str(user))


def _missing_dumps(dumps: Mapping[int, Dump]) -> tuple[int, ...]:
    members = {r for d in dumps.values() for g in d.groups.values() for r in g.ranks}
    return tuple(sorted(members - dumps.keys()))


def _summary(blame: Blame, dumps: Mapping[int, Dump]) -> dict[str, Json]:
    first = next(iter(dumps.values()))
    return {
        "verdict": str(blame.fault),
        "ranks_seen": sorted(dumps),
        "missing_dumps": list(_missing_dumps(dumps)),
        "format_version": first.version,
        "nccl_version": first.library_version,
        "collectives": len(blame.steps),
        "wavefront": [
            {"rank": r, "waits_in": w.label, "at": str(w.entry.user_frame or "")}
            for r, w in sorted(blame.waiting.items())[:256]
        ],
    }


SIGNS = ("pg_config", "profiling_name", "comm_lib_version", "nccl_version")

READER = Reader(
    name="flight_recorder",
    summary="PyTorch flight-recorder dumps: which rank broke which collective, and where",
    recognise=recognise,
    read=read,
)
