"""Which readers and calculators of the tool registry can the model call? All that fit this incident.

A module added to the registry appears here without an edit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from firstfault.agent.context import TurnContext
from firstfault.agent.tools.lines import Answer
from firstfault.agent.untrusted import make_plain
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.registry import Artefact, Calculator, calculators, readers

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool

SMALL_CONTEXT = 16_000
MAX_FINDINGS = 20


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
    if context.endpoint.limits.context_tokens >= SMALL_CONTEXT:
        out += [_make_calculator(context, c) for c in calculators()]
    return out


def read_artefacts(context: TurnContext, reader: str) -> Answer:
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


def calculate(
    context: TurnContext, calculator: Calculator, parameters: Mapping[str, Any]
) -> Answer:
    """Result of one calculator."""
    result = calculator.run(**parameters)
    item = context.book.add_result(calculator.name, _write(result)[:4_000])
    return context.result(f"{item.id} {calculator.name} | {context.veil.hide(item.text)}", [item])


def _make_calculator(context: TurnContext, calculator: Calculator) -> StructuredTool:
    from langchain_core.tools import StructuredTool

    return StructuredTool.from_function(
        lambda **parameters: calculate(context, calculator, parameters),
        name=f"calculate_{calculator.name}",
        description=calculator.summary,
        args_schema=dict(calculator.parameters),
        response_format="content_and_artifact",
    )


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
