"""What does a command do to the system it runs on? The word that is shown beside it.

Only commands whose every part is known to read are called read-only; the rest says what it does, or
that one should look first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from firstfault_tools.expressions import expression


class Effect(StrEnum):
    """What running a command does."""

    READS = "read-only"
    LOADS = "puts load on the hardware"
    STARTS = "starts the job"
    CHANGES = "changes state"
    CODE = "code to put in"
    SETTING = "settings to change"
    UNCLEAR = "read it before you run it"


@dataclass(frozen=True, slots=True)
class Look:
    """Icon name of the Material set and tone for an effect."""

    icon: str
    tone: str


LOOKS = {
    Effect.READS: Look("visibility", "ok"),
    Effect.LOADS: Look("speed", "warn"),
    Effect.STARTS: Look("play_arrow", "warn"),
    Effect.CHANGES: Look("edit", "warn"),
    Effect.CODE: Look("code", "plain"),
    Effect.SETTING: Look("tune", "plain"),
    Effect.UNCLEAR: Look("help", "plain"),
}

_STARTS = expression(
    r"\b(?:rerun|torchrun|deepspeed|accelerate launch|mpirun|sbatch|train\w*\.py)\b"
)
_LOADS = expression(
    r"\b(?:ib_(?:write|read|send)_\w+|\w+_perf|dcgmi diag|firstfault probe|stress)\b"
)
_CHANGES = expression(
    r"(?:^|[;&|]\s*|sudo\s+)(?:rm|mv|kill|pkill|reboot|shutdown|modprobe|rmmod|chmod|chown|umount|mkfs)\b"
    r"|systemctl (?:re)?(?:start|stop|load|enable|disable)|systemctl restart|service \w+ restart"
    r"|nvidia-smi\b[^;|&]*(?:\s-r\b|--gpu-reset|\s-pm\b|\s-lgc\b|\s-pl\b|\s-e\s)"
    r"|\bsysctl -w\b|\bmount -o\b|\bscontrol (?:update|requeue|reboot)|\bscancel\b"
    r"|\bkubectl (?:delete|drain|cordon|apply|scale|patch|edit)|\bdocker (?:run|rm|restart)"
    r"|\b(?:pip|uv|apt|apt-get|yum|dnf|conda)\s+(?:pip\s+)?(?:install|upgrade|remove)|\bgit lfs pull"
    r"|(?<![<2&])>(?!\s*/dev/null|&)\s*[\w/~.]"
)
_CODE = expression(
    r"^\s*(?:import |from \w+ import |\w+ = |@|def |with |if |for |dist\.|torch\.|model\.)"
)
_SETTING = expression(r"(?:\s*#[^\n]*\n)*\s*--[\w-]+")
_READING_PYTHON = expression(r"^python3?\s+-(?:c|m)\s")


@cache
def reading_commands() -> frozenset[str]:
    """Programs that only read, at least in the forms that our pages show."""
    return frozenset(Path(__file__).with_name("reading_commands.txt").read_text("utf-8").split())


def judge_command(command: str, changes_state: bool = False) -> Effect:
    """Effect of a command. changes_state: its page says that it changes something."""
    if changes_state or _CHANGES.search(command):
        return Effect.CHANGES
    if _SETTING.match(command):
        return Effect.SETTING
    if _STARTS.search(command):
        return Effect.STARTS
    if _LOADS.search(command):
        return Effect.LOADS
    parts = [p.strip() for p in re.split(r"&&|\|\||[;|\n]", _unquote(command)) if p.strip()]
    words = [_program(part) for part in parts]
    if words and all(w in reading_commands() or w == "" for w in words):
        python = [p for p, w in zip(parts, words, strict=True) if w.startswith("python")]
        if all(_READING_PYTHON.match(p) for p in python):
            return Effect.READS
    if _CODE.match(command):
        return Effect.CODE
    return Effect.UNCLEAR


def _unquote(command: str) -> str:
    return re.sub(r"'[^']*'|\"[^\"]*\"", "Q", command)


def _program(part: str) -> str:
    words = [w for w in part.split() if not re.fullmatch(r"[A-Z_][A-Z0-9_]*=\S*", w)]
    words = [w for w in words if w not in ("sudo", "time", "do", "then")]
    return words[0].split("/")[-1] if words else ""
