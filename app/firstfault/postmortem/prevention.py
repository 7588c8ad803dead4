"""What keeps this class of failure from coming back? A checklist, chosen from the knowledge tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    table = _read_table(knowledge)
    items = _own_items(table, category, signature, page)
    return tuple(dict.fromkeys(map(str, [*items, *table.get("any", [])])))


def choose_safeguard(
    knowledge: Path, category: Category | None, signature: str | None, page: Page | None = None
) -> str:
    """The first item that is of this failure and not of all; '' where there is none."""
    items = _own_items(_read_table(knowledge), category, signature, page)
    return str(items[0]) if items else ""


def _read_table(knowledge: Path) -> Mapping[str, Any]:
    file = knowledge / "tables" / "prevention.yaml"
    return read_yaml(file.read_text(encoding="utf-8")) if file.is_file() else {}


def _own_items(
    table: Mapping[str, Any], category: Category | None, signature: str | None, page: Page | None
) -> list[str]:
    items: list[str] = []
    if signature:
        items += table.get("signatures", {}).get(signature, [])
    section = page.section("Prevent") if page is not None and table else None
    if section is not None:
        items += [" ".join(" ".join(b).split("```")[0].split()) for b in bullets(section.text)]
    if category is not None and not items:
        items += table.get("categories", {}).get(category.value, [])
    return items
