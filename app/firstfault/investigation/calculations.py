"""Which calculations belong to this fault? Memory books for an OOM, the bubble for an idle pipeline.

Run on their own whenever the logs hold enough; a calculator that cannot say anything stays silent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from firstfault.investigation.examination import Examination
from firstfault.investigation.place import read_mesh
from firstfault_tools.errors import ToolError
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding

MAX_CHARACTERS = 2_000_000
SETTINGS, MAX_SETTINGS = (".json", ".yaml", ".yml", ".toml"), 8
_OOM = expression(r"out of memory|OutOfMemoryError", re.I)
_BATCHES = {
    "micro": expression(r"\bmicro[_-]batch[_-]size\s*(?:\.{2,}|[=: ])\s*(\d+)"),
    "global": expression(r"\bglobal[_-]batch[_-]size\s*(?:\.{2,}|[=: ])\s*(\d+)"),
    "virtual": expression(
        r"\bvirtual[_-]pipeline[_-]model[_-]parallel[_-]size\s*(?:\.{2,}|[=: ])\s*(\d+)"
    ),
}


def calculate(examination: Examination, finding: Finding | None) -> dict[str, Any]:
    """Results by calculator name; empty where none applies."""
    if finding is None:
        return {}
    out: dict[str, Any] = {}
    if finding.category is Category.OOM and any(_OOM.search(e.text) for e in finding.evidence):
        books = _memory_books(examination)
        if books is not None:
            out["memory_oom"] = books
    if finding.category is Category.PERFORMANCE:
        bubble = _bubble(examination)
        if bubble is not None:
            out["bubble"] = bubble
    return out


def _memory_books(examination: Examination) -> Mapping[str, Any] | None:
    from firstfault_tools.memory.oom_calculator import CALCULATOR

    try:
        world = examination.logs.world_size
        return CALCULATOR.run(
            text=_text(examination),
            files=_settings(examination),
            fields={"world": world} if world else {},
        )
    except ToolError:
        return None


def _bubble(examination: Examination) -> Mapping[str, Any] | None:
    """Bubble of the run's own pipeline, from its argument dump."""
    mesh = read_mesh(examination)
    if mesh is None or mesh.pp < 2:
        return None
    text = _text(examination)
    sizes = {k: int(m[1]) for k, p in _BATCHES.items() if (m := p.search(text)) is not None}
    if "micro" not in sizes or "global" not in sizes:
        return None
    data_parallel = mesh.world // (mesh.tp * mesh.pp * mesh.cp)
    microbatches = sizes["global"] // max(sizes["micro"] * data_parallel, 1)
    if microbatches < 1:
        return None
    from firstfault_tools.pipeline.calculator import CALCULATOR

    virtual = sizes.get("virtual", 1)
    try:
        return CALCULATOR.run(
            schedule="interleaved" if virtual > 1 else "1f1b",
            stages=mesh.pp, microbatches=microbatches, virtual=virtual,
        )  # fmt: skip
    except ToolError:
        return None


def _settings(examination: Examination) -> dict[str, str]:
    """Settings files of the incident by name; a file that was not kept whole is none."""
    found: dict[str, str] = {}
    for digest in examination.logs.digests:
        if digest.file.lower().endswith(SETTINGS) and len(found) < MAX_SETTINGS:
            lines = list(digest.kept)
            if len(lines) >= digest.lines_total:
                found[digest.file] = "\n".join(text for _, text in lines)
    return found


def _text(examination: Examination) -> str:
    def lines() -> Iterable[str]:
        size = 0
        for digest in examination.logs.digests:
            for _, text in digest.kept:
                size += len(text) + 1
                if size > MAX_CHARACTERS:
                    return
                yield text

    return "\n".join(lines())


def describe_calculations(results: Mapping[str, Any]) -> list[str]:
    """One sentence for each result, for the explanation."""
    out: list[str] = []
    books = results.get("memory_oom")
    if books is not None:
        reason = (books.get("books") or {}).get("reason")
        if reason:
            out.append(f"Memory books: {reason}.")
        for match in (books.get("tensor") or [])[:1]:
            name = match.get("name") or match.get("tensor")
            if name:
                out.append(f"The request has the size of {name}.")
        changes = ((books.get("estimate") or {}).get("changes") or [])[:1]
        for change in changes:
            if change.get("saved_gib"):
                out.append(
                    f"The estimate for this run says {change.get('change') or change.get('name')} would save about {change['saved_gib']:.1f} GiB."
                )
    bubble = results.get("bubble")
    if bubble is not None:
        out.append(
            f"Pipeline bubble of this schedule: {bubble['fraction_of_total']:.1%} of the step ({bubble['ratio_to_ideal']:.1%} of the ideal time)."
        )
    return out
