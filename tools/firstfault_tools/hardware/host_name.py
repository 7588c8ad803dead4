"""Which host does a saved command output come from, where only its file name says so?

`dmesg.node7.txt`, `gx-22_nvidia-smi-q.txt` and `node7/dmesg.txt` name it; `dmesg.txt` does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding

_ENDINGS = expression(
    r"(?i)(?:\.(?:txt|log|out|err|json|jsonl|xml|csv|ya?ml|gz|zst|xz|bz2|\d{1,2}))+$"
)
_TOOL = (
    r"dmesg|kern(?:el)?|kmsg|syslog|messages|journal(?:ctl)?|nvidia[-_]?smi|nvsmi|smi|dmon|topo|nvlink|"
    r"dcgmi?|diag|ipmi(?:tool)?|sel|bmc|lspci|mcelog|ibstatu?s?|ibdiagnet|ethtool|perfquery|query|gpus?|health|log|logs|boot|k|m|q|t|x|qx"
)
_TOOL_AT_START = expression(rf"(?i)^(?:{_TOOL})(?=[-_.]|$)[-_.]*")
_TOOL_AT_END = expression(rf"(?i)[-_.]+(?:{_TOOL})$")
_GPU_HOST = expression(r"(?i)^gpu-[a-z]")
"""`gpu-a17` is a host's own name once the tool has been cut off, `gpu-query` is what was saved."""

_HOST = expression(r"[A-Za-z][A-Za-z0-9]*(?:[-_.][A-Za-z0-9]+)*|\d{1,3}(?:\.\d{1,3}){3}")
_ADDRESS = expression(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\d)")
_NO_HOST = expression(
    r"(?i)^(?:rank|run|job|step|attempt|try|exp|epoch|seed|case|test|part|tmp|out|log|v|ver|version|day|"
    r"xid|gpu|cuda|incident|capture|before|after|pytest)[-_.]?\d*$|^[hab]\d{3}(?:[-_.]?(?:40|80|141))?$"
)


def name_host(file: str) -> str | None:
    """The host a file's name or its folder names, None where neither looks like one."""
    parts = [part for part in re.split(r"[/\\]", file) if part]
    if not parts:
        return None
    if address := _ADDRESS.search(parts[-1]):
        return address[0]
    stem = _ENDINGS.sub("", parts[-1])
    bare, changed = stem, False
    while not (changed and _GPU_HOST.match(bare) and _looks_like_host(bare)):
        cut = _TOOL_AT_END.sub("", _TOOL_AT_START.sub("", bare))
        if cut == bare:
            break
        bare, changed = cut, True
    if changed and _looks_like_host(bare):
        return bare
    return parts[-2] if len(parts) > 1 and _looks_like_host(parts[-2]) else None


def _looks_like_host(text: str) -> bool:
    # A number tells node7 and gx-22 from words; a name without one is too weak a sign.
    return (
        1 < len(text) < 64
        and any(c.isdecimal() for c in text)
        and _HOST.fullmatch(text) is not None
        and _NO_HOST.match(text) is None
    )


def say_host(finding: Finding, host: str) -> str:
    """Title of a finding with the host in it: after the GPU it begins with, else at its end."""
    title = finding.title
    if host in title:
        return title
    if finding.gpu and title.startswith(f"{finding.gpu}: "):
        return f"{finding.gpu} of {host}: {title[len(finding.gpu) + 2 :]}"
    if finding.gpu and title.startswith(f"{finding.gpu} "):
        return f"{finding.gpu} of {host} {title[len(finding.gpu) + 1 :]}"
    return f"{title} (host {host})"


def attach_host(findings: Iterable[Finding], file: str) -> tuple[Finding, ...]:
    """Findings that name no host get that of their file."""
    return _attach(findings, name_host(file))


def _attach(findings: Iterable[Finding], host: str | None) -> tuple[Finding, ...]:
    if host is None:
        return tuple(findings)
    return tuple(
        replace(
            f,
            title=say_host(f, host),
            host=host,
            evidence=tuple(replace(e, host=e.host or host) for e in f.evidence),
        )
        if f.host is None
        else f
        for f in findings
    )


_OF_MACHINES = ("hardware.", "kernel.", "network.")


def name_machines(
    findings: Iterable[Finding], tell: Callable[[str], str | None] = lambda _: None
) -> list[Finding]:
    """Findings about a machine that name no host get that of the one file they stand in.

    tell: the host that a file itself names as its own.
    """
    out: list[Finding] = []
    for finding in findings:
        files = {e.file for e in finding.evidence}
        own = finding.kind.startswith(_OF_MACHINES) and len(files) == 1
        file = next(iter(files), "")
        out += _attach([finding], name_host(file) or tell(file)) if own else [finding]
    return out
