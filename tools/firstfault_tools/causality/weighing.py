"""Which findings weigh less in this incident than their kind says? What they report has a deeper reason.

A level is set by the words of one line; what else stands in the incident can show that the line only
reports: a store that was there and went away, a node that was lost after its power failed, a pod that
belongs to another job.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from firstfault_tools.causality.aftermath import weigh_aftermath
from firstfault_tools.causality.alive import weigh_declared
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.kills import weigh_kills
from firstfault_tools.causality.outlived import OUTLIVED, weigh_outlived
from firstfault_tools.correlation.decisions import Relation, Rule, Trail
from firstfault_tools.correlation.relations import decide, relate, rows_of
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.placement.pods import family_of, pod_of

ODD_VERSION = "ranks.odd_version"
_WORKS = expression(
    r"/torch/optim/|/autograd/|\b(?:backward|training_step|train_epoch|train_one_epoch)$"
)
_PASS = expression(r"(?i)\bepoch[ :=#\[(]{0,3}(?P<epoch>\d{1,5})\b|\bTrain: (?P<timm>\d{1,5}) \[")
PASSES = 2
"""Number of an epoch from which on all samples were read before."""

PASS_LINES = 200
"""Lines before a crash in which the epoch is looked for."""

_BLOCKING = expression(r"^\W{0,4}(?:export |env )?CUDA_LAUNCH_BLOCKING['\"]?\s?[=:]\s?['\"]?1")
"""Launches were made one by one: the stack is that of the kernel. A hint to set it begins no line."""

_REPORTED = expression(
    r"ProcessGroup(?:NCCL|Gloo|HCCL)|[Ww]atchdog|NCCL (?:error|communicator|operation)|[Cc]onnection (?:reset|closed|refused)|Socket [Tt]imeout"
)
ABORT_LINES = 4
"""Lines round an abort in which stands what the exception was."""

_CRASH_FRAME = expression(
    r'^\W*(?:\S+ ){0,3}\s*File "(?P<path>[^"]+)", line (?P<line>\d+) in (?P<name>\S+)'
)
_PACKAGE = expression(r"(?:site|dist)-packages/(\w+)")
_NATIVE_FRAME = expression(r"\[ ?\d{1,2}\] \S*?(?P<lib>[^/\s(]+\.so[\d.]*)\(")
_SYSTEM_LIBRARY = expression(
    r"^(?:libc|libpthread|libm|ld-linux|linux-vdso|libpython|libstdc|libgcc|libopen-pal|libucs)\b"
)
_PLUGIN = expression(
    r"^lib(?:nccl-net|nccl-tuner|nccl-ofi|fabric|sharp|hcoll|ucp|uct|ucx|mca_|ibverbs|mlx5)"
)
STACK_LINES = 40
"""Lines round a crash in which its stack is looked for."""

_EARLIER = expression(
    r"(?i)\b(?:previous|prior|earlier|former|last) (?:attempt|run|job|try|allocation|submission|incarnation)\b"
    r".{0,80}\b(?:ended|died|failed|stopped|exited|was (?:killed|preempted|cancelled)|terminated|crashed)"
)
"""A report about the attempt before this one: history, not what ended this one."""


@dataclass(frozen=True, slots=True)
class _Situation:
    """What a finding is weighed beside: the logs, and all findings as the tools left them."""

    incident: LogIncident
    findings: Sequence[Finding]
    trained: bool


def weigh_findings(
    incident: LogIncident, findings: Sequence[Finding], trail: Trail | None = None
) -> list[Finding]:
    """The findings with the levels that they have beside each other."""
    trail = trail or Trail()
    findings = trail.run(_MET_AT_STOP, partial(_tear_down, incident), findings)
    situation = _Situation(incident, findings, incident.trained)
    given = frozenset({"trained"} if situation.trained else ())
    out = [
        _weigh(situation, f, given, trail) if f.level in (Level.CAUSE, Level.FAILURE) else f
        for f in relate("sums", findings, trail)
    ]
    for rule, work in _PASSES:
        out = trail.run(rule, partial(work, incident, trail=trail), out)
    return out


def _weigh(situation: _Situation, finding: Finding, given: frozenset[str], trail: Trail) -> Finding:
    """One finding after the first rule that sets its level, and after all that say more of it."""
    weighed = decide(rows_of("levels", given), finding, situation.findings, trail) or finding
    for rule, apply in _LEVELS:
        if weighed is not finding:
            break
        weighed = apply(situation, finding)
        trail.note(rule, finding, weighed)
    if weighed is finding:
        weighed = decide(rows_of("stops", given), finding, situation.findings, trail) or finding
    for rule, apply in _WORDINGS:
        before, weighed = weighed, apply(situation, weighed)
        trail.note(rule, before, weighed)
    return weighed


_DESTROYS = expression(r"\(function destroy\w*\)|\bdestructor\b|~\w+\(\)")
DESTROY_LINES = 4
"""Lines round an error of CUDA in which an object that is taken down is named."""

_MET_AT_STOP = Rule("met-while-taken-down", Relation.EXPLAINS, "the scheduler stopped the job, and the error was met while the objects of the process were taken down")  # fmt: skip


def _tear_down(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """Errors of CUDA that the end of a stopped process met are part of its clean-up."""
    if not any(f.has(FindingRole.STOPPED) for f in findings):
        return list(findings)
    return [
        replace(f, level=Level.TEARDOWN)
        if f.has(FindingRole.ON_GPU) and _met_on_destroy(incident, f)
        else f
        for f in findings
    ]


def _met_on_destroy(incident: LogIncident, finding: Finding) -> bool:
    place = finding.evidence[0] if finding.evidence else None
    digest = next((d for d in incident.digests if place is not None and d.file == place.file), None)
    if place is None or digest is None:
        return False
    at = digest.position(place.line)
    near = digest.kept[max(0, at - DESTROY_LINES) : at + DESTROY_LINES]
    return any(_DESTROYS.search(text) for _, text in near)


def _weigh_nameless_loss(_situation: _Situation, finding: Finding) -> Finding:
    lost = finding.has(FindingRole.DECLARED_LOST) and finding.category is Category.COMMUNICATION
    nameless = lost and finding.rank is None and not finding.host
    return replace(finding, level=Level.SYMPTOM) if nameless else finding


def _weigh_port(situation: _Situation, finding: Finding) -> Finding:
    left = finding.has(FindingRole.PORT_TAKEN) and _left_by_attempt(finding, situation.findings)
    return replace(finding, level=Level.SYMPTOM) if left else finding


def _weigh_abort(situation: _Situation, finding: Finding) -> Finding:
    if not finding.has(FindingRole.UNCAUGHT_EXCEPTION):
        return finding
    what = _read_abort(situation.incident, finding)
    if what and (_REPORTED.search(what) or _is_told_below(finding, situation.findings)):
        return replace(finding, level=Level.TEARDOWN)
    if "what():" in what:
        said = " ".join(what.partition("what():")[2].split())[:160]
        return replace(finding, title=f"{finding.title}: {said}")
    return finding


def _weigh_own_abort(situation: _Situation, finding: Finding) -> Finding:
    """A process that ends itself by SIGABRT once a service has told it that another one is lost."""
    if finding.kind != "stacks.fatal_error" or finding.text(Fact.ERROR) != "Aborted":
        return finding
    places = [(e.file, e.line) for e in finding.evidence]
    told = any(
        e.file == file and e.line < line
        for f in situation.findings
        if f.has(FindingRole.DECLARED_LOST)
        for e in f.evidence
        for file, line in places
    )
    return replace(finding, level=Level.SYMPTOM) if told else finding


def _weigh_history(_situation: _Situation, finding: Finding) -> Finding:
    return replace(finding, level=Level.CONTEXT) if _is_history(finding) else finding


def _weigh_foreign_pod(situation: _Situation, finding: Finding) -> Finding:
    foreign = finding.has(FindingRole.OF_POD) and _is_foreign(situation.incident, finding)
    return replace(finding, level=Level.CONTEXT) if foreign else finding


def _weigh_row_of_pod(situation: _Situation, finding: Finding) -> Finding:
    less = finding.has(FindingRole.OF_POD) and _says_less(finding, situation.findings)
    return replace(finding, level=Level.CONTEXT) if less else finding


def _turn_version_round(situation: _Situation, finding: Finding) -> Finding:
    odd = finding.kind == ODD_VERSION and finding.host
    return _turn_round(finding, situation.findings) if odd else finding


def _name_refused(situation: _Situation, finding: Finding) -> Finding:
    asked = finding.has(FindingRole.REFUSAL) or finding.kind.startswith("traceback.")
    return _explain_refusal(situation.incident, finding) if asked else finding


def _name_limit(situation: _Situation, finding: Finding) -> Finding:
    if not finding.has(FindingRole.LIMIT_REACHED):
        return finding
    from firstfault_tools.causality.refused_objects import name_pasted_limit

    return name_pasted_limit(situation.incident, finding)


def _name_access(situation: _Situation, finding: Finding) -> Finding:
    if not finding.has(FindingRole.GPU_ACCESS):
        return finding
    from firstfault_tools.causality.wrong_address import explain_access

    return explain_access(situation.incident, finding)


def _doubt_unknown_error(situation: _Situation, finding: Finding) -> Finding:
    if not finding.has(FindingRole.UNKNOWN_GPU_ERROR):
        return finding
    if not situation.trained and not _in_running_work(situation.incident, finding):
        return finding
    return replace(
        finding,
        title="CUDA reported an unknown error in the middle of the run; whoever reports it (the watchdog, a later "
        "call) only met it: a driver crash, a fault of a GPU or a faulty kernel can be the reason, and what is here "
        "does not tell which: the kernel log (dmesg, Xid) and a rerun with CUDA_LAUNCH_BLOCKING=1 would",
        category=None,
        rank=None,
        page="illegal-memory-access",
    )


def _name_crash(situation: _Situation, finding: Finding) -> Finding:
    native = finding.has(FindingRole.NATIVE_CRASH)
    return _place_crash(situation.incident, finding, situation.trained) if native else finding


def _doubt_late_error(situation: _Situation, finding: Finding) -> Finding:
    incident = situation.incident
    late = finding.has(FindingRole.LATE_ERROR) and finding.level is not Level.CAUSE
    late = late and situation.trained and not _where_is_known(incident, situation.findings)
    return _open_category(incident, finding) if late else finding


def _doubt_worker(situation: _Situation, finding: Finding) -> Finding:
    incident = situation.incident
    exited = finding.has(FindingRole.WORKER_EXITED) and _samples_passed(incident, finding)
    return _open_category(incident, finding) if exited else finding


def _open_category(incident: LogIncident, finding: Finding) -> Finding:
    return replace(finding, category=None, rank=_rank_shown(incident, finding))


_Apply = Callable[[_Situation, Finding], Finding]
_LEVELS: tuple[tuple[Rule, _Apply], ...] = (
    (Rule("loss-without-a-name", Relation.ECHOES, "it says that another process is gone, not which one or why"), _weigh_nameless_loss),
    (Rule("port-left-by-an-attempt", Relation.EXPLAINS, "another failure brought about the restart after which the port was still taken"), _weigh_port),
    (Rule("abort-told-elsewhere", Relation.REPEATS, "what the uncaught exception was stands beside the abort"), _weigh_abort),
    (Rule("abort-after-a-loss", Relation.ECHOES, "it ended itself when it was told that another process is lost"), _weigh_own_abort),
    (Rule("history", Relation.CONTRADICTS, "its lines tell of an attempt before this one"), _weigh_history),
    (Rule("pod-of-another-job", Relation.CONTRADICTS, "the pod belongs to another job than the pods that wrote the logs"), _weigh_foreign_pod),
    (Rule("row-beside-its-event", Relation.REPEATS, "an event or description of the same pod gives the reason"), _weigh_row_of_pod),
)  # fmt: skip
"""Rules that set a level and that data cannot state; the first that holds decides."""

_WORDINGS: tuple[tuple[Rule, _Apply], ...] = (
    (Rule("odd-version-works", Relation.CONTRADICTS, "the host with another version works, the others fail"), _turn_version_round),
    (Rule("refused-object-named", Relation.REFINES, "what was refused stands around the error"), _name_refused),
    (Rule("limit-named", Relation.REFINES, "a pasted check shows the limit"), _name_limit),
    (Rule("wrong-address-named", Relation.REFINES, "shapes, devices or code around the error say what was addressed"), _name_access),
    (Rule("unknown-error-in-a-run", Relation.CONTRADICTS, "CUDA had started long before: whoever reports the error only met it"), _doubt_unknown_error),
    (Rule("crash-placed", Relation.REFINES, "the stack below the crash says where it was"), _name_crash),
    (Rule("late-error-opened", Relation.CONTRADICTS, "launches are asynchronous and no Xid was read: the stack is that of whoever met the error later"), _doubt_late_error),
    (Rule("worker-after-one-pass", Relation.CONTRADICTS, "the data went through before: no one sample crashes the worker"), _doubt_worker),
)  # fmt: skip
"""Rules that say more, or less, of a finding; all are asked."""

_PASSES = (
    (Rule("kill-for-memory-told-whole", Relation.EXPLAINS, "growth before the kill and the time limit after it belong to it"), weigh_kills),
    (Rule("declared-lost-and-alive", Relation.CONTRADICTS, "the process goes on working after it was declared lost"), weigh_declared),
    (Rule("aftermath-of-a-stop", Relation.EXPLAINS, "complaints while a stop is carried out, and attempts that are over, follow from it"), weigh_aftermath),
    (OUTLIVED, weigh_outlived),
)  # fmt: skip


def _read_abort(incident: LogIncident, finding: Finding) -> str:
    """What the exception was that nobody caught: its `what()`, else the lines before it that may have reported it."""
    for evidence in finding.evidence[:1]:
        digest = next((d for d in incident.digests if d.file == evidence.file), None)
        if digest is None:
            continue
        at = digest.position(evidence.line)
        after = [text for _, text in digest.kept[at + 1 : at + 1 + ABORT_LINES]]
        what = next((text for text in after if "what():" in text), None)
        if what is not None:
            return what
        return "\n".join(text for _, text in digest.kept[max(0, at - ABORT_LINES) : at])
    return ""


def _is_told_below(abort: Finding, findings: Sequence[Finding]) -> bool:
    """What the exception was is a finding of its own, on the line that the abort prints next."""
    place = abort.evidence[0]
    return any(
        other is not abort
        and other.level in (Level.CAUSE, Level.FAILURE)
        and any(
            e.file == place.file and 0 < e.line - place.line <= ABORT_LINES for e in other.evidence
        )
        for other in findings
    )


def _where_is_known(incident: LogIncident, findings: Sequence[Finding]) -> bool:
    """The kernel log was read and has an Xid of the program only, or the launches were blocking."""
    return any(f.flag(Fact.XID) for f in findings) or any(
        _BLOCKING.match(text) for _, _, text in incident.lines_with(("LAUNCH_BLOCKING",))
    )


def _in_running_work(incident: LogIncident, finding: Finding) -> bool:
    """A watchdog or a pass through the model met the error: CUDA had started long before."""
    place = finding.evidence[0]
    if "error: unknown error" not in place.text:
        return False
    return "watchdog" in place.text or any(
        t.line.file == place.file
        and t.line.number == place.line
        and any(_WORKS.search(f"{f.path} {f.name}") for f in t.frames)
        for t in incident.tracebacks
    )


def _samples_passed(incident: LogIncident, finding: Finding) -> bool:
    """Training is in a later pass over data that went through before: no one sample crashes the worker."""
    for evidence in finding.evidence[:1]:
        digest = next((d for d in incident.digests if d.file == evidence.file), None)
        at = digest.position(evidence.line) if digest is not None else 0
        rows = digest.kept[max(0, at - PASS_LINES) : at] if digest is not None else ()
        for _, text in reversed(rows):
            if (match := _PASS.search(text)) is not None:
                return int(match["epoch"] or match["timm"]) >= PASSES
    return False


def _rank_shown(incident: LogIncident, finding: Finding) -> int | None:
    """The rank, where some line tells of ranks; not the 0 of the only process that was looked at."""
    told = incident.ranks_seen or any(
        e.rank is not None or e.local_rank is not None for e in incident.exits
    )
    return finding.rank if told else None


def _explain_refusal(incident: LogIncident, finding: Finding) -> Finding:
    if not any("[Errno " in e.text for e in finding.evidence[:1]):
        return finding
    from firstfault_tools.causality.refused_objects import explain_refusal

    return explain_refusal(incident, finding)


def _turn_round(finding: Finding, findings: Sequence[Finding]) -> Finding:
    """The host with another version is the one that works: the others have what fails."""
    failing = {
        host
        for f in findings
        if f.category is Category.ENVIRONMENT
        and f.level in (Level.CAUSE, Level.FAILURE)
        and f.kind != ODD_VERSION
        for e in f.evidence
        if (host := read_prefix(e.text)[0].host)
    }
    if not failing or finding.host in failing:
        return finding
    told = finding.reworded("")
    return replace(
        finding,
        title=f"the hosts that fail ({', '.join(sorted(failing)[:6])}) run other software than {finding.host}, which works: {told}; "
        "theirs is too old or does not fit",
        host=next(iter(failing)) if len(failing) == 1 else None,
    )


def _is_history(finding: Finding) -> bool:
    """Every line of it tells of an attempt before this one."""
    told = finding.evidence[:3]
    return bool(told) and all(_EARLIER.search(e.text[:500]) for e in told)


def _place_crash(incident: LogIncident, finding: Finding, trained: bool) -> Finding:
    """Says where native code crashed: the innermost frames after the line, or that the run was over."""
    shown = False
    for evidence in finding.evidence[:2]:
        digest = next((d for d in incident.digests if d.file == evidence.file), None)
        if digest is None:
            continue
        at = digest.position(evidence.line)
        rows = [text for _, text in digest.kept[max(0, at - STACK_LINES) : at + STACK_LINES]]
        shown = shown or any('File "' in text or ".so" in text for text in rows)
        end = incident.progress[digest.file].finished_at()
        if end is not None and end < evidence.line:
            return replace(
                finding,
                title=f"{finding.title}; it came after the run had finished, while the process shut down: a crash of the "
                "clean-up, which costs nothing that was saved before",
            )
        if finding.has(FindingRole.ABORT):
            return finding
        placed = _name_frame(finding, rows[min(at, STACK_LINES) :])
        if placed is not None:
            return placed
    return replace(finding, category=None) if trained and not shown else finding


def _name_frame(finding: Finding, rows: Sequence[str]) -> Finding | None:
    """The crash with the innermost frame of Python in the rows, else with the first library."""
    frames = [m for text in rows if (m := _CRASH_FRAME.search(text))]
    own = next((m for m in frames if not m["path"].startswith("<frozen importlib")), None)
    if own is None:
        return _name_library(finding, rows)
    inside = _PACKAGE.search(own["path"])
    if inside and own is not frames[0] and own["name"] == "<module>":
        return replace(
            finding,
            category=Category.ENVIRONMENT,
            title=f"the process crashed (segmentation fault) while it imported {inside[1]}, before any of its own code ran: "
            f"the native library of {inside[1]} does not fit the others in the process (versions, or two that bring "
            "the same library; sometimes the order of the imports decides)",
        )
    place = f"{own['name']} ({own['path'].rsplit('/', 1)[-1]}:{own['line']})"
    of = f" of {inside[1]}" if inside else ""
    return replace(finding, title=f"{finding.title}; the thread stood in {place}{of}")


def _name_library(finding: Finding, rows: Sequence[str]) -> Finding | None:
    """The crash with the first library of the native stack that is not the system's."""
    native = (m["lib"] for text in rows if (m := _NATIVE_FRAME.search(text)))
    library = next((lib for lib in native if not _SYSTEM_LIBRARY.search(lib)), None)
    if library is None or finding.says(library):
        return None
    title = f"{finding.title}; the first library of the native stack is {library}"
    if not _PLUGIN.search(library):
        return replace(finding, title=title)
    title += ", a plugin or transport that NCCL or MPI loads: its version does not fit theirs"
    return replace(finding, category=Category.ENVIRONMENT, title=title)


