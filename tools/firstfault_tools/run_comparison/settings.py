"""Which settings, variables, versions and hosts does an artefact of a run state?

Configuration files are flattened to dotted names; logs, launch scripts, `env`, `pip freeze` and
`collect_env` output are read line by line. One statement is one `Setting`, with the line it stands on;
the first statement of a name counts. Nothing is executed, YAML is loaded safely.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.secrets import redact, redact_field

MOST_LINES = 200_000
"""Lines of one artefact that are looked at: settings are printed at a run's start."""

LONGEST_LINE, LONGEST_VALUE = 4_000, 300
MOST_STRUCTURED = 4 * 1024 * 1024
MOST_SETTINGS = 20_000


class Kind(StrEnum):
    """What sort of thing a setting is."""

    OPTION = "option"
    VARIABLE = "environment variable"
    VERSION = "version"
    USED = "in use"
    DATA = "data"


@dataclass(frozen=True, slots=True)
class Setting:
    """One stated value. name: as compared; shown: as written. line: 1-based, 0 inside structured files."""

    kind: Kind
    name: str
    shown: str
    value: str
    file: str
    line: int


# Megatron-LM's and DeepSpeed's dump of arguments: `  micro_batch_size .......... 2`.
_DOTS = expression(r"(?:^|[\s\]:])(?P<name>[A-Za-z_]\w{1,60}) \.{3,}\s?(?P<value>\S.{0,300})$")
_EXPORT = expression(
    r"^\s*(?:export\s+|declare -x\s+|-x\s+|ENV\s+)?(?P<name>[A-Z][A-Z0-9_]{2,60})=(?P<value>\"[^\"]{0,300}\"|'[^']{0,300}'|[^\s;]{0,300})\s*$"
)
_BY_NCCL = expression(r"(?P<name>[A-Z][A-Z0-9_]{3,60}) set by environment to (?P<value>\S{1,200})")
_COMMAND = expression(
    r"\b(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate launch|deepspeed|python3?|srun|composer)\s(?P<rest>.{1,3900})$"
)
_FLAG = expression(
    r"(?:^|\s)--?(?P<name>[A-Za-z][\w.-]{1,80})(?:=|\s+)?(?P<value>(?<=[=\s])(?!-{1,2}[A-Za-z])(?:\"[^\"]{0,300}\"|'[^']{0,300}'|\S{1,300}))?"
)
_OVERRIDE = expression(r"(?:^|\s)\+{0,2}(?P<name>[a-z][\w]*(?:\.[\w]+)+)=(?P<value>\S{1,300})")
_PACKAGE = expression(
    r"^(?:\[(?:pip3?|conda)\]\s+)?(?P<name>[A-Za-z][\w.-]{1,60})(?:==|\s{1,40})(?P<value>\d[\w.+!-]{0,60})(?:\s+\S{1,60}){0,3}\s*$"
)
# A line of versions: `transformers 4.55.2 | torch 2.8.0+cu128 | flash-attn not installed`.
_LISTED = expression(
    r"(?:^|[|,;]\s{0,3}|\s{2})(?P<name>[A-Za-z][\w-]{1,40})[ =:]{1,2}v?(?P<value>\d+\.\d[\w.+-]{0,40}|not installed|not found|missing|n/a)(?=\s{0,3}(?:[|,;]|$))"
)
_STATED = expression(
    r"(?:^|[\s,({>])(?P<name>[a-z]+(?:_[a-z0-9]+){1,8})\s?[=:]\s?(?P<value>'[^'\n]{1,80}'|\"[^\"\n]{1,80}\")"
)
"""A value in quotes within a sentence: `-> attn_implementation='eager'`."""

LEAST_LISTED = 2
"""Packages on a line, from which it is a list of versions."""

