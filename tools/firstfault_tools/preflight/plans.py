"""Do timeouts, the checkpoint interval and the nodes' clocks suit the run that is planned?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from firstfault_tools.checkpoint.interval import derive_mtbf, find_daly, measure_waste
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.metrics.checklist import CheckState
from firstfault_tools.preflight.items import State
from firstfault_tools.preflight.scaling import FAILURES_PER_GPU_HOUR

DEFAULT_TIMEOUT_S = 600.0
"""kProcessGroupNCCLDefaultTimeout of PyTorch: 10 minutes."""
MARGIN = 2.0
"""Times the longest planned pause: a save through a busy file system takes twice its usual time."""
APART_MS = 100.0
"""Clocks that lie further apart put lines of different nodes in the wrong order (page clock-skew)."""
EXTRA_WASTE = 0.01
"""Share of all time that an interval may cost more than the best one."""
RESTART_S = 600.0
_MINUTES = expression(r"(?i)\bdistributed[-_]timeout[-_]minutes\b\W{1,60}(\d{1,6})\b")
_SECONDS = expression(
    r"(?i)\b(?:ddp_timeout|dist(?:ributed)?_timeout(?:_seconds)?|process_group_timeout|nccl_timeout|timeout_s(?:econds)?)\b\W{1,60}(\d{1,6})\b"
)
_DUMPS = expression(r"\bTORCH_(?:NCCL_DUMP_ON_TIMEOUT=(?:1|true)|FR_BUFFER_SIZE=[1-9]|NCCL_TRACE_BUFFER_SIZE=[1-9])")  # fmt: skip
_SAVES = expression(r"(?i)\bsave[-_](?:interval|steps|every\w*|freq\w*)\b\W{1,60}(\d{1,7})\b")
_CHRONY = expression(r"System time\s*:\s*([\d.]{1,20}) seconds (slow|fast)")
_TIMEDATE = expression(
    r"(?i)(?:system clock synchronized:\s*|NTPSynchronized=|clock synchronized\W{1,3})(yes|no)"
)


@dataclass(frozen=True, slots=True)
class Planned:
    """What a person says of the run. save_seconds: the longest that training stands still for a save. fabric_gbs: one way, of a node."""

    gpus: int | None = None
    save_seconds: float | None = None
    step_seconds: float | None = None
    fabric_gbs: float | None = None


def check_timeouts(planned: Planned, texts: Sequence[tuple[str, str]]) -> State:
    """Is the timeout of collectives longer than the longest pause that is planned?"""
    told = next((float(m[1]) * 60 for _, t in texts if (m := _MINUTES.search(t))), None)
    if told is None:
        told = next((float(m[1]) for _, t in texts if (m := _SECONDS.search(t))), None)
    timeout = DEFAULT_TIMEOUT_S if told is None else told
    whose = "PyTorch's default, none is set" if told is None else "as configured"
    if planned.save_seconds is None:
        return CheckState.UNKNOWN, f"{timeout:g} s ({whose}); say the longest pause, a save or an evaluation: --save-seconds"  # fmt: skip
    dumps = any(_DUMPS.search(text) for _, text in texts)
    hint = (
        ""
        if dumps
        else "; set TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1, so that a timeout leaves a dump"
    )
    said = f"{timeout:g} s ({whose}) against a pause of {planned.save_seconds:g} s{hint}"
    long_enough = timeout >= MARGIN * planned.save_seconds
    return (CheckState.PASSED if long_enough else CheckState.FAILED), said


def check_interval(planned: Planned, texts: Sequence[tuple[str, str]]) -> State:
    """Does the interval of checkpoints cost about as little as the best one?"""
    if planned.gpus is None or planned.save_seconds is None:
        return CheckState.UNKNOWN, "say the GPUs and how long a save takes: --gpus, --save-seconds"
    mtbf = derive_mtbf(planned.gpus, FAILURES_PER_GPU_HOUR)
    best = find_daly(planned.save_seconds, mtbf)
    advice = f"best every {best / 60:.0f} min, at a failure every {mtbf / 3600:.0f} h (the rate of Llama 3 on H100s)"
    steps = next((int(m[1]) for _, text in texts if (m := _SAVES.search(text))), None)
    if steps is None or planned.step_seconds is None:
        return (
            CheckState.UNKNOWN,
            f"{advice}; to compare give --config with its interval and --step-seconds",
        )
    chosen = steps * planned.step_seconds
    waste, least = (measure_waste(x, planned.save_seconds, RESTART_S, mtbf) for x in (chosen, best))
    said = f"every {steps} steps are {chosen / 60:.0f} min, which costs {100 * waste:.1f} % of the time against {100 * least:.1f} %; {advice}"
    return (CheckState.PASSED if waste - least <= EXTRA_WASTE else CheckState.FAILED), said


def check_clocks(texts: Sequence[tuple[str, str]]) -> State:
    """Are the clocks of the nodes synchronised and together?"""
    offsets: dict[str, float] = {}
    alone: list[str] = []
    seen: set[str] = set()
    for node, synchronised, offset in _read_clocks(texts):
        seen.add(node)
        if offset is not None:
            offsets[node] = offset
        if synchronised is False:
            alone.append(node)
    if alone:
        return CheckState.FAILED, f"not synchronised: {', '.join(sorted(alone)[:8])}"
    if offsets and (apart := max(offsets.values()) - min(offsets.values())) > APART_MS:
        first, last = min(offsets, key=lambda n: offsets[n]), max(offsets, key=lambda n: offsets[n])
        return CheckState.FAILED, f"{first} and {last} are {apart:.0f} ms apart"
    if len(seen) < 2:
        return CheckState.UNKNOWN, "give probe records, or `chronyc tracking` or `timedatectl`, of at least two nodes"  # fmt: skip
    spread = (
        f", at most {max(offsets.values()) - min(offsets.values()):.1f} ms apart"
        if len(offsets) > 1
        else ""
    )
    return CheckState.PASSED, f"{len(seen)} nodes synchronised{spread}"


def _read_clocks(
    texts: Sequence[tuple[str, str]],
) -> Iterator[tuple[str, bool | None, float | None]]:
    """(node, synchronised, offset in ms) of probe records and of what time daemons print."""
    for name, text in texts:
        for line in text.splitlines():
            if '"clock"' in line and (told := _record(line, name)) is not None:
                yield told
        if (found := _CHRONY.search(text)) is not None:
            yield name, True, (-1000 if found[2] == "slow" else 1000) * float(found[1])
        elif (state := _TIMEDATE.search(text)) is not None:
            yield name, state[1].lower() == "yes", None


def _record(line: str, name: str) -> tuple[str, bool | None, float | None] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if (
        not isinstance(row, dict)
        or row.get("test") != "clock"
        or not isinstance(row.get("values"), dict)
    ):
        return None
    values = row["values"]
    offset = values.get("offset_ms")
    node = str(row.get("host") or name)
    synchronised = values.get("synchronised")
    number = float(offset) if isinstance(offset, int | float) else None
    if number is None and not isinstance(synchronised, bool):
        return None
    return node, synchronised if isinstance(synchronised, bool) else None, number
