"""How are quotes numbered? Citations in order of first use, each place once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from firstfault.investigation.diagnosis import Citation, CitationKind
from firstfault_tools.findings import Evidence
from firstfault_tools.hardware.host.tables import is_heading
from firstfault_tools.knowledge.page import Page

LogCheck = Callable[[str, int, str], bool]
"""(file, line, quote) -> the quote stands at that line of that file."""

MAX_QUOTE = 1_200


class CitationBook:
    """Numbers citations and refuses those whose quote does not hold."""

    def __init__(self, log_holds: LogCheck) -> None:
        self._log_holds = log_holds
        self._numbers: dict[tuple[str, str, int | str, str], int] = {}
        self._citations: list[Citation] = []
        self.refused = 0

    @property
    def citations(self) -> tuple[Citation, ...]:
        return tuple(self._citations)

    def cite_logs(self, evidence: Iterable[Evidence]) -> list[int]:
        """Numbers of those quotes that hold."""
        return [n for e in evidence if (n := self.cite_log(e)) is not None]

    def cite_log(self, evidence: Evidence) -> int | None:
        """Number of a log or artefact quote; None when it does not stand there, or is a table's heading or ruler."""
        quote = evidence.text[:MAX_QUOTE]
        if is_heading(quote):
            return None
        if evidence.line == 0:
            key = ("tool", evidence.file, evidence.line, quote)
            return self._add(key, CitationKind.TOOL, quote, file=evidence.file, line=0)
        key = ("log", evidence.file, evidence.line, "")
        if key in self._numbers:
            return self._numbers[key]
        if not quote.strip() or not self._log_holds(evidence.file, evidence.line, quote):
            self.refused += 1
            return None
        return self._add(key, CitationKind.LOG, quote, file=evidence.file, line=evidence.line)

    def cite_page(self, page: Page, heading: str, quote: str) -> int | None:
        """Number of a quote from a page's section; None when it does not stand there."""
        from firstfault.grounding.quotes import quote_holds

        section = page.section(heading)
        quote = quote[:MAX_QUOTE]
        if section is None or not quote_holds(quote, section.text):
            self.refused += 1
            return None
        key = ("page", page.id, heading, quote)
        return self._add(
            key, CitationKind.PAGE, quote, page=page.id, heading=heading or page.title, url=page.url
        )

    def _add(
        self,
        key: tuple[str, str, int | str, str],
        kind: CitationKind,
        quote: str,
        *,
        file: str | None = None,
        line: int | None = None,
        page: str | None = None,
        heading: str | None = None,
        url: str | None = None,
    ) -> int:
        if key not in self._numbers:
            n = len(self._citations) + 1
            self._numbers[key] = n
            self._citations.append(Citation(n, kind, quote, file, line, page, heading, url))
        return self._numbers[key]
