"""What do signatures, tracebacks and exit codes testify? One finding for each kind of event."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from firstfault_tools.causality.absence import read_absence
from firstfault_tools.causality.attribution import (
    attribute_rank,
    first_place,
    host_of,
    host_told,
    of_other_hosts,
    processes_of,
    rank_of,
)
from firstfault_tools.causality.ending import describe_end
from firstfault_tools.causality.exceptions import (
    classify_traceback,
    describe_origin,
    describe_traceback,
    find_worker,
    ignored_lines,
    is_echo,
    last_of_chain,
    page_of,
    read_exceptions,
)
from firstfault_tools.causality.handled import is_handled
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.interruption import read_interruption
from firstfault_tools.causality.odd_ranks.odd_one import (
    OddOne,
    find_odd_one,
    find_unlike_zero,
)
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import (
    Category,
    Confidence,
    Evidence,
    Finding,
    Level,
    Strength,
)
from firstfault_tools.kind_pages import page_of_kind
from firstfault_tools.log.digest import Hit
from firstfault_tools.log.exits import Exit
from firstfault_tools.log.place import name_ranks
from firstfault_tools.log.signature import Signature, fill_template
from firstfault_tools.log.traceback import Traceback

if TYPE_CHECKING:
    from firstfault_tools.causality.explanations import Explanation

EVIDENCE_PER_FINDING = 4
_RAISED = frozenset(
    (
        *(Category.CODE_BUG, Category.DATA, Category.CHECKPOINT),
        *(Category.OOM, Category.NUMERICAL),
    )
)
"""Categories of which the line of the user's own code belongs into the sentence."""

UNEXPLAINED = (7, 9, 11)
"""Signals (SIGBUS, SIGKILL, SIGSEGV) after which a launcher's line does not say why the process died."""

_TEARDOWN_TYPES = expression(
    r"ChildFailedError|SignalException|KeyboardInterrupt|SystemExit|CalledProcessError|RayTaskError|ActorDiedError"
)
_SYMPTOM_TYPES = expression(
    r"DistBackendError|DistStoreError|DistNetworkError|BrokenPipeError|ConnectionResetError"
)


OWN_CODES = range(3, 124)
"""Codes that neither Python (1, 2), a shell (124 to 127) nor a signal gives."""

_TOLD: dict[int, tuple[str, Category | None, Level, str | None]] = {
    4: ("died of an illegal instruction (SIGILL, signal 4): a binary built for another CPU", Category.ENVIRONMENT, Level.FAILURE, page_of_kind("stacks.fatal_error")),
    7: (
        "died of SIGBUS (signal 7, bus error); why is not in this log: a full /dev/shm, a memory-mapped file cut "
        "short or gone, a disk error under it and bad host memory all look like this",
        None, Level.FAILURE, "exit-codes",
    ),
    8: (
        "died of SIGFPE (signal 8, arithmetic exception such as an integer division by zero in native code); which "
        "library is not in this log, only a native stack or a core dump names it",
        None, Level.FAILURE, page_of_kind("stacks.fatal_error"),
    ),
    9: (
        "was killed by SIGKILL (signal 9) from outside; who sent it is not in this log: the kernel's OOM killer, a "
        "memory limit, the scheduler and a person all look like this",
        None, Level.FAILURE, "exit-codes",
    ),
    11: (
        "crashed with SIGSEGV (signal 11, segmentation fault) in native code; which library is not in this log, "
        "only a native stack names it",
        None, Level.FAILURE, page_of_kind("stacks.fatal_error"),
    ),
}  # fmt: skip
"""What a signal says by itself: words, category, level and page."""


_WORK_LOST = (Category.CHECKPOINT, Category.ENVIRONMENT, Category.DATA)
"""Categories whose faults at the end of a run cost its result, though the run says that it finished."""


