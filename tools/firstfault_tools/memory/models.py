"""Which models are known by name?"""

from __future__ import annotations

import difflib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.expressions import expression
from firstfault_tools.memory.configuration import Draft
from firstfault_tools.memory.configuration_huggingface import read_huggingface


@cache
def list_models() -> dict[str, dict[str, Any]]:
    """Configuration and parameter count of each known model."""
    data = json.loads(Path(__file__).with_name("models.json").read_text(encoding="utf-8"))
    models: dict[str, dict[str, Any]] = data["models"]
    return models


@cache
def list_aliases() -> dict[str, str]:
    """Names of models that have the sizes of another."""
    data = json.loads(Path(__file__).with_name("models.json").read_text(encoding="utf-8"))
    aliases: dict[str, str] = data["aliases"]
    return aliases


def find_model(name: str) -> Draft:
    """Draft of a model known by name, with or without its owner and a suffix such as -instruct.

    Raises InvalidParameter, which says where an unknown model's config.json is.
    """
    models = list_models()
    key = _normalise(name)
    if key not in models:
        repository = name.strip()[:80] if "/" in name else "OWNER/NAME"
        near = difflib.get_close_matches(key, models, n=3, cutoff=0.7)
        hint = f" (near it: {', '.join(near)})" if near else ""
        raise InvalidParameter(
            "model",
            f"unknown {name[:60]!r}{hint}; give its config.json instead: it stands beside the weights, "
            f"https://huggingface.co/{repository}/resolve/main/config.json",
        )
    return _draft_model(key)


@cache
def _draft_model(key: str) -> Draft:
    model = list_models()[key]
    return read_huggingface(model["config"], key).merge(Draft(model.get("shape", {})))


@cache
def _name_pattern() -> tuple[re.Pattern[str], dict[str, str]]:
    """Every known name as people write it, with or without dashes and spaces, the longest first."""
    squeezed = {name.replace("-", ""): name for name in list_models()}
    squeezed |= {alias.replace("-", ""): name for alias, name in list_aliases().items()}
    forms = sorted({*list_models(), *list_aliases()}, key=len, reverse=True)
    loose = "|".join(
        r"[ _-]?".join(re.escape(part) for part in re.split(r"-|(?<=[a-z])(?=\d)", form))
        for form in forms
    )
    return re.compile(rf"(?<![a-z0-9.])(?:{loose})(?![a-z0-9]|\.\d)", re.IGNORECASE), squeezed


def find_named(text: str) -> str | None:
    """The known model that a sentence names, None where it names none."""
    pattern, squeezed = _name_pattern()
    found = pattern.search(text[:4000])
    return squeezed.get(re.sub(r"[ _-]", "", found[0].lower())) if found else None


_SUFFIX = expression(
    r"-(?:instruct|it|pt|base|chat|hf|thinking|reasoning|rl|deduped|preview|dequantized|unsloth|gguf|gptq|awq|"
    r"aqlm|bnb|(?:bf|fp|int|nf|nvfp|mxfp|w\d+a)\d+|[48]-?bit|\d-?bit-\w+|v\d+(?:\.\d+)*|\d{4})$"
)
"""What follows a model's own name: how it was tuned, stored or dated."""


def _normalise(name: str) -> str:
    """`meta-llama/Meta-Llama-3-8B-Instruct` as `llama-3-8b`; what is not known stays as it is written."""
    written = name.strip().lower().rsplit("/", 1)[-1].replace("_", "-")
    written = written.removeprefix("meta-").removeprefix("nvidia-").removeprefix("unsloth-")
    for key in (written, written.replace("llama-3-1", "llama-3.1").replace("llama3", "llama-3")):
        while True:
            if key in list_models():
                return key
            if key in list_aliases():
                return list_aliases()[key]
            shorter = _SUFFIX.sub("", key)
            if shorter == key:
                break
            key = shorter
    return written