_USED_NETWORK = expression(r"Using network (?P<value>IB|Socket|AWS Libfabric|RDMA|\w{2,30})\b")
_TOLD_VERSIONS = (
    (expression(r"NCCL version (?P<value>\d[\w.+]{2,40})"), "nccl"),
    (expression(r"(?i)driver version:?\s+(?P<value>\d{3}[\d.]{0,12})"), "nvidia driver"),
    (expression(r"CUDA Version:\s+(?P<value>\d{1,2}\.\d{1,2})"), "cuda (driver)"),
    (expression(r"(?:PyTorch|torch) version:?\s+(?P<value>\d[\w.+]{2,40})"), "torch"),
    (expression(r"NET/OFI Initializing aws-ofi-nccl (?P<value>\d[\w.+-]{2,30})"), "aws-ofi-nccl"),
    (expression(r"DeepSpeed info: version=(?P<value>\d[\w.+]{2,40})"), "deepspeed"),
    (expression(r"(?i)\bgit (?:commit|sha|hash|rev\w*)\W{1,4}(?P<value>[0-9a-f]{7,40})\b"), "git commit"),
    (expression(r"(?i)\b(?:container|docker )?image\W{1,4}(?P<value>[\w./-]{3,120}:[\w.-]{1,60})"), "image"),
    (expression(r"Linux version (?P<value>\d\.\d[\w.+-]{2,50})"), "kernel"),
)  # fmt: skip
_PRINTED = expression(
    r"^\s{0,12}['\"]?(?P<name>[a-z_]\w{1,60})['\"]?\s?[=:]\s?(?P<value>'[^']{0,300}'|\"[^\"]{0,300}\"|[^,\s{\[(][^,]{0,200}?)\s{0,4},?\s*$"
)
_OPENS = expression(r"(?:TrainingArguments|Config|Arguments|Args|Settings)\w{0,30}\s?[({]\s*$")
_NAMESPACE = expression(
    r"\b(?:Namespace|\w{0,40}Config|\w{0,40}Args)\((?P<inside>[^\n]{10,3900})\)\s*$"
)
_PAIR = expression(
    r"(?P<name>[a-z_]\w{1,60})=(?P<value>'[^']{0,300}'|\"[^\"]{0,300}\"|\[[^\]]{0,300}\]|[^,()\s]{1,120})"
)
_DATA_NAME = expression(
    r"(?i)(?:^|[._])(?:data|dataset|datasets|data_path|train_data|blend|mixture|tokenizer|split)(?:$|[._])|data_path|dataset"
)
_PACKAGES_OF_RUN = expression(
    r"(?i)^(?:torch|nvidia|triton|transformers|accelerate|deepspeed|megatron|nemo|flash|apex|xformers|vllm|sglang|trl|verl|peft|datasets|numpy|jax|lightning|pytorch|bitsandbytes|transformer|cuda|nccl|cudnn|aws-ofi|libfabric|ray|liger|tokenizers|safetensors|torchao|torchtitan|torchvision|torchdata|mosaicml|composer|unsloth|optimum|rocm|rccl|ucx)"
)


def read_settings(name: str, text: str) -> tuple[Setting, ...]:
    """Every setting that an artefact states; the first statement of a name counts.

    name: file name, which tells the format where its content does not. text: its content.
    """
    tree = _read_tree(name, text)
    rows = _flatten(tree, name) if tree is not None else _read_lines(name, text)
    found: dict[tuple[Kind, str], Setting] = {}
    for row in rows:
        found.setdefault((row.kind, row.name), row)
        if len(found) >= MOST_SETTINGS:
            break
    return tuple(found.values())


def normalise_value(value: str) -> str:
    """A value as it is compared: quotes off, numbers and truth values in one spelling."""
    plain = value.strip().strip("'\"").strip()
    low = plain.lower()
    if low in ("true", "yes", "on", "enabled"):
        return "true"
    if low in ("false", "no", "off", "disabled"):
        return "false"
    if low in ("none", "null", ""):
        return "none"
    try:
        number = float(plain.replace("_", ""))
    except ValueError:
        return plain
    return f"{number:.12g}"


def _make(kind: Kind, shown: str, value: str, file: str, line: int) -> Setting:
    name = shown.lstrip("-+").lower().replace("-", "_")
    if kind is Kind.OPTION and _DATA_NAME.search(name):
        kind = Kind.DATA
    safe = redact_field(shown, value.strip().strip("'\""))[:LONGEST_VALUE]
    return Setting(kind, name, shown, safe, file, line)