def read_witnesses(incident: LogIncident) -> tuple[Finding, ...]:
    """Findings of all log witnesses; order means nothing yet."""
    found = list(signature_findings(incident))
    named = {(e.file, e.line) for f in found if f.level is not Level.CONTEXT for e in f.evidence}
    hit_lines = {
        (h.line.file, h.line.number)
        for d in incident.digests
        for h in d.hits
        if _holds(incident, signature := incident.signatures.signatures[h.index])
        and signature.level is not Level.CONTEXT
        and FindingRole.BARE_EXCEPTION not in signature.roles
    }
    found += traceback_findings(incident, named | hit_lines)
    found += exit_findings(incident)
    whole = (read_interruption(incident), read_absence(incident), describe_end(incident.bad_end))
    found += [f for f in whole if f is not None]
    return tuple(found)


STANDING = 3
"""`at_least` from which on a signature tells of a state of the run, which steps alone do not end."""
SHARE, MOST_STEPS = 5, 5_000
"""Steps on one such line that are too many for it to tell of the run; steps that are counted."""

_WORTHLESS = (Category.DATA, Category.NUMERICAL)


def _holds(incident: LogIncident, signature: Signature) -> bool:
    return all(n in incident.conditions for n in signature.needs) and not any(
        w in incident.conditions for w in signature.without
    )


def _group_hits(incident: LogIncident) -> dict[int, list[Hit]]:
    """Hits by signature, without those that another finding tells of."""
    grouped: dict[int, list[Hit]] = defaultdict(list)
    ignored = ignored_lines(incident)
    by_signal = incident.signatures.with_role(FindingRole.DEATH_BY_SIGNAL)
    deaths = {(e.line.file, e.line.number) for e in incident.exits if e.signal in UNEXPLAINED}
    for digest in incident.digests:
        for hit in digest.hits:
            # what a launcher says of a death by signal is told once, by exit_findings
            told = (hit.line.file, hit.line.number) in deaths
            if told and hit.index in by_signal:
                continue
            if (hit.line.file, hit.line.number) not in ignored or not _speaks_of_code(
                incident.signatures.signatures[hit.index]
            ):
                grouped[hit.index].append(hit)
    return grouped


def signature_findings(incident: LogIncident) -> list[Finding]:
    """One finding per signature whose conditions hold in the incident."""
    out = []
    for index, hits in _group_hits(incident).items():
        signature = incident.signatures.signatures[index]
        if not _holds(incident, signature) or FindingRole.BARE_EXCEPTION in signature.roles:
            continue
        if sum(d.hit_counts.get(index, 0) for d in incident.digests) < signature.at_least:
            continue
        live = [h for h in hits if not _got_over(incident, h)]
        survived = not live and not _goes_on(incident, signature, hits)
        if signature.rank_is_speaker or any("rank" in h.captures for h in hits):
            rank, lead = attribute_rank(incident, live or hits)
            if rank is not None and _averaged(incident, signature, hits):
                rank = None if rank == 0 or _several_raised(incident) else rank
            if signature.category is Category.PERFORMANCE and _heard_alone(incident):
                rank = None
        else:
            rank, lead = None, (live or hits)[0]
        out.append(_from_hits(incident, signature, lead, hits, rank, survived))
    return out


def _heard_alone(incident: LogIncident) -> bool:
    """The log of one of several ranks: that it is slow says nothing of the others, which run the same program."""
    return len(incident.ranks_seen) == 1 and incident.has_peers


def _averaged(incident: LogIncident, signature: Signature, hits: list[Hit]) -> bool:
    """Numbers that rank 0 prints for all: who prints a loss is not who lost it."""
    return signature.category is Category.NUMERICAL and all(
        rank_of(incident, h.line) is None and "rank" not in h.captures for h in hits
    )


def _several_raised(incident: LogIncident) -> bool:
    """More than one labelled rank raised: the process that the launcher names is one of them."""
    return len({rank_of(incident, t.line) for t in incident.tracebacks} - {None}) > 1


def _goes_on(incident: LogIncident, signature: Signature, hits: list[Hit]) -> bool:
    """A notice about samples or numbers that counts in numbers and is still given near the end."""
    if signature.at_least < STANDING or signature.category not in _WORTHLESS:
        return False
    last = hits[-1].line
    steps = sum(p.training for p in islice(incident.progress[last.file].after(0), MOST_STEPS))
    if SHARE * sum(d.hit_counts.get(hits[0].index, 0) for d in incident.digests) < steps:
        return False
    return 3 * last.number >= 2 * incident.digest_of(last.file).lines_total


