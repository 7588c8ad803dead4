"""Which host does a pasted command output come from: prompt, ssh, a heading, or pdsh's prefix?

`node7$ cmd`, `[root@node7 ~]# cmd`, `$ ssh node7 cmd`, `== node7: cmd`, `--- node7 ---`, `node7:` on a
line of its own, `ipmitool -H node7-bmc`, and `node7: line` on several lines in a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding
from firstfault_tools.hardware.excerpt import NumberedLine
from firstfault_tools.hardware.host_name import say_host

_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{1,62}"
_PROMPT = expression(
    rf"^\s*(?:\([\w.-]+\) ?)?\[?(?:[a-z_][\w-]*@)?(?P<host>{_NAME})(?::[^\s$#]*| [^\s\]]*)?\]?\s?[$#]\s+(?P<command>\S.*)$"
)
_ZSH = expression(
    rf"^\s*[a-z_][\w-]{{0,30}}@(?P<host>{_NAME}) \S{{1,80}} %\s+(?P<command>[a-z(]\S*(?:\s.*)?)$"
)
_BARE_PROMPT = expression(r"^\s*\$\s+(?P<command>[a-z(][\w./(-]*(?:\s.*)?)$")
_HEADING = expression(
    rf"^\s*(?:={{2,}}>?|-{{2,}}|#{{2,}}|\*{{2,}}|>{{2,}})\s*(?:(?:on|host|node|from|server)[ :=]+)?(?P<host>{_NAME})"
    rf"\s*(?:\((?P<words>[^)]*)\)\s*)?(?:[:,]\s*(?P<command>.*)|<?[=*#-]{{2,}}|<={{1,}})?\s*$",
    re.IGNORECASE,
)
_ALONE = expression(rf"^(?:\[(?P<a>{_NAME})\]:?|(?P<b>{_NAME}):)\s*$")
_SSH = expression(
    rf"\b(?:ssh|rsh|clush -w|pdsh -w)\s+(?:-\S+(?: \S+=\S+)?\s+)*(?:[\w-]+@)?(?P<host>{_NAME})(?:\s|$)"
)
_BMC = expression(
    rf"\b(?:ipmitool|ipmi-sel|ipmi-sensors|racadm)\b.*?\s(?:-H|-h|-r)\s+(?P<host>{_NAME})"
)
_BMC_NAME = expression(
    r"(?i)^(?:bmc|ipmi|ilo|idrac|oob|mgmt)[-.](?=\w)|[-.](?:bmc|ipmi|ilo|idrac|oob|mgmt|con|sp)\d?(?=\.|$)"
)
_PREFIXED = expression(
    rf"^(?:(?P<a>{_NAME}):\s|(?P<b>{_NAME})\s+\|\s|\[(?P<c>{_NAME})\]:?\s|\((?P<d>{_NAME})\)\s)"
)
_NO_HOST = expression(
    r"(?i)^(?:rank|gpu(?![-_. ]?\d{3})|port|step|error|warning|info|epoch|line|page|mlx5|eth|ens|enp|ib|nvme|tty|node \d|ca|"
    r"cuda|driver|version|attempt|iteration|node-?info|rtx)[-_. ]?\d*$|^(?:h[12]00|a100)(?:[-_. ]?(?:40|80|141))?$"
)
_LETTERED = expression(r"(?i)^(?:node|host|server|machine|box|worker)[-_][a-f]$")
"""`node-a`: machines that somebody called by a letter."""
RUN = 3
"""Lines in a row with one prefix before it is taken for a host's name."""


@dataclass(frozen=True, slots=True)
class Section:
    """Lines of one command on one host, without pdsh's prefix. command: empty where none is shown."""

    host: str | None
    command: str
    lines: tuple[NumberedLine, ...]