def _read_tree(name: str, text: str) -> Mapping[str, Any] | None:
    """Content of a JSON, TOML or YAML file; None where it is none."""
    if len(text) > MOST_STRUCTURED:
        return None
    lower, found = name.lower(), None
    try:
        if text.lstrip()[:1] == "{":
            found = json.loads(text)
        elif lower.endswith(".toml"):
            found = tomllib.loads(text)
        elif lower.endswith((".yaml", ".yml")):
            found = _read_yaml(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and "traceEvents" not in found else None


def _read_yaml(text: str) -> object:
    """Content of one YAML document. ValueError where it is none."""
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _flatten(tree: Mapping[str, Any], file: str) -> Iterator[Setting]:
    waiting: list[tuple[str, object, int]] = [("", tree, 0)]
    while waiting:
        path, value, depth = waiting.pop()
        if isinstance(value, Mapping) and depth < 12:
            deeper = [(f"{path}.{k}" if path else str(k), v, depth + 1) for k, v in value.items()]
            waiting.extend(reversed(deeper))
        elif path:
            shown = json.dumps(value, default=str) if isinstance(value, list) else str(value)
            yield _make(_kind_of(path), path, shown, file, 0)


def _kind_of(path: str) -> Kind:
    return Kind.VARIABLE if path.rpartition(".")[2].isupper() else Kind.OPTION


def _read_lines(file: str, text: str) -> Iterator[Setting]:
    inside = 0
    for number, line in enumerate(text.splitlines(), 1):
        if number > MOST_LINES:
            return
        cut = line[:LONGEST_LINE]
        inside = 200 if _OPENS.search(cut) else max(0, inside - 1)
        if inside and cut.lstrip()[:1] in (")", "}"):
            inside = 0
        yield from _read_line(file, number, cut, bool(inside))


def _read_told(file: str, number: int, line: str) -> Iterator[Setting]:
    """What a library says in a sentence that it took, is or uses."""
    if told := _BY_NCCL.search(line):
        yield _make(Kind.VARIABLE, told["name"], told["value"].rstrip("."), file, number)
    for pattern, what in _TOLD_VERSIONS:
        if match := pattern.search(line):
            yield _make(Kind.VERSION, what, match["value"].rstrip("."), file, number)
    if network := _USED_NETWORK.search(line):
        yield _make(Kind.USED, "nccl network", network["value"], file, number)


def _read_line(file: str, number: int, line: str, inside: bool) -> Iterator[Setting]:
    """Settings of one line; inside: it stands in a printed block of arguments."""
    if "...." in line and (dots := _DOTS.search(line)):
        yield _make(Kind.OPTION, dots["name"], dots["value"], file, number)
        return
    if "=" in line and (given := _EXPORT.match(line) or _BY_NCCL.search(line)):
        yield _make(Kind.VARIABLE, given["name"], given["value"], file, number)
        return
    yield from _read_told(file, number, line)
    package = _PACKAGE.match(line)
    if package and ("==" in line or _PACKAGES_OF_RUN.match(package["name"])):
        yield _make(Kind.VERSION, package["name"], package["value"], file, number)
    elif command := _COMMAND.search(line):
        yield from _read_command(command["rest"], file, number)
    elif spread := _NAMESPACE.search(line):
        for pair in _PAIR.finditer(spread["inside"]):
            yield _make(Kind.OPTION, pair["name"], pair["value"], file, number)
    elif line.lstrip().startswith("--"):
        yield from _read_command(line.rstrip("\\ "), file, number)
    elif inside and (printed := _PRINTED.match(line)):
        yield _make(Kind.OPTION, printed["name"], printed["value"], file, number)
    else:
        yield from _read_sentence(line, file, number)


def _read_sentence(line: str, file: str, number: int) -> Iterator[Setting]:
    """Versions listed on one line, and values that a log message states in quotes."""
    listed = list(_LISTED.finditer(line))
    if sum(bool(_PACKAGES_OF_RUN.match(m["name"])) for m in listed) >= LEAST_LISTED:
        for one in listed:
            yield _make(Kind.VERSION, one["name"], one["value"], file, number)
    elif "{" not in line and ("'" in line or '"' in line):
        for told in _STATED.finditer(line):
            yield _make(Kind.OPTION, told["name"], told["value"], file, number)


def _read_command(rest: str, file: str, number: int) -> Iterator[Setting]:
    for flag in _FLAG.finditer(rest):
        yield _make(Kind.OPTION, flag["name"], flag["value"] or "true", file, number)
    for given in _OVERRIDE.finditer(rest):
        yield _make(Kind.OPTION, given["name"], given["value"], file, number)


def quote_setting(setting: Setting | None) -> str:
    """A value as it is told, redacted."""
    return "not set" if setting is None else redact(setting.value) or "(empty)"


def read_all(artefacts: Sequence[tuple[str, str]]) -> Mapping[tuple[Kind, str], Setting]:
    """Settings of several artefacts (name, text) of one run; the first statement counts."""
    found: dict[tuple[Kind, str], Setting] = {}
    for name, text in artefacts:
        for setting in read_settings(name, text):
            found.setdefault((setting.kind, setting.name), setting)
    return found
