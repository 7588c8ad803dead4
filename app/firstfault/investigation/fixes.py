"""Which fixes may be shown? Those of the finding's page, with a log quote and a page quote each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from firstfault.grounding.advice import objections, raises_timeout
from firstfault.investigation.citations import CitationBook
from firstfault.investigation.diagnosis import Fix
from firstfault.investigation.examination import Examination
from firstfault.investigation.knowledge import Knowledge
from firstfault.investigation.stack import FrameworkTable, fits, read_frameworks
from firstfault_tools.findings import Evidence, Finding
from firstfault_tools.knowledge.page import Fix as PageFix
from firstfault_tools.knowledge.page import FixKind, Page

MAX_IMMEDIATE, MAX_STRUCTURAL = 4, 3


def choose_fixes(
    examination: Examination,
    finding: Finding,
    knowledge: Knowledge,
    book: CitationBook,
    log_citations: Sequence[int],
) -> tuple[Fix, ...]:
    """Fixes for one finding, none of another framework. Without a log citation or a page there are none."""
    page = knowledge.pages.get(finding.page or "")
    if page is None or page.benign or not log_citations:
        return ()
    out: list[Fix] = []
    counts = {FixKind.IMMEDIATE: 0, FixKind.STRUCTURAL: 0}
    limits = {FixKind.IMMEDIATE: MAX_IMMEDIATE, FixKind.STRUCTURAL: MAX_STRUCTURAL}
    for fix in _fitting(page.fixes, examination, finding, knowledge.frameworks):
        if counts[fix.kind] >= limits[fix.kind]:
            continue
        if objections(fix.text, fix.command, knowledge.variables):
            continue
        number = book.cite_page(page, fix.heading, _quotable(fix.quote, page, fix.heading))
        if number is None:
            continue
        counts[fix.kind] += 1
        out.append(
            Fix(
                text=_fill(fix.text, finding),
                kind=fix.kind.value,
                changes_state=fix.changes_state,
                citations=(log_citations[0], number),
                command=fix.command,
            )
        )
    out.sort(key=lambda f: (f.kind == FixKind.STRUCTURAL.value, raises_timeout(f.text)))
    return tuple(out)


def _fitting(
    fixes: Sequence[PageFix], examination: Examination, finding: Finding, table: FrameworkTable
) -> Iterator[PageFix]:
    """Those of no framework or of the run's own, in the order of the page."""
    owners = [table.owners(f"{fix.text}\n{fix.command or ''}") for fix in fixes]
    used = read_frameworks(examination, finding.evidence, table) if any(owners) else frozenset()
    yield from (fix for fix, of in zip(fixes, owners, strict=True) if fits(of, used))


def _quotable(quote: str, page: Page, heading: str) -> str:
    """The fix's own sentence as it stands on the page."""
    return quote if page.section(heading) is not None else ""


def _fill(text: str, finding: Finding) -> str:
    """{captures} in a page's fix become the incident's values."""
    values = {k: v for k, v in finding.facts.items() if isinstance(v, (str, int)) and v != ""}
    return re.sub(r"\{(\w+)\}", lambda m: str(values.get(m[1], m[0])), text)


def evidence_numbers(book: CitationBook, evidence: Sequence[Evidence]) -> list[int]:
    """Citation numbers of those pieces of evidence whose quotes hold."""
    return [n for e in evidence if (n := book.cite_log(e)) is not None]
