"""What did the kernel say: Xids, memory kills, machine checks, PCIe, NIC and disk errors?

Reads dmesg (any locale, with or without `-T`), syslog, `journalctl -k` as text or JSON lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding
from firstfault_tools.hardware.excerpt import NumberedLine, keep_marked, read_lines
from firstfault_tools.hardware.gpu.xids import MARKERS as XID_MARKERS
from firstfault_tools.hardware.gpu.xids import find_xids
from firstfault_tools.hardware.host.kernel_events import find_kernel_events, list_markers
from firstfault_tools.hardware.host_name import attach_host
from firstfault_tools.hardware.host_sections import attach_sections
from firstfault_tools.registry import Artefact, Reader, Reading

_NAMES = expression(
    r"(?:^|[/_.-])(?:dmesg|kern(?:el)?|syslog|messages|journal(?:ctl)?|kmsg)(?:[/_.-]|\d|$)"
)
_BOOT_STAMP = expression(rb"^\[\s*\d{1,10}\.\d{6}\] ", re.MULTILINE)
_KERNEL_SENDER = expression(rb"^(?:[A-Z][a-z]{2} +\d|\d{4}-)[^\n]{8,60} kernel: ", re.MULTILINE)
_LOCAL_STAMP = expression(
    rb"^\[[^\]\n]{6,40}\d{2}:\d{2}:\d{2} \d{4}\] (?:NVRM|nvidia|pci|mlx5|EXT4|Out of|Memory c|systemd|mce|nvme|usb)",
    re.MULTILINE,
)


def list_all_markers() -> tuple[str, ...]:
    """Substrings without which nothing is found here."""
    return (*XID_MARKERS, *list_markers())


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Kernel findings among numbered lines of any text; cheap where no marker occurs."""
    kept = keep_marked(lines, list_all_markers())
    if not kept:
        return ()
    return (*find_xids(kept, file), *find_kernel_events(kept, file))


def recognise_dmesg(name: str, head: bytes) -> bool:
    """A kernel log by its name or by what most of its first lines look like."""
    if b"\0" in head:
        return False
    stamped, total = _count_stamps(head[:2048])
    if stamped * 8 > total:  # most files are no kernel log: look closer only where some lines are
        stamped, total = _count_stamps(head[:16384])
        if stamped * 2 > total:
            return True
    if not _NAMES.search(name.lower()):
        return False
    return stamped > 0 or b"NVRM: " in head or b"kernel: " in head or b"[Hardware Error]" in head


def _count_stamps(text: bytes) -> tuple[int, int]:
    """Lines that begin as the kernel's do, and all lines."""
    stamped = sum(len(p.findall(text)) for p in (_BOOT_STAMP, _KERNEL_SENDER, _LOCAL_STAMP))
    return stamped, text.count(b"\n") + 1


def read_dmesg(artefacts: tuple[Artefact, ...]) -> Reading:
    """Findings of every kernel log, one host each unless its lines or a prompt name hosts."""
    findings: list[Finding] = []
    files: dict[str, int] = {}
    for artefact in artefacts:
        lines = read_lines(artefact)
        files[artefact.name] = len(lines)
        told = attach_sections(find_in_lines(lines, artefact.name), lines)
        findings.extend(attach_host(told, artefact.name))
    return Reading(tuple(findings), {"lines_read": files})


SIGNS = (
    "kernel: ", "NVRM: ", "[Hardware Error]",
    r"re:(?m)^\[\s*\d{1,10}\.\d{6}\] |\d{4}\] (?:NVRM|nvidia|pci|mlx5|EXT4|Out of|Memory c|systemd|mce|nvme|usb)",
)  # fmt: skip

READER = Reader(
    name="dmesg",
    summary="Kernel log: Xids and SXids with their meaning, memory kills, machine checks, PCIe, NICs, disks",
    recognise=recognise_dmesg,
    read=read_dmesg,
    # daemons write to the same journal: what they say is for the log scan
    owns=False,
)
