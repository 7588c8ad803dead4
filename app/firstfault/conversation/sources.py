"""Which number does a quote have in one answer? Citations in order of first use, each place once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field

from firstfault.investigation.diagnosis import Citation, Diagnosis
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

_MARK = expression(r"\[(\d{1,3})\]")


@dataclass(slots=True)
class Sources:
    """Numbers the citations of one part in order of first use."""

    citations: list[Citation] = field(default_factory=list)

    def add(self, citation: Citation) -> str:
        """Mark of a citation."""
        for known in self.citations:
            if (known.kind, known.quote, known.file, known.line) == (
                citation.kind,
                citation.quote,
                citation.file,
                citation.line,
            ):
                return f"[{known.n}]"
        n = len(self.citations) + 1
        self.citations.append(
            Citation(
                n,
                citation.kind,
                citation.quote,
                citation.file,
                citation.line,
                citation.page,
                citation.heading,
                citation.url,
            )
        )
        return f"[{n}]"

    def carry(self, text: str, diagnosis: Diagnosis) -> str:
        """`text` of the diagnosis with its marks renumbered into this answer."""
        quotes = {c.n: c for c in diagnosis.citations}

        def renumber(match: re.Match[str]) -> str:
            citation = quotes.get(int(match[1]))
            return self.add(citation) if citation is not None else ""

        return _MARK.sub(renumber, text)

    def marks(self, numbers: Sequence[int], diagnosis: Diagnosis) -> str:
        """Marks of citations of the diagnosis, as numbered here."""
        quotes = {c.n: c for c in diagnosis.citations}
        return "".join(self.add(quotes[n]) for n in numbers if n in quotes)
