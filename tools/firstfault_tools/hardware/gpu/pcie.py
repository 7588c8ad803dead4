"""Does a PCIe link run below what its device can, or does access control (ACS) bend the way of its traffic?

Links: `lspci -vv`, LnkCap against LnkSta of each device, and devices of one kind against each other.

ACS: reads `lspci -vvv | grep ACSCtl` pasted for one or several hosts. With `ReqRedir+` peer-to-peer requests
are redirected upstream, which halves the bandwidth of GPUDirect and may stop it. NCCL's documentation
asks for `SrcValid-` on bare metal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.excerpt import NumberedLine, keep_near, quote_line
from firstfault_tools.hardware.host_name import name_host
from firstfault_tools.hardware.host_sections import split_sections

MARKERS = ("ACSCtl:", "ECAP_ATS", "ECAP_ACS")
LINK_MARKERS = ("LnkSta:",)
_DEVICE = expression(
    r"^\s*(?P<pci>(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (?P<kind>[A-Z][^:]{3,60}): (?P<name>.{1,160})$"
)
_LINK = expression(
    r"\bLnk(?P<what>Cap|Sta):.{0,40}?Speed (?P<speed>\d+(?:\.\d+)?) ?GT/s(?: \((?P<speed_word>\w+)\))?, Width x(?P<width>\d{1,2})"
)
POOR = 0.3
"""Share of the bandwidth that a device can carry, below which its link is called degraded: x8 boards are usual."""
_CONTROL = expression(r"^\s*(?:(?P<count>\d{1,4})\s+)?ACSCtl:\s+(?P<flags>\S.{10,120})$")
_REGISTER = expression(r"^\s*(?P<value>[0-9a-f]{4})\s*$")


@dataclass(frozen=True, slots=True)
class Link:
    """One device with the link it can have and the link it has, as (GT/s, lanes)."""

    pci: str
    name: str
    host: str | None
    can: tuple[float, int]
    has: tuple[float, int]
    places: tuple[NumberedLine, ...]

    @property
    def share(self) -> float:
        return self.has[0] * self.has[1] / max(self.can[0] * self.can[1], 0.1)

    def say(self) -> str:
        return f"{self.has[0]:g} GT/s (gen {_generation(self.has[0])}) x{self.has[1]}"


def _generation(speed: float) -> int:
    return {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}.get(speed, 0)


def read_links(lines: Sequence[NumberedLine], file: str) -> list[Link]:
    """Devices whose LnkCap and LnkSta both stand in the lines; root ports and bridges are left out."""
    found: list[Link] = []
    for section in split_sections(lines):
        device: tuple[str, str, NumberedLine] | None = None
        can: tuple[float, int] | None = None
        for number, line in section.lines:
            if named := _DEVICE.match(line):
                bridge = "bridge" in named["kind"].lower()
                device = None if bridge else (named["pci"], named["name"], (number, line))
                can = None
            elif device is not None and (link := _LINK.search(line[:300])):
                value = (float(link["speed"]), int(link["width"]))
                if link["what"] == "Cap":
                    can = value
                elif can is not None:
                    host = section.host or name_host(file)
                    found.append(
                        Link(device[0], device[1], host, can, value, (device[2], (number, line)))
                    )
                    device = None
    return found


def _find_links(lines: Sequence[NumberedLine], file: str) -> list[Finding]:
    """The device whose link is far below what it can carry, beside those of its kind."""
    links = read_links(keep_near(lines, LINK_MARKERS, before=30, after=1), file)
    worst = min(
        (k for k in links if k.has[1] and k.share < POOR), key=lambda k: k.share, default=None
    )
    if worst is None:
        return []
    peers = [k for k in links if k is not worst and k.name == worst.name]
    better = max(peers, key=lambda k: k.has[0] * k.has[1], default=None)
    lanes = worst.has[1] < worst.can[1]
    if not lanes and (better is None or better.share < 2 * worst.share):
        return []  # an idle card lowers the speed of its link, never its width
    beside = ""
    if better is not None and better.share > worst.share:
        beside = f"; that of {better.pci} runs at {better.say()}"
    on = f" on {worst.host}" if worst.host else ""
    shown = [worst] if better is None else [worst, better]
    return [
        Finding.of_slowness(
            kind="hardware.pcie_link_degraded",
            title=f"the PCIe link of {worst.pci}{on}{_say_number(worst, links)} is trained at {worst.say()} of the {worst.can[0]:g} GT/s "
            f"(gen {_generation(worst.can[0])}) x{worst.can[1]} it can have, {worst.share:.0%} of the bandwidth{beside}: every "
            "exchange with that device waits for the link; seating, riser, slot or BIOS",
            evidence=tuple(quote_line(file, *p, host=k.host) for k in shown for p in k.places),
            host=worst.host,
            gpu=f"PCI {worst.pci}" if "NVIDIA" in worst.name else None,
            weight=0.9,
            facts={"share": round(worst.share, 3)},
        )
    ]


def _say_number(link: Link, links: Sequence[Link]) -> str:
    """Which of several devices of its kind it is, counted as nvidia-smi and CUDA do."""
    order = sorted({k.pci for k in links if k.name == link.name})
    if len(order) < 2:
        return ""
    return f", number {order.index(link.pci)} of its kind counted from 0,"


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Devices on a degraded link; hosts whose bridges redirect requests, compared with those that do not."""
    return (*_find_links(lines, file), *_find_redirects(lines, file))


