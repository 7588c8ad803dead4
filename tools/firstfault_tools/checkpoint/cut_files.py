"""Was a file of a checkpoint cut off while it was written, by its size beside its siblings'?"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from firstfault_tools.averages import median
from firstfault_tools.checkpoint.listing import Entry

SAME_SIZE, CUT_SIZE = 0.98, 0.9
"""A file is the same size in every checkpoint of a run up to pickled counters; below nine tenths of its
namesake, while others of its checkpoint keep their size, it was cut off."""


def check_sizes(files: Sequence[Entry], problems: list[str]) -> None:
    """Empty files, and shards far smaller than their siblings."""
    families: dict[str, list[Entry]] = defaultdict(list)
    for entry in files:
        if entry.size == 0:
            problems.append(f"{entry.path} is empty")
        elif entry.size is not None:
            families[re.sub(r"\d+", "#", entry.path.rsplit("/", 1)[-1])].append(entry)
    for family, members in families.items():
        if len(members) < 4 or family.startswith("__"):
            continue
        middle = median(member.size or 0 for member in members)
        if middle < 1 << 20:
            continue
        # Pipeline stages differ, but a rank a tenth of its siblings was cut off.
        for member in members:
            if (member.size or 0) <= middle / 10:
                problems.append(f"{member.path} is a tenth of its siblings or less: cut off?")


def compare_tensor_ranks(members: Sequence[Entry], problems: list[str]) -> None:
    """Tensor ranks of one stage hold slices of the same matrices: a smaller file was cut off."""
    largest = max(member.size or 0 for member in members)
    same = sum((member.size or 0) >= SAME_SIZE * largest for member in members)
    for member in members:
        if (member.size or 0) < CUT_SIZE * largest and same * 2 > len(members):
            share = (member.size or 0) / largest
            problems.append(
                f"{member.path} has {share:.0%} of the size of its tensor-parallel siblings: cut off while written"
            )
