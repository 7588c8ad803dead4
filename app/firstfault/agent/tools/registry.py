"""Which readers and calculators of the tool registry can the model call? Those that fit this incident.

A module added to the registry appears here without an edit. All calculators are one tool: their schemas
would be most of every request, so the one that is named tells what it takes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from firstfault.agent.context import ToolAnswer, TurnContext
from firstfault.agent.untrusted import make_plain
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category
from firstfault_tools.registry import Artefact, calculators, readers

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool

MAX_FINDINGS = 20
_OF_FIGURES = (Category.OOM, Category.PERFORMANCE, Category.CHECKPOINT)
_FIGURES = expression(
    r"(?i)\b(?:memory|fit|gib|gb|oom|bubble|pipeline|micro-?batch\w*|interval|checkpoint\w*|mfu|how (?:much|many|large|big|long)|parallel\w*)\b"
)


def make_registry_tools(context: TurnContext) -> list[StructuredTool]:
    """One tool for the readers that know an artefact, and one for each calculator."""
    from langchain_core.tools import StructuredTool
    from pydantic import BaseModel, Field

    out: list[StructuredTool] = []
    applicable = _applicable(context)
    if applicable:
        names = ", ".join(applicable)

        class ReaderName(BaseModel):
            """Arguments of read_artefacts."""

            reader: str = Field(max_length=60, description=f"one of {names}")

        out.append(
            StructuredTool.from_function(
                lambda reader: read_artefacts(context, reader), name="read_artefacts",
                args_schema=ReaderName, response_format="content_and_artifact",
                description="Facts that a reader finds in the artefacts it knows. "
                + "; ".join(f"{n}: {s}" for n, s in applicable.items()),
            )
        )  # fmt: skip
    if needs_figures(context):
        names = ", ".join(c.name for c in calculators())

        class Calculation(BaseModel):
            """Arguments of calculate."""

            name: str = Field(max_length=60)
            inputs: dict[str, Any] = Field(default_factory=dict)

        out.append(
            StructuredTool.from_function(
                lambda name, inputs=None: calculate(context, name, inputs or {}), name="calculate",
                args_schema=Calculation, response_format="content_and_artifact",
                description=f"Exact calculators: {names}. Without inputs: what one takes.",
            )
        )  # fmt: skip
    return out


def needs_figures(context: TurnContext) -> bool:
    """The incident is one of sizes and rates, or the person asks for a figure."""
    diagnosis = context.question.diagnosis
    category = diagnosis.category if diagnosis is not None else None
    return category in _OF_FIGURES or _FIGURES.search(context.question.text) is not None


def read_artefacts(context: TurnContext, reader: str) -> ToolAnswer:
    """Findings of one reader over all artefacts of its kind."""
    one = next((r for r in readers() if r.name == reader), None)
    artefacts = _known_to(context, reader)
    if one is None or not artefacts:
        raise InvalidParameter("reader", f"one of {', '.join(_applicable(context)) or 'none'}")
    reading = one.read(tuple(artefacts))
    lines, items = [], []
    for finding in reading.findings[:MAX_FINDINGS]:
        fact = context.book.add_result(reader, finding.title)
        items.append(fact)
        lines.append(
            f"{fact.id} {finding.level.value} | {context.veil.hide(make_plain(finding.title))}"
        )
        for place in finding.evidence[:2]:
            if place.line:
                item = context.book.add_line(place.file, place.line, place.text)
                items.append(item)
                lines.append("  " + context.show(item))
    if len(reading.findings) > MAX_FINDINGS:
        lines.append(f"({len(reading.findings) - MAX_FINDINGS} more findings)")
    data = context.veil.hide(make_plain(_write(reading.data), 2_000))
    return context.result("\n".join([*lines, f"summary: {data}"]), items)


def calculate(context: TurnContext, name: str, inputs: Mapping[str, Any]) -> ToolAnswer:
    """Result of one calculator; without inputs, what it takes."""
    one = next((c for c in calculators() if c.name == name), None)
    if one is None:
        raise InvalidParameter("name", f"one of {', '.join(c.name for c in calculators())}")
    if not inputs:
        properties = dict(one.parameters).get("properties", {})
        needed = dict(one.parameters).get("required", [])
        text = f"{name} takes {_write(properties)}; needed: {', '.join(needed) or 'none'}"
        return context.result(text, [])
    item = context.book.add_result(name, _write(one.run(**inputs))[:4_000])
    return context.result(f"{item.id} {name} | {context.veil.hide(item.text)}", [item])


def _applicable(context: TurnContext) -> dict[str, str]:
    return {r.name: r.summary for r in readers() if _known_to(context, r.name)}


def _known_to(context: TurnContext, reader: str) -> list[Artefact]:
    out = []
    for one in readers():
        if one.name != reader:
            continue
        for name, path in context.question.artefacts.items():
            artefact = Artefact(name, path)
            if one.recognise(name, artefact.head()):
                out.append(artefact)
    return out


def _write(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
