"""What does this out-of-memory message mean for this run? Books, bucket, tensor, changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firstfault_tools.findings import Json
from firstfault_tools.registry import Calculator

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["text"],
    "properties": {
        "text": {"type": "string", "description": "the error line, or a whole log that holds it"},
        "configuration": {
            "type": "string",
            "description": "configuration text as for the memory calculator; left out, an argument "
            "dump in `text` is used where there is one",
        },
        "configuration_name": {"type": "string"},
        "fields": {"type": "object", "description": "fields of the memory calculator"},
        "capacity_gib": {"type": "number", "exclusiveMinimum": 0},
        "files": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "settings files that came with the log, text by name",
        },
    },
}


def run_oom(
    text: str,
    configuration: str | None = None,
    configuration_name: str = "configuration",
    fields: Mapping[str, Any] | None = None,
    capacity_gib: float | None = None,
    files: Mapping[str, str] | None = None,
) -> Mapping[str, Json]:
    """Explain the first out-of-memory message of a text. Raises UnreadableArtefact without one."""
    from firstfault_tools.memory.oom_report import explain_oom

    return explain_oom(
        text,
        configuration=configuration,
        configuration_name=configuration_name,
        fields=fields or {},
        capacity_gib=capacity_gib,
        files=files or {},
    )


CALCULATOR = Calculator(
    name="memory_oom",
    summary="Closes the books of a CUDA out-of-memory message, says which bucket broke the budget, "
    "names the tensor that was asked for and ranks the changes for that run",
    parameters=PARAMETERS,
    run=run_oom,
)
