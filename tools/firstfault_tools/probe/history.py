"""What had the kernel said before the probe ran? Past events weigh less than what was measured now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.excerpt import quote_line
from firstfault_tools.hardware.host import dmesg
from firstfault_tools.probe.records import ProbeRecord


def read_kernel_logs(records: Sequence[ProbeRecord]) -> list[Finding]:
    """Findings in the kernel lines that each node sent along.

    A program that once used a bad address says nothing about the node; a hardware event since boot does.
    """
    found: list[Finding] = []
    for record in records:
        lines = record.values.get("lines")
        if record.test != "kernel_log" or not isinstance(lines, list):
            continue
        numbered = [(n, line) for n, line in enumerate(lines, start=1) if isinstance(line, str)]
        for finding in dmesg.find_in_lines(numbered, record.file):
            hardware = finding.category is Category.HARDWARE
            past = finding.level in (Level.CAUSE, Level.FAILURE) and hardware
            found.append(
                replace(
                    finding,
                    level=Level.FAILURE if past else Level.CONTEXT,
                    title=f"{record.host}, since it was started: {finding.title}",
                    host=record.host,
                    evidence=tuple(
                        quote_line(record.file, record.line, place.text, host=record.host)
                        for place in finding.evidence[:1]
                    ),
                )
            )
    return found
