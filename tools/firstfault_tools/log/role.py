"""Which part does a text artefact play? Told from its name and the forms of its lines (roles.json)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from firstfault_tools.kept_forms import compile_kept
from firstfault_tools.log.digest import FileDigest
from firstfault_tools.roles import Role

LOOKED_AT = 600
MAX_CHARS = 400
MOST, SOME = 0.6, 0.3
"""Share of lines from which on a form is that of the whole file; and at which it is one of its forms."""

_EXPERIMENT_WORDS = (
    "# nThread", "Out of bounds values", "Avg bus bandwidth", "redop", "_perf", "#bytes", "ib_write_", "ib_read_", "ib_send_",
    "ib_atomic_", "RDMA_", "Send BW Test", "Interval ", "port 5201", "Gflop/s", "nvbandwidth", "P2P Connectivity", "Bidirectional P2P",
    "bandwidthTest", "# OSU MPI", "Successfully ran diagnostic", "Diagnostic ", "fio-", "(g=0)", "stress-ng", "sysbench",
)  # fmt: skip


@cache
def _table() -> Mapping[str, Any]:
    return dict(json.loads(Path(__file__).with_name("roles.json").read_text(encoding="utf-8")))


@cache
def _form(role: str) -> re.Pattern[str]:
    return compile_kept("|".join(f"(?:{p})" for p in _table()[role]))


@cache
def _name(role: Role) -> re.Pattern[str]:
    return compile_kept(_table()["names"][role.value])


def read_role(digest: FileDigest, trains: bool, works: bool) -> Role:
    """Role of a scanned text. trains: it holds steps of training. works: some count goes up, or an end is told."""
    if not trains and shows_experiment(digest):
        return Role.EXPERIMENT
    if trains or works or digest.name_rank is not None:
        return Role.RUN
    name = digest.file.rpartition("/")[2]
    for role in (Role.CONFIGURATION, Role.DESCRIPTION):
        if _name(role).search(name):
            return role
    return _role_of_lines(_first_lines(digest), known=bool(digest.hits) or bool(digest.marked))


def shows_experiment(digest: FileDigest) -> bool:
    """Some line is one that a benchmark of the machines prints."""
    form = _form("experiment")
    return any(
        form.search(text[:MAX_CHARS])
        for run in digest.kept.runs
        if run.holds(_EXPERIMENT_WORDS)
        for text in run.texts()
    )


def _first_lines(digest: FileDigest) -> list[str]:
    rows = (text[:MAX_CHARS] for _, text in digest.kept if text.strip())
    return list(islice(rows, LOOKED_AT))


def _role_of_lines(lines: Sequence[str], known: bool) -> Role:
    """known: a signature or the structure of a launcher's report was met, as only logs have them."""
    if not lines:
        return Role.DESCRIPTION
    shares = {
        form: sum(1 for text in lines if _form(form).search(text)) / len(lines)
        for form in ("counter", "log", "configuration")
    }
    if shares["counter"] >= MOST:
        return Role.COUNTER
    if known or shares["log"] >= SOME:
        return Role.RUN
    if shares["counter"] >= SOME:
        return Role.COUNTER
    return Role.CONFIGURATION if shares["configuration"] >= MOST else Role.UNKNOWN