def _find_redirects(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Hosts whose bridges redirect peer-to-peer requests, compared with those that do not."""
    hosts = _read_redirects(lines, file)
    good = [own for own in hosts.values() if own.off and not own.on]
    beside = ", ".join(own.host or "the other host" for own in good[:4])
    others = f", and off on {beside}" if good else ""
    found = []
    for own in hosts.values():
        if not own.on:
            continue
        where = f" on {own.host}" if own.host else ""
        translated = " and ATS is off" if own.ats else ""
        opening = f"PCIe ACS (access control) redirect is on{where} for {own.bridges} bridges (ReqRedir+){others}{translated}"
        quoted = [*own.on[:2], *own.ats[-1:], *(good[0].off[:1] if good else [])]
        found.append(
            Finding(
                kind="hardware.acs_redirect",
                title=f"{opening}: transfers between GPU and NIC{where}, and peer-to-peer (P2P) between GPUs, take the way through the root complex: they lose about "
                "half of their bandwidth, and P2P between GPUs can stand still",
                opening=opening,
                level=Level.CAUSE if good else Level.CONTEXT,
                category=Category.PERFORMANCE,
                evidence=tuple(quote_line(file, *p, host=own.host) for p in quoted),
                host=own.host,
                facts={"bridges": own.bridges, "explains": {"slow": 0.6, "stalled": 0.5}},
            )
        )
    return tuple(found[:8])


@dataclass(slots=True)
class _Redirects:
    """What the bridges of a host do. on, off: lines with and without redirects. ats: lines with ATS off."""

    host: str | None
    on: list[NumberedLine] = field(default_factory=list)
    off: list[NumberedLine] = field(default_factory=list)
    ats: list[NumberedLine] = field(default_factory=list)
    bridges: int = 0


def _read_redirects(lines: Sequence[NumberedLine], file: str) -> dict[str | None, _Redirects]:
    """By host, in the order in which the first line of each was read."""
    hosts: dict[str | None, _Redirects] = {}
    for section in split_sections(keep_near(lines, MARKERS, before=4, after=2)):
        host = section.host or name_host(file)
        for number, line in section.lines:
            if control := _CONTROL.match(line):
                own = hosts.setdefault(host, _Redirects(host))
                redirects = "ReqRedir+" in control["flags"]
                (own.on if redirects else own.off).append((number, line))
                own.bridges += int(control["count"] or 1) if redirects else 0
            elif "ECAP_ATS" in section.command and _says_ats_off(line):
                hosts.setdefault(host, _Redirects(host)).ats.append((number, line))
    return hosts


def _says_ats_off(line: str) -> bool:
    """A register of address translation with its enable bit cleared."""
    value = _REGISTER.match(line)
    return value is not None and not int(value["value"], 16) & 0x8000