def _left_by_attempt(port: Finding, findings: Sequence[Finding]) -> bool:
    """The port is taken after a restart of the workers, which another failure before it brought about."""
    place = port.evidence[0]
    begun = [
        e.line
        for f in findings
        if f.has(FindingRole.RESTART)
        for e in f.evidence
        if e.file == place.file
    ]
    restart = max((n for n in begun if n < place.line), default=None)
    return restart is not None and any(
        f.level in (Level.CAUSE, Level.FAILURE)
        and any(e.file == place.file and e.line < restart for e in f.evidence)
        for f in findings
        if f is not port
    )


def _says_less(row: Finding, findings: Sequence[Finding]) -> bool:
    """A row of a table of pods, beside an event or a description of the same pod that gives the reason."""
    return (
        row.kind in ("kubernetes.evicted", "kubernetes.preempted")
        and "message" not in row.facts
        and any(f.kind == row.kind and f.pod == row.pod and "message" in f.facts for f in findings)
    )


def _is_foreign(incident: LogIncident, finding: Finding) -> bool:
    """The pod that the finding names belongs to another job than the pods that wrote the logs."""
    name = finding.pod or next((n for e in finding.evidence[:1] if (n := pod_of(e.text))), None)
    if name is None:
        return False
    own = {base for base, _ in incident.placement.pods}
    family = family_of(name)
    # a collector may leave out the job's name: worker-3 for job-a-worker-3
    return bool(own) and not any(
        family_of(f"{base}-0") == family or re.sub(r"-\d+$", "", name).endswith(f"-{base}")
        for base in own
    )
