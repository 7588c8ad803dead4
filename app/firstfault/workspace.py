"""What does every door need once? Knowledge and folders, loaded at first use and kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path

from firstfault.intake.collect import Collection, collect_bytes, collect_paths
from firstfault.investigation.diagnose import conclude, explain_decisions
from firstfault.investigation.diagnosis import Diagnosis, SkippedInput
from firstfault.investigation.examination import examine
from firstfault.investigation.knowledge import Knowledge, load_knowledge
from firstfault.investigation.partial import list_unread
from firstfault.investigation.why import Why
from firstfault.paths import cache_folder, data_folder, knowledge_folder
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Level, Verdict
from firstfault_tools.log.digest import FileDigest
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
        examination = examine(collection.artefacts, self.knowledge.signatures, workers)
        made = conclude(examination, collection.artefacts, self.knowledge, skipped, question)
        return measure(made, collection, examination.logs.digests)

    def explain_collection(
        self, collection: Collection, question: str = "", workers: Workers | None = None
    ) -> tuple[Diagnosis, Why]:
        """The same diagnosis, and how the judge came to it."""
        skipped = [SkippedInput(s.what, s.why) for s in collection.skipped]
        made, why = explain_decisions(
            collection.artefacts, self.knowledge, skipped, question, workers
        )
        return measure(made, collection, why.examination.logs.digests), why


def measure(
    diagnosis: Diagnosis, collection: Collection, digests: Sequence[FileDigest] = ()
) -> Diagnosis:
    """The diagnosis with since when, how long and how much, where something failed; of what is too large to be measured
    at once, or was not read to its end, since when by its digests."""
    if diagnosis.verdict is Verdict.HEALTHY:
        return diagnosis
    # imported only where something failed
    files = {a.name: a.path for a in collection.artefacts}
    unread = list_unread(diagnosis.input)
    if diagnosis.first_line is None or diagnosis.first_line.file not in unread:
        from firstfault.postmortem.extent import add_extent, is_small

        whole = {name: path for name, path in files.items() if name not in unread}
        if is_small(whole):
            return add_extent(diagnosis, whole)
    from firstfault.postmortem.near import add_since

    return add_since(diagnosis, files, digests)
