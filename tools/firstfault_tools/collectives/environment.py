"""Do the environment variables of this job do what their owner hopes?

Finds settings in launch scripts, manifests, `env` output and NCCL's own log lines, and holds each
against the names that NCCL and PyTorch really read: invented, dead, renamed, and values that hide a
fault instead of curing it. The names are data (environment_variables.json, with their sources).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.registry import Artefact, Reader, Reading

MAX_LINES = 200_000
_NAME = r"((?:NCCL|TORCH|PYTORCH|GLOO|CUDA|FI|TP|DEEPSPEED)_[A-Z0-9_]{2,60})"
_SETTINGS = (
    expression(
        rf"(?:^|[\s;'\"(])(?:export\s+|-x\s+|--env[= ]|-e\s+|setenv\s+)?{_NAME}=(\"[^\"]*\"|'[^']*'|\S*)"
    ),
    expression(rf"environ\[['\"]{_NAME}['\"]\]\s*=\s*['\"]?([^'\"\s]+)"),
    expression(rf"environ\.setdefault\(['\"]{_NAME}['\"],\s*['\"]?([^'\"\s)]+)"),
    expression(rf"^\s*['\"]?{_NAME}['\"]?\s*:\s*['\"]?([^'\"\s,}}]+)"),
    expression(rf"{_NAME} set by environment to (\S+)"),
)
_MANIFEST_NAME = expression(rf"^\s*-?\s*name:\s*['\"]?{_NAME}['\"]?\s*$")
_MANIFEST_VALUE = expression(r"^\s*value:\s*['\"]?([^'\"\s]*)")
_COMMENT = expression(r"^\s*#(?!SBATCH)")
_SCRIPT = expression(
    r"\.(?:sh|bash|sbatch|slurm|env|ya?ml|conf|json)$|(?:^|/)(?:env|environment)[\w.-]*$"
)


class Status(StrEnum):
    """Whether a variable is read by anybody, under this name."""

    LIVE = "live"
    RENAMED = "renamed"
    DEAD = "dead"
    MADE_UP = "made_up"


@dataclass(frozen=True, slots=True)
class Variable:
    """What is known of one name. `harmful_values`: None any value; empty no value."""

    name: str
    status: Status
    reader: str
    since: str
    until: str
    instead: str
    note: str
    must_match: bool
    harm: str
    harmful_values: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Setting:
    """One assignment, with the line it stands on (1-based)."""

    name: str
    value: str
    file: str
    line: int
    text: str
    host: str | None = None


@cache
def known_variables() -> Mapping[str, Variable]:
    """Every known name."""
    raw = json.loads(Path(__file__).with_name("environment_variables.json").read_text("utf-8"))
    return {name: _variable(name, row) for name, row in raw["variables"].items()}


@cache
def _closed_prefixes() -> tuple[str, ...]:
    raw = json.loads(Path(__file__).with_name("environment_variables.json").read_text("utf-8"))
    return tuple(raw["closed_prefixes"])


def _variable(name: str, row: Mapping[str, Any]) -> Variable:
    harmful = row.get("harmful")
    values: frozenset[str] | None = frozenset()
    if harmful is not None:
        values = frozenset(harmful["values"]) if "values" in harmful else None
    return Variable(
        name=name,
        status=Status(row.get("status", "live")),
        reader=row.get("reader", "NCCL"),
        since=row.get("since", ""),
        until=row.get("until", ""),
        instead=row.get("instead", ""),
        note=row.get("note", ""),
        must_match=row.get("must_match", False),
        harm=harmful["why"] if harmful else "",
        harmful_values=values,
    )


def find_settings(lines: Iterable[tuple[int, str]], file: str) -> tuple[Setting, ...]:
    """Assignments of NCCL, torch, CUDA, Gloo and libfabric variables in numbered lines."""
    found: list[Setting] = []
    pending: tuple[int, str] | None = None
    for count, (number, raw) in enumerate(lines):
        if count >= MAX_LINES:
            break
        line = raw[:4000]
        if pending is not None:
            value = _MANIFEST_VALUE.match(line)
            if value and number - pending[0] <= 2:
                found.append(Setting(pending[1], value[1], file, number, line.strip()[:400]))
            pending = None
        if "_" not in line or _COMMENT.match(line):
            continue
        manifest = _MANIFEST_NAME.match(line)
        if manifest:
            pending = (number, manifest[1])
            continue
        seen: set[str] = set()
        for pattern in _SETTINGS:
            for match in pattern.finditer(line):
                if match[1] not in seen:
                    seen.add(match[1])
                    value_text = match[2].strip("'\"").rstrip(".;,")
                    found.append(Setting(match[1], value_text, file, number, line.strip()[:400]))
    return tuple(found)


def lint_environment(settings: Iterable[Setting]) -> tuple[Finding, ...]:
    """One finding for each name that is invented, dead or renamed, or has a harmful value.

    Context only: a setting explains a failure no more than any other habit; the log does.
    """
    findings: list[Finding] = []
    told: set[tuple[str, str]] = set()
    for setting in settings:
        if (setting.name, setting.value) in told:
            continue
        told.add((setting.name, setting.value))
        verdict = _judge(setting)
        if verdict is not None:
            findings.append(verdict)
    return tuple(findings)


def _judge(setting: Setting) -> Finding | None:
    variable = known_variables().get(setting.name)
    if variable is None:
        if not setting.name.startswith(_closed_prefixes()):
            return None
        close = difflib.get_close_matches(setting.name, known_variables(), n=1, cutoff=0.88)
        hint = f"; did you mean {close[0]}?" if close else ""
        title = f"{setting.name} is read by no release of NCCL or PyTorch known here (NCCL 2.3-2.30){hint}"
        return _finding("unknown_variable", title, setting, Confidence.POSSIBLE)
    instead = f"; use {variable.instead}" if variable.instead else ""
    note = f" ({variable.note})" if variable.note else ""
    if variable.status is Status.MADE_UP:
        title = f"{setting.name} does not exist: neither NCCL nor PyTorch reads it{instead}{note}"
        return _finding("made_up_variable", title, setting, Confidence.CONFIRMED)
    if variable.status is Status.DEAD:
        until = f" after {variable.until}" if variable.until else ""
        title = f"{setting.name} has no effect{until}{instead}{note}"
        return _finding("dead_variable", title, setting, Confidence.CONFIRMED)
    harmful = variable.harmful_values
    if variable.harm and (harmful is None or setting.value in harmful):
        title = f"{setting.name}={setting.value} {variable.harm}"
        return _finding("harmful_value", title, setting, Confidence.CONFIRMED)
    if variable.status is Status.RENAMED:
        title = f"{setting.name} is the old name of {variable.instead}{note}"
        return _finding("renamed_variable", title, setting, Confidence.CONFIRMED)
    return None


def _finding(kind: str, title: str, setting: Setting, confidence: Confidence) -> Finding:
    return Finding(
        kind=f"environment.{kind}",
        title=title,
        level=Level.CONTEXT,
        category=Category.ENVIRONMENT,
        confidence=confidence,
        evidence=(Evidence(setting.file, setting.line, setting.text, host=setting.host),),
        page="collective-timeout" if "TIMEOUT" in setting.name else "environment-precheck",
        facts={"variable": setting.name, "value": setting.value},
    )


def recognise(name: str, head: bytes) -> bool:
    """Whether an artefact is a script, manifest or `env` output that sets such a variable."""
    if not _SCRIPT.search(name.lower()):
        return False
    return any(p in head for p in (b"NCCL_", b"TORCH_", b"GLOO_", b"CUDA_", b"FI_", b"PYTORCH_"))


def read(artefacts: tuple[Artefact, ...]) -> Reading:
    """Lint of every script, manifest and `env` output of the incident."""
    settings: list[Setting] = []
    for artefact in artefacts:
        text = artefact.data(4 * 1024 * 1024).decode("utf-8", errors="replace")
        settings.extend(find_settings(enumerate(text.splitlines(), 1), artefact.name))
    findings = lint_environment(settings)
    return Reading(findings, {"settings": {s.name: s.value for s in settings[:500]}})


READER = Reader(
    name="environment",
    summary="NCCL and torch environment variables: invented, dead, renamed and harmful ones",
    recognise=recognise,
    read=read,
    owns=False,
)
