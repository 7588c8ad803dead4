"""What became of the hypotheses that were put to an experiment? Refuted ones stay in sight, with the reason."""

from __future__ import annotations

from collections.abc import Sequence

from firstfault.investigation.citations import CitationBook
from firstfault.investigation.diagnosis import Hypothesis
from firstfault_tools.facts import Fact
from firstfault_tools.findings import Confidence, Finding

MOST = 8


def tested_hypotheses(
    findings: Sequence[Finding], told: Sequence[str], book: CitationBook
) -> tuple[Hypothesis, ...]:
    """Rows for hypotheses that an experiment refuted, or supported where no finding says the same."""
    out = []
    for finding in findings:
        if finding.kind not in ("experiment.refuted", "experiment.supported"):
            continue
        words = finding.text(Fact.ROOT_CAUSE) or finding.text(Fact.HYPOTHESIS)
        numbers = tuple(book.cite_logs(finding.evidence))
        refuted = finding.kind == "experiment.refuted"
        if not words or not numbers or (not refuted and _is_told(words, finding.title, told)):
            continue
        out.append(
            Hypothesis(
                words,
                finding.category,
                Confidence.UNKNOWN if refuted else Confidence.LIKELY,
                () if refuted else numbers,
                numbers if refuted else (),
                page=finding.page or "",
            )
        )
    return tuple(out[:MOST])


def _is_told(words: str, title: str, told: Sequence[str]) -> bool:
    return any(t == title or words.lower() in t.lower() or t.lower() in words.lower() for t in told)
