"""Which models are known by name?"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.memory.configuration import Draft
from firstfault_tools.memory.configuration_huggingface import read_huggingface


@cache
def list_models() -> dict[str, dict[str, Any]]:
    """Configuration and parameter count of each known model."""
    data = json.loads(Path(__file__).with_name("models.json").read_text(encoding="utf-8"))
    models: dict[str, dict[str, Any]] = data["models"]
    return models


def find_model(name: str) -> Draft:
    """Draft of a model known by name. Raises InvalidParameter listing the names."""
    key = name.strip().lower().rsplit("/", 1)[-1]
    models = list_models()
    if key not in models:
        raise InvalidParameter("model", f"unknown {name[:60]!r}; one of {', '.join(models)}")
    return read_huggingface(models[key]["config"], key)
