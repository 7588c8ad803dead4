"""Which evidence is open, and what may be looked up in it? State of one server process.

`diagnose` opens evidence and returns its handle; the id of a recorded incident is a handle too. The
other tools read only files that a handle names.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from firstfault.errors import InputUnreadable, UsageError
from firstfault.incidents.plain import to_plain
from firstfault.incidents.records import new_id
from firstfault.intake.collect import Collection, collect_bytes, collect_paths
from firstfault.knowledge_base.search import SearchIndex, open_index
from firstfault.plain_text import say_pattern_error
from firstfault.service import Service, open_service
from firstfault.workspace import Workspace
from firstfault_tools.findings import Finding
from firstfault_tools.log.window import read_window
from firstfault_tools.registry import Artefact, readers

MAX_OPEN, MAX_AROUND, MAX_HITS, MAX_LINE = 32, 100, 200, 600
MAX_SCAN_LINES, PIECE = 5_000_000, 2_000


@dataclass
class Desk:
    """Workspace, knowledge and open evidence."""

    workspace: Workspace = field(default_factory=Workspace)
    _open: dict[str, Mapping[str, Path]] = field(default_factory=dict)

    @cached_property
    def _spool(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="firstfault-mcp-")

    @cached_property
    def index(self) -> SearchIndex:
        return open_index(vectors=False)

    @cached_property
    def service(self) -> Service:
        return open_service(workers=False)

    def diagnose(
        self, paths: Sequence[str] = (), text: str = "", question: str = ""
    ) -> dict[str, Any]:
        """Diagnosis with the handle of its evidence."""
        collection = self._collect(paths, text)
        diagnosis = self.workspace.diagnose_collection(collection, question)
        return {"evidence": self._keep(collection), **diagnosis.to_json()}

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
        return {"evidence": incident, **diagnosis.to_json()}

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
        return collect_paths([Path(p).expanduser() for p in paths], spool)

    def _keep(self, collection: Collection) -> str:
        while len(self._open) >= MAX_OPEN:
            del self._open[next(iter(self._open))]
        handle = new_id()
        self._open[handle] = {a.name: a.path for a in collection.artefacts}
        return handle

    def _files(self, evidence: str) -> Mapping[str, Path]:
        if evidence in self._open:
            return self._open[evidence]
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
