"""Do all ranks, or all epochs, read the same samples? Ids or losses that are equal where they should differ.

An order that is the same in every epoch was never shuffled anew: a call is missing in the program, a bug of
code. A pass that begins in the middle of the data set in every epoch keeps the offset of a resume: the state
of the loader is wrong, a fault of data. Ranks of one replica group (tensor or pipeline parallel) share their
data, and losses are often averaged before they are printed, so the same samples on all ranks are a fact for
somebody who misses a speed-up or accuracy, not a fault.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.excerpt import keep_marked, quote_line
from firstfault_tools.log.prefix import read_prefix

MARKERS = (
    "ids: [",
    "ids [",
    "ids=[",
    "indices: [",
    "indices=[",
    "indices [",
    "idx: [",
    "idx=[",
    "samples: [",
    "samples [",
    "batch: [",
    "batch [",
    " ids: tensor(",
    "files: [",
    "first id",
    "first ind",
    "first sample",
    "start id",
    "start ind",
    "starts at",
    "begins at",
    "last id",
    "last ind",
    " to index",
)
LOSS_MARKERS = ("seed ", "seed=", "seed:")
MOST, LEAST_RANKS, LEAST_STEPS = 400, 2, 3
_LIST = expression(r"\[(?P<items>[^\[\]()]{5,400})\]{1,2}(?:, (?:device|dtype)=[^)]{1,40})?\)?\s*$")
_WORDS = expression(r"(?i)\b(?:ids?|indices|indexes|idx|samples?|files?|images?|names|batch)\b")
_PREFIX = expression(r"(?i)^\W{0,2}(?:rank|worker|process|gpu)?[ _:=]*\d{1,6}\W{1,3}")
_EPOCH = expression(r"(?i)\bepoch[ :=\[#]{0,3}(\d{1,6})\b")
_NOT_TRAINED = expression(r"(?i)\b(?:val|valid|validation|eval|evaluation|test)\b")
_PASS = expression(
    r"(?i)\b(?:pass|epoch|range|sampler|shard)\b.{0,60}?\b(?:first|start\w*|begins?|from)\b\D{0,16}(?P<first>\d{1,12})\b\D{1,24}?\b(?:last|end\w*|to)\b\D{0,10}(?P<last>\d{1,12})\b"
)
_WHOLE = expression(r"(?i)\bsamples?[ _:=]{1,3}(\d{2,12})\b|\b(\d{2,12}) samples\b")
_OFFSET = expression(
    r"(?i)\b(?:consumed|seen|skip\w*|start\w*)[_ ](?:train[_ ])?samples\W{1,3}(?P<count>\d{1,12})\b"
)
MOST_SAID = 50_000
LEAST_EPOCHS = 2
_LOSS = expression(r"\bstep (?P<step>\d{1,9}) .{0,40}?\bloss[ :=]{1,2}(?P<loss>\d+\.\d{5,})\b")


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The same first samples, or the same unaveraged losses, on all ranks that speak."""
    kept = keep_marked(lines, MARKERS)[:MOST]
    if len(kept) >= 2 and (again := _find_order(kept, file) or _find_passes(kept, lines, file)):
        return (again,)
    found = _find_ids(kept, file) if len(kept) >= LEAST_RANKS else None
    if found is None and (seeded := keep_marked(lines, LOSS_MARKERS)[:MOST]):
        found = _find_losses(seeded, file)
    return (found,) if found is not None else ()


def _find_ids(kept: Sequence[tuple[int, str]], file: str) -> Finding | None:
    groups: dict[str, dict[int, tuple[str, tuple[int, str]]]] = defaultdict(dict)
    for number, text in kept:
        listed = _LIST.search(text[:2000])
        if listed is None or not _shuffled(listed["items"]):
            continue
        head = text[: listed.start()]
        rank = read_prefix(text)[0].rank
        if rank is None or not _WORDS.search(head):
            continue
        key = re.sub(r"\d+", "0", _PREFIX.sub("", head))
        groups[key].setdefault(rank, (listed["items"], (number, text)))
    for told in groups.values():
        if len(told) < LEAST_RANKS or len({items for items, _ in told.values()}) != 1:
            continue
        items = next(iter(told.values()))[0]
        what = f"all {len(told)} ranks print the same samples ({items[:60]})"
        return _make(what, [place for _, place in list(told.values())[:2]], file, 0.85)
    return None


