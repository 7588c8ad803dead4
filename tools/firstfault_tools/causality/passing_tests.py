"""What does a passing test of the machines say beside a run? That they could do it, and nothing of the run itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.findings import Finding, Level
from firstfault_tools.roles import Role

PASSED = "network.nccl_passed"


def weigh_passing_tests(logs: LogIncident, findings: Iterable[Finding]) -> list[Finding]:
    """A passing test is context where a log of the run was read; alone it is the answer."""
    found = list(findings)
    if not any(f.kind == PASSED for f in found):
        return found
    tests = {e.file for f in found if f.kind == PASSED for e in f.evidence}
    runs = (d.file for d in logs.digests if d.file not in tests)
    if not any(logs.role_of(file) is Role.RUN for file in runs):
        return found
    return [replace(f, level=Level.CONTEXT) if f.kind == PASSED else f for f in found]
