"""Which kernel messages other than Xids matter: memory killer, machine checks, PCIe, NICs, disks?

The messages are rows of `kernel_events.json`: plain markers, a pattern with named groups, the level and
a title. `[...]` in a title is dropped where a group inside it is missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.facts import MOST_DIGITS, Fact, Json, known
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.hardware.bus import name_gpu, normalise_address
from firstfault_tools.hardware.excerpt import QUOTES_PER_FINDING, NumberedLine, quote_line
from firstfault_tools.hardware.host.control_groups import is_of_another
from firstfault_tools.hardware.host.memory_kill import KIB_PER_GIB, explain_memory_kills
from firstfault_tools.hardware.host.stamps import read_stamp

TABLE = Path(__file__).with_name("kernel_events.json")

# Links are brought up and down while drivers load; two minutes cover slow servers.
STARTUP_S = 120.0

_OPTIONAL = expression(r"\[([^\[\]]*)\]")
_FIELD = expression(r"\{(\w+)\}")
_COUNTED = frozenset({"pid", "cpu", "sector", "count", "queue", "blocked_s", "stuck_s", "power_w"})
# Rules of these kinds repeat with other numbers for the same thing; one finding each is enough.
_KEY_FIELDS = (
    "process",
    "pid",
    "pci_address",
    "device",
    "port",
    "server",
    "target",
    "controller",
    "cpu",
    "cgroup",
)


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """One row of the table."""

    kind: str
    markers: tuple[str, ...]
    pattern: str
    level: Level
    category: Category
    title: str
    confidence: Confidence
    facts: Mapping[str, str] = field(default_factory=dict)
    fallback: Mapping[str, str] = field(default_factory=dict)


@cache
def load_events() -> tuple[KernelEvent, ...]:
    """The table, read once."""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))
    return tuple(
        KernelEvent(
            kind=row["kind"],
            markers=tuple(row["markers"]),
            pattern=row["pattern"],
            level=Level(row["level"]),
            category=Category(row["category"]),
            title=row["title"],
            confidence=Confidence(row.get("confidence", "likely")),
            facts=row.get("facts", {}),
            fallback=row.get("fallback", {}),
        )
        for row in rows
    )


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    """Compiled when its marker is first met: most logs meet none."""
    return expression(pattern)


@cache
def list_markers() -> tuple[str, ...]:
    """Every marker of the table, each once."""
    return tuple(dict.fromkeys(marker for event in load_events() for marker in event.markers))


def fill_title(title: str, values: Mapping[str, str]) -> str:
    """Fill `{group}`; a bracketed part with a missing group is dropped."""

    def choose(part: re.Match[str]) -> str:
        names = _FIELD.findall(part[1])
        return part[1] if all(values.get(name) for name in names) else ""

    kept = _OPTIONAL.sub(choose, title)
    return _FIELD.sub(lambda found: values.get(found[1], "?"), kept).rstrip(": ")


def find_kernel_events(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """One finding for each event and its subject, with a count, in order of first appearance."""
    found: dict[tuple[object, ...], Finding] = {}
    counts: dict[tuple[object, ...], int] = {}
    for number, line in lines:
        for event in load_events():
            if not any(marker in line for marker in event.markers):
                continue
            stamped = read_stamp(line)
            match = _compile(event.pattern).search(stamped.message)
            if match is None:
                continue
            values = {k.rstrip("23"): v.strip() for k, v in match.groupdict().items() if v}
            values = {**event.fallback, **values}
            if stamped.host:
                values["host"] = stamped.host
            key = (event.kind, stamped.host, *(values.get(name) for name in _KEY_FIELDS))
            counts[key] = counts.get(key, 0) + 1
            evidence = quote_line(file, number, line, host=stamped.host, time=stamped.time)
            known = found.get(key)
            if known is not None:
                if len(known.evidence) < QUOTES_PER_FINDING:
                    found[key] = replace(known, evidence=(*known.evidence, evidence))
            else:
                found[key] = _describe_event(event, values, evidence, stamped.boot_s)
            break
    counted = [
        replace(finding, facts={**finding.facts, "count": counts[key]})
        for key, finding in found.items()
    ]
    return tuple(_weigh_group(_weigh_link(finding)) for finding in explain_memory_kills(counted))


def _weigh_group(finding: Finding) -> Finding:
    """A limit that a control group of another program reached is no fault of the job."""
    group = finding.text(Fact.LIMITED) or finding.text(Fact.CGROUP)
    if finding.level is Level.CONTEXT or not is_of_another(group, finding.text(Fact.PROCESS)):
        return finding
    return replace(
        finding, level=Level.CONTEXT, title=f"{finding.title}, which is another program's"
    )


def _weigh_link(finding: Finding) -> Finding:
    """A link that is down while the machine starts is no cause."""
    if finding.kind not in ("kernel.nic_link_down", "kernel.eth_link_down"):
        return finding
    boot_s = finding.number(Fact.SINCE_BOOT_S)
    if boot_s is not None and boot_s < STARTUP_S:
        return replace(finding, level=Level.CONTEXT, title=f"{finding.title} (during start-up)")
    return finding


def _in_gib(values: Mapping[str, str]) -> dict[str, str]:
    """`x_kib` as `x_gib`, for sentences."""
    sizes = ((k, int(v)) for k, v in values.items() if k.endswith("_kib") and v.isdecimal())
    return {f"{k[:-4]}_gib": f"{kib / KIB_PER_GIB:.1f}" for k, kib in sizes}


def _count(name: str, value: str) -> int | str:
    whole = name in _COUNTED or name.endswith("_kib")
    return int(value) if whole and value.isdecimal() and len(value) <= MOST_DIGITS else value


def _describe_event(
    event: KernelEvent, values: Mapping[str, str], evidence: Evidence, boot_s: float | None
) -> Finding:
    facts: dict[str, Json] = dict(event.facts)
    facts |= {name: _count(name, value) for name, value in values.items() if name != "host"}
    if "pci_address" in values:
        address = normalise_address(values["pci_address"]) or values["pci_address"]
        facts |= {Fact.PCI_ADDRESS: address}
    facts |= known(since_boot_s=boot_s)
    of_gpu = event.kind.startswith(("kernel.amd_", "kernel.gpu_", "kernel.gaudi_"))
    return Finding(
        kind=event.kind,
        title=fill_title(event.title, {**values, **_in_gib(values)}),
        level=event.level,
        category=event.category,
        confidence=event.confidence,
        evidence=(evidence,),
        host=evidence.host,
        gpu=name_gpu(str(facts[Fact.PCI_ADDRESS]))
        if of_gpu and Fact.PCI_ADDRESS in facts
        else None,
        time=evidence.time,
        facts=facts,
    )
