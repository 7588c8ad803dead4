"""Does PCIe access control (ACS) send GPU-to-NIC traffic through the root complex?

Reads `lspci -vvv | grep ACSCtl` pasted for one or several hosts. With `ReqRedir+` peer-to-peer requests
are redirected upstream, which halves the bandwidth of GPUDirect and may stop it. NCCL's documentation
asks for `SrcValid-` on bare metal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.hardware.excerpt import NumberedLine, keep_near, quote_line
from firstfault_tools.hardware.host_name import name_host
from firstfault_tools.hardware.host_sections import split_sections
from firstfault_tools.hardware.pages import attach_pages

MARKERS = ("ACSCtl:", "ECAP_ATS", "ECAP_ACS")
_CONTROL = expression(r"^\s*(?:(?P<count>\d{1,4})\s+)?ACSCtl:\s+(?P<flags>\S.{10,120})$")
_REGISTER = expression(r"^\s*(?P<value>[0-9a-f]{4})\s*$")


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Hosts whose bridges redirect peer-to-peer requests, compared with those that do not."""
    near = keep_near(lines, MARKERS, before=4, after=2)
    if not near:
        return ()
    on: dict[str | None, list[NumberedLine]] = defaultdict(list)
    off: dict[str | None, list[NumberedLine]] = defaultdict(list)
    bridges: dict[str | None, int] = defaultdict(int)
    ats: dict[str | None, NumberedLine] = {}
    for section in split_sections(near):
        host = section.host or name_host(file)
        for number, line in section.lines:
            if control := _CONTROL.match(line):
                redirects = "ReqRedir+" in control["flags"]
                (on if redirects else off)[host].append((number, line))
                bridges[host] += int(control["count"] or 1) if redirects else 0
            elif (
                "ECAP_ATS" in section.command
                and (value := _REGISTER.match(line))
                and not int(value["value"], 16) & 0x8000
            ):
                ats[host] = (number, line)
    found = []
    good = [h for h in off if h not in on]
    for host, places in on.items():
        where = f" on {host}" if host else ""
        others = (
            f", and off on {', '.join(h or 'the other host' for h in good[:4])}" if good else ""
        )
        translated = " and ATS is off" if host in ats else ""
        quoted = [*places[:2], *([ats[host]] if host in ats else []), *(off[good[0]][:1] if good else [])]  # fmt: skip
        found.append(
            Finding(
                kind="hardware.acs_redirect",
                title=f"PCIe ACS (access control) redirect is on{where} for {bridges[host]} bridges (ReqRedir+){others}{translated}: "
                f"transfers between GPU and NIC{where} take the way through the root complex and lose about half of their bandwidth",
                level=Level.CAUSE if good else Level.CONTEXT,
                category=Category.PERFORMANCE,
                confidence=Confidence.LIKELY,
                evidence=tuple(quote_line(file, *p, host=host) for p in quoted),
                host=host,
                facts={"bridges": bridges[host], "explains": "slow", "weight": 0.6},
            )
        )
    return attach_pages(found[:8])
