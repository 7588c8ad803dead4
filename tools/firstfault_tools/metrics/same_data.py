"""Do all ranks read the same samples? Ids or losses that are equal to the last digit on every rank.

Ranks of one replica group (tensor or pipeline parallel) share their data, and losses are often averaged
before they are printed, so this is a fact for somebody who misses a speed-up or accuracy, not a fault.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import keep_marked
from firstfault_tools.log.speaker import read_speaker

MARKERS = (
    " ids",
    " indices",
    "sample_ids",
    " idx",
    "samples:",
    "batch:",
    "sample ids",
    "file names",
)
LOSS_MARKERS = ("seed ", "seed=", "seed:")
MOST, LEAST_RANKS, LEAST_STEPS = 2_000, 2, 3
_LIST = expression(r"[\[(](?P<items>[^\[\]()]{5,400})[\])]\s*$")
_WORDS = expression(r"(?i)\b(?:ids?|indices|indexes|idx|samples?|files?|images?|names|batch)\b")
_PREFIX = expression(r"(?i)^\W{0,2}(?:rank|worker|process|gpu)?[ _:=]*\d{1,6}\W{1,3}")
_LOSS = expression(r"\bstep (?P<step>\d{1,9}) .{0,40}?\bloss[ :=]{1,2}(?P<loss>\d+\.\d{5,})\b")


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The same first samples, or the same unaveraged losses, on all ranks that speak."""
    kept = keep_marked(lines, MARKERS)[:MOST]
    found = _find_ids(kept, file) if len(kept) >= LEAST_RANKS else None
    if found is None and (seeded := keep_marked(lines, LOSS_MARKERS)[:MOST]):
        found = _find_losses(seeded, file)
    return (found,) if found is not None else ()


def _find_ids(kept: Sequence[tuple[int, str]], file: str) -> Finding | None:
    groups: dict[str, dict[int, tuple[str, tuple[int, str]]]] = defaultdict(dict)
    for number, text in kept:
        listed = _LIST.search(text[:2000])
        if listed is None or listed["items"].count(",") < 2:
            continue
        head = text[: listed.start()]
        rank = read_speaker(text)[0].rank
        if rank is None or not _WORDS.search(head):
            continue
        key = re.sub(r"\d+", "0", _PREFIX.sub("", head))
        groups[key].setdefault(rank, (listed["items"], (number, text)))
    for told in groups.values():
        if len(told) < LEAST_RANKS or len({items for items, _ in told.values()}) != 1:
            continue
        items = next(iter(told.values()))[0]
        if len(set(re.split(r",\s*", items))) < 3:
            continue
        what = f"all {len(told)} ranks print the same samples ({items[:60]})"
        return _make(what, [place for _, place in list(told.values())[:2]], file, 0.85)
    return None


def _find_losses(kept: Sequence[tuple[int, str]], file: str) -> Finding | None:
    steps: dict[str, dict[int, tuple[str, tuple[int, str]]]] = defaultdict(dict)
    for number, text in kept:
        told = _LOSS.search(text[:1000])
        rank = read_speaker(text)[0].rank if told is not None else None
        if told is not None and rank is not None:
            steps[told["step"]].setdefault(rank, (told["loss"], (number, text)))
    full = [by for by in steps.values() if len(by) >= LEAST_RANKS]
    if len(full) < LEAST_STEPS or any(len({v for v, _ in by.values()}) > 1 for by in full):
        return None
    what = f"the losses of all {len(full[0])} ranks are identical to the last digit at every step, and so is their seed"
    return _make(what, [place for _, place in list(full[0].values())[:2]], file, 0.5)


def _make(what: str, places: Sequence[tuple[int, str]], file: str, weight: float) -> Finding:
    title = (
        f"{what}: the data set is not split among the ranks (no DistributedSampler, or one seed that shuffles the same batch on each), "
        "so every rank trains on the same data: no speed-up, and the effective batch is that of one rank"
    )
    return Finding(
        kind="metrics.same_data",
        title=title,
        level=Level.CONTEXT,
        category=Category.DATA,
        confidence=Confidence.LIKELY,
        evidence=tuple(Evidence(file, n, t.strip()[:400]) for n, t in places),
        page="uneven-data-across-ranks",
        facts={"explains": "slow", "also": "unlearned", "weight": weight},
    )
