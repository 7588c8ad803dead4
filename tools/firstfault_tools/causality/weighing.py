"""Which findings weigh less in this incident than their kind says? What they report has a deeper reason.

A level is set by the words of one line; what else stands in the incident can show that the line only
reports: a store that was there and went away, a node that was lost after its power failed, a pod that
belongs to another job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from firstfault_tools.causality.chain import DEPTH, WEAKEST
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.interruption import subordinate_interrupts
from firstfault_tools.causality.seats.pods import family_of, pod_of
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.log.speaker import read_speaker

_CONNECTIONS = expression(
    r"^signature\.(?:rendezvous-(?:connection|closed|timeout)|store-connect-timeout|nccl-bootstrap-connect|"
    r"mpi-daemon-lost|connection-reset|monitored-barrier-peer|ray-node-dead|k8s-node-not-ready)$|"
    r"^kubernetes\.node_not_ready$"
)
"""A set-up fault where the run never trained; a consequence where it had been running."""

_NODE_LOSSES = expression(
    r"^(?:signature\.(?:slurm-node-failure|k8s-node-not-ready|ray-node-dead|mpi-daemon-lost|dlrover-node-event|slurm-requeued|"
    r"kubeflow-replica-failed|slurm-step-ended|slurm-cancelled)|slurm\.node_fail|kubernetes\.node_\w+|ray\.node_\w+)"
)
"""Reports of an upper layer that a node is gone: they say that, never why."""

ODD_VERSION = "ranks.odd_version"
_PORT, _RESTART = "signature.master-port-in-use", "signature.elastic-restart"
_ECHOES = (43, 45)
"""Xids that the driver writes when a process that failed is cleaned up."""

_SILENT = ("signature.weights-newly-initialized-body",)
"""Faults that end no program: where one raised an error of its own, that error ended it."""

_CRASHES = ("signature.segfault", "signature.heap-corruption")
"""A crash of native code says what kind of code it was only where a stack is shown."""

_ABORT = "signature.cpp-abort"
_ABORTS = (_ABORT, "signature.native-abort-unnamed")
_LATE = (
    "signature.cuda-illegal-memory-access",
    "signature.cuda-library-execution-failed",
)
"""Crash whose Python stack is that of whoever met it later, not of the code that crashed."""

_ACCESSES = (
    "signature.cuda-illegal-memory-access",
    "signature.cuda-misaligned-address",
    "signature.cuda-launch-refused",
)
_UNKNOWN = "signature.cuda-unknown-error"
"""At the start the driver is not ready; in a running job it is what is left of any fault below CUDA."""

_WORKS = expression(
    r"/torch/optim/|/autograd/|\b(?:backward|training_step|train_epoch|train_one_epoch)$"
)
_WORKER_STOPPED = "signature.dataloader-worker-terminated"
_OF_A_WORKER = "signature.dataloader-worker-exited"
_PASS = expression(r"(?i)\bepoch[ :=#\[(]{0,3}(?P<epoch>\d{1,5})\b|\bTrain: (?P<timm>\d{1,5}) \[")
PASSES = 2
"""Number of an epoch from which on all samples were read before."""

PASS_LINES = 200
"""Lines before a crash in which the epoch is looked for."""

_BLOCKING = expression(r"^\W{0,4}(?:export |env )?CUDA_LAUNCH_BLOCKING['\"]?\s?[=:]\s?['\"]?1")
"""Launches were made one by one: the stack is that of the kernel. A hint to set it begins no line."""

_REFUSALS = ("signature.permission-denied", "signature.process-limit-reached")
"""Refusals that name rights or a limit; what was refused, and after how many, stands around them."""

_LIMITS = (
    "signature.disk-full",
    "signature.system-library-old",
    "signature.too-many-open-files",
    "signature.process-limit-reached",
)
"""Limits reached whose value a pasted check may show."""

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

_HOST_FAULTS = (Category.HARDWARE, Category.OOM)
_POD_KINDS = ("kubernetes.", "signature.k8s-")


def weigh_findings(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """The findings with the levels that they have beside each other."""
    trained = any(reader.trained() for reader in incident.progress.values())
    out: list[Finding] = []
    told = any(map(_tells, findings))
    for finding in subordinate_interrupts(findings):
        if finding.kind == WEAKEST and told:
            continue
        level = finding.level
        if level not in (Level.CAUSE, Level.FAILURE):
            out.append(finding)
            continue
        lost = trained and _CONNECTIONS.search(finding.kind) is not None
        if (
            lost
            or (_NODE_LOSSES.search(finding.kind) and _explained(finding, findings))
            or (finding.facts.get("xid") in _ECHOES and _raised_by_program(findings))
            or (finding.kind == _PORT and _left_by_attempt(finding, findings))
        ):
            level = Level.SYMPTOM
        elif finding.kind in _SILENT and _raised_by_program(
            f for f in findings if f is not finding
        ):
            level = Level.CONTEXT
        elif finding.kind == _ABORT and (what := _read_abort(incident, finding)):
            if _REPORTED.search(what) or _is_told_below(finding, findings):
                level = Level.TEARDOWN
            elif "what():" in what:
                said = " ".join(what.partition("what():")[2].split())[:160]
                finding = replace(finding, title=f"{finding.title}: {said}")
        elif _is_history(finding) or (
            finding.kind.startswith(_POD_KINDS)
            and (_is_foreign(incident, finding) or _says_less(finding, findings))
        ):
            level = Level.CONTEXT
        elif finding.category is Category.SCHEDULER and any(f.kind == _WORKER_STOPPED for f in findings):  # fmt: skip
            finding = replace(
                finding,
                title=f"{finding.title}; the signal (SIGTERM) reached the DataLoader workers as well, which ended in the middle of "
                "a step and took their ranks down before a checkpoint was saved",
            )
        if finding.kind == ODD_VERSION and finding.host:
            finding = _turn_round(finding, findings)
        if finding.kind in _REFUSALS or finding.kind.startswith("traceback."):
            finding = _explain_refusal(incident, finding)
        if finding.kind in _LIMITS:
            from firstfault_tools.causality.refused_objects import name_pasted_limit

            finding = name_pasted_limit(incident, finding)
        if finding.kind in _ACCESSES:
            from firstfault_tools.causality.wrong_address import explain_access

            finding = explain_access(incident, finding)
            level = finding.level if finding.level is Level.CAUSE else level
        if finding.kind == _UNKNOWN and (trained or _in_running_work(incident, finding)):
            finding = replace(
                finding,
                title="CUDA reported an unknown error in the middle of the run; whoever reports it (the watchdog, a later "
                "call) only met it: a driver crash, a fault of a GPU or a faulty kernel can be the reason, and what is here "
                "does not tell which: the kernel log (dmesg, Xid) and a rerun with CUDA_LAUNCH_BLOCKING=1 would",
                category=None,
                rank=None,
                page="illegal-memory-access",
            )
        if finding.kind in (*_CRASHES, *_ABORTS):
            finding = _place_crash(incident, finding, trained)
        if (
            finding.kind in _LATE
            and level is not Level.CAUSE
            and trained
            and not _where_is_known(incident, findings)
        ) or (finding.kind == _OF_A_WORKER and _samples_passed(incident, finding)):
            finding = replace(finding, category=None, rank=_rank_shown(incident, finding))
        out.append(replace(finding, level=level) if level is not finding.level else finding)
    return out


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
    return any(f.facts.get("xid") for f in findings) or any(
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
        if (host := read_speaker(e.text)[0].host)
    }
    if not failing or finding.host in failing:
        return finding
    told = finding.title.partition(": it runs")[0]
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


def _raised_by_program(findings: Iterable[Finding]) -> bool:
    """A process itself reported an error that is more than a lost connection."""
    return any(
        f.level in (Level.CAUSE, Level.FAILURE)
        and f.kind.startswith(("signature.", "traceback."))
        and f.category not in (None, Category.COMMUNICATION, Category.SCHEDULER)
        and not f.facts.get("survived")
        for f in findings
    )


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
        if finding.kind in _ABORTS:
            return finding
        frames = [m for text in rows[min(at, STACK_LINES) :] if (m := _CRASH_FRAME.search(text))]
        own = [m for m in frames if not m["path"].startswith("<frozen importlib")]
        if not own:
            native = (
                m for text in rows[min(at, STACK_LINES) :] if (m := _NATIVE_FRAME.search(text))
            )
            library = next((m["lib"] for m in native if not _SYSTEM_LIBRARY.search(m["lib"])), None)
            if library is not None and library not in finding.title:
                return replace(
                    finding,
                    category=Category.ENVIRONMENT if _PLUGIN.search(library) else finding.category,
                    title=f"{finding.title}; the first library of the native stack is {library}"
                    + (
                        ", a plugin or transport that NCCL or MPI loads: its version does not fit theirs"
                        if _PLUGIN.search(library)
                        else ""
                    ),
                )
            continue
        inside = _PACKAGE.search(own[0]["path"])
        if own[0] is not frames[0] and own[0]["name"] == "<module>" and inside:
            return replace(
                finding,
                category=Category.ENVIRONMENT,
                title=f"the process crashed (segmentation fault) while it imported {inside[1]}, before any of its own code ran: "
                f"the native library of {inside[1]} does not fit the others in the process (versions, or two that bring "
                "the same library; sometimes the order of the imports decides)",
            )
        place = f"{own[0]['name']} ({own[0]['path'].rsplit('/', 1)[-1]}:{own[0]['line']})"
        of = f" of {inside[1]}" if inside else ""
        return replace(finding, title=f"{finding.title}; the thread stood in {place}{of}")
    return replace(finding, category=None) if trained and not shown else finding


def _tells(finding: Finding) -> bool:
    """It says more of the end than that there was one."""
    deep = DEPTH[finding.level] <= DEPTH[Level.SYMPTOM] and finding.kind != WEAKEST
    return deep and not finding.facts.get("survived")


def _explained(report: Finding, findings: Sequence[Finding]) -> bool:
    """Something of the host itself (power, kernel, memory) is known that is not later than the report."""
    for other in findings:
        if other.level not in (Level.CAUSE, Level.FAILURE) or other.category not in _HOST_FAULTS:
            continue
        if other.facts.get("survived"):
            continue
        if report.host and other.host and not _same_host(report.host, other.host):
            continue
        if report.time is not None and other.time is not None and other.time > report.time + 600:
            continue
        return True
    return False


def _left_by_attempt(port: Finding, findings: Sequence[Finding]) -> bool:
    """The port is taken after a restart of the workers, which another failure before it brought about."""
    place = port.evidence[0]
    begun = [
        e.line for f in findings if f.kind == _RESTART for e in f.evidence if e.file == place.file
    ]
    restart = max((n for n in begun if n < place.line), default=None)
    return restart is not None and any(
        f.level in (Level.CAUSE, Level.FAILURE)
        and any(e.file == place.file and e.line < restart for e in f.evidence)
        for f in findings
        if f is not port
    )


def _same_host(one: str, other: str) -> bool:
    short = [name.split(".")[0].lower().removesuffix("-bmc") for name in (one, other)]
    return short[0] == short[1]


def _says_less(row: Finding, findings: Sequence[Finding]) -> bool:
    """A row of a table of pods, beside an event or a description of the same pod that gives the reason."""
    return (
        row.kind in ("kubernetes.evicted", "kubernetes.preempted")
        and "message" not in row.facts
        and any(
            f.kind == row.kind
            and f.facts.get("pod") == row.facts.get("pod")
            and "message" in f.facts
            for f in findings
        )
    )


def _is_foreign(incident: LogIncident, finding: Finding) -> bool:
    """The pod that the finding names belongs to another job than the pods that wrote the logs."""
    told = finding.facts.get("pod")
    name = told if isinstance(told, str) else None
    name = name or next((n for e in finding.evidence[:1] if (n := pod_of(e.text))), None)
    if name is None:
        return False
    own = {base for base, _ in incident.seating.pods}
    family = family_of(name)
    # a collector may leave out the job's name: worker-3 for job-a-worker-3
    return bool(own) and not any(
        family_of(f"{base}-0") == family or re.sub(r"-\d+$", "", name).endswith(f"-{base}")
        for base in own
    )
