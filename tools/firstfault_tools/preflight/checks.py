"""Which items of the checklist before a start do tools answer, from what was given?

Given: a configuration (memory, size of a checkpoint), probe records and nccl-tests tables (rates, health,
versions, clocks), what is planned (GPUs, seconds of a save and a step), `nvidia-smi -q`, kernel logs, `pip freeze` of nodes, the checkpoint store, the load path.
What was not given is `unknown`, with the command that brings it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import ToolError
from firstfault_tools.findings import Category, Finding, Json, Level
from firstfault_tools.metrics.checklist import CheckState, checklist_items
from firstfault_tools.preflight.bandwidth import check_bandwidth
from firstfault_tools.preflight.items import Answer, State, check_room, check_writable
from firstfault_tools.preflight.plans import (
    Planned,
    check_clocks,
    check_interval,
    check_timeouts,
)
from firstfault_tools.run_comparison.settings import Kind, normalise_value, read_settings

HEADROOM = 0.10
"""Share of the card that should stay free: fragmentation and library buffers (checklists.yaml, memory-fits)."""

KEPT_CHECKPOINTS = 3
"""Checkpoints that must fit: one being written, one complete, one more to go back to."""

BAD = (Level.CAUSE, Level.FAILURE)


@dataclass(frozen=True, slots=True)
class Given:
    """What a preflight may look at. files: (name, text). findings: what the readers say of the files.

    settings: fields of the memory calculator that override the configuration. store: a folder.
    load: listing of the checkpoint to load, and contents of its small files.
    """

    configuration: tuple[str, str] | None = None
    card: str | None = None
    settings: Mapping[str, Any] | None = None
    files: tuple[tuple[str, str], ...] = ()
    findings: tuple[Finding, ...] = ()
    kinds: frozenset[str] = frozenset()
    """Readers that knew one of the files."""
    store: Path | None = None
    load: tuple[str, Mapping[str, str]] | None = None
    planned: Planned = field(default_factory=Planned)

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        """The configuration and every file."""
        return ((self.configuration,) if self.configuration is not None else ()) + self.files


def run_preflight(given: Given, phase: str = "before_start") -> tuple[Answer, ...]:
    """Every item of a phase, answered where a tool can."""
    answers = []
    for item in checklist_items():
        if item.phase == phase:
            check = CHECKS.get(item.id)
            state, reason = check(given) if check is not None else (CheckState.MANUAL, "")
            answers.append(Answer(item.id, item.text, state, reason, item.page))
    return tuple(answers)


def _memory_fits(given: Given) -> State:
    if given.configuration is None and not given.settings:
        return CheckState.UNKNOWN, "give the configuration: --config FILE --card H100-80GB"
    if given.card is None:
        return CheckState.UNKNOWN, "say the card: --card H100-80GB"
    try:
        report = estimate(given)
    except ToolError as error:
        return CheckState.UNKNOWN, str(error)
    needed, room = report.get("needed_gib"), _float(report, "capacity_gib")
    peak = _float(needed, "expected") if isinstance(needed, Mapping) else None
    if peak is None or room is None:
        return CheckState.UNKNOWN, str(report.get("sentence", ""))
    fits = peak <= room * (1 - HEADROOM)
    said = f"{peak:.1f} of {room:.1f} GiB on the fullest GPU"
    return (CheckState.PASSED if fits else CheckState.FAILED), said


def estimate(given: Given) -> Mapping[str, Json]:
    """The memory estimate of the configuration. Raises InvalidParameter and UnreadableArtefact."""
    from firstfault_tools.memory.memory_calculator import run_memory

    name, text = given.configuration or ("configuration", None)
    return run_memory(
        configuration=text, configuration_name=name, card=given.card, **dict(given.settings or {})
    )


def _network_tested(given: Given) -> State:
    bad = _first(given, lambda f: f.category is Category.COMMUNICATION)
    if bad is not None:
        return CheckState.FAILED, bad.title
    held = check_bandwidth(given.files, given.planned.fabric_gbs)
    if held is not None:
        return held
    if "probe" in given.kinds:
        return CheckState.PASSED, "no node is below what its card gives or the others reach"
    if "nccl_tests" in given.kinds:
        return (
            CheckState.UNKNOWN,
            "no table is below the others; say what the network of a node gives, GB/s one way: --fabric-gbs",
        )
    return CheckState.UNKNOWN, "give nccl-tests tables or probe records: firstfault probe plan"


def _gpus_healthy(given: Given) -> State:
    bad = _first(given, lambda f: f.category is Category.HARDWARE)
    if bad is not None:
        return CheckState.FAILED, bad.title
    if given.kinds & {"nvidia_smi", "probe", "dcgm"}:
        return CheckState.PASSED, "no reader of the given files reports a fault of a GPU"
    return CheckState.UNKNOWN, "give `nvidia-smi -q` of every node, or probe records"


def _software_equal(given: Given) -> State:
    stated: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    files = 0
    for name, text in given.files:
        versions = [s for s in read_settings(name, text) if s.kind is Kind.VERSION]
        files += bool(versions)
        for setting in versions:
            stated[setting.name][normalise_value(setting.value)].append(name)
    unlike = {what: values for what, values in stated.items() if len(values) > 1}
    if unlike:
        what, values = min(unlike.items(), key=lambda row: row[0])
        told = "; ".join(f"{v} in {', '.join(n[:3])}" for v, n in sorted(values.items())[:3])
        more = f" ({len(unlike) - 1} more differ)" if len(unlike) > 1 else ""
        return CheckState.FAILED, f"{what}: {told}{more}"
    bad = _first(given, lambda f: f.category is Category.ENVIRONMENT)
    if bad is not None:
        return CheckState.FAILED, bad.title
    if files < 2:
        return CheckState.UNKNOWN, "give `pip freeze` (or probe records) of at least two nodes"
    return CheckState.PASSED, f"{len(stated)} versions alike in {files} files"


def _storage_room(given: Given) -> State:
    if given.store is None:
        return CheckState.UNKNOWN, "say the folder of the checkpoints: --store DIR"
    state, reason = check_writable(given.store)
    if state is not CheckState.PASSED or (given.configuration is None and not given.settings):
        lacking = "" if state is not CheckState.PASSED else "; its size needs --config"
        return (state if state is not CheckState.PASSED else CheckState.UNKNOWN), reason + lacking
    try:
        count = _float(estimate(given), "parameters")
    except ToolError as error:
        return CheckState.UNKNOWN, str(error)
    from firstfault_tools.checkpoint.size import size_checkpoint

    if not count:
        return CheckState.UNKNOWN, "the configuration names no parameter count"
    size = size_checkpoint(int(count), keep=KEPT_CHECKPOINTS)
    return check_room(given.store, size.retained_bytes / (1 << 30))


def _load_path(given: Given) -> State:
    if given.load is None:
        return CheckState.UNKNOWN, "say the checkpoint to load: --load DIR"
    from firstfault_tools.checkpoint.folder_calculator import run_folder

    listing, contents = given.load
    try:
        found = run_folder(listing, contents)
    except ToolError as error:
        return CheckState.FAILED, str(error)
    whole = found.get("resume_from") is not None and not found.get("problems")
    return (CheckState.PASSED if whole else CheckState.FAILED), str(found["sentence"])


def _first(given: Given, wanted: Callable[[Finding], bool]) -> Finding | None:
    return next((f for f in given.findings if f.level in BAD and wanted(f)), None)


def _float(row: Mapping[str, Json], key: str) -> float | None:
    value = row.get(key)
    return float(value) if isinstance(value, int | float) else None


CHECKS: Mapping[str, Callable[[Given], State]] = {
    "memory-fits": _memory_fits,
    "network-tested": _network_tested,
    "gpus-healthy": _gpus_healthy,
    "software-equal": _software_equal,
    "storage-room": _storage_room,
    "load-path": _load_path,
    "timeouts-fit": lambda given: check_timeouts(given.planned, given.texts),
    "interval-planned": lambda given: check_interval(given.planned, given.texts),
    "clocks-agree": lambda given: check_clocks(given.files),
}


def summarise(answers: Iterable[Answer]) -> str:
    """The result in one sentence."""
    rows: Sequence[Answer] = tuple(answers)
    failed = [a for a in rows if a.state is CheckState.FAILED]
    open_ = sum(a.state in (CheckState.UNKNOWN, CheckState.MANUAL) for a in rows)
    passed = len(rows) - len(failed) - open_
    if failed:
        return f"Do not start yet: {failed[0].text.rstrip('.')} is not met ({failed[0].reason}); {passed} passed, {len(failed)} failed, {open_} open."
    if open_:
        return f"Nothing failed: {passed} passed, {open_} are still open."
    return f"All {passed} items passed."
