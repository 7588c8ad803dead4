"""Where is a command run? On which host, in which pod, on a login node, in the job script.

The data of a check may say it; else the command tells: `sacct` runs on a login node, `dmesg` on the node of the fault,
`export X=1` in the job script. A node that no evidence names is named in words ("the node of rank 11").
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from firstfault.investigation.blanks import find_value
from firstfault.investigation.diagnosis import Diagnosis
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category

NODE, POD, CODE, ENVIRONMENT, STORAGE = "node", "pod", "code", "environment", "storage"
_PER_NODE = frozenset({NODE, ENVIRONMENT, STORAGE})
"""Places that are one host's, so that a pod or the node of the fault may stand for them."""

_IN_CODE = frozenset({Category.CODE_BUG, Category.OOM, Category.DATA, Category.NUMERICAL})
"""Kinds that are mended in the person's own code."""

_FRAME = expression(r"\((/[\w./-]{1,200}\.py:\d+)\)")
_FOREIGN = ("site-packages", "dist-packages", "/torch/", "/transformers/")
_SETTING = expression(r"`(?:--[a-z][\w-]+|[A-Z][A-Z0-9]*_[A-Z0-9_]+)")


@dataclass(frozen=True, slots=True)
class RunPlace:
    """kind: a name of run_places.json, or `named` for a host in words. said: `On gpu-a17`."""

    kind: str
    name: str
    said: str


@lru_cache(maxsize=1)
def _table() -> tuple[dict[str, dict[str, str]], tuple[tuple[str, re.Pattern[str]], ...]]:
    told = json.loads(Path(__file__).with_name("run_places.json").read_text(encoding="utf-8"))
    commands = tuple((c["kind"], expression(c["pattern"])) for c in told["commands"])
    return {k["kind"]: k for k in told["kinds"]}, commands


def kinds() -> frozenset[str]:
    """Names that a check may give as `run_on`."""
    return frozenset(_table()[0])


def find_run_place(diagnosis: Diagnosis, command: str, run_on: str = "") -> RunPlace:
    """Where a command is run. run_on: what the data of the check says: a kind, or a place in words."""
    if run_on and run_on not in kinds():
        return RunPlace("named", run_on, run_on[:1].upper() + run_on[1:])
    return _at(run_on or _kind_of(command), diagnosis)


def find_fix_place(diagnosis: Diagnosis, text: str, command: str) -> RunPlace | None:
    """Where a fix is applied: as its command tells, else where its words point; None where neither does."""
    if command:
        return find_run_place(diagnosis, command)
    if _SETTING.search(text):
        return _at("settings", diagnosis)
    frame = _own_frame(diagnosis) if diagnosis.category in _IN_CODE else ""
    return _at(CODE, diagnosis) if frame else None


def _kind_of(command: str) -> str:
    commands = _table()[1]
    for line in command.split("\n"):
        if not line.strip() or line.startswith("#"):
            continue
        found = next((kind for kind, pattern in commands if pattern.search(line.strip())), None)
        return found or NODE
    return "settings" if command.strip() else NODE


def _at(kind: str, diagnosis: Diagnosis) -> RunPlace:
    row = _table()[0][kind]
    name = _own_frame(diagnosis) if kind == CODE else ""
    if kind in _PER_NODE:
        host = "" if diagnosis.host in (None, "localhost") else str(diagnosis.host)
        pod = find_value(POD, diagnosis)
        if pod and pod == host:
            return RunPlace(POD, pod, _table()[0][POD]["named"].format(name=pod))
        name = host
        if not name and diagnosis.first_failing_rank is not None:
            name = f"the node of rank {diagnosis.first_failing_rank}"
    said = row["named"].format(name=name) if name and "named" in row else row["say"]
    return RunPlace(kind, name, said)


def _own_frame(diagnosis: Diagnosis) -> str:
    """`/home/kim/train.py:188`: the frame of the person's own code that the verdict names."""
    frames = _FRAME.findall(diagnosis.root_cause)
    return next((f for f in frames if not any(w in f for w in _FOREIGN)), "")