def split_sections(lines: Sequence[NumberedLine]) -> list[Section]:
    """Sections in order; lines before the first sign of a host belong to none."""
    sections: list[Section] = []
    host: str | None = None
    command = ""
    held: list[NumberedLine] = []
    prefixed = _find_prefixes(lines)
    marked = False  # the host is that of a prefix, and ends with it

    def close() -> None:
        if held:
            sections.append(Section(host, command, tuple(held)))
            held.clear()

    for number, line in lines:
        if len(line) > 500:
            held.append((number, line))
            continue
        named = prefixed.get(number)
        if named is not None:
            line = line[named[1] :]
        sign = read_sign(line)
        ended = named is None and marked
        if sign is not None or ended or (named is not None and named[0] != host):
            close()
            host, command = sign or (None, "")
            host = host or (named[0] if named is not None else None)
            marked = named is not None
        held.append((number, line))
    close()
    return sections


def read_sign(line: str) -> tuple[str | None, str] | None:
    """(host, command) of a line that starts a section; None for any other line."""
    prompt = _PROMPT.match(line) if "$" in line or "#" in line else _ZSH.match(line)
    if prompt is not None and (
        looks_like_host(prompt["host"]) or "@" in line[: prompt.end("host")]
    ):
        command = prompt["command"]
        return _remote(command) or prompt["host"], command
    bare = _BARE_PROMPT.match(line)
    if bare is not None:
        return _remote(bare["command"]), bare["command"]
    heading = _HEADING.match(line)
    if heading is not None and looks_like_host(heading["host"]):
        return heading["host"], heading["command"] or heading["words"] or ""
    alone = _ALONE.match(line)
    if alone is not None and looks_like_host(alone["a"] or alone["b"]):
        return alone["a"] or alone["b"], ""
    return None


def _remote(command: str) -> str | None:
    """The host that a command names: ssh's, or the one behind a BMC address."""
    if bmc := _BMC.search(command):
        return strip_bmc(bmc["host"])
    found = _SSH.search(command)
    return found["host"] if found is not None and "," not in found["host"] else None


def strip_bmc(name: str) -> str:
    """`node7` of `node7-bmc`, `bmc-node7`, `node7.ipmi.example`."""
    return _BMC_NAME.sub("", name) or name


def looks_like_host(text: str) -> bool:
    """A name with a letter and a digit that is no rank, port or device; or an IPv4 address."""
    if re.fullmatch(r"\d{1,3}(?:\.\d{1,3}){3}", text):
        return True
    if _LETTERED.match(text):
        return True
    return (
        any(c.isdecimal() for c in text)
        and any(c.isalpha() for c in text)
        and _NO_HOST.match(text) is None
        and not re.search(r"\.(?:txt|log|py|sh|json|out|cc?|cu|yaml)$", text)
    )


def _find_prefixes(lines: Sequence[NumberedLine]) -> dict[int, tuple[str, int]]:
    """(host, length of the prefix) by line number, for lines that pdsh or compose marked."""
    out: dict[int, tuple[str, int]] = {}
    run: list[tuple[int, tuple[str, int]]] = []

    def close() -> None:
        if len(run) >= RUN:
            out.update(run)
        run.clear()

    for number, line in lines:
        found = _PREFIXED.match(line)
        host = next((g for g in found.groups() if g), "") if found is not None else ""
        if found is None or not looks_like_host(host):
            close()
            continue
        run.append((number, (host, found.end())))
    close()
    return out


def map_hosts(sections: Iterable[Section]) -> dict[int, str]:
    """Host by line number."""
    return {number: s.host for s in sections if s.host for number, _ in s.lines}


def attach_sections(
    findings: Iterable[Finding], lines: Sequence[NumberedLine]
) -> Iterator[Finding]:
    """Findings that name no host get the one whose section their first line stands in."""
    items = list(findings)
    if all(f.host is not None for f in items):
        yield from items
        return
    hosts = map_hosts(split_sections(lines))
    for finding in items:
        place = finding.evidence[0] if finding.evidence else None
        host = hosts.get(place.line) if place is not None and finding.host is None else None
        if host is None:
            yield finding
            continue
        evidence = tuple(replace(e, host=e.host or hosts.get(e.line)) for e in finding.evidence)
        yield replace(finding, title=say_host(finding, host), host=host, evidence=evidence)
