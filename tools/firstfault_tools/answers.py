"""Which answer does a calculator give to typed inputs? One core and one wording for every door.

The page, the commands, MCP and the conversation ask `answer_calculation`; the sentence is the
calculator's own, so that all doors say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.findings import Json
from firstfault_tools.registry import calculators


@dataclass(frozen=True, slots=True)
class Answer:
    """result: the calculator's whole mapping. sentence: the answer in words. assumptions: what was
    taken where nothing was stated, each with how to state it."""

    calculator: str
    result: Mapping[str, Json]
    sentence: str
    assumptions: tuple[str, ...]


def answer_calculation(calculator: str, inputs: Mapping[str, Any]) -> Answer:
    """Run a calculator (memory, memory_oom, bubble, checkpoint_size, checkpoint_interval,
    checkpoint_folder) on typed inputs; values that are None count as not given.

    Raises InvalidParameter for an unknown calculator or a value that breaks a rule, UnreadableArtefact
    for a configuration that cannot be read.
    """
    known = {entry.name: entry for entry in calculators()}
    if calculator not in known:
        raise InvalidParameter("calculator", f"must be one of {', '.join(sorted(known))}")
    given = {name: value for name, value in inputs.items() if value is not None}
    result = known[calculator].run(**given)
    said = result.get("sentence")
    assumed = result.get("assumptions")
    return Answer(
        calculator,
        result,
        said if isinstance(said, str) else "",
        tuple(str(line) for line in assumed) if isinstance(assumed, list) else (),
    )
