"""What do answers about an incident share? Its diagnosis, its post-mortem and the marks of its lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

from firstfault.conversation.answerer import Question
from firstfault.conversation.asked import Asked
from firstfault.conversation.evidence import Evidence, Line
from firstfault.conversation.rank_lines import hosts_of_ranks
from firstfault.conversation.sources import Sources
from firstfault.investigation.diagnosis import Diagnosis, Straggler
from firstfault.postmortem.draft import Draft, draft_report
from firstfault.postmortem.evidence import Artefacts
from firstfault.postmortem.impact import GivenFigures
from firstfault.postmortem.lost_work import RunRecord
from firstfault.postmortem.report import Cited, Report
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Verdict
from firstfault_tools.hardware.bus import call_gpu
from firstfault_tools.log.prefix import read_prefix

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
        """The cause as a short sentence; a name at its start is left as it is written."""
        return start_sentence(shorten_cause(self.diagnosis.root_cause))

    @property
    def whole_cause(self) -> str:
        """The cause with all that the verdict says of it."""
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
        gpu = call_gpu(d.gpu)
        named = f"host {self.host}" if self.host and d.first_failing_rank is None else d.place
        late = self.straggler
        if late is not None:
            host = self.rank_hosts.get(late.rank) or d.host
            named = f"rank {late.rank}{f' ({host})' if host else ''}"
        told = ", ".join(p for p in (named, gpu) if p)
        if not told and (found := _IN_CAUSE.search(d.root_cause)) is not None:
            return f"host {found['host']}"
        node = next((n for n in self.known_names if n not in told), "")
        return f"{told} on node {node}" if node else told

    @cached_property
    def host(self) -> str | None:
        """The host of the fault: as the verdict says, else that which wrote its first line."""
        d = self.diagnosis
        if d.host or d.verdict is not Verdict.FAULT or d.first_line is None:
            return d.host
        if (told := read_prefix(d.first_line.text)[0].host) is not None:
            return told
        wanted = d.hypotheses[0].for_ if d.hypotheses else ()
        others = {read_prefix(c.quote)[0].host for c in d.citations if c.n in wanted} - {None}
        return others.pop() if len(others) == 1 and d.category is Category.HARDWARE else None

    @property
    def waited(self) -> bool:
        """The fault is that something did not answer, not that a part of the node broke."""
        d = self.diagnosis
        return d.verdict is Verdict.FAULT and _WAITED.search(d.root_cause) is not None

    @property
    def straggler(self) -> Straggler | None:
        """The rank that its last enqueued collective gives away, where the verdict names none and its host agrees."""
        d, late = self.diagnosis, self.diagnosis.straggler
        if d.first_failing_rank is not None or d.verdict is not Verdict.FAULT:
            return None
        host = self.rank_hosts.get(late.rank) if late is not None else None
        return late if not host or not d.host or host == d.host else None

    @cached_property
    def rank_hosts(self) -> dict[int, str]:
        """Host of each rank, as the start of the log lists them."""
        return hosts_of_ranks(self.evidence.lines)

    @cached_property
    def known_names(self) -> tuple[str, ...]:
        """Other names of the host at fault: the node of its pod, as a listing of pods prints it."""
        host = self.host
        return (node,) if host and (node := node_of_pod(self.evidence.lines, host)) else ()

    def cited(self, cited: Cited) -> str:
        """A statement of the post-mortem with its marks as numbered here."""
        quotes = {c.n: c for c in self.report.citations}
        marks = "".join(self.sources.add(quotes[n]) for n in cited.citations if n in quotes)
        text = re.sub(r"\s?\[\d{1,3}\]", "", cited.text)
        return f"{text} {marks}".strip() + (" (assumed)" if cited.assumed else "")


_WAITED = expression(r"(?i)\bstuck in the kernel\b|\b(?:does|did) not (?:answer|respond)\b")
_IN_CAUSE = expression(r"\bon (?P<host>\d{1,3}(?:\.\d{1,3}){3}|[a-z][\w-]*\d[\w.-]*)\b")


def node_of_pod(lines: Sequence[Line], pod: str) -> str:
    """Node in the row of a pod, below a head with NAME and NODE; '' where no listing has it."""
    column = -1
    for line in lines:
        cells = re.split(r"\s{2,}|\t", line.text.strip())
        if "NODE" in cells and "NAME" in cells:
            column = cells.index("NODE")
        elif column > 0 and cells[0] == pod and len(cells) > column:
            return cells[column]
    return ""


_REST = expression(
    r"; the line says: |; together with it: |, called from |; what would decide it: |\. The usual reason: |\. (?=[A-Z][a-z]+ )"
)
LONG_CAUSE, LEAST_CAUSE = 240, 40
"""Characters above which a cause that stands beside an answer is cut at its next clause."""


def shorten_cause(cause: str) -> str:
    """What a cause says first: without the quote, the companions and the advice that the verdict adds."""
    head = _REST.split(cause)[0]
    if head.count("(") > head.count(")"):  # cut inside a quote of the line
        head += " ...)"
    if len(head) <= LONG_CAUSE:
        return head
    cut = max(head.rfind("; ", 0, LONG_CAUSE), head.rfind(": ", 0, LONG_CAUSE))
    return head[:cut] if cut > LEAST_CAUSE else head


def start_sentence(text: str) -> str:
    """`text` with a capital, unless it begins with a name that holds digits or capitals."""
    text = text.strip().rstrip(".")
    first = text.split(" ", 1)[0]
    if re.search(r"[\dA-Z_]", first):
        return text
    return text[:1].upper() + text[1:]
