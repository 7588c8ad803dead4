"""Which tools are offered, with which parameters? Those of tools.json, and every calculator there is.

A tool of tools.json is the method of the desk with its name; a calculator is found by its presence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from firstfault.errors import UsageError
from firstfault.mcp_server.desk import Desk
from firstfault_tools.dataclass import dataclass
from firstfault_tools.registry import Calculator, calculators


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool. schema: JSON schema of its arguments."""

    name: str
    summary: str
    schema: Mapping[str, Any]
    run: Callable[..., Any]


def offer_tools(desk: Desk) -> dict[str, Offer]:
    """Every tool by name."""
    raw = json.loads((Path(__file__).parent / "tools.json").read_text(encoding="utf-8"))
    offers = [Offer(n, t["summary"], t["schema"], getattr(desk, n)) for n, t in raw.items()]
    offers += [_calculator(c) for c in calculators()]
    return {o.name: o for o in offers}


def check_arguments(offer: Offer, arguments: Mapping[str, Any]) -> None:
    """Raise UsageError for arguments that the schema does not allow; says which and what is allowed."""
    import jsonschema

    validator = jsonschema.Draft202012Validator(dict(offer.schema))
    problems = sorted(validator.iter_errors(dict(arguments)), key=lambda e: list(map(str, e.path)))
    if problems:
        first = problems[0]
        place = ".".join(map(str, first.path)) or "arguments"
        raise UsageError(f"{offer.name}: {place}: {first.message[:300]}")


def _calculator(calculator: Calculator) -> Offer:
    schema = {"type": "object", **calculator.parameters}
    return Offer(f"calculate_{calculator.name}", calculator.summary, schema, calculator.run)
