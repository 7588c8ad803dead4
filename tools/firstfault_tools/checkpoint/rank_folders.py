"""Are all folders of the ranks of Megatron's older format (`torch`) there, and each of their files?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import prod

from firstfault_tools.checkpoint.cut_files import compare_tensor_ranks
from firstfault_tools.checkpoint.listing import Entry
from firstfault_tools.expressions import expression

_FILE = expression(r"(?:^|/)mp_rank_(\d{2,3})(?:_(\d{3}))?(?:_(\d{3}))?/([^/]+)$")


def has_rank_folders(files: Sequence[Entry]) -> bool:
    """Whether the files are of this format."""
    return any(_FILE.search(entry.path) for entry in files)


def inspect_rank_folders(
    files: Sequence[Entry], problems: list[str], parallelism: dict[str, int]
) -> str:
    """mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt, and distrib_optim.pt with a distributed optimizer."""
    ranks: dict[tuple[int, ...], set[str]] = defaultdict(set)
    stages: dict[tuple[object, ...], list[Entry]] = defaultdict(list)
    for entry in files:
        match = _FILE.search(entry.path)
        if match:
            key = tuple(int(part) for part in match.groups()[:3] if part is not None)
            ranks[key].add(match[4])
            if entry.size:
                stages[(*key[1:], match[4])].append(entry)
    for members in stages.values():
        compare_tensor_ranks(members, problems)
    width = max(len(key) for key in ranks)
    names = (("tensor",), ("tensor", "pipeline"), ("tensor", "pipeline", "expert"))[width - 1]
    sizes = [1 + max(key[axis] if axis < len(key) else 0 for key in ranks) for axis in range(width)]
    parallelism.update(zip(names, sizes, strict=True))
    if len(ranks) < prod(sizes):
        problems.append(
            f"{len(ranks)} of {prod(sizes)} mp_rank folders ({' x '.join(map(str, sizes))})"
        )
    _check_rank_files(ranks, problems)
    return (
        "Loads only with the same tensor, pipeline and expert parallelism; convert with Megatron's "
        "tools/checkpoint/convert.py, or load as it is once and save with --ckpt-format torch_dist."
    )


def _check_rank_files(ranks: Mapping[tuple[int, ...], set[str]], problems: list[str]) -> None:
    """A kind of file that one rank folder has, all must have."""
    kinds = {kind for found in ranks.values() for kind in found}
    for kind in sorted(kinds & {"model_optim_rng.pt", "model_rng.pt", "distrib_optim.pt"}):
        lacking = [key for key, found in sorted(ranks.items()) if kind not in found]
        # distrib_optim.pt is written by data-parallel rank 0 of every model-parallel rank.
        if lacking:
            shown = ", ".join("_".join(map(str, key)) for key in lacking[:5])
            problems.append(f"{kind} missing in {len(lacking)} rank folders (first: {shown})")
    if not kinds & {"model_optim_rng.pt", "model_rng.pt"}:
        problems.append("no model_optim_rng.pt in any rank folder")
