"""How does the diagnosis do on GPUAlert's single-error logs? Read in place, never copied.

Their fifteen classes are finer or coarser than the contract's categories, so each class lists the
categories that answer it. The logs hold one error and no ranks: a floor, not proof.
"""

from __future__ import annotations

import json
import time
from typing import Any

from evals.baselines import crash_analyzer, grep
from evals.cases import SHARED
from evals.scorers.triple import macro_f1

from firstfault.errors import FirstfaultError
from firstfault.workspace import Workspace

DATA = SHARED / "data" / "gpualert" / "dev.jsonl"
ACCEPTED: dict[str, tuple[str, ...]] = {
    "assertion": ("code_bug",),
    "cuda_oom": ("oom",),
    "cuda_runtime": ("code_bug", "data", "hardware"),
    "device_mismatch": ("code_bug",),
    "div_zero": ("code_bug", "numerical"),
    "file_not_found": ("environment", "data"),
    "missing_module": ("environment",),
    "nan_loss": ("numerical",),
    "nccl": ("communication",),
    "oom_killer": ("oom",),
    "permission": ("environment",),
    "ram_oom": ("oom",),
    "runtime_error": ("code_bug", "environment"),
    "segfault": ("environment", "code_bug"),
    "traceback": ("code_bug", "environment"),
}


def load_rows() -> list[dict[str, Any]]:
    """Rows of the handed half, or none where the folder is absent."""
    if not DATA.is_file():
        return []
    return [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines() if line]


def score_rows(
    workspace: Workspace, rows: list[dict[str, Any]]
) -> dict[str, list[tuple[str, str]]]:
    """(expected, predicted) class pairs per system."""
    pairs: dict[str, list[tuple[str, str]]] = {"firstfault": [], "grep": [], "five patterns": []}
    for row in rows:
        given = {
            "firstfault": _category(workspace, row["log"]),
            "grep": grep.answer(row["log"]).category,
            "five patterns": crash_analyzer.answer(row["log"]).category,
        }
        for name, category in given.items():
            expected = row["failure_class"]
            hit = category in ACCEPTED[expected]
            pairs[name].append((expected, expected if hit else category or "none"))
    return pairs


def _category(workspace: Workspace, log: str) -> str | None:
    try:
        return workspace.diagnose_text("log.txt", log.encode()).category
    except FirstfaultError:
        return None


def write_table(workspace: Workspace) -> str:
    """Markdown section, or a line that says the data is not here."""
    rows = load_rows()
    if not rows:
        return "GPUAlert logs: not present here, not scored.\n"
    begin = time.perf_counter()
    pairs = score_rows(workspace, rows)
    seconds = (time.perf_counter() - begin) / len(rows)
    lines = [
        f"# GPUAlert, {len(rows)} single-error logs (published for the whole set: rules 0.998, grep 0.830)",
        "",
        "| system | macro-F1 on the mapped classes | wrong |",
        "| --- | ---: | ---: |",
    ]
    for name, own in pairs.items():
        wrong = sum(1 for e, p in own if e != p)
        lines.append(f"| {name} | {macro_f1(own):.3f} | {wrong} |")
    lines += ["", f"Seconds a log, all three systems: {seconds:.4f}"]
    return "\n".join(lines) + "\n"


def failures(workspace: Workspace) -> list[tuple[str, str, str]]:
    """(id, expected class, predicted) of every wrong row, for development."""
    rows = load_rows()
    pairs = score_rows(workspace, rows)["firstfault"]
    return [(r["id"], e, p) for r, (e, p) in zip(rows, pairs, strict=True) if e != p]
