"""What does a run's history say, as the interface of a tracker returns it (JSON)?

Weights & Biases: rows of `run.scan_history()` or `run.history(pandas=False)`, as a list or a line each, with
`_step` and `_timestamp` (https://docs.wandb.ai/ref/python/public-api/run). MLflow: the answer of
`metrics/get-history`, `{"metrics": [{"key", "value", "timestamp", "step"}]}`, one or several in a list
(https://mlflow.org/docs/latest/rest-api.html#get-metric-history).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.findings import Finding, Json
from firstfault_tools.metrics.sources.table import MAX_ROWS, Row, judge_rows
from firstfault_tools.registry import Artefact, Reader, Reading
from firstfault_tools.roles import Role

LIMIT = 256 * 1024 * 1024


def recognise(name: str, head: bytes) -> bool:
    """Rows of W&B with their step and time, or points of MLflow with key, value and step."""
    if head.lstrip()[:1] not in (b"{", b"["):
        return False
    if b'"_step"' in head:
        return b'"_timestamp"' in head or b'"_runtime"' in head
    points = (
        b'"key"' in head and b'"value"' in head and b'"step"' in head and b'"timestamp"' in head
    )
    return points and b'"metrics"' in head


def _load(artefact: Artefact) -> list[Any]:
    """Objects of a JSON text, or of one object a line. A last line that is cut is left out."""
    text = artefact.data(LIMIT).decode("utf-8", errors="replace").strip()
    try:
        content = json.loads(text)
        return content if isinstance(content, list) else [content]
    except RecursionError as error:
        raise UnreadableArtefact(f"{artefact.name}: nested too deeply for a history") from error
    except ValueError:
        return _lines(text, artefact.name)


def _lines(text: str, name: str) -> list[Any]:
    lines = [line for line in text.split("\n") if line.strip()]
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            if number == len(lines) and found:
                break
            raise UnreadableArtefact(
                f"{name}: line {number} is no JSON; save the history again, a row a line"
            ) from error
    return found


def history_rows(objects: Iterable[Any]) -> Iterator[Row]:
    """One row a step, in order of steps for points that come by metric."""
    points: dict[int, dict[str, float]] = {}
    times: dict[int, float] = {}
    for item in objects:
        if not isinstance(item, dict):
            continue
        if isinstance(item.get("metrics"), list):
            for point in item["metrics"][:MAX_ROWS]:
                _take_point(point, points, times)
        elif "_step" in item:
            yield _row(item)
    for step in sorted(points):
        shown = json.dumps({"step": step, **points[step]})
        yield Row(points[step], 0, shown[:600], step=step, time=times.get(step))


def _take_point(
    point: object, points: dict[int, dict[str, float]], times: dict[int, float]
) -> None:
    if not isinstance(point, dict):
        return
    value, step = _number(point.get("value")), _number(point.get("step"))
    if value is None or step is None or not isinstance(point.get("key"), str):
        return
    points.setdefault(int(step), {})[point["key"]] = value
    time = _number(point.get("timestamp"))
    if time is not None:
        times.setdefault(int(step), time / 1000)


def _row(item: dict[str, Any]) -> Row:
    values = {
        key: value
        for key, raw in item.items()
        if not key.startswith("_") and (value := _number(raw)) is not None
    }
    step, time = _number(item["_step"]), _number(item.get("_timestamp"))
    shown = json.dumps({k: v for k, v in item.items() if k == "_step" or k in values})
    return Row(values, 0, shown[:600], step=None if step is None else int(step), time=time)


def _number(raw: object) -> float | None:
    """A number, also as MLflow and W&B write those that JSON does not know (`"NaN"`, `"Infinity"`)."""
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        return None
    try:
        value = float(raw)
    except (ValueError, OverflowError):
        return None
    return (
        value
        if abs(value) < 1e300 or value != value or value in (float("inf"), -float("inf"))
        else None
    )


def _read(artefacts: tuple[Artefact, ...]) -> Reading:
    findings: list[Finding] = []
    files: list[Json] = []
    for artefact in artefacts:
        found, summary = judge_rows(history_rows(_load(artefact)), artefact.name)
        findings += found
        files.append(summary)
    return Reading(tuple(findings), {"tracker_histories": files})


SIGNS = ('"_step"', '"metrics"')

READER = Reader(
    name="tracker_history",
    summary="History of a run from the interface of Weights & Biases or MLflow (JSON)",
    recognise=recognise,
    read=_read,
    role=Role.RUN,
)
