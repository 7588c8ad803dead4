"""Which place of the parallel mesh, which host and which GPU is a rank?

Megatron counts ranks along its order string, the first dimension fastest; the default is
`tp-cp-ep-dp-pp`. Dense layers and experts have a mesh each over the same ranks: the dense one without
`ep`, the expert one without `cp` and with its own tensor size (megatron/core/parallel_state.py,
RankGenerator and initialize_model_parallel). Pure functions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Json
from firstfault_tools.registry import Calculator

DEFAULT_ORDER = "tp-cp-ep-dp-pp"
DIMENSIONS = frozenset({"tp", "cp", "ep", "dp", "pp"})
MAX_WORLD = 10_000_000
_SIZES = {
    "tp": r"tensor[_-]model[_-]parallel[_-]size",
    "pp": r"pipeline[_-]model[_-]parallel[_-]size",
    "cp": r"context[_-]parallel[_-]size",
    "ep": r"expert[_-]model[_-]parallel[_-]size",
    "etp": r"expert[_-]tensor[_-]parallel[_-]size",
    "world": r"world[_-]size",
}
_PRINTED = {
    key: expression(rf"(?<![\w-])(?:--)?{name}(?:\s*\.{{2,}}\s*|\s*[=:]\s*|\s+)(\d{{1,7}})\b", re.I)
    for key, name in _SIZES.items()
}
_SUMMARY = {
    "world": expression(r"using world size: (\d{1,7})"),
    "tp": expression(r"tensor-model-parallel size: (\d{1,7})"),
    "pp": expression(r"pipeline-model-parallel size: (\d{1,7})"),
    "cp": expression(r"context-parallel size: (\d{1,7})"),
}


@dataclass(frozen=True, slots=True)
class Mesh:
    """Sizes of a job's parallel dimensions. `expert_tp`: tensor size of experts, `tp` if None.

    Raises `InvalidParameter` where the sizes do not divide the world.
    """

    world: int
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    expert_tp: int | None = None
    order: str = DEFAULT_ORDER

    def __post_init__(self) -> None:
        for name in ("world", "tp", "pp", "cp", "ep"):
            if not 1 <= getattr(self, name) <= MAX_WORLD:
                raise InvalidParameter(name, f"must be between 1 and {MAX_WORLD}")
        parts = self.order.split("-")
        if len(set(parts)) != len(parts) or not set(parts) <= DIMENSIONS:
            raise InvalidParameter("order", "names tp, cp, ep, dp and pp, each at most once")
        for name in DIMENSIONS - set(parts):
            if self.dense_sizes()[name] != 1 or self.expert_sizes()[name] != 1:
                raise InvalidParameter("order", f"lacks {name}, whose size is not 1")
        self.dense_sizes()
        self.expert_sizes()

    @property
    def dp(self) -> int:
        """Data-parallel size of the dense layers."""
        return self.dense_sizes()["dp"]

    def dense_sizes(self) -> dict[str, int]:
        """Sizes by dimension for everything but experts."""
        return self._with_dp({"tp": self.tp, "cp": self.cp, "ep": 1, "pp": self.pp})

    def expert_sizes(self) -> dict[str, int]:
        """Sizes by dimension for experts; `dp` is the expert data-parallel size."""
        tensor = self.tp if self.expert_tp is None else self.expert_tp
        return self._with_dp({"tp": tensor, "cp": 1, "ep": self.ep, "pp": self.pp})

    def _with_dp(self, sizes: dict[str, int]) -> dict[str, int]:
        model = math.prod(sizes.values())
        if model < 1 or self.world % model:
            shown = " x ".join(f"{k}={v}" for k, v in sizes.items() if v != 1)
            raise InvalidParameter(
                "world", f"{self.world} ranks are no multiple of {shown or model}"
            )
        return {**sizes, "dp": self.world // model}


@dataclass(frozen=True, slots=True)
class Position:
    """Where a rank sits: coordinates in the dense and the expert mesh, its host and its GPU there."""

    rank: int
    dense: Mapping[str, int]
    expert: Mapping[str, int]
    host: str
    gpu: int

    def __str__(self) -> str:
        places = " ".join(f"{name.upper()}{index}" for name, index in self.dense.items())
        return f"rank {self.rank} ({places}) on {self.host}, GPU {self.gpu}"


def coordinates(rank: int, sizes: Mapping[str, int], order: str) -> dict[str, int]:
    """Index of a rank along each dimension of `order`, the first one counting fastest."""
    place = {}
    for name in order.split("-"):
        rank, place[name] = divmod(rank, sizes[name])
    return place


def groups(mesh: Mesh, dimensions: Iterable[str], expert: bool = False) -> list[list[int]]:
    """Process groups along some dimensions (`["dp"]`, `["tp", "pp"]`), as Megatron makes them."""
    wanted = set(dimensions)
    sizes = mesh.expert_sizes() if expert else mesh.dense_sizes()
    found: dict[tuple[int, ...], list[int]] = {}
    for rank in range(mesh.world):
        place = coordinates(rank, sizes, mesh.order)
        key = tuple(i for n, i in place.items() if n not in wanted)
        found.setdefault(key, []).append(rank)
    return sorted(found.values())


def locate(
    rank: int, mesh: Mesh, gpus_per_host: int = 8, hosts: Mapping[int, str] | None = None
) -> Position:
    """Position of a rank. `hosts`: known hosts by rank; else ranks fill hosts in order.

    Raises `InvalidParameter` for a rank outside the world.
    """
    if not 0 <= rank < mesh.world:
        raise InvalidParameter("rank", f"must be between 0 and {mesh.world - 1}")
    if gpus_per_host < 1:
        raise InvalidParameter("gpus_per_host", "must be at least 1")
    expert = mesh.ep > 1 or mesh.expert_tp is not None
    dense_sizes, expert_sizes = mesh.dense_sizes(), mesh.expert_sizes()
    dense = coordinates(rank, dense_sizes, mesh.order)
    expert_place = coordinates(rank, expert_sizes, mesh.order) if expert else {}
    return Position(
        rank=rank,
        dense={n: i for n, i in dense.items() if dense_sizes[n] > 1 or n in ("tp", "dp", "pp")},
        expert={n: i for n, i in expert_place.items() if expert_sizes[n] > 1 or n == "ep"},
        host=(hosts or {}).get(rank, f"host {rank // gpus_per_host}"),
        gpu=rank % gpus_per_host,
    )


def mesh_of_text(lines: Iterable[str], world: int | None = None) -> Mesh | None:
    """Mesh that a Megatron log or launch script states; None where the world is not known.

    Sizes that are not stated count as 1. Contradictory text gives None rather than a guess.
    """
    sizes: dict[str, int] = {}
    for line in lines:
        if "parallel" not in line and "world" not in line:
            continue
        for patterns in (_SUMMARY, _PRINTED):
            for key, pattern in patterns.items():
                found = pattern.search(line)
                if found:
                    sizes.setdefault(key, int(found[1]))
    total = world or sizes.get("world")
    if total is None or not sizes.keys() - {"world"}:
        return None
    try:
        return Mesh(
            world=total,
            tp=sizes.get("tp", 1),
            pp=sizes.get("pp", 1),
            cp=sizes.get("cp", 1),
            ep=sizes.get("ep", 1),
            expert_tp=sizes.get("etp"),
        )
    except InvalidParameter:
        return None


def _locate(
    rank: int,
    world: int,
    tp: int = 1,
    pp: int = 1,
    cp: int = 1,
    ep: int = 1,
    expert_tp: int | None = None,
    order: str = DEFAULT_ORDER,
    gpus_per_host: int = 8,
) -> Mapping[str, Json]:
    mesh = Mesh(world, tp, pp, cp, ep, expert_tp, order)
    place = locate(rank, mesh, gpus_per_host)
    dense = coordinates(rank, mesh.dense_sizes(), mesh.order)
    sizes = mesh.dense_sizes()
    peers: dict[str, Json] = {}
    for name in ("tp", "cp", "dp", "pp"):
        if sizes[name] > 1:
            group = next(g for g in groups(mesh, [name]) if rank in g)
            peers[name] = list(group[:1024])
    return {
        "text": str(place),
        "dense": dict(dense),
        "expert": dict(place.expert),
        "host": place.host,
        "gpu": place.gpu,
        "groups": peers,
        "data_parallel_size": mesh.dp,
    }


_SIZE = {"type": "integer", "minimum": 1, "default": 1}

CALCULATOR = Calculator(
    name="rank_position",
    summary="Rank to TP/CP/EP/DP/PP coordinate, host and GPU, and the ranks of its groups (Megatron order)",
    parameters={
        "type": "object",
        "required": ["rank", "world"],
        "additionalProperties": False,
        "properties": {
            "rank": {"type": "integer", "minimum": 0},
            "world": {"type": "integer", "minimum": 1, "maximum": 100_000},
            "tp": _SIZE,
            "pp": _SIZE,
            "cp": _SIZE,
            "ep": _SIZE,
            "expert_tp": {"type": "integer", "minimum": 1},
            "order": {"type": "string", "default": DEFAULT_ORDER},
            "gpus_per_host": {"type": "integer", "minimum": 1, "default": 8},
        },
    },
    run=_locate,
)
