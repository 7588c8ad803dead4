"""Where is a command run? On which host, in which pod, on a login node, in the job script.

The data of a check may say it; else the command tells: `sacct` runs on a login node, `dmesg` on the node of the fault,
`export X=1` in the job script. A node that no evidence names is named in words ("the node of rank 11").
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path

from firstfault.investigation.blanks import POD, find_value, name_node
from firstfault.investigation.diagnosis import Diagnosis
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category

NODE, CODE, ENVIRONMENT, STORAGE = "node", "code", "environment", "storage"
EVERY_NODE, EITHER = "every_node", "either"
_PER_NODE = frozenset({NODE, ENVIRONMENT, STORAGE})
"""Places that are one host's, so that a pod or the node of the fault may stand for them."""

_IN_CODE = frozenset({Category.CODE_BUG, Category.OOM, Category.DATA, Category.NUMERICAL})
"""Kinds that are mended in the person's own code."""

_FRAME = expression(r"\((/[\w./-]{1,200}\.py:\d+)\)")
_OF_HOST = expression(r"^(?:sudo )?(?:dmesg|journalctl|ipmitool|systemctl|modprobe|sysctl|lspci)\b")
"""Commands that ask the host: a container sees no kernel log, and a pod that was killed runs none."""

_FOREIGN = expression(
    r"(?i)(?:site|dist)-packages|/(?:torch|transformers|megatron|megatron-lm|nemo|verl|openrlhf|slime|deepspeed|accelerate|trl|"
    r"torchtitan|vllm|sglang|lightning|maxtext|jax|flax|ray|grain|transformer_engine|llamafactory|axolotl)(?:-[\w.]+)?/"
)
"""A frame of a library or framework: what is mended there is its setting or its input, not its text."""


@dataclass(frozen=True, slots=True)
class RunPlace:
    """kind: a name of run_places.json, or `named` for a host in words. said: `On gpu-a17`."""

    kind: str
    name: str
    said: str


Patterns = tuple[tuple[str, re.Pattern[str]], ...]


@dataclass(frozen=True, slots=True)
class _Table:
    """kinds: how each place is said. commands, words: what tells the place of a command and of a fix in words."""

    kinds: dict[str, dict[str, str]]
    commands: Patterns
    words: Patterns
    every_node: re.Pattern[str]


@lru_cache(maxsize=1)
def _table() -> _Table:
    told = json.loads(Path(__file__).with_name("run_places.json").read_text(encoding="utf-8"))
    commands, words = (
        tuple((row["kind"], expression(row["pattern"])) for row in told[part])
        for part in ("commands", "words")
    )
    return _Table(
        {k["kind"]: k for k in told["kinds"]}, commands, words, expression(told["every_node"])
    )


def kinds() -> frozenset[str]:
    """Names that a check may give as `run_on`."""
    return frozenset(_table().kinds)


def find_run_place(
    diagnosis: Diagnosis, command: str, run_on: str = "", text: str = ""
) -> RunPlace:
    """Where a command is run. run_on: what the data of the check says: a kind, or a place in words. text: what is
    done, in words: where it says "on all nodes", one node is not the place."""
    if run_on and run_on not in kinds():
        return RunPlace("named", run_on, run_on[:1].upper() + run_on[1:])
    kind = run_on or _kind_of(command)
    if kind == NODE and _OF_HOST.search(command) and (pod := _own_pod(diagnosis)):
        return RunPlace(NODE, f"the node of pod {pod}", f"On the node of pod {pod}")
    everywhere = kind in _PER_NODE - {STORAGE} and _table().every_node.search(text)
    return _at(EVERY_NODE if everywhere else kind, diagnosis)


def find_fix_place(diagnosis: Diagnosis, text: str, command: str) -> RunPlace | None:
    """Where a fix is applied: as its command tells, else where its words point; None where neither does."""
    if command:
        return find_run_place(diagnosis, command, text=text)
    kind = next((kind for kind, pattern in _table().words if pattern.search(text)), "")
    if kind in ("", CODE) and diagnosis.category in _IN_CODE and _own_frame(diagnosis):
        kind = CODE
    if kind == NODE and _table().every_node.search(text):
        kind = EVERY_NODE
    return _at(kind, diagnosis) if kind else None


def _kind_of(command: str) -> str:
    lines = [x.strip() for x in command.split("\n") if x.strip() and not x.startswith("# ")]
    if not lines:
        return "settings" if command.strip() else NODE
    found = {
        next((k for k, pattern in _table().commands if pattern.search(line)), NODE)
        for line in lines
    }
    first = next((k for k, pattern in _table().commands if pattern.search(lines[0])), NODE)
    return EITHER if found == {"scheduler", "cluster"} else first


def _at(kind: str, diagnosis: Diagnosis) -> RunPlace:
    row = _table().kinds[kind]
    name = _own_frame(diagnosis) if kind == CODE else ""
    if kind in _PER_NODE:
        host = "" if diagnosis.host in (None, "localhost") else str(diagnosis.host)
        if pod := _own_pod(diagnosis):
            return RunPlace(POD, pod, _table().kinds[POD]["named"].format(name=pod))
        name = host or name_node(diagnosis)
    of_one = row.get(diagnosis.schedulers[0]) if len(diagnosis.schedulers) == 1 else None
    said = row["named"].format(name=name) if name and "named" in row else of_one or row["say"]
    return RunPlace(kind, name, said)


def _own_pod(diagnosis: Diagnosis) -> str:
    """The pod that stands for the host of the fault; '' where the host has a name of its own."""
    pod = find_value(POD, diagnosis)
    return pod if pod and pod == diagnosis.host else ""


def _own_frame(diagnosis: Diagnosis) -> str:
    """`/home/kim/train.py:188`: the frame of the person's own code that the verdict names."""
    frames = _FRAME.findall(diagnosis.root_cause)
    return next((f for f in frames if not _FOREIGN.search(f)), "")
