"""Which DCGM diagnostic test failed on which GPU (`dcgmi diag`, JSON or the table)?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.hardware.excerpt import (
    LINE_CHARS,
    TEXT_BYTES,
    NumberedLine,
    keep_near,
    number_lines,
    quote_line,
)
from firstfault_tools.hardware.host_name import attach_host
from firstfault_tools.hardware.host_sections import attach_sections
from firstfault_tools.registry import Artefact, Reader, Reading

GATE = (
    "DCGM Diagnostic",
    "DCGM GPU Diagnostic",
    "Successfully ran diagnostic for group",
    "| Diagnostic  ",
)
MARKERS = GATE
# DCGM's own severity for a setting of the node, as against a broken part (dcgm_errors.h).
SEVERITY_CONFIG = 5
MAX_DEPTH = 12
MAX_RESULTS = 20_000

_ROW = expression(r"^\|\s*(?P<name>[^|]{1,60}?)\s*\|\s*(?P<value>[^|]{0,300}?)\s*\|\s*$")
_STATUS = expression(
    r"^(?P<status>Pass|Fail|Skip|Warn)\b(?:\s*[-:]\s*(?:All|(?P<gpus>GPUs?:?\s*(?:GPU|[\d, ]){1,120})))?"
)
"""`Fail - GPU: 3`, and of newer versions, one row for each result below the test, `Fail: GPU3 GPU5`."""

_GPU_ROW = expression(r"^(?P<status>Pass|Fail|Skip|Warn)")
_MESSAGE = expression(r"^(?:Warning|Error|Info)?(?::? ?GPU ?(?P<gpu>\d{1,3}))?$")
_ERROR_GPU = expression(r"\bGPU\s?(?P<gpu>\d{1,3})\b")
_BAD = frozenset({"fail", "warn"})
# A failed test of these finds a wrong set-up, not a broken part.
_SETUP = ("denylist", "nvml library", "cuda main library", "permissions", "environment", "blacklist",
          "cuda toolkit", "graphics processes", "software", "persistence")  # fmt: skip


@dataclass(frozen=True, slots=True)
class DiagResult:
    """One test on one GPU (None: the whole node)."""

    test: str
    status: str
    gpu: int | None
    message: str
    place: NumberedLine
    setting: bool = False
    """DCGM itself calls it a setting of the node."""


def read_table(lines: Sequence[NumberedLine]) -> list[DiagResult]:
    """Results of the text table; a row without a name goes on with the message of the test above."""
    found: list[DiagResult] = []
    for number, line in lines:
        row = _ROW.match(line)
        if row is None:
            continue
        name, value = row["name"].strip("- "), row["value"]
        status = _STATUS.match(value)
        if status and not name and found and status["gpus"]:
            name = found[-1].test
            if found[-1].gpu is None and not found[-1].message:
                found.pop()  # the row of the whole test, which these rows tell GPU by GPU
        if status and name and name.lower() not in ("result", "overall health"):
            gpus: list[int | None] = [int(n) for n in re.findall(r"\d{1,3}", status["gpus"] or "")]
            # Newer tables put `GPU3` into the name's column below the test.
            inner = re.match(r"^GPU(\d{1,3})$", name)
            if inner and found:
                gpus, name = [int(inner[1])], found[-1].test
            for gpu in gpus or [None]:
                found.append(DiagResult(name, status["status"].lower(), gpu, "", (number, line)))
        elif found and (told_gpu := _MESSAGE.match(name)) is not None:
            at = _index_of(found, told_gpu["gpu"])
            found[at] = _add_message(found[at], value)
    return found


def _add_message(result: DiagResult, words: str) -> DiagResult:
    """The result with further words of its message, and the GPU that they name where none was named."""
    message = f"{result.message} {words}".strip()[:600]
    told = _ERROR_GPU.search(message) if result.gpu is None else None
    gpu = int(told["gpu"]) if told is not None else result.gpu
    return DiagResult(result.test, result.status, gpu, message, result.place)


def _index_of(found: Sequence[DiagResult], gpu: str | None) -> int:
    """The result that a message is about: the last one, of that GPU where it names one."""
    test = found[-1].test
    named = [
        i for i, r in enumerate(found) if r.test == test and gpu is not None and r.gpu == int(gpu)
    ]
    return named[-1] if named else len(found) - 1


def _walk(node: object, depth: int = 0) -> Iterator[Mapping[str, object]]:
    if depth > MAX_DEPTH:
        return
    if isinstance(node, dict):
        yield node
        for child in node.values():
            yield from _walk(child, depth + 1)
    elif isinstance(node, list):
        for child in node[:MAX_RESULTS]:
            yield from _walk(child, depth + 1)


def _read_messages(result: Mapping[str, object]) -> str:
    parts: list[str] = []
    for key in ("warnings", "warning", "info", "error", "errors"):
        value = result.get(key)
        for one in value if isinstance(value, list) else [value]:
            text = one.get("warning") or one.get("message") if isinstance(one, dict) else one
            if isinstance(text, str) and text:
                parts.append(text)
    return " ".join(parts)[:600]


def read_json(text: str, file: str) -> list[DiagResult]:
    """Results of `dcgmi diag --json`, versions 2 to 4. Raises UnreadableArtefact."""
    start = text.find("{")
    try:
        whole, _ = json.JSONDecoder().raw_decode(text[max(start, 0) :])
    except (ValueError, RecursionError) as error:
        raise UnreadableArtefact(
            f"{file}: not readable as DCGM JSON; save it with `dcgmi diag -r 2 --json > FILE`"
        ) from error
    lines = text.split("\n")
    found: list[DiagResult] = []
    for node in _walk(whole):
        name, results = node.get("name"), node.get("results")
        if not isinstance(name, str) or not isinstance(results, list):
            continue
        for result in results[:MAX_RESULTS]:
            if not isinstance(result, dict) or not isinstance(result.get("status"), str):
                continue
            ids = result.get("gpu_id", result.get("gpu_ids", result.get("entity_id")))
            named = re.findall(r"\d{1,3}", str(ids)) if ids is not None else []
            gpus: list[int | None] = [int(part) for part in named]
            message = _read_messages(result)
            place = _find_place(lines, name, result["status"], message)
            status = result["status"].lower()
            for gpu in gpus or [None]:
                found.append(DiagResult(name, status, gpu, message, place, _is_setting(result)))
    return found[:MAX_RESULTS]


def _is_setting(result: Mapping[str, object]) -> bool:
    warnings = result.get("warnings")
    if not isinstance(warnings, list) or not warnings:
        return False
    return all(isinstance(w, dict) and w.get("error_severity") == SEVERITY_CONFIG for w in warnings)


def _find_place(lines: Sequence[str], name: str, status: str, message: str) -> NumberedLine:
    for wanted in (message[:60], f'"{name}"', status):
        if not wanted:
            continue
        for number, line in enumerate(lines[:200_000], start=1):
            if wanted in line:
                return number, line[:LINE_CHARS]
    return 0, ""


def check_results(results: Sequence[DiagResult], file: str) -> tuple[Finding, ...]:
    """One finding for each failed test and GPU, and a summary."""
    found = []
    for result in results:
        if result.status not in _BAD:
            continue
        where = f"GPU {result.gpu}" if result.gpu is not None else "this node"
        named = any(word in result.test.lower() for word in _SETUP)
        setup = result.setting or named
        failed = result.status == "fail" and not result.setting
        verb = "failed" if failed else "warned in"
        found.append(
            Finding(
                kind="hardware.dcgm",
                title=f"{where} {verb} the DCGM test {result.test}: {result.message or 'no message'}",
                level=Level.CAUSE if failed else Level.FAILURE,
                category=Category.ENVIRONMENT if setup else Category.HARDWARE,
                confidence=Confidence.CONFIRMED if failed else Confidence.LIKELY,
                evidence=(quote_line(file, *result.place),),
                gpu=f"GPU {result.gpu}" if result.gpu is not None else None,
                facts={
                    "test": result.test,
                    "status": result.status,
                    "gpu_index": result.gpu,
                    "message": result.message,
                },
            )
        )
    if results:
        bad = len(found)
        tests = len({result.test for result in results})
        words = f"{bad} result(s) not passed" if bad else "none failed"
        found.append(
            Finding(
                kind="hardware.dcgm_summary",
                title=f"DCGM diagnostic: {tests} tests, {words}",
                level=Level.CONTEXT,
                confidence=Confidence.CONFIRMED,
                evidence=(quote_line(file, *results[0].place),),
                facts={"tests": tests, "not_passed": bad},
            )
        )
    return tuple(found)


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Findings of a DCGM table pasted into any text."""
    near = keep_near(lines, MARKERS, before=2, after=200)
    if not near:
        return ()
    return tuple(attach_sections(check_results(read_table(near), file), lines))


def recognise_dcgm(_name: str, head: bytes) -> bool:
    """`dcgmi diag` as JSON or as a table."""
    return any(marker.encode() in head[:8192] for marker in MARKERS)


def read_dcgm(artefacts: tuple[Artefact, ...]) -> Reading:
    """Findings of every saved diagnostic."""
    found: list[Finding] = []
    for artefact in artefacts:
        text = artefact.data(TEXT_BYTES).decode("utf-8", errors="replace")
        if '"DCGM ' in text[:65536] or '"test_categories"' in text[:65536]:
            found.extend(check_results(read_json(text, artefact.name), artefact.name))
        else:
            lines = number_lines(text)
            results = check_results(read_table(lines), artefact.name)
            found.extend(attach_host(attach_sections(results, lines), artefact.name))
    return Reading(tuple(found))


SIGNS = (
    "DCGM Diagnostic", "DCGM GPU Diagnostic", "Successfully ran diagnostic for group", "| Diagnostic  ",
)  # fmt: skip

READER = Reader(
    name="dcgm",
    summary="dcgmi diag, JSON or table: which test failed on which GPU",
    recognise=recognise_dcgm,
    read=read_dcgm,
    # saved output often goes on with a log or another command
    owns=False,
)
