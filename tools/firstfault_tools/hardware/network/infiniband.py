"""Are the InfiniBand or RoCE ports up (`ibstat`, `ibv_devinfo`), and at the rate of their peers?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.hardware.excerpt import NumberedLine, keep_near, quote_line, read_lines
from firstfault_tools.hardware.host_name import say_host
from firstfault_tools.hardware.host_sections import split_sections
from firstfault_tools.registry import Artefact, Reader, Reading

GATE = ("CA '", "hca_id:", "Physical state:", "phys_state:")
MARKERS = GATE

_IBSTAT_DEVICE = expression(r"^CA '(?P<device>[\w.-]{1,40})'")
_DEVINFO_DEVICE = expression(r"^hca_id:\s+(?P<device>[\w.-]{1,40})")
_PORT = expression(r"^\s+(?:Port (?P<a>\d{1,3}):|port:\s+(?P<b>\d{1,3}))\s*$")
_STATE = expression(r"^\s+(?:State|state):\s+(?P<state>[\w ]{1,40}?)(?: \(\d+\))?\s*$")
_PHYSICAL = expression(r"^\s+(?:Physical state|phys_state):\s+(?P<physical>\w{1,40})")
_RATE = expression(r"^\s+Rate:\s+(?P<rate>\d{1,5})")
_SPEED = expression(r"^\s+active_speed:\s+(?P<rate>[\d.]{1,8}) Gbps")
_WIDTH = expression(r"^\s+active_width:\s+(?P<width>\d{1,3})X")
_LAYER = expression(r"^\s+(?:Link layer|link_layer):\s+(?P<layer>\w{1,40})")
RAILS = 3
_GOOD = frozenset({"active", "port_active"})


@dataclass(slots=True)
class Port:
    """One port as printed. rate_gbits is the port's whole rate."""

    device: str
    number: int
    state: str = ""
    physical: str = ""
    rate_gbits: float | None = None
    width: int = 1
    layer: str = ""
    place: NumberedLine = (0, "")

    @property
    def label(self) -> str:
        """`mlx5_0 port 1`."""
        return f"{self.device} port {self.number}"


def _read_speed(text: str) -> float | None:
    return float(text) if text.count(".") <= 1 else None


_FIELDS: tuple[tuple[re.Pattern[str], str, Callable[[str], object]], ...] = (
    (_STATE, "state", str),
    (_PHYSICAL, "physical", str),
    (_RATE, "rate_gbits", float),
    (_SPEED, "rate_gbits", _read_speed),
    (_WIDTH, "width", int),
    (_LAYER, "layer", str),
)


def _read_field(port: Port, number: int, line: str) -> None:
    for pattern, name, read in _FIELDS:
        if found := pattern.match(line):
            setattr(port, name, read(found[1]))
            if name == "state":
                port.place = (number, line)
            return


def read_ports(lines: Sequence[NumberedLine]) -> list[Port]:
    """Ports of `ibstat` or `ibv_devinfo`, in printed order."""
    ports: list[Port] = []
    device: str | None = None
    for number, line in lines:
        if found := _IBSTAT_DEVICE.match(line) or _DEVINFO_DEVICE.match(line):
            device = found["device"]
        elif device and (found := _PORT.match(line)):
            ports.append(Port(device, int(found["a"] or found["b"]), place=(number, line)))
        elif ports and ports[-1].device == device:
            _read_field(ports[-1], number, line)
    for port in ports:
        if port.rate_gbits is not None:
            port.rate_gbits *= port.width
            port.width = 1
    return ports


def check_ports(ports: Sequence[Port], file: str) -> tuple[Finding, ...]:
    """Ports that are down beside ones that are up, slower than the rest, and a summary."""
    if not ports:
        return ()
    up = [port for port in ports if port.state.lower() in _GOOD]
    shown = ", ".join(sorted({f"{p.rate_gbits:g} Gb/s" for p in up if p.rate_gbits}))
    words = f"{len(up)} of {len(ports)} RDMA ports active" + (f", {shown}" if shown else "")
    summary = _make(ports[0], "ports", words, Level.CONTEXT, file)
    return (*_find_down(ports, len(up), file), *_find_slow(up, file), summary)


def _find_down(ports: Sequence[Port], up: int, file: str) -> Iterator[Finding]:
    """Ports without a link. up: how many have one."""
    for port in ports:
        if port.state.lower() in _GOOD or not port.state:
            continue
        words = f"{port.label} is {port.state}" + (f" ({port.physical})" if port.physical else "")
        words += ": no link to the switch (cable, transceiver or switch port)"
        # A port that was switched off, or all ports of a host without RDMA, is a choice.
        chosen = port.physical.lower() == "disabled" or not up
        # One rail of many that is missing breaks the job; one of two ports is often not cabled.
        alone = up >= RAILS and len(ports) - up == 1
        level = Level.CONTEXT if chosen else Level.CAUSE if alone else Level.FAILURE
        yield _make(port, "port_down", words, level, file)


def _find_slow(up: Sequence[Port], file: str) -> Iterator[Finding]:
    """Ports below the rate that two others share."""
    rates = Counter(port.rate_gbits for port in up if port.rate_gbits)
    usual, count = next(iter(rates.most_common(1)), (None, 0))
    for port in up:
        if usual and count > 1 and port.rate_gbits and port.rate_gbits < usual:
            words = f"{port.label} runs at {port.rate_gbits:g} Gb/s, the others at {usual:g} Gb/s"
            yield _make(port, "port_slow", words, Level.CAUSE, file)


def _make(port: Port, kind: str, title: str, level: Level, file: str) -> Finding:
    return Finding(
        kind=f"network.{kind}",
        title=title,
        level=level,
        category=Category.COMMUNICATION,
        confidence=Confidence.LIKELY if kind != "ports" else Confidence.CONFIRMED,
        evidence=(quote_line(file, *port.place),),
        facts={
            "device": port.device,
            "port": port.number,
            "state": port.state,
            "rate_gbits": port.rate_gbits,
            "link_layer": port.layer,
        },
    )


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Findings of ibstat or ibv_devinfo output pasted into any text."""
    near = keep_near(lines, MARKERS, before=1, after=40)
    if not near:
        return ()
    found: list[Finding] = []
    for section in split_sections(near):
        found += [
            replace(
                f, title=say_host(f, section.host) if section.host else f.title, host=section.host
            )
            for f in check_ports(read_ports(section.lines), file)
        ]
    return tuple(found)


def recognise_infiniband(_name: str, head: bytes) -> bool:
    """Saved `ibstat` or `ibv_devinfo` output."""
    first = head[:4096].lstrip()
    return first.startswith((b"CA '", b"hca_id:"))


def read_infiniband(artefacts: tuple[Artefact, ...]) -> Reading:
    """Findings of every saved output."""
    found: list[Finding] = []
    for artefact in artefacts:
        found.extend(find_in_lines(read_lines(artefact), artefact.name))
    return Reading(tuple(found))


SIGNS = ("CA '", "hca_id:")

READER = Reader(
    name="infiniband",
    summary="ibstat, ibv_devinfo: ports that are down or slower than the others",
    recognise=recognise_infiniband,
    read=read_infiniband,
    # saved output often goes on with a log or another command
    owns=False,
)
