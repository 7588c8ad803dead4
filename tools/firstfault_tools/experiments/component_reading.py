"""What do the records of a component test say in an incident? The part, or the rank, that carries the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import TEXT_BYTES, quote_line
from firstfault_tools.registry import Artefact, Reading

if TYPE_CHECKING:
    from firstfault_tools.experiments.component import Effect


def read_components(artefacts: tuple[Artefact, ...]) -> Reading:
    """All ranks and variants compared with each other."""
    from firstfault_tools.experiments.component import (
        BASELINE,
        WARM_UP,
        StepRecord,
        compare_variants,
        read_steps,
    )

    steps: list[StepRecord] = []
    quotes: dict[tuple[str, int], Evidence] = {}
    for artefact in artefacts:
        text = artefact.data(TEXT_BYTES).decode("utf-8", errors="replace")
        own = read_steps(text, artefact.name)
        steps += own
        for number, line in enumerate(text.splitlines(), 1):
            if f'"step": {WARM_UP},' in line:
                quotes.setdefault(
                    (own[0].variant, own[0].rank), quote_line(artefact.name, number, line)
                )
    effects = compare_variants(steps)
    base = [e for (variant, _), e in quotes.items() if variant == BASELINE][:1]
    findings = [
        _find(effect, (*_cite(effect, quotes), *base)) for effect in effects if effect.carries
    ]
    return Reading(tuple(f for f in findings if f.evidence), {"effects": [e.says for e in effects]})


def _cite(effect: Effect, quotes: dict[tuple[str, int], Evidence]) -> list[Evidence]:
    """A line of the variant, of the rank that is meant where one is."""
    variant = effect.component if not effect.ranks else "no_collectives"
    mine = [e for (v, rank), e in quotes.items() if v == variant and rank in (effect.ranks or (rank,))]  # fmt: skip
    return mine[:1]


def _find(effect: Effect, evidence: tuple[Evidence, ...]) -> Finding:
    if effect.ranks or effect.component == "synthetic_data":
        rank = effect.ranks[0] if effect.ranks else None
        return Finding(
            kind="component.slow_rank" if effect.ranks else "component.input",
            title=effect.says,
            level=Level.FAILURE,
            category=Category.PERFORMANCE,
            evidence=evidence,
            rank=rank,
            page="straggler-domination" if effect.ranks else "dataloader-stall",
            facts={"share": round(effect.share, 3)},
        )
    return Finding.of_slowness(
        f"component.{effect.component}", effect.says, evidence, weight=min(1.0, effect.share)
    )
