"""Do the environment variables of this job do what their owner hopes?

Finds settings in launch scripts, manifests, `env` output and NCCL's own log lines, and holds each
against the names that NCCL and PyTorch really read: invented, dead, renamed, and values that hide a
fault instead of curing it. The names are data (environment_variables.json, with their sources).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.registry import Artefact, Reader, Reading
from firstfault_tools.roles import Role

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
    return {name: _variable(name, row) for name, row in _table()["variables"].items()}


def variable_names() -> frozenset[str]:
    """The names alone: whoever quotes advice asks for no more."""
    return frozenset(_table()["variables"])


@cache
def _table() -> Mapping[str, Any]:
    raw: Mapping[str, Any] = json.loads(
        Path(__file__).with_name("environment_variables.json").read_text("utf-8")
    )
    return raw


@cache
def _closed_prefixes() -> tuple[str, ...]:
    return tuple(_table()["closed_prefixes"])


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
        import difflib

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


# --- settings that are known to hang collectives ---------------------------------------------------

_HANGS: tuple[tuple[str, re.Pattern[str], str], ...] = (
    (
        "CUDA_LAUNCH_BLOCKING=1",
        expression(
            r"(?<!passing )\bCUDA_LAUNCH_BLOCKING['\"]?\]?\s*[=:]\s*['\"]?1\b|"
            r"--full[_-]determinism(?:[= ]+[Tt]rue\b|\s*$|(?=\s+-))|['\"]?full_determinism['\"]?\s*[:=]\s*[Tt]rue|\benable_full_determinism\(\d"
        ),
        "each kernel launch then blocks the host thread until the kernel is done: a NCCL kernel that needs the network proxy "
        "or a second GPU of the same process waits for work that is only handed over after the launch, so the first "
        "collective between nodes deadlocks (on one node no proxy is needed and it runs)",
    ),
    (
        "NCCL_P2P_USE_CUDA_MEMCPY=1",
        expression(r"\bNCCL_P2P_USE_CUDA_MEMCPY\s*(?:=|set by environment to)\s*1\b"),
        "copies of peer-to-peer channels then go through the copy engine and wait behind work of the same device, so "
        "collectives hang",
    ),
)  # fmt: skip
"""(setting, what shows it, why it hangs). NCCL issues 750, 774 and 1509."""

_HANG_WORDS = ("LAUNCH_BLOCKING", "full_determinism", "full-determinism", "USE_CUDA_MEMCPY")
_IN_COLLECTIVE = expression(
    r"\b(?:broadcast|all_reduce|all_gather\w*|reduce_scatter\w*|barrier|_verify_params_across_processes|_sync_module_states)\b"
    r".{0,6}(?:torch/|\().{0,120}distributed"
)
_STOPPED = expression(
    r"(?i)\bno (?:more|further) output\b|\bhangs? here\b|\bnothing (?:more|after)\b|\bstuck here\b"
)


def find_in_incident(incident: Any, findings: Sequence[Finding]) -> list[Finding]:
    """A setting that is known to hang collectives, in a job of several processes that hangs unexplained.

    incident: a `causality.incident.LogIncident`.
    """
    shown = list(islice(incident.lines_with(_HANG_WORDS), 64))
    if not shown or not (incident.has_peers or len(incident.hosts_seen) > 1):
        return []
    deep = (Level.CAUSE, Level.FAILURE)
    if any(f.level in deep and not f.survived for f in findings):
        return []
    hang = next(_find_hang(incident), None)
    if hang is None or incident.trained:
        return []
    for name, pattern, why in _HANGS:
        for digest, number, text in shown:
            match = pattern.search(text[:4000])
            if match is None:
                continue
            by = "" if name.split("=")[0] in match[0] else f" by {match[0].strip()}"
            return [
                Finding(
                    kind="environment.hangs_collectives",
                    title=f"{name} is set{by}: {why}",
                    level=Level.CAUSE,
                    category=Category.ENVIRONMENT,
                    evidence=(
                        Evidence(digest.file, number, text),
                        Evidence(hang[0], hang[1], hang[2]),
                    ),
                    facts={"survived": False, "variable": name},
                )
            ]
    return []


def _find_hang(incident: Any) -> Iterator[tuple[str, int, str]]:
    """Lines that show that processes stand in a collective."""
    for work in incident.work:
        if work.timed_out:
            yield work.line.file, work.line.number, work.line.text
    words = ("distributed", " output", "hang", "nothing", "stuck")
    for digest, number, text in islice(incident.lines_with(words), MAX_LINES):
        if _IN_COLLECTIVE.search(text[:400]) or _STOPPED.search(text[:400]):
            yield digest.file, number, text


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


SIGNS = (
    "name:.sh",
    "name:.bash",
    "name:.sbatch",
    "name:.slurm",
    "name:.env",
    "name:.yaml",
    "name:.yml",
    "name:.conf",
    "name:.json",
    "name:env",
)

READER = Reader(
    name="environment",
    summary="NCCL and torch environment variables: invented, dead, renamed and harmful ones",
    recognise=recognise,
    read=read,
    owns=False,
    role=Role.CONFIGURATION,
)
