"""What does a Hugging Face `trainer_state.json` say? Its log history as step rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding, Json
from firstfault_tools.metrics.sources.table import Row, judge_rows
from firstfault_tools.registry import Artefact, Reader, Reading
from firstfault_tools.roles import Role

LIMIT = 256 * 1024 * 1024


def _recognise(name: str, head: bytes) -> bool:
    base = name.rsplit("/", 1)[-1]
    return base.endswith(".json") and (b'"log_history"' in head or base == "trainer_state.json")


def _numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    kept = {}
    for key, value in entry.items():
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                continue
        if isinstance(value, int | float) and not isinstance(value, bool):
            kept[key] = float(value)
    return kept


def history_rows(text: str, history: list[Any]) -> Iterator[Row]:
    """Rows of the log history with the line of their loss, or of their step where they have none."""
    lines = text.split("\n")
    start = next((n for n, line in enumerate(lines) if '"log_history"' in line), 0)
    marks = expression(r'"(step|loss|eval_loss|grad_norm)"\s*:')
    places: list[int] = []
    best, rank = start, 9
    order = {"loss": 0, "eval_loss": 1, "grad_norm": 2, "step": 3}
    for number in range(start, len(lines)):
        for found in marks.finditer(lines[number]):
            if order[found.group(1)] < rank:
                best, rank = number, order[found.group(1)]
        if "}" in lines[number] and rank < 9:
            # One line may hold the whole history; then all its rows share that line.
            places += [best] * max(1, lines[number].count("}"))
            best, rank = number, 9
    for index, entry in enumerate(history):
        if not isinstance(entry, dict) or "train_runtime" in entry:
            continue
        line = places[index] if index < len(places) else start
        values = _numbers(entry)
        step = values.get("step")
        yield Row(
            values={k: v for k, v in values.items() if k != "step"},
            line=line + 1,
            text=lines[line].strip()[:600],
            step=int(step) if step is not None and abs(step) < 1e15 else None,
        )


def _read(artefacts: tuple[Artefact, ...]) -> Reading:
    findings: list[Finding] = []
    files: list[Json] = []
    for artefact in artefacts:
        text = artefact.data(LIMIT).decode("utf-8", errors="replace")
        try:
            state = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UnreadableArtefact(
                f"{artefact.name}: not valid JSON ({error}); a half-written trainer_state.json "
                "belongs to an unfinished checkpoint, use the one before"
            ) from error
        history = state.get("log_history") if isinstance(state, dict) else None
        if not isinstance(history, list):
            raise UnreadableArtefact(f"{artefact.name}: holds no log_history list")
        total = state.get("max_steps")
        found, summary = judge_rows(
            history_rows(text, history),
            artefact.name,
            total if isinstance(total, int) and total > 0 else None,
        )
        findings += found
        files.append(summary)
    return Reading(tuple(findings), {"trainer_states": files})


SIGNS = ('"log_history"', "name:trainer_state.json")

READER = Reader(
    name="trainer_state",
    summary="Step metrics of a Hugging Face trainer_state.json",
    recognise=_recognise,
    read=_read,
    role=Role.RUN,
)
