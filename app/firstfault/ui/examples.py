"""Which example incidents are bundled? Cases of the evals, also in an installed wheel."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

from firstfault.service import NewIncident, Upload
from firstfault_tools.dataclass import dataclass

_HERE = Path(__file__).parent
_LIST = _HERE / "examples.yaml"


@dataclass(frozen=True, slots=True)
class Example:
    """One bundled case: what the card says, and where its files are."""

    id: str
    title: str
    teaser: str
    question: str
    files: tuple[Path, ...]

    def read(self) -> NewIncident:
        """The case as a new incident, whose title will be its fault."""
        inputs = tuple(Upload(f.name, f.read_bytes()) for f in self.files)
        return NewIncident(inputs, self.question)


@cache
def list_examples() -> tuple[Example, ...]:
    """Examples whose files are there, in the order of the list."""
    listed = yaml.safe_load(_LIST.read_text(encoding="utf-8"))["examples"]
    out = []
    for entry in listed:
        folder = _folder(entry["case"])
        if folder is None:
            continue
        files = tuple(sorted(p for p in folder.iterdir() if p.is_file() and p.name != "case.yaml"))
        out.append(
            Example(
                entry["case"], entry["title"], entry["teaser"], entry.get("question", ""), files
            )
        )
    return tuple(out)


def _folder(case: str) -> Path | None:
    """Inside the wheel, or in the checkout."""
    package = _HERE.parent
    checkout = package.parent.parent / "evals" / "cases" / "dev"
    folders = (package / "_examples" / case, *checkout.glob(f"*/{case}"))
    return next((folder for folder in folders if folder.is_dir()), None)