def _got_over(incident: LogIncident, hit: Hit) -> bool:
    signature = incident.signatures.signatures[hit.index] if hit.index >= 0 else None
    if signature is not None and FindingRole.STANDS in signature.roles:
        return False
    if signature is not None and FindingRole.SAVING_WAIT in signature.roles:
        # the last step is done and the ranks waited in vain after it: what was trained is lost
        return not any(w.timed_out for w in incident.work)
    if incident.survived(hit.line):
        # what fails between the last step and the planned end is not made good by later steps
        costs = signature is not None and signature.level is Level.CAUSE
        costs = costs and signature is not None and signature.category in _WORK_LOST
        return not (costs and incident.lost_at_end(hit.line))
    # what a driver or kernel calls recovered may still have cost the processes their GPU
    hardware = signature is not None and signature.category is Category.HARDWARE
    return not hardware and is_handled(incident, hit.line)


def _from_hits(
    incident: LogIncident,
    signature: Signature,
    lead: Hit,
    hits: list[Hit],
    rank: int | None,
    survived: bool,
) -> Finding:
    odd = _odd_one(incident, hits)
    if odd is not None:
        rank = odd.ranks[0] if len(odd.ranks) == 1 else None
    ranks = _list_ranks(incident, hits)
    values = _read_values(signature, lead, hits, ranks, rank)
    if odd is not None:
        values.update(odd=name_ranks(odd.ranks), odd_value=odd.value, others=odd.others)
    raised = _raised_at(incident, lead) if signature.level in (Level.CAUSE, Level.FAILURE) else None
    category, origin = _read_origin(incident, signature, raised)
    title = fill_template(signature.root_cause, values) + origin
    why = _explain_hit(incident, signature, lead, raised)
    if why is not None:
        title = why.complete(title, known=True)
        category = why.category or category
    others = [h.line.evidence() for h in hits if h is not lead]
    return Finding(
        kind=f"signature.{signature.id}",
        title=title,
        level=signature.level,
        category=category,
        confidence=Confidence.CONFIRMED if signature.level is Level.CAUSE else Confidence.LIKELY,
        evidence=_evidence(lead, others, why),
        rank=rank,
        host=host_told(lead, hits) or host_of(incident, hits),
        gpu=lead.captures.get("gpu") or lead.captures.get("pci"),
        time=lead.line.time,
        page=(why.page if why is not None else None) or signature.page,
        roles=signature.roles,
        origin=origin,
        opening=fill_template(signature.opening, values),
        strength=Strength(len(signature.needs), min(map(len, signature.patterns))),
        facts={
            **lead.captures,
            "count": sum(d.hit_counts.get(lead.index, 0) for d in incident.digests),
            "ranks": ranks,
            "told_by": max(len(ranks), len(processes_of(hits))),
            "survived": survived,
            "raised": origin != "",
            "captured": sum(map(bool, lead.captures.values())),
            "starts_at": first_place(incident, lead.line)[2],
            "explains": {str(c): weight for c, weight in signature.explains.items()},
        },
    )


def _list_ranks(incident: LogIncident, hits: Sequence[Hit]) -> list[int]:
    return sorted({r for h in hits if (r := rank_of(incident, h.line)) is not None})


def _read_values(
    signature: Signature, lead: Hit, hits: list[Hit], ranks: list[int], rank: int | None
) -> dict[str, object]:
    """What a template of the signature is filled with: captures, first those of the leading hit, and who says it."""
    alike = (h for h in reversed(hits) if not of_other_hosts(h.line, lead.line))
    values: dict[str, object] = {k: v for h in alike for k, v in h.captures.items()}
    values.update(lead.captures)
    named = [int(word) for h in hits if (word := h.captures.get("rank", "")).isdecimal()]
    values["who"] = name_ranks(named or ranks)
    if len(set(named)) > 1 and "{who}" in signature.root_cause:
        # a title that names all who report it leaves out what they differ in
        values.update({k: "" for k in lead.captures if len({h.captures.get(k) for h in hits}) > 1})
    values.setdefault("rank", rank if rank is not None else "")
    values.setdefault("host", lead.line.place.host or "")
    return values


