"""Which address opens the page's calculator with what an answer was calculated from? Beside the words, never in them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from firstfault.incidents.events import ToolUse
from firstfault_tools.knowledge.pack import read_yaml

WHAT_IF = "what-if"
"""Name of the page of calculators in an address."""
WHAT_IF_TOOLS = frozenset({"memory", "bubble", "checkpoint_interval"})
"""Calculators that the page shows."""
TABLE = Path(__file__).with_name("what_if.yaml")


def link_what_if(tool: ToolUse | None) -> str:
    """Address, relative to the page, of the calculator with what `tool` was given; '' where the page has none."""
    if tool is None:
        return ""
    name, inputs = _as_calculator(tool)
    if name not in WHAT_IF_TOOLS or not inputs:
        return ""
    given = {
        k: f"{v:.12g}" if isinstance(v, float) else v
        for k, v in inputs.items()
        if v not in (None, False, "") and not isinstance(v, Mapping)
    }
    return "?" + urlencode({"view": WHAT_IF, "tool": name, **given})


def _as_calculator(tool: ToolUse) -> tuple[str, Mapping[str, Any]]:
    """Calculator and inputs; those of a result that a calculator counts, too."""
    if tool.name != "derived":
        return tool.name, tool.inputs
    known = {**tool.inputs, **tool.result}
    for result, row in _load_table().items():
        if result in tool.result and all(n in known for n in row["inputs"]):
            return row["tool"], {**row["adds"], **{v: known[k] for k, v in row["inputs"].items()}}
    return "", {}


@cache
def _load_table() -> Mapping[str, Any]:
    data: Mapping[str, Any] = read_yaml(TABLE.read_text(encoding="utf-8"))
    return data
