"""Which evidence is open, and what may be looked up in it? State of one server process.

`diagnose` opens evidence and returns its handle; the id of a recorded incident is a handle too. The
other tools read only files that a handle names.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from functools import cached_property
from pathlib import Path
from typing import Any

from firstfault.conversation.answerer import Question
from firstfault.conversation.rules import RuleAnswerer
from firstfault.conversation.written import answer_to_json
from firstfault.errors import InputUnreadable, UsageError
from firstfault.incidents.plain import to_plain
from firstfault.incidents.records import new_id
from firstfault.intake.collect import Collection, collect_bytes, collect_paths
from firstfault.intake.places import read_roots, refuse_outside, refuse_place
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.investigation.next_action import describe_answer
from firstfault.knowledge_base.search import SearchIndex, open_index
from firstfault.knowledge_base.warm import WarmSearch
from firstfault.plain_text import say_pattern_error
from firstfault.service import Service, open_service
from firstfault.settings import Settings
from firstfault.workspace import Workspace
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Finding
from firstfault_tools.log.window import read_window
from firstfault_tools.registry import Artefact, readers

MAX_OPEN, MAX_AROUND, MAX_HITS, MAX_LINE = 32, 100, 200, 600
MAX_SCAN_LINES, PIECE = 5_000_000, 2_000


@dataclass
class Desk:
    """Workspace, knowledge and open evidence."""

    workspace: Workspace = field(default_factory=Workspace)
    settings: Settings = field(default_factory=lambda: Settings())  # type: ignore[call-arg]
    _open: dict[str, Mapping[str, Path]] = field(default_factory=dict)
    _diagnoses: dict[str, Diagnosis] = field(default_factory=dict)

    @cached_property
    def _spool(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="firstfault-mcp-")

    @cached_property
    def roots(self) -> tuple[Path, ...]:
        """Folders below which files may be named; none: all that the user may read."""
        return read_roots(self.settings.mcp_roots)

    @cached_property
    def index(self) -> SearchIndex:
        return open_index(vectors=False)

    @cached_property
    def answering(self) -> WarmSearch:
        """Search of the conversation, with vectors from the first question on."""
        return WarmSearch(at_once=True)

    @cached_property
    def service(self) -> Service:
        return open_service(self.settings, workers=False)

    def diagnose(
        self, paths: Sequence[str] = (), text: str = "", question: str = ""
    ) -> dict[str, Any]:
        """Diagnosis with the handle of its evidence."""
        collection = self._collect(paths, text)
        diagnosis = self.workspace.diagnose_collection(collection, question)
        handle = self._keep(collection)
        self._diagnoses[handle] = diagnosis
        return {"evidence": handle, **describe_answer(diagnosis, self.workspace.knowledge.pages)}

    def ask(self, question: str, evidence: str = "") -> dict[str, Any]:
        """One turn of the conversation: a question alone, or about evidence that was diagnosed."""
        if not question.strip():
            raise UsageError("question: empty")
        files = self._files(evidence) if evidence else {}
        diagnosis = self._diagnoses.get(evidence)
        if evidence and diagnosis is None:
            diagnosis = self.service.diagnosis(evidence)
        asked = Question(evidence, 1, question, diagnosis, files, (), self.workspace.knowledge)
        return answer_to_json(
            next(iter(RuleAnswerer(self.answering).answer(asked))), evidence or None
        )

    def overview(self, evidence: str) -> dict[str, Any]:
        """Files of open evidence with size, lines, first and last line."""
        out = []
        for name, path in self._files(evidence).items():
            lines, first, last = 0, "", ""
            for number, text in _lines(path):
                lines, last = number, text
                first = first or text.strip()
            out.append(
                {
                    "file": name,
                    "bytes": path.stat().st_size,
                    "lines": lines,
                    "first_line": first[:MAX_LINE],
                    "last_line": last.strip()[:MAX_LINE],
                }
            )
        return {"evidence": evidence, "files": out}

    def window(self, evidence: str, file: str, line: int, around: int = 10) -> dict[str, Any]:
        """Numbered lines around one."""
        path = self._file(evidence, file)
        around = max(0, min(around, MAX_AROUND))
        found = read_window(path, max(1, line - around), max(1, line) + around)
        if not found:
            raise UsageError(f"{file} has no line {line}; `overview` tells how many it has")
        lines = [{"line": n, "text": t[:MAX_LINE]} for n, t in found]
        return {"file": file, "lines": lines}

    def grep(
        self,
        evidence: str,
        pattern: str,
        file: str = "",
        ignore_case: bool = True,
        limit: int = 50,
    ) -> dict[str, Any]:
        """Lines that match a regular expression (RE2 syntax)."""
        import re2

        options = re2.Options()
        options.case_sensitive = not ignore_case
        options.log_errors = False
        try:
            wanted = re2.compile(pattern, options)
        except re2.error as error:
            raise UsageError(
                f"pattern: {say_pattern_error(error)}; RE2 syntax, no lookaround"
            ) from error
        limit = max(1, min(limit, MAX_HITS))
        files = self._files(evidence)
        chosen = {file: self._file(evidence, file)} if file else files
        hits: list[dict[str, Any]] = []
        total = 0
        for name, path in chosen.items():
            for number, text in _lines(path):
                if wanted.search(text):
                    total += 1
                    if len(hits) < limit:
                        hits.append({"file": name, "line": number, "text": text[:MAX_LINE]})
        return {"matches": total, "shown": len(hits), "lines": hits}

    def search(self, query: str, limit: int = 5, category: str | None = None) -> dict[str, Any]:
        """Passages of the knowledge base."""
        if not query.strip():
            raise UsageError("query: empty; give words or the line of an error")
        found = self.index.search(query, max(1, min(limit, 10)), category=category)
        return {"passages": [asdict(f) for f in found]}

    def passage(self, page: str, heading: str = "") -> dict[str, Any]:
        """One section of a page, or the page's headings with its summary."""
        known = self.workspace.knowledge.pages.get(page)
        if known is None:
            raise UsageError(f"no page {page!r}; `search` gives page ids")
        section = known.section("" if heading in ("Summary", known.title) else heading)
        if section is None:
            names = ", ".join(s.heading or "Summary" for s in known.sections)
            raise UsageError(f"page {page} has no section {heading!r}; it has: {names}")
        headings = [s.heading or "Summary" for s in known.sections]
        return {
            "page": page,
            "title": known.title,
            "heading": heading or "Summary",
            "text": section.text,
            "headings": headings,
            "url": known.url,
        }

    def read(self, paths: Sequence[str], reader: str = "") -> dict[str, Any]:
        """What the readers of artefacts find in files, without a verdict."""
        collection = self._collect(paths, "")
        chosen = [r for r in readers() if not reader or r.name == reader]
        if not chosen:
            raise UsageError(
                f"no reader {reader!r}; there are: {', '.join(r.name for r in readers())}"
            )
        out: dict[str, Any] = {"evidence": self._keep(collection)}
        unread = {a.name for a in collection.artefacts}
        for one in chosen:
            mine = tuple(a for a in collection.artefacts if reader or _known(one.recognise, a))
            if mine:
                reading = one.read(mine)
                unread -= {a.name for a in mine}
                findings = [_finding(f) for f in reading.findings]
                out[one.name] = {"findings": findings, "data": to_plain(reading.data)}
        if unread:
            out["not_recognised"] = sorted(unread)
        return out

    def incidents(self, query: str = "", limit: int = 20) -> dict[str, Any]:
        """Recorded incidents; their ids are handles of evidence."""
        found = self.service.incidents(query, archived=None, limit=max(1, min(limit, 50)))
        keys = ("id", "title", "state", "verdict", "category", "root_cause", "host", "created")
        return {"incidents": [{k: to_plain(getattr(i, k)) for k in keys} for i in found]}

    def incident(self, incident: str) -> dict[str, Any]:
        """Diagnosis of a recorded incident."""
        diagnosis = self.service.diagnosis(incident)
        if diagnosis is None:
            raise UsageError(f"incident {incident} has no diagnosis yet")
        return {"evidence": incident, **describe_answer(diagnosis, self.workspace.knowledge.pages)}

    def experiments(self, incident: str = "") -> dict[str, Any]:
        """Experiments on record, with what to run next."""
        from firstfault.mcp_server.experiments import list_experiments

        return list_experiments(self.service, incident or None)

    def plan_experiment(
        self, hypothesis: str, command: str, expect: str, rate: float | None = None,
        incident: str = "", explanation: int | None = None, store: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """The plan of a test; stored only where that is asked for, run never."""
        from firstfault.experiments.by_hand import Claim
        from firstfault.mcp_server.experiments import plan_experiment

        claim = Claim(hypothesis, command, expect == "fails", rate, explanation)
        return plan_experiment(self.service, claim, incident or None, store)

    def record_trial(self, experiment: str, outcome: str, times: int = 1) -> dict[str, Any]:
        """Trials that a person ran, and what follows from them."""
        from firstfault.mcp_server.experiments import record_trials

        return record_trials(self.service, experiment, outcome, times)

    def _collect(self, paths: Sequence[str], text: str) -> Collection:
        spool = Path(self._spool.name)
        if text and paths:
            raise UsageError("give paths or text, not both; save the text to a file first")
        if text:
            return collect_bytes("pasted.txt", text.encode("utf-8", "replace"), spool)
        if not paths:
            raise UsageError("give `paths` (files or folders) or `text` (a log)")
        if any(not path.strip() for path in paths):
            raise UsageError("a path is empty; name a file or a folder")
        named = [Path(p).expanduser() for p in paths]
        for path in named:
            if why := self._refuse(path):
                raise UsageError(f"{path}: {why}")
        found = collect_paths(named, spool)
        # a link inside a folder, or one that was changed meanwhile, leads nowhere either
        kept = tuple(a for a in found.artefacts if self._is_inside(a.path, spool))
        if len(kept) < len(found.artefacts) and not kept:
            raise UsageError(f"nothing of this is below {', '.join(map(str, self.roots))}")
        return Collection(kept, found.skipped)

    def _refuse(self, path: Path) -> str:
        outside = refuse_outside(path, self.roots, "FIRSTFAULT_MCP_ROOTS") if self.roots else ""
        return outside or refuse_place(path, self.settings)

    def _is_inside(self, path: Path, spool: Path) -> bool:
        return path.resolve().is_relative_to(spool.resolve()) or not self._refuse(path)

    def _keep(self, collection: Collection) -> str:
        while len(self._open) >= MAX_OPEN:
            oldest = next(iter(self._open))
            del self._open[oldest]
            self._diagnoses.pop(oldest, None)
        handle = new_id()
        self._open[handle] = {a.name: a.path for a in collection.artefacts}
        return handle

    def _files(self, evidence: str) -> Mapping[str, Path]:
        if evidence in self._open:
            spool = Path(self._spool.name)
            return {n: p for n, p in self._open[evidence].items() if self._is_inside(p, spool)}
        self.service.incident(evidence)
        return self.service.record.shelf.artefacts(evidence)

    def _file(self, evidence: str, file: str) -> Path:
        files = self._files(evidence)
        if file not in files:
            names = ", ".join(list(files)[:20])
            raise UsageError(f"no file {file!r} in this evidence; it has: {names}")
        path = files[file]
        if not path.is_file():
            raise InputUnreadable(f"{file}: {path} is gone; diagnose it again")
        return path


def _lines(path: Path) -> Any:
    for first in range(1, MAX_SCAN_LINES, PIECE):
        window = read_window(path, first, first + PIECE - 1)
        yield from window
        if len(window) < PIECE:
            return


def _known(recognise: Any, artefact: Artefact) -> bool:
    return bool(recognise(artefact.name, artefact.head()))


def _finding(finding: Finding) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(finding)
    return {k: v for k, v in plain.items() if v not in (None, [], {}, "")}