def _shuffled(items: str) -> bool:
    """Three different samples at least, and not the first ones of a data set that is read in its order."""
    told = [item.strip("'\"") for item in re.split(r"[,\s]+", items.strip())]
    return len(set(told)) >= 3 and told != [str(n) for n in range(len(told))]


def _find_order(kept: Sequence[tuple[int, str]], file: str) -> Finding | None:
    """One rank prints the same samples in the same order at the same place of several epochs."""
    told: dict[tuple[int | None, str], dict[int, tuple[str, tuple[int, str]]]] = defaultdict(dict)
    for number, text in kept:
        epoch, listed = _EPOCH.search(text[:400]), _LIST.search(text[:2000])
        if epoch is None or listed is None or not _shuffled(listed["items"]):
            continue
        head = text[: listed.start()]
        if _WORDS.search(head) and not _NOT_TRAINED.search(head):
            key = read_prefix(text)[0].rank, re.sub(r"\d+", "0", head)
            told[key].setdefault(int(epoch[1]), (listed["items"], (number, text)))
    repeated = [by for by in told.values() if len(by) >= LEAST_EPOCHS]
    if not repeated or any(len({items for items, _ in by.values()}) > 1 for by in repeated):
        return None
    first = repeated[0]
    items = next(iter(first.values()))[0]
    return Finding(
        kind="metrics.same_order",
        title=f"every epoch reads the same samples in the same order ({items[:60]} first in each of {len(first)} epochs): the sampler "
        "is not told the epoch (sampler.set_epoch(epoch) is never called), so it shuffles with one and the same seed and "
        "every rank sees identical batches again and again",
        level=Level.FAILURE,
        category=Category.CODE_BUG,
        evidence=tuple(quote_line(file, n, t) for _, (n, t) in list(first.values())[:3]),
        facts={"severity": "warning"},
    )


def _find_passes(
    kept: Sequence[tuple[int, str]], lines: Sequence[tuple[int, str]], file: str
) -> Finding | None:
    """Every pass over the data covers the same part of it, which does not begin at its start."""
    passes: dict[tuple[int, int], list[tuple[int, str]]] = defaultdict(list)
    for number, text in kept:
        told = _PASS.search(text[:600])
        if told is not None:
            passes[int(told["first"]), int(told["last"])].append((number, text))
    if len(passes) != 1:
        return None
    (((first, last), places),) = passes.items()
    if len(places) < LEAST_EPOCHS or not 0 < first < last:
        return None
    said = [(n, t[:2000]) for n, t in lines[:MOST_SAID] if "sample" in t]
    whole = next((p for p in said if _says_whole(p[1], last)), None)
    offset = next((p for p in said if p[0] < places[0][0] and _says_offset(p[1], first)), None)
    if whole is None and offset is None:
        return None
    share = f"the last {(last + 1 - first) / (last + 1):.0%}" if whole is not None else "one part"
    return Finding(
        kind="metrics.same_part",
        title=f"each of {len(places)} passes over the data begins at sample {first} and ends at {last}: the offset of the resume "
        f"(consumed samples) is applied again in every epoch, so only {share} of the data set is repeated and "
        "memorised, and the training loss falls in steps while validation gets worse",
        level=Level.FAILURE,
        category=Category.DATA,
        evidence=tuple(
            quote_line(file, n, t)
            for n, t in (*places[:2], *dict.fromkeys(p for p in (offset, whole) if p))
        ),
        facts={"severity": "warning"},
    )


def _says_whole(text: str, last: int) -> bool:
    """The line gives the size of the data set, and the pass ends there."""
    told = _WHOLE.search(text)
    return told is not None and int(told[1] or told[2]) in (last, last + 1)


def _says_offset(text: str, first: int) -> bool:
    """The line gives the samples that a resume passes over, and the pass begins there."""
    told = _OFFSET.search(text)
    return told is not None and int(told["count"]) == first


def _find_losses(kept: Sequence[tuple[int, str]], file: str) -> Finding | None:
    steps: dict[str, dict[int, tuple[str, tuple[int, str]]]] = defaultdict(dict)
    for number, text in kept:
        told = _LOSS.search(text[:1000])
        rank = read_prefix(text)[0].rank if told is not None else None
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
        evidence=tuple(quote_line(file, n, t) for n, t in places),
        facts={"explains": {"slow": weight, "unlearned": weight}},
    )
