"""Which knowledge page holds the fixes for a finding of these readers?"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from firstfault_tools.findings import Finding

TABLE = Path(__file__).with_name("pages.json")


@cache
def load_pages() -> Mapping[str, str]:
    """Page by kind of finding."""
    pages: Mapping[str, str] = json.loads(TABLE.read_text(encoding="utf-8"))
    return pages


def attach_pages(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings with their page; one that names a page already keeps it."""
    return tuple(
        finding if finding.page else replace(finding, page=load_pages().get(finding.kind))
        for finding in findings
    )
