"""Below which score should the diagnosis suggest no page? Precision and coverage of each floor.

python -m evals.retrieval.floor
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from firstfault.knowledge_base.recognition import Recogniser
from firstfault.knowledge_base.suggestion import search_pages
from firstfault.paths import knowledge_folder
from firstfault_tools.knowledge.pack import read_yaml

LINES = Path(__file__).parent / "lines.yaml"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What the search suggests for one line that no signature names."""

    line: str
    split: str
    page: str | None
    score: float
    right: bool
    answerable: bool


def suggest_pages(file: Path = LINES) -> tuple[Suggestion, ...]:
    """Best page of every line without a signature."""
    recogniser = Recogniser(knowledge_folder() / "signatures")
    out = []
    for row in read_yaml(file.read_text(encoding="utf-8")):
        if recogniser.weigh_pages([row["line"]]):
            continue
        found = search_pages(row["line"], 1)
        page, score = found[0] if found else (None, 0.0)
        right = page in row["pages"]
        out.append(Suggestion(row["line"], row["split"], page, score, right, bool(row["pages"])))
    return tuple(out)


def measure_floor(suggestions: Sequence[Suggestion], floor: float) -> tuple[float, float, int]:
    """(precision, share of answerable lines answered rightly, lines suggested for) at a floor."""
    shown = [s for s in suggestions if s.score >= floor]
    right = sum(s.right for s in shown)
    answerable = sum(s.answerable for s in suggestions)
    return right / len(shown) if shown else 1.0, right / max(answerable, 1), len(shown)


def main() -> None:
    """Print precision and coverage for a row of floors, by split."""
    suggestions = suggest_pages()
    for split in ("dev", "held"):
        chosen = [s for s in suggestions if s.split == split]
        print(f"{split}: {len(chosen)} lines, {sum(s.answerable for s in chosen)} answerable")
        for percent in range(10, 75, 5):
            precision, coverage, shown = measure_floor(chosen, percent / 100)
            print(f"  {percent / 100:.2f} {precision:.2f} {coverage:.2f} {shown}")


if __name__ == "__main__":
    main()
