"""Does the optimizer step or the gradient reduction take most of the time, by DeepSpeed's timers?

`time (ms) | forward_microstep: .. | backward_microstep: .. | backward_allreduce_microstep: .. | step_microstep: ..`
(older and newer names). With state offloaded to the CPU or to NVMe the optimizer step is bound by the
memory or by the drive, not by the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding
from firstfault_tools.hardware.excerpt import keep_marked, quote_line

GATE = ("time (ms) |", "offload", "Using CPU Offload", "pipeline_read", "swap_folder")
_TIMER = expression(
    r"\b(?P<name>(?:forward|fwd|backward|bwd|step)(?:_inner|_allreduce)?(?:_microstep)?): (?P<ms>\d+(?:\.\d+)?)"
)
_OFFLOAD = expression(
    r"(?i)offload_(?:optimizer|param)\w{0,40}['\"]?\s{0,9}[:=]?.{0,40}?\bdevice\w{0,40}['\"]?\s{0,9}[:=]\s{0,9}['\"]?(?:\w+\.)?(?P<device>nvme|cpu)\b"
    r"|offload_optimizer_device['\"]?\s*[:=]\s*['\"]?(?P<other>nvme|cpu)|Using (?P<said>CPU) Offload: True"
)
_SLOW_IO = expression(r"(?i)pipeline_(?:read|write)['\"]?\s*[:=]\s*['\"]?false")
HIGH = 0.5


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The part of the step that takes more than half of it."""
    kept = keep_marked(lines, GATE)
    rows: list[dict[str, float]] = []
    place: tuple[int, str] | None = None
    offload: dict[str, tuple[int, str]] = {}
    unpiped: tuple[int, str] | None = None
    for number, text in kept[:20_000]:
        if "time (ms) |" in text:
            row = {
                m["name"].replace("_microstep", ""): float(m["ms"]) for m in _TIMER.finditer(text)
            }
            if row.get("step") and len(row) >= 3:
                rows.append(row)
                place = (number, text)
        elif found := _OFFLOAD.search(text):
            device = (found["device"] or found["other"] or found["said"]).lower()
            offload.setdefault(device, (number, text))
        if _SLOW_IO.search(text):
            unpiped = unpiped or (number, text)
    if len(rows) < 2 or place is None:
        return ()

    def usual(*names: str) -> float:
        return median([next((r[n] for n in names if n in r), 0.0) for r in rows])

    forward, backward, step = usual("forward", "fwd"), usual("backward", "bwd"), usual("step")
    reduce = usual("backward_allreduce", "bwd_allreduce")
    whole = forward + backward + step
    quoted = [place]
    if whole and step / whole >= HIGH:
        device = "nvme" if "nvme" in offload else "cpu" if offload else ""
        where = {
            "nvme": "parameters and optimizer state are swapped through NVMe (offload), so the I/O of the drive bounds the step",
            "cpu": "the optimizer state is offloaded to the CPU, so host memory and cores bound the step",
        }.get(device, "the update itself, offload or a wait inside it bounds the step")
        piped = (
            ", with pipeline_read and pipeline_write off" if unpiped and device == "nvme" else ""
        )
        title = f"the optimizer step takes {step / 1000:.1f} s of {whole / 1000:.1f} s ({step / whole:.0%}): {where}{piped}; GPUs and network wait"
        share, page = step / whole, "low-mfu"
        quoted += [p for p in (offload.get(device), unpiped) if p is not None]
    elif whole and reduce / whole >= HIGH:
        title = f"the gradient reduction takes {reduce / 1000:.1f} s of {whole / 1000:.1f} s ({reduce / whole:.0%}) of the step: communication is the bottleneck"
        share, page = reduce / whole, "communication-stall"
    else:
        return ()
    return (
        Finding.of_slowness(
            kind="setting.step_share",
            title=title,
            evidence=tuple(quote_line(file, n, t) for n, t in dict.fromkeys(quoted)),
            page=page,
            weight=round(share, 3),
            facts={"share": round(share, 3)},
        ),
    )
