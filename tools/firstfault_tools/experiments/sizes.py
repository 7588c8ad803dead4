"""Which sizes can a run have, and what changes from one to the next?"""

from __future__ import annotations

import math

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter

MOST_SIZES = 4096


@dataclass(frozen=True, slots=True)
class Layout:
    """How a run is split. batch: sequences in a step over all ranks; micro: those of one pass of one rank.

    0 where it is not known. expert: expert parallel size, inside the data parallel ranks.
    """

    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    per_node: int = 8
    batch: int = 0
    micro: int = 0

    def __post_init__(self) -> None:
        for name in ("tensor", "pipeline", "context", "expert", "per_node"):
            if getattr(self, name) < 1:
                raise InvalidParameter(name, "must be at least 1")
        if self.batch < 0 or self.micro < 0:
            raise InvalidParameter("batch", "and micro must not be negative")

    @property
    def replica(self) -> int:
        """Ranks of one copy of the model."""
        return self.tensor * self.pipeline * self.context

    def problem(self, ranks: int) -> str:
        """Why a run of so many ranks cannot start; empty where it can."""
        if ranks % self.replica:
            return f"{ranks} ranks do not split into copies of {self.replica} (tensor x pipeline x context)"
        data = ranks // self.replica
        if (data * self.context) % self.expert:
            return f"{data * self.context} data and context parallel ranks do not split into {self.expert} for experts"
        if ranks > self.per_node and ranks % self.per_node:
            return f"{ranks} ranks do not fill nodes of {self.per_node}"
        if self.batch and self.batch % (data * max(1, self.micro)):
            return f"a batch of {self.batch} does not split over {data} data parallel ranks in micro-batches of {max(1, self.micro)}"
        return ""


def list_sizes(good: int, bad: int, layout: Layout) -> tuple[int, ...]:
    """Numbers of ranks between both ends with which the run can start, from good to bad.

    Raises InvalidParameter where an end itself cannot start.
    """
    for name, value in (("good", good), ("bad", bad)):
        if value < 1:
            raise InvalidParameter(name, "must be at least 1")
        if why := layout.problem(value):
            raise InvalidParameter(name, f"cannot start: {why}")
    if good == bad:
        raise InvalidParameter("bad", "must differ from good")
    low, high = sorted((good, bad))
    valid = [n for n in range(low, high + 1) if not layout.problem(n)]
    if len(valid) > MOST_SIZES:
        raise InvalidParameter(
            "bad", f"leaves {len(valid)} sizes; name fewer with --values or --step"
        )
    return tuple(valid if good < bad else reversed(valid))


def list_values(good: int, bad: int, step: int) -> tuple[int, ...]:
    """Values of any kind (batch, layers, length) from good to bad. Raises InvalidParameter."""
    if good == bad:
        raise InvalidParameter("bad", "must differ from good")
    if step < 1 or abs(bad - good) % step:
        raise InvalidParameter("step", "must be positive and divide the distance of good and bad")
    if abs(bad - good) // step >= MOST_SIZES:
        raise InvalidParameter(
            "step", f"leaves more than {MOST_SIZES} values; choose a greater one"
        )
    return tuple(range(good, bad + (1 if bad > good else -1), step if bad > good else -step))


def describe_change(works: int, fails: int, layout: Layout) -> tuple[str, ...]:
    """What is otherwise at the size that fails: what to look at first, in words with numbers."""
    low, high = sorted((works, fails))
    told = []
    nodes = [math.ceil(n / layout.per_node) for n in (works, fails)]
    if min(nodes) == 1 < max(nodes):
        told.append(
            f"{high} ranks leave the node: collectives go over the network instead of NVLink or PCIe"
        )
    elif nodes[0] != nodes[1]:
        told.append(
            f"{nodes[0]} nodes become {nodes[1]}: other nodes and links come into play, each of which may be the bad one"
        )
    inside = layout.tensor > layout.per_node
    if inside:
        told.append(
            f"tensor parallel {layout.tensor} is wider than a node of {layout.per_node}: its collectives of every layer use the network"
        )
    data = [n // layout.replica for n in (works, fails)]
    if data[0] != data[1]:
        told.append(
            f"data parallel {data[0]} becomes {data[1]}: gradients are averaged over {data[1]}; sharded optimizer states shrink to 1/{data[1]} a rank"
        )
    if layout.batch:
        rounds = [layout.batch / (d * max(1, layout.micro)) for d in data]
        told.append(
            f"micro-batches a step and rank: {rounds[0]:g} become {rounds[1]:g} (batch {layout.batch} unchanged)"
        )
        if layout.pipeline > 1:
            idle = [(layout.pipeline - 1) / (m + layout.pipeline - 1) for m in rounds]
            told.append(f"pipeline bubble: {idle[0]:.0%} becomes {idle[1]:.0%} of a step")
    else:
        told.append(
            f"with the batch of a rank unchanged the whole batch grows {high / low:g} times: learning rate and warm-up no longer fit"
        )
    told.append(
        f"a ring has {2 * (works - 1)} steps, then {2 * (fails - 1)}; NCCL chooses algorithm and protocol anew by size (NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING prints it)"
    )
    return tuple(told)
