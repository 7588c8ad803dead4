"""Which of nvidia-smi's own failures is this: lost GPU, driver mismatch, no driver, no device?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.hardware.bus import name_gpu, normalise_address
from firstfault_tools.hardware.excerpt import NumberedLine, quote_line


@dataclass(frozen=True, slots=True)
class _SmiError:
    marker: str
    pattern: re.Pattern[str]
    kind: str
    title: str
    level: Level
    category: Category


def _row(
    marker: str, pattern: str, kind: str, title: str, level: Level, category: Category
) -> _SmiError:
    return _SmiError(marker, expression(pattern), kind, title, level, category)


_ERRORS = (
    _row(
        "Unable to determine the device handle",
        r"Unable to determine the device handle for (?:gpu|GPU)\d*:?\s*"
        r"(?P<address>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d): (?P<what>[^.\n]{1,120})",
        "gpu_lost",
        "the driver cannot reach it ({what}); it has probably fallen off the bus",
        Level.CAUSE,
        Category.HARDWARE,
    ),
    _row(
        "GPU is lost",
        r"GPU is lost",
        "gpu_lost",
        "a GPU is lost to the driver",
        Level.CAUSE,
        Category.HARDWARE,
    ),
    _row(
        "Failed to initialize NVML: Driver/library version mismatch",
        r"Failed to initialize NVML: Driver/library version mismatch",
        "driver_mismatch",
        "the loaded kernel module and the NVIDIA libraries differ in version, as after an upgrade "
        "without a reboot",
        Level.CAUSE,
        Category.ENVIRONMENT,
    ),
    _row(
        "Failed to initialize NVML: Unknown Error",
        r"Failed to initialize NVML: Unknown Error",
        "devices_taken",
        "NVML does not start: in a container, mostly because the device permissions were reset under it",
        Level.CAUSE,
        Category.ENVIRONMENT,
    ),
    _row(
        "couldn't communicate with the NVIDIA driver",
        r"couldn't communicate with the NVIDIA driver",
        "driver_absent",
        "no NVIDIA driver is loaded on this host",
        Level.CAUSE,
        Category.ENVIRONMENT,
    ),
    _row(
        "No devices were found",
        r"^\s*No devices were found\s*$",
        "no_devices",
        "the driver sees no GPU",
        Level.CAUSE,
        Category.HARDWARE,
    ),
)
MARKERS = tuple(error.marker for error in _ERRORS)


def find_smi_errors(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """One finding for each failure and GPU."""
    found: dict[tuple[str, str | None], Finding] = {}
    for number, line in lines:
        for error in _ERRORS:
            if error.marker not in line or not (match := error.pattern.search(line)):
                continue
            groups = match.groupdict()
            address = normalise_address(groups.get("address") or "")
            gpu = name_gpu(address)
            title = error.title.format(what=(groups.get("what") or "").strip())
            key = (error.kind, address)
            if key not in found:
                found[key] = Finding(
                    kind=f"hardware.{error.kind}",
                    title=f"{gpu}: {title}" if gpu else title,
                    level=error.level,
                    category=error.category,
                    confidence=Confidence.CONFIRMED,
                    evidence=(quote_line(file, number, line),),
                    gpu=gpu,
                    facts={"pci_address": address},
                )
            break
    return tuple(_place_errors(found))


def _place_errors(found: Mapping[tuple[str, str | None], Finding]) -> Iterator[Finding]:
    """Failures without an address take that of the one GPU that another line of the same kind names."""
    for (kind, address), finding in found.items():
        placed = [f for (k, a), f in found.items() if k == kind and a]
        if address is None and len(placed) == 1:
            other = placed[0]
            yield replace(
                finding,
                title=f"{other.gpu}: {finding.title}",
                gpu=other.gpu,
                evidence=(*finding.evidence, *other.evidence),
                facts=other.facts,
            )
        else:
            yield finding