def _read_origin(
    incident: LogIncident, signature: Signature, raised: Traceback | None
) -> tuple[Category | None, str]:
    """Category of a signature's hit, and where it was raised in words, as far as its traceback tells."""
    if raised is None:
        return signature.category, ""
    category = signature.category
    missing_file = FindingRole.MISSING_FILE in signature.roles
    if missing_file or (signature.level is Level.FAILURE and _speaks_of_code(signature)):
        category = classify_traceback(raised, in_worker=find_worker(incident, raised) is not None)
    tells = missing_file or category in _RAISED
    return category, describe_origin(incident, raised) if tells else ""


def _explain_hit(
    incident: LogIncident, signature: Signature, lead: Hit, raised: Traceback | None
) -> Explanation | None:
    """The reason that values, code or settings tell of a fault which a signature knows."""
    if signature.level not in (Level.CAUSE, Level.FAILURE) or not (
        raised is not None or FindingRole.TOLD_BY_SETTINGS in signature.roles
    ):
        return None
    # few logs raise an exception: its kinds are read for those only
    from firstfault_tools.causality.explanations import explain_line, explain_traceback

    if raised is not None:
        return explain_traceback(incident, raised, signature.id)
    return explain_line(incident, lead.line, signature.id)


def _evidence(
    lead: Hit, others: Sequence[Evidence], why: Explanation | None
) -> tuple[Evidence, ...]:
    """The line that tells, the settings that explain it, and some of the others that say the same."""
    shown = [line.evidence() for line in why.lines] if why is not None else []
    return (lead.line.evidence(), *shown, *others[: EVIDENCE_PER_FINDING - 1])


def _odd_one(incident: LogIncident, hits: list[Hit]) -> OddOne | None:
    """The rank that differs from the others, where the lines each compare two ranks."""
    captures = [h.captures for h in hits if "rank_b" in h.captures]
    if not captures:
        return None
    if "count_a" in captures[0]:
        return find_odd_one(captures)
    reporters = [int(c["rank_a"]) for c in captures if c.get("rank_a", "").isdecimal()]
    return find_unlike_zero(
        reporters, incident.world_size or max(incident.ranks_seen, default=-1) + 1
    )


def _speaks_of_code(signature: Signature) -> bool:
    return signature.category in (Category.CODE_BUG, Category.DATA)


def _raised_at(incident: LogIncident, hit: Hit) -> Traceback | None:
    """The traceback whose exception a hit is."""
    for traceback in incident.tracebacks:
        if traceback.line.file == hit.line.file and traceback.line.number == hit.line.number:
            return traceback
    return None


def traceback_findings(incident: LogIncident, named: set[tuple[str, int]]) -> list[Finding]:
    """Exceptions that no signature knows but by their type: what each says, and where it was raised."""
    grouped: dict[tuple[str, str], list[Traceback]] = defaultdict(list)
    for traceback in read_exceptions(incident, named):
        grouped[(traceback.type, re.sub(r"\d+", "#", traceback.message)[:120])].append(traceback)
    return [_from_tracebacks(incident, group) for group in grouped.values()]


def _from_tracebacks(incident: LogIncident, tracebacks: list[Traceback]) -> Finding:
    hits = [Hit(-1, t.line, {}) for t in tracebacks]
    live = [h for h in hits if not _got_over(incident, h)]
    rank, lead = attribute_rank(incident, live or hits)
    first = next(t for t, h in zip(tracebacks, hits, strict=True) if h is lead)
    if not first.frames:
        first = next((t for t in tracebacks if t.frames), first)
    worker = find_worker(incident, first)
    category = classify_traceback(first, in_worker=worker is not None)
    level = _level_of(first, category)
    last = last_of_chain(incident.tracebacks, first)
    title = describe_traceback(incident, first, last, worker)
    why = None
    if level is Level.FAILURE:
        from firstfault_tools.causality.explanations import explain_traceback

        why = explain_traceback(incident, first)
    if why is not None:
        title = why.complete(title, known=False)
        if category is Category.CODE_BUG and why.category is not None:
            category = why.category
    ranks = _list_ranks(incident, hits)
    if len(ranks) > 1:
        title += f"; raised alike by {name_ranks(ranks)}"
    return Finding(
        kind="traceback.unhandled",
        title=title,
        level=level,
        category=category,
        evidence=_evidence(lead, [h.line.evidence() for h in hits if h is not lead], why),
        rank=rank,
        host=host_of(incident, hits),
        time=lead.line.time,
        page=(why.page if why is not None else None) or page_of(first, category),
        facts={
            "type": first.type,
            "count": len(tracebacks),
            "ranks": ranks,
            "survived": not live,
            "starts_at": first_place(incident, lead.line)[2],
        },
    )


