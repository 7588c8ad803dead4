"""What does an investigation need to know? Signatures, pages, variables and artefacts to ask for.

One object, loaded once; the search is passed in, since only some questions need an index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any

from firstfault.grounding.quotes import flatten
from firstfault.investigation.precision import PrecisionTable
from firstfault.investigation.stack import FrameworkTable
from firstfault_tools.collectives.environment import variable_names
from firstfault_tools.dataclass import dataclass
from firstfault_tools.knowledge.pack import load_made, load_rows, own_file, read_yaml
from firstfault_tools.knowledge.page import Page, load_pages
from firstfault_tools.log.literals import read_literals, write_literals
from firstfault_tools.log.narrowing import name_index, read_index, write_index
from firstfault_tools.log.scan import build_set
from firstfault_tools.log.signature import SignatureSet, load_signatures

LEAST_COMMAND = 5
PageSearch = Callable[[str, int], Sequence[tuple[str, float]]]
"""(query, limit) -> (page id, score between 0 and 1), best first."""


@dataclass(frozen=True)
class Knowledge:
    """Everything written down that a diagnosis may use."""

    signatures: SignatureSet
    pages: Mapping[str, Page]
    variables: frozenset[str] = frozenset()
    artefacts: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    search: PageSearch | None = None
    frameworks: FrameworkTable = field(default_factory=lambda: FrameworkTable({}))
    precision: PrecisionTable | None = None
    """How often each kind of explanation was right; None leaves confidences as the tools give them."""

    @cached_property
    def lore(self) -> str:
        """Text of all pages and names of all signatures in lower case, white space as one space."""
        pages = "\n".join(
            f"{page.id} {page.title} " + " ".join(s.text for s in page.sections)
            for page in self.pages.values()
        )
        titles = "\n".join(s.title for s in self.signatures.signatures)
        return f"{flatten(pages)}\n{flatten(titles)}".lower()

    def tells_command(self, command: str) -> bool:
        """The command stands on a page, white space aside."""
        wanted = flatten(command).lower()
        return len(wanted) >= LEAST_COMMAND and wanted in self.lore


def load_knowledge(folder: Path, packs: Path | None, search: PageSearch | None = None) -> Knowledge:
    """Knowledge below `folder`; `packs` is the folder of the rebuilt-at-need cache files."""

    def pack(name: str) -> Path | None:
        return packs / f"{name}.pack" if packs is not None else None

    def read(file: Path) -> dict[str, Any]:
        return {"content": read_yaml(file.read_text(encoding="utf-8"))}

    extra = {
        row["content"].get("kind"): row["content"]
        for row in load_rows(folder / "tables", ".yaml", read, pack("tables"))
        if isinstance(row["content"], dict)
    }
    signatures = build_set(load_signatures(folder / "signatures", pack("signatures")))
    # the scanner's own marks stand in no file of signatures
    marks = signatures.marks
    read_literals(load_made(marks, lambda: write_literals(marks), pack("marks")))
    patterns = signatures.patterns
    index = load_made(name_index(patterns), lambda: write_index(patterns), own_file(folder, pack("narrowing")))  # fmt: skip
    read_index(patterns, index)
    return Knowledge(
        signatures=signatures,
        pages=load_pages(folder / "pages", pack("pages")),
        variables=variable_names(),
        artefacts=tuple(extra.get("next_artefacts", {}).get("rules", ())),
        search=search,
        frameworks=FrameworkTable(extra.get("frameworks", {}).get("frameworks", {})),
        precision=PrecisionTable.from_rows(extra.get("precision", {})),
    )
