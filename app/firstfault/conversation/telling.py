"""What do answers about an incident share? Its diagnosis, its post-mortem and the marks of its lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from firstfault.conversation.answerer import Question
from firstfault.conversation.asked import Asked
from firstfault.conversation.evidence import Evidence
from firstfault.conversation.sources import Sources
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.postmortem.draft import Draft, draft_report
from firstfault.postmortem.evidence import Artefacts
from firstfault.postmortem.impact import GivenFigures
from firstfault.postmortem.lost_work import RunRecord
from firstfault.postmortem.report import Cited, Report
from firstfault_tools.findings import Confidence

SURE = {
    Confidence.CONFIRMED: "This is confirmed",
    Confidence.LIKELY: "This is likely, not proven",
    Confidence.POSSIBLE: "This is one possibility, not proven",
    Confidence.UNKNOWN: "The cause is open",
}


@dataclass(frozen=True)
class Answering:
    """One question about one incident, with the sources that its answer numbers."""

    question: Question
    diagnosis: Diagnosis
    sources: Sources

    @property
    def main(self) -> str:
        """Marks of the lines that carry the verdict."""
        first = self.diagnosis.hypotheses[:1]
        return self.sources.marks(first[0].for_[:2] if first else (), self.diagnosis)

    @property
    def cause(self) -> str:
        """The cause as a sentence; a name at its start is left as it is written."""
        return start_sentence(self.diagnosis.root_cause)


@dataclass(frozen=True)
class Telling(Answering):
    """One incident, told for one question."""

    asked: Asked

    @cached_property
    def report(self) -> Report:
        from firstfault.paths import knowledge_folder

        q = self.asked.quantities
        figures = GivenFigures(gpus=q.gpus, price=q.price)
        files = {n: p for n, p in self.question.artefacts.items() if p.is_file()}
        return draft_report(
            Draft("", self.question.incident, self.diagnosis, files, knowledge_folder(), figures)
        )

    @cached_property
    def evidence(self) -> Evidence:
        """Every line of the files."""
        return Evidence(self.question)

    @cached_property
    def record(self) -> RunRecord:
        """Steps, checkpoints and ends of the run."""
        files = {n: p for n, p in self.question.artefacts.items() if p.is_file()}
        return RunRecord(self.diagnosis, Artefacts(files, self.diagnosis.citations))

    @property
    def place(self) -> str:
        """'rank 11 (local 3, gpu-a17), GPU 3', as far as known."""
        d = self.diagnosis
        gpu = (d.gpu if d.gpu.startswith(("GPU", "PCI")) else f"GPU {d.gpu}") if d.gpu else ""
        named = f"host {d.host}" if d.host and d.first_failing_rank is None else d.place
        return ", ".join(p for p in (named, gpu) if p)

    def cited(self, cited: Cited) -> str:
        """A statement of the post-mortem with its marks as numbered here."""
        quotes = {c.n: c for c in self.report.citations}
        marks = "".join(self.sources.add(quotes[n]) for n in cited.citations if n in quotes)
        text = re.sub(r"\s?\[\d{1,3}\]", "", cited.text)
        return f"{text} {marks}".strip() + (" (assumed)" if cited.assumed else "")


def start_sentence(text: str) -> str:
    """`text` with a capital, unless it begins with a name that holds digits or capitals."""
    text = text.strip().rstrip(".")
    first = text.split(" ", 1)[0]
    if re.search(r"[\dA-Z_]", first):
        return text
    return text[:1].upper() + text[1:]
