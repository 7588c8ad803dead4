"""What keeps this class of failure from coming back? A checklist, chosen from the knowledge tables."""

from __future__ import annotations

from pathlib import Path

from firstfault_tools.findings import Category
from firstfault_tools.knowledge.pack import read_yaml
from firstfault_tools.knowledge.page import Page, bullets


def choose_prevention(
    knowledge: Path,
    category: Category | None,
    signature: str | None,
    page: Page | None = None,
) -> tuple[str, ...]:
    """Items for this failure: those of its signature and page; of its category where it has none; general ones."""
    file = knowledge / "tables" / "prevention.yaml"
    if not file.is_file():
        return ()
    table = read_yaml(file.read_text(encoding="utf-8"))
    items: list[str] = []
    if signature:
        items += table.get("signatures", {}).get(signature, [])
    section = page.section("Prevent") if page is not None else None
    if section is not None:
        items += [" ".join(" ".join(b).split("```")[0].split()) for b in bullets(section.text)]
    if category is not None and not items:
        items += table.get("categories", {}).get(category.value, [])
    items += table.get("any", [])
    return tuple(dict.fromkeys(map(str, items)))