def _level_of(raised: Traceback, category: Category | None) -> Level:
    if _TEARDOWN_TYPES.search(raised.type):
        return Level.TEARDOWN
    passed_on = _SYMPTOM_TYPES.search(raised.type) or category is Category.COMMUNICATION
    return Level.SYMPTOM if passed_on or is_echo(raised) else Level.FAILURE


def exit_findings(incident: LogIncident) -> list[Finding]:
    """What exit codes and signals say by themselves: that something ended, seldom why."""
    out: list[Finding] = []
    for number in sorted({e.signal for e in incident.exits if e.signal is not None}):
        exits = [e for e in incident.exits if e.signal == number]
        out.append(_signal_finding(exits))
    own = [e for e in incident.exits if e.code in OWN_CODES and e.signal is None]
    ranks = {e.rank if e.rank is not None else e.local_rank for e in own} - {None}
    if len(ranks) == 1 and not any(not t.ignored for t in _own_tracebacks(incident)):
        out.append(_own_exit(own, ranks.pop()))
    return out


def _own_tracebacks(incident: LogIncident) -> list[Traceback]:
    """Exceptions of the program, without those of the launcher."""
    return [t for t in incident.tracebacks if not _TEARDOWN_TYPES.search(t.type)]


def _own_exit(exits: list[Exit], rank: int | None) -> Finding:
    """A process that left with a code of its own choice: no exception and no signal ends with it."""
    lead = next((e for e in exits if e.rank is not None), exits[0])
    return Finding(
        kind="exit.own_code",
        title=f"rank {rank} left by itself with exit code {lead.code}, without an exception: the program, or a "
        "library in it, called sys.exit or os._exit there",
        level=Level.FAILURE,
        category=Category.CODE_BUG,
        evidence=tuple(e.line.evidence() for e in [lead, *[e for e in exits if e is not lead]][:3]),
        rank=rank,
        host=lead.host,
        time=lead.line.time,
        facts={"code": lead.code, "survived": False},
    )


def _signal_finding(exits: list[Exit]) -> Finding:
    lead = next((e for e in exits if e.rank is not None), exits[0])
    name = lead.signal_name or f"signal {lead.signal}"
    ranks = {e.rank for e in exits if e.rank is not None} or {
        e.local_rank for e in exits if e.local_rank is not None
    }
    rank = ranks.pop() if len(ranks) == 1 else None
    who = (
        f"rank {rank}"
        if rank is not None
        else (f"a process on {lead.host}" if lead.host else "a process")
    )
    how, category, level, page = _TOLD.get(
        lead.signal or 0, (f"ended with {name}", Category.SCHEDULER, Level.TEARDOWN, None)
    )
    if lead.pid is not None:
        who += f" (pid {lead.pid})"
    return Finding(
        kind=f"exit.{name.lower()}",
        title=f"{who} {how}",
        subject=who,
        level=level,
        category=category,
        confidence=Confidence.LIKELY if level is Level.FAILURE else Confidence.POSSIBLE,
        evidence=tuple(e.line.evidence() for e in [lead, *[e for e in exits if e is not lead]][:3]),
        rank=rank,
        host=lead.host,
        time=lead.line.time,
        page=page,
        facts={"signal": lead.signal, "code": lead.code, "pid": lead.pid or ""},
    )
