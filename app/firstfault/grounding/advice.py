"""Is a piece of advice safe to show? Guards against the bad advice this field is known for.

Each rule says what it forbids and why; the reasons are those of the pages that hold the right advice.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a piece of advice is not shown."""

    rule: str
    reason: str


_AS_TEST = expression(
    r"(?i)\b(test|isolat|check|diagnos|bisect|rule out|only to|temporar|workaround|once|compare)"
)
_DRAINED = expression(
    r"(?i)drain|idle|no process|not in use|cordon|unused|nothing (?:runs|uses)|after (?:stopping|the job)|stop(?:ping)? "
)
_RULES: tuple[tuple[str, re.Pattern[str], re.Pattern[str] | None, str], ...] = (
    (
        "no_transport_switched_off_as_cure",
        expression(r"NCCL_(?:P2P|IB|SHM|NVLS)_(?:DISABLE\s*=\s*1|ENABLE\s*=\s*0)"),
        _AS_TEST,
        "switching a transport off hides the fault and costs the bandwidth; it is a test, not a cure",
    ),
    (
        "no_gpu_reset_in_use",
        expression(r"(?i)nvidia-smi[^\n]*(?:--gpu-reset|\s-r\b)|\breset (?:the |that )?gpu"),
        _DRAINED,
        "a GPU must be drained before it is reset",
    ),
    (
        "no_rma_first",
        expression(r"(?i)\bRMA\b|return the (?:gpu|card|board)"),
        expression(r"(?i)\bif\b|after|only|once|diagnos|support|threshold|returns|again|comes back"),
        "an exchange follows field diagnostics, it is never the first step",
    ),
    (
        "no_security_off",
        expression(r"(?i)setenforce 0|ufw disable|chmod (?:-R )?777|--privileged\b|weights_only\s*=\s*False"),
        expression(r"(?i)trust|only if|never|not "),
        "it opens the machine or runs code from a file",
    ),
    (
        "no_kill_of_everything",
        expression(r"(?i)rm -rf /(?!\S*(?:tmp|cache|shm))|kill -9 -1\b|mkfs|dd if=.* of=/dev/"),
        None,
        "it destroys data",
    ),
)  # fmt: skip
_TIMEOUT = expression(
    r"(?i)(?<!not )(?<!never )(?<!n't )(?<!than )\b(?:raise|increase|extend|lengthen|bump)\b[^.]{0,40}\btime-?outs?\b"
    r"|\b(?:set|use|try|need|give)\w*\b[^.]{0,20}\blonger (?!than)(?:[\w-]+ ){0,3}time-?out"
)
_VARIABLE = expression(r"\b(?:NCCL|TORCH|TORCH_NCCL|GLOO|PYTORCH)_[A-Z0-9_]{3,}\b")


def objections(
    text: str, command: str | None, known_variables: Collection[str] = ()
) -> tuple[Objection, ...]:
    """Rules that a fix breaks; empty when it may be shown."""
    whole = f"{text}\n{command or ''}"
    out = [
        Objection(rule, reason)
        for rule, pattern, unless, reason in _RULES
        if pattern.search(whole) and not (unless is not None and unless.search(text))
    ]
    if known_variables:
        for name in sorted(set(_VARIABLE.findall(command or ""))):
            if name not in known_variables:
                out.append(
                    Objection("no_invented_variable", f"{name} is not a variable any release reads")
                )
    return tuple(out)


def raises_timeout(text: str) -> bool:
    """The advice is to wait longer: allowed, but never first."""
    return _TIMEOUT.search(text) is not None
