"""Which questions of practice have a plain answer? Rows below knowledge/rulings, with the ways in which people put them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from firstfault.errors import CannotAnalyse
from firstfault_tools.dataclass import dataclass
from firstfault_tools.knowledge.pack import load_rows, read_yaml

_KEYS = frozenset({"ask", "page", "heading", "forms", "say", "run", "source"})
_FORMS = frozenset({"should", "how", "why", "do", "what", "much"})
_OF_INTENT = frozenset({"ask", "intent"})


@dataclass(frozen=True, slots=True)
class Ruling:
    """One answer. say: its first sentence answers; run: a command, '' for none; page: where more stands.

    intent: the way of asking about an incident that the phrases mean; such a row has no answer of its own.
    heading: section of the page shown below, '' for none; source: address of a fact that is not the page's.
    forms: (form of question, the sentence that answers it), said before `say` where it is asked in that form.
    """

    id: str
    ask: tuple[str, ...]
    page: str
    heading: str
    say: str
    run: str
    source: str
    intent: str = ""
    forms: tuple[tuple[str, str], ...] = ()

    def opening(self, form: str | None) -> str:
        """The sentence that answers that form of question; '' where `say` does."""
        return next((text for name, text in self.forms if name == form), "")

    @property
    def phrases(self) -> Mapping[str, str]:
        """Entry id of the index -> the way of asking."""
        return {f"{self.id}!{n}": text for n, text in enumerate(self.ask)}


def load_rulings(folder: Path, pack: Path | None = None) -> tuple[Ruling, ...]:
    """Every ruling below `folder`; none where it does not exist. Errors name the file and the row."""
    if not folder.is_dir():
        return ()
    rows = load_rows(folder, ".yaml", _read_file, pack)
    return tuple(
        Ruling(
            row["id"], tuple(row["ask"]), row["page"], row["heading"], row["say"], row["run"],
            row["source"], row.get("intent", ""), tuple(row.get("forms", {}).items()),
        )
        for file in rows
        for row in file["rulings"]
    )  # fmt: skip


def _read_file(file: Path) -> dict[str, list[dict[str, object]]]:
    content = read_yaml(file.read_text(encoding="utf-8"))
    out: list[dict[str, object]] = []
    for number, row in enumerate(content["rulings"], 1):
        if row.keys() != _OF_INTENT and not {"ask", "page", "say"} <= row.keys() <= _KEYS:
            raise CannotAnalyse(
                f"{file}: row {number} has {sorted(row)}; wanted ask, page, say and, where needed, "
                f"heading, forms, run, source; or ask and intent"
            )
        if not set(row.get("forms", ())) <= _FORMS:
            raise CannotAnalyse(f"{file}: row {number} has forms that are none of {sorted(_FORMS)}")
        given = {"page": "", "say": "", "heading": "", "run": "", "source": "", "forms": {}, **row}
        out.append({**given, "id": f"{file.stem}/{number}", "ask": [str(a) for a in row["ask"]]})
    return {"rulings": out}
