"""Which page carries which section of the seed documents? Writes knowledge/COVERAGE.md.

python -m evals.coverage
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import yaml

from firstfault_tools.knowledge.page import parse_page

KNOWLEDGE = Path(__file__).parent.parent / "knowledge"
TARGET = KNOWLEDGE / "COVERAGE.md"


def write_coverage() -> str:
    """Markdown list of every seed section with its pages, and of what pages correct."""
    pages = [
        parse_page(f.read_text(encoding="utf-8"), f.relative_to(KNOWLEDGE / "pages").as_posix())
        for f in sorted((KNOWLEDGE / "pages").rglob("*.md"))
    ]
    carried: dict[str, list[str]] = defaultdict(list)
    for page in pages:
        for section in page.get("covers") or ():
            carried[str(section)].append(f"[{page['id']}](pages/{page['path']})")
    lines = [
        "# What the pages cover",
        "",
        "Every section of the five documents the project grew from, and the pages that hold it. Made by",
        "`python -m evals.coverage` from the pages' front matter; a test keeps it true.",
    ]
    seeds = yaml.safe_load((KNOWLEDGE / "seeds.yaml").read_text(encoding="utf-8"))["seeds"]
    for number, seed in seeds.items():
        lines += ["", f"## {number}: {seed['title']}", "", "| section | pages |", "| --- | --- |"]
        for section in seed["sections"]:
            held = ", ".join(carried.get(f"{number}: {section}", [])) or "no facts to carry over"
            lines.append(f"| {section.replace('|', '/')} | {held} |")
    lines += [
        "",
        "## Corrections",
        "",
        "What a page says differently from its sources, and why.",
        "",
    ]
    for page in pages:
        for correction in page.get("corrects") or ():
            lines.append(f"- [{page['id']}](pages/{page['path']}): {correction}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(write_coverage(), encoding="utf-8")
