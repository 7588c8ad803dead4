"""Does the optimizer step or the gradient reduction take most of the time, by DeepSpeed's timers?

`time (ms) | forward_microstep: .. | backward_microstep: .. | backward_allreduce_microstep: .. | step_microstep: ..`
(older and newer names). With state offloaded to the CPU or to NVMe the optimizer step is bound by the
memory or by the drive, not by the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
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


@dataclass(slots=True)
class _Read:
    """Timers of each report, and lines about offload: by device, and the one that turns its pipeline off."""

    rows: list[dict[str, float]] = field(default_factory=list)
    places: list[tuple[int, str]] = field(default_factory=list)
    offload: dict[str, tuple[int, str]] = field(default_factory=dict)
    unpiped: tuple[int, str] | None = None

    def usual(self, *names: str) -> float:
        """Usual milliseconds of the first of these timers that a report has."""
        return median([next((r[n] for n in names if n in r), 0.0) for r in self.rows])

    def add(self, number: int, text: str) -> None:
        """Read one line."""
        if "time (ms) |" in text:
            row = {
                m["name"].replace("_microstep", ""): float(m["ms"]) for m in _TIMER.finditer(text)
            }
            if row.get("step") and len(row) >= 3:
                self.rows.append(row)
                self.places.append((number, text))
        elif found := _OFFLOAD.search(text):
            device = (found["device"] or found["other"] or found["said"]).lower()
            self.offload.setdefault(device, (number, text))
        if self.unpiped is None and _SLOW_IO.search(text):
            self.unpiped = (number, text)


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The part of the step that takes more than half of it."""
    read = _Read()
    for number, text in keep_marked(lines, GATE)[:20_000]:
        read.add(number, text)
    if len(read.rows) < 2:
        return ()
    forward, backward = read.usual("forward", "fwd"), read.usual("backward", "bwd")
    step, reduce = read.usual("step"), read.usual("backward_allreduce", "bwd_allreduce")
    whole = forward + backward + step
    quoted = read.places[-1:]
    if whole and step / whole >= HIGH:
        words, more = _explain_step(read)
        title = f"the optimizer step takes {step / 1000:.1f} s of {whole / 1000:.1f} s ({step / whole:.0%}): {words}; GPUs and network wait"
        share, page = step / whole, "low-mfu"
        quoted = [*quoted, *more]
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


_BOUND_BY = {
    "nvme": "parameters and optimizer state are swapped through NVMe (offload), so the I/O of the drive bounds the step",
    "cpu": "the optimizer state is offloaded to the CPU, so host memory and cores bound the step",
    "": "the update itself, offload or a wait inside it bounds the step",
}


def _explain_step(read: _Read) -> tuple[str, list[tuple[int, str]]]:
    """What bounds an optimizer step by where its state lies, and the lines that say it."""
    device = "nvme" if "nvme" in read.offload else "cpu" if read.offload else ""
    words = _BOUND_BY[device]
    if read.unpiped and device == "nvme":
        words += ", with pipeline_read and pipeline_write off"
    return words, [p for p in (read.offload.get(device), read.unpiped) if p is not None]
