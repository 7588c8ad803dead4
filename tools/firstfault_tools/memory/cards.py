"""How much memory does a card offer to a process?"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU model. total_gib: capacity as PyTorch reports it."""

    name: str
    total_gib: float


@cache
def list_cards() -> dict[str, Card]:
    """Every known card by lower-case name and alias."""
    data = json.loads(Path(__file__).with_name("cards.json").read_text(encoding="utf-8"))
    known: dict[str, Card] = {}
    for name, entry in data["cards"].items():
        card = Card(name, float(entry["total_gib"]))
        for alias in (name, *entry["aliases"]):
            known[alias.lower()] = card
    return known


@cache
def _list_plain() -> dict[str, Card]:
    return {_simplify(name): card for name, card in list_cards().items()}


def _simplify(name: str) -> str:
    """H100-80GB, `H100 80GB` and h100_80gb are one name."""
    return "".join(sign for sign in name.lower() if sign.isalnum())


def find_card(name: str) -> Card:
    """The card by name, alias, or a capacity in GiB written as a number."""
    known = _list_plain()
    plain = _simplify(name)
    for spelling in (plain, f"{plain}b"):
        if spelling in known:
            return known[spelling]
    text = name.strip().lower()
    number = text.removesuffix("gib").removesuffix("gb").strip()
    try:
        size = float(number)
    except ValueError:
        names = ", ".join(sorted({card.name for card in known.values()}))
        raise InvalidParameter("card", f"unknown {name!r}; one of {names}, or GiB") from None
    if not 0 < size < 10_000:
        raise InvalidParameter("card", f"capacity must be between 0 and 10000 GiB, got {size}")
    return Card(f"{size:g} GiB", size)
