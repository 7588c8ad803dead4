"""Each page of a wide category says which part of the system it is of."""

from __future__ import annotations

from firstfault.investigation.knowledge import load_knowledge
from firstfault.investigation.part import load_parts
from firstfault.paths import knowledge_folder
from firstfault_tools.findings import Category

GENERAL = {"environment-precheck"}
"""Pages of every part."""


def test_every_page_of_the_environment_has_a_part() -> None:
    pages = load_knowledge(knowledge_folder(), None).pages
    wide = {p.id for p in pages.values() if p.category is Category.ENVIRONMENT and not p.benign}
    assert wide - set(load_parts()) == GENERAL
    assert set(load_parts()) <= set(pages)
