"""Is a step bound by computation, exposed communication or an idle GPU, and which rank is the slow one?"""

from __future__ import annotations

from firstfault_tools.errors import ToolError, UnreadableArtefact
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Json, Level
from firstfault_tools.profile.trace import Kernel, RankTrace, looks_like_trace, read_trace
from firstfault_tools.registry import Artefact, Reader, Reading

# Above this share of the window, communication or idleness is worth a warning of its own.
LARGE_SHARE = 0.3
# A straggler's NCCL kernels are short, since nobody lets it wait: so much shorter than the median.
STRAGGLER_SHARE = 0.5


def recognise(name: str, head: bytes) -> bool:
    """Whether an artefact is a torch.profiler trace, plain or gzipped."""
    return looks_like_trace(head)


def read(artefacts: tuple[Artefact, ...]) -> Reading:
    """Findings over the traces of all ranks. Raises `ToolError` where none could be read."""
    traces: list[RankTrace] = []
    refused: list[ToolError] = []
    for artefact in artefacts:
        try:
            traces.append(read_trace(artefact.data(), artefact.name))
        except ToolError as error:
            refused.append(error)
    if not traces:
        raise refused[0] if refused else UnreadableArtefact("no profiler trace was given")
    findings = [*_stragglers(traces)]
    for trace in traces:
        findings.extend(_warnings(trace))
    findings.extend(_breakdown(trace) for trace in traces[:64])
    skipped: list[Json] = [str(error) for error in refused]
    rows: list[Json] = [_row(trace) for trace in traces[:1024]]
    return Reading(tuple(findings), {"ranks": rows, "unreadable": skipped})


def _who(trace: RankTrace) -> str:
    return f"rank {trace.rank}" if trace.rank is not None else trace.file


def _share(trace: RankTrace, microseconds: float) -> float:
    return microseconds / trace.window_us if trace.window_us > 0 else 0.0


def _quote(trace: RankTrace, text: str) -> Evidence:
    return Evidence(file=trace.file, line=0, text=text, rank=trace.rank)


def _breakdown(trace: RankTrace) -> Finding:
    parts = ", ".join(
        f"{kind} {_share(trace, trace.busy_us[kind]):.0%}"
        for kind in Kernel
        if kind in trace.busy_us
    )
    title = (
        f"{_who(trace)}: of {trace.window_us / 1000:.1f} ms the GPU spent {parts}; "
        f"{_share(trace, trace.exposed_us):.0%} exposed communication, "
        f"{_share(trace, trace.idle_us):.0%} idle"
    )
    name, spent, calls = trace.top_kernels[0]
    return Finding(
        kind="profile.breakdown",
        title=title,
        level=Level.CONTEXT,
        category=Category.PERFORMANCE,
        confidence=Confidence.CONFIRMED,
        evidence=(_quote(trace, f"{name}: {spent / 1000:.3f} ms in {calls} calls"),),
        facts=_row(trace),
    )


def _row(trace: RankTrace) -> dict[str, Json]:
    return {
        "rank": trace.rank,
        "window_ms": trace.window_us / 1000,
        **{f"{kind}_ms": trace.busy_us.get(kind, 0.0) / 1000 for kind in Kernel},
        "exposed_communication_ms": trace.exposed_us / 1000,
        "idle_ms": trace.idle_us / 1000,
        "data_loader_in_gaps_ms": trace.loader_us / 1000,
        "steps_ms": [us / 1000 for us in trace.steps_us[:256]],
        "top_kernels": [
            {"name": name, "total_ms": us / 1000, "calls": calls}
            for name, us, calls in trace.top_kernels
        ],
    }


def _warnings(trace: RankTrace) -> list[Finding]:
    findings = []
    exposed = _share(trace, trace.exposed_us)
    if exposed >= LARGE_SHARE:
        text = f"NCCL kernels without computation beside them: {trace.exposed_us / 1000:.3f} ms"
        findings.append(
            _warning(
                trace,
                "exposed_communication",
                f"{_who(trace)} spends {exposed:.0%} of its time in communication that nothing hides",
                text,
                Category.PERFORMANCE,
                "communication-stall",
            )
        )
    idle = _share(trace, trace.idle_us)
    if idle >= LARGE_SHARE:
        starved = trace.loader_us * 2 >= trace.idle_us
        gap = trace.longest_gaps[0] if trace.longest_gaps else None
        during = f"; the longest gap of {gap.duration_us / 1000:.1f} ms" if gap else ""
        during += f" lies in {gap.cpu_event}" if gap and gap.cpu_event else ""
        reason = "it waits for its data loader" if starved else "the CPU does not keep it busy"
        findings.append(
            _warning(
                trace,
                "data_starved" if starved else "idle_gpu",
                f"the GPU of {_who(trace)} is idle {idle:.0%} of the time: {reason}{during}",
                f"no GPU event in {trace.idle_us / 1000:.3f} of {trace.window_us / 1000:.3f} ms",
                Category.DATA if starved else Category.PERFORMANCE,
                "dataloader-stall" if starved else "low-mfu",
            )
        )
    return findings


def _warning(
    trace: RankTrace, kind: str, title: str, text: str, category: Category, page: str
) -> Finding:
    return Finding(
        kind=f"profile.{kind}",
        title=title,
        level=Level.FAILURE,
        category=category,
        evidence=(_quote(trace, text),),
        rank=trace.rank,
        page=page,
    )


def _stragglers(traces: list[RankTrace]) -> list[Finding]:
    """The rank whose NCCL kernels are short while everybody else's are long: they wait for it."""
    ranked = [t for t in traces if t.rank is not None and Kernel.NCCL in t.busy_us]
    if len(ranked) < 2:
        return []
    ordered = sorted(ranked, key=lambda t: _share(t, t.busy_us[Kernel.NCCL]))
    slow, rest = ordered[0], ordered[1:]
    own = _share(slow, slow.busy_us[Kernel.NCCL])
    shares = [_share(t, t.busy_us[Kernel.NCCL]) for t in rest]
    median = shares[len(shares) // 2]
    # The waiting must also be a large part of the step; otherwise there is nothing to gain.
    if own >= median * STRAGGLER_SHARE or median - own < 0.1:
        return []
    other = rest[len(rest) // 2]
    return [
        Finding(
            kind="profile.straggler",
            title=(
                f"rank {slow.rank} is the slow one: NCCL takes {own:.0%} of its time and {median:.0%} "
                "of the others', who wait for it inside their collectives"
            ),
            level=Level.FAILURE,
            category=Category.PERFORMANCE,
            evidence=(
                _quote(slow, f"NCCL {slow.busy_us[Kernel.NCCL] / 1000:.3f} ms"),
                _quote(other, f"NCCL {other.busy_us[Kernel.NCCL] / 1000:.3f} ms"),
            ),
            rank=slow.rank,
            facts={"nccl_share": own, "median_nccl_share": median},
        )
    ]


SIGNS = ("\x1f\x8b", '"traceEvents"', '"schemaVersion"')

READER = Reader(
    name="profiler",
    summary="torch.profiler traces: kernel classes, exposed communication, gaps, the slow rank",
    recognise=recognise,
    read=read,
)
