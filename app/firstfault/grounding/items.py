"""What may a claim refer to? Items of evidence with ids, and what is fixed about the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from firstfault_tools.findings import Confidence, Verdict


class ItemKind(StrEnum):
    """Where an item comes from. USER: a person said it; it supports no claim about the machines."""

    LOG = "log"
    PAGE = "page"
    TOOL = "tool"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Item:
    """One quotable piece of evidence. `line` is 1-based, 0 for a whole artefact or a tool's result."""

    id: str
    kind: ItemKind
    text: str
    file: str = ""
    line: int = 0
    page: str = ""
    heading: str = ""
    url: str = ""
    rank: int | None = None
    host: str | None = None
    echo: str = ""
    """What the asker chose himself (a search pattern): it proves at most that nothing like it is there."""


@dataclass(frozen=True)
class Ground:
    """Everything a claim is held against.

    verdict_ids: items that the deterministic verdict stands on; verdict_text: its cause in words.
    private: texts that no claim may repeat (instructions to the model).
    """

    items: Mapping[str, Item]
    verdict: Verdict
    confidence: Confidence
    verdict_text: str = ""
    verdict_ids: frozenset[str] = frozenset()
    verdict_rank: int | None = None
    variables: frozenset[str] = frozenset()
    private: tuple[str, ...] = field(default=(), repr=False)
