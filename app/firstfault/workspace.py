"""What does every door need once? Knowledge and folders, loaded at first use and kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path

from firstfault.intake.collect import Collection, collect_bytes, collect_paths
from firstfault.investigation.diagnose import diagnose, explain_decisions
from firstfault.investigation.diagnosis import Diagnosis, SkippedInput
from firstfault.investigation.knowledge import Knowledge, load_knowledge
from firstfault.investigation.partial import list_unread
from firstfault.investigation.why import Why
from firstfault.paths import cache_folder, data_folder, knowledge_folder
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Level, Verdict
from firstfault_tools.log.executors import Workers


def _search(query: str, limit: int) -> Sequence[tuple[str, float]]:
    """Lexical page search, imported only when a question needs it."""
    from firstfault.knowledge_base.suggestion import search_pages

    return search_pages(query, limit)


@dataclass
class Workspace:
    """Folders and knowledge of one process."""

    knowledge_path: Path = field(default_factory=knowledge_folder)
    cache: Path | None = field(default_factory=cache_folder)
    spool: Path = field(default_factory=lambda: data_folder() / "evidence")

    @cached_property
    def knowledge(self) -> Knowledge:
        return load_knowledge(self.knowledge_path, self.cache, _search)

    def recognises(self, message: str) -> bool:
        """A signature of a cause or failure matches the message without any other line."""
        known = self.knowledge.signatures
        seen = known.match(message.encode(errors="replace"))
        lines = message.splitlines()
        return seen is not None and any(
            known.signatures[index].level in (Level.CAUSE, Level.FAILURE)
            and not known.signatures[index].needs
            and any(known.captures(index, line) is not None for line in lines)
            for index in seen.signatures
        )

    def diagnose_paths(
        self, paths: Sequence[Path], question: str = "", workers: Workers | None = None
    ) -> Diagnosis:
        """Diagnosis of files and folders as one incident."""
        return self.diagnose_collection(collect_paths(paths, self.spool), question, workers)

    def diagnose_text(self, name: str, data: bytes, question: str = "") -> Diagnosis:
        """Diagnosis of pasted or piped content."""
        return self.diagnose_collection(collect_bytes(name, data, self.spool), question)

    def diagnose_collection(
        self, collection: Collection, question: str = "", workers: Workers | None = None
    ) -> Diagnosis:
        """Diagnosis of what intake collected."""
        skipped = [SkippedInput(s.what, s.why) for s in collection.skipped]
        made = diagnose(collection.artefacts, self.knowledge, skipped, question, workers)
        return measure(made, collection)

    def explain_collection(
        self, collection: Collection, question: str = "", workers: Workers | None = None
    ) -> tuple[Diagnosis, Why]:
        """The same diagnosis, and how the judge came to it."""
        skipped = [SkippedInput(s.what, s.why) for s in collection.skipped]
        made, why = explain_decisions(
            collection.artefacts, self.knowledge, skipped, question, workers
        )
        return measure(made, collection), why


def measure(diagnosis: Diagnosis, collection: Collection) -> Diagnosis:
    """The diagnosis with since when, how long and how much, where something failed."""
    if diagnosis.verdict is Verdict.HEALTHY:
        return diagnosis
    # imported only where something failed
    from firstfault.postmortem.extent import add_extent

    unread = list_unread(diagnosis.input)
    if diagnosis.first_line is not None and diagnosis.first_line.file in unread:
        return diagnosis
    files = {a.name: a.path for a in collection.artefacts if a.name not in unread}
    return add_extent(diagnosis, files)
