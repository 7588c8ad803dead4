"""How much of this run's step is pipeline bubble, and which schedule or m would save how much? The calculator.

Takes the run's own text: a log with Megatron's argument dump and step times, arguments and a step time,
or one rank's profile. Every alternative is simulated; memory is counted as activations in flight, in GiB
where the model is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Json
from firstfault_tools.memory.cards import find_card
from firstfault_tools.memory.sizes import GIB
from firstfault_tools.memory.verdict import CONTEXT_GIB
from firstfault_tools.pipeline.bubble import Bubble, plan_of, price_plan
from firstfault_tools.pipeline.questions import in_flight_chunks
from firstfault_tools.profile.trace import looks_like_trace, read_trace
from firstfault_tools.registry import Calculator

_ELAPSED = expression(r"elapsed time per iteration \(ms\): {1,4}(\d{1,9}(?:\.\d{1,6})?)")
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "log": {"type": "string",
                "description": "log with arguments and step times, arguments alone, or one rank's profile"},
        "step_ms": {"type": "number", "exclusiveMinimum": 0, "description": "where the log tells none"},
        "stages": {"type": "integer", "minimum": 1},
        "microbatches": {"type": "integer", "minimum": 1},
        "virtual": {"type": "integer", "minimum": 1},
        "layers": {"type": "integer", "minimum": 1},
        "card": {"type": "string", "description": "GPU model or GiB: what does not fit is not advised"},
        "head_layers": {"type": "number", "minimum": 0,
                        "description": "cost of the output layer and loss, in layers"},
    },
}  # fmt: skip


def read_step_ms(log: str) -> float | None:
    """Median step time of a Megatron log without its first two steps, None where it tells none."""
    times = [float(match[1]) for match in _ELAPSED.finditer(log)]
    times = times[2:] or times
    return median(times) if times else None


def balance_layers(layers: int, stages: int, head: float) -> tuple[int, ...]:
    """Layers of each stage so that the slowest is fastest, the last carrying `head` layers on top."""
    best: tuple[int, ...] = ()
    cost = float("inf")
    for last in range(max(0, layers // stages - int(head) - 2), layers // stages + 2):
        rest = layers - last
        if stages == 1 or rest < stages - 1 or last < 0:
            continue
        base, extra = divmod(rest, stages - 1)
        # Earlier stages hold more micro-batches in flight: the later ones take the extra layers.
        split = (*(base + (index >= stages - 1 - extra) for index in range(stages - 1)), last)
        slowest = max(max(split[:-1]), last + head)
        if slowest < cost - 1e-9:
            best, cost = split, slowest
    return best or (layers,)


def _fraction(
    schedule: str, stages: int, microbatches: int, virtual: int, scale: Sequence[float] = ()
) -> Bubble | None:
    """scale: work of each stage where stages are uneven."""
    try:
        return price_plan(
            plan_of(schedule, stages, microbatches, virtual, 1.0, 2.0, None, list(scale) or None)
        )
    except InvalidParameter:
        return None


def list_alternatives(
    stages: int,
    microbatches: int,
    virtual: int,
    layers: int | None,
    step_ms: float,
    scale: Sequence[float] = (),
) -> list[dict[str, Json]]:
    """Every schedule and m beside the present one: milliseconds saved, activations held."""
    schedule = "interleaved" if virtual > 1 else "1f1b"
    now = _fraction(schedule, stages, microbatches, virtual, scale)
    if now is None:
        raise InvalidParameter("microbatches", "this schedule does not run with these sizes")
    busy = step_ms * (1 - now.fraction_of_total)
    held = _held(now)
    tried: list[tuple[str, int, int]] = [
        (kind, microbatches, v)
        for kind, v in (("1f1b", 1), ("zb-h1", 1), ("zb-v", 2), ("dualpipe", 1))
    ]
    tried += [("interleaved", microbatches, v) for v in (2, 3, 4, 5, 6, 8)
              if layers is None or layers % (stages * v) == 0]  # fmt: skip
    tried += [(schedule, microbatches * times, virtual) for times in (2, 4)]
    found: list[dict[str, Json]] = []
    for kind, m, v in tried:
        if (kind, m, v) == (schedule, microbatches, virtual):
            continue
        bubble = _fraction(kind, stages, m, v, scale)
        if bubble is None:
            continue
        # At a larger m with the same batch each micro-batch is smaller: the work of the step stays.
        step = busy / (1 - bubble.fraction_of_total)
        found.append(
            {
                "schedule": kind, "microbatches": m, "virtual": v, "step_ms": round(step, 2),
                "saves_ms": round(step_ms - step, 2), "fraction_of_total": round(bubble.fraction_of_total, 5),
                "activations": round(_held(bubble) * microbatches / m / held, 3),
                "weights": 2.0 if kind == "dualpipe" else 1.0,
            }
        )  # fmt: skip
    return sorted(found, key=lambda row: -float(row["saves_ms"]))  # type: ignore[arg-type]


def _held(bubble: Bubble) -> float:
    plan = bubble.plan
    return max(in_flight_chunks(plan, rank) / plan.virtual for rank in range(plan.stages))


def _balance(
    layers: int, stages: int, microbatches: int, head: float, step_ms: float, held: Sequence[int]
) -> dict[str, Json]:
    """The best split of the layers against the one in use (`held`), or against an even one."""
    even = list(held) or [
        layers // stages + (index >= stages - layers % stages) for index in range(stages)
    ]
    best = balance_layers(layers, stages, head)
    spans = []
    for split in (even, list(best)):
        scale = [
            max(1e-6, count + (head if index == stages - 1 else 0))
            for index, count in enumerate(split)
        ]
        spans.append(
            price_plan(plan_of("1f1b", stages, microbatches, None, 1.0, 2.0, None, scale)).makespan
        )
    return {
        "now": even,
        "best": list(best),
        "saves_ms": round(step_ms * (1 - spans[1] / spans[0]), 2),
    }


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What the simulation needs to know of a run. terms: bytes at the peak of the fullest stage, by term."""

    stages: int
    microbatches: int
    virtual: int = 1
    layers: int | None = None
    head: float | None = None
    terms: Mapping[str, int] | None = None
    held: Sequence[int] = ()
    """Layers of each stage where they differ."""

    @property
    def scale(self) -> list[float]:
        """Work of each stage in layers, the head on the last."""
        last = len(self.held) - 1
        return [count + (self.head or 0) * (index == last) for index, count in enumerate(self.held)]


def _read_sizes(log: str, assumed: list[str], head: float | None) -> _Sizes:
    """Sizes of a run's own arguments. Raises InvalidParameter."""
    from firstfault_tools.memory.configuration import build_run
    from firstfault_tools.memory.configuration_files import read_configuration
    from firstfault_tools.memory.verdict import estimate_step

    run = build_run(read_configuration(log, "log"))
    if head is None:
        head = run.shape.vocab * run.shape.hidden / max(1, run.shape.dense_layer_parameters)
        assumed.append(f"output layer and loss cost {head:.2f} layers: state it with head_layers")
    terms = estimate_step(run.shape, run.setup).peak.terms
    setup = run.setup
    held = setup.split_layers(run.shape) if setup.pipeline > 1 else []
    return _Sizes(
        setup.pipeline, setup.micro_batches, setup.virtual, run.shape.layers, head, terms,
        held if len(set(held)) > 1 else (),
    )  # fmt: skip


def _add_memory(
    rows: list[dict[str, Json]], terms: Mapping[str, int], capacity_gib: float | None
) -> float:
    """GiB of the fullest stage under every alternative; returns the present schedule's.

    capacity_gib: of the card, less what stands outside PyTorch; what exceeds it does not fit.
    """
    moving = sum(size for name, size in terms.items() if name == "activations")
    states = sum(
        size for name, size in terms.items()
        if name in ("weights", "gradients", "optimizer", "master weights")
    )  # fmt: skip
    whole = sum(terms.values())
    for row in rows:
        more = moving * (float(row["activations"]) - 1)  # type: ignore[arg-type]
        more += states * (float(row["weights"]) - 1)  # type: ignore[arg-type]
        row["gib"] = round((whole + more) / GIB, 2)
        if capacity_gib is not None:
            row["fits"] = (whole + more) / GIB <= capacity_gib
    return whole / GIB


def _read_profile(log: str) -> tuple[float, float]:
    """Step and waiting in point-to-point transfers, in ms, of one rank's profile."""
    trace = read_trace(log.encode("utf-8", "replace"), "profile")
    steps = trace.steps_us or (trace.window_us,)
    return median(steps) / 1000, trace.transfer_us / len(steps) / 1000


def run_bubble_of_run(
    log: str = "", step_ms: float | None = None, stages: int | None = None,
    microbatches: int | None = None, virtual: int | None = None, layers: int | None = None,
    head_layers: float | None = None, card: str | None = None,
) -> Mapping[str, Json]:  # fmt: skip
    """Bubble of the run in milliseconds and what would shrink it. Raises InvalidParameter."""
    assumed = ["the step is compute and bubble: communication and optimizer count as compute"]
    waited = None
    if looks_like_trace(log[:65536].encode("utf-8", "replace")):
        step_ms, waited = _read_profile(log)
        log = ""
        if stages is None or microbatches is None:
            return _answer_profile(step_ms, waited, assumed)
    if stages is not None and microbatches is not None:
        sizes = _Sizes(stages, microbatches, virtual or 1, layers, head_layers)
    elif log:
        sizes = _read_sizes(log, assumed, head_layers)
    else:
        raise InvalidParameter("log", "give the run's log or arguments, or stages and microbatches")
    step = step_ms or read_step_ms(log)
    if step is None:
        raise InvalidParameter("step_ms", "no step time in the log: give it")
    if sizes.stages < 2:
        raise InvalidParameter("stages", "one stage has no bubble")
    return _answer_run(sizes, step, waited, assumed, card)


def _answer_profile(step: float, waited: float, assumed: list[str]) -> Mapping[str, Json]:
    said = (
        f"{waited:.0f} of {step:.0f} ms of this rank's step wait in point-to-point transfers: the bubble as "
        "measured, transfers themselves included. Give stages and microbatches for what would save how much."
    )
    return {
        "schema": "firstfault.bubble-run/1", "step_ms": round(step, 3), "waited_ms": round(waited, 3),
        "alternatives": [], "sentence": said, "assumptions": assumed,
    }  # fmt: skip


def _answer_run(
    sizes: _Sizes, step: float, waited: float | None, assumed: list[str], card: str | None
) -> Mapping[str, Json]:
    schedule = "interleaved" if sizes.virtual > 1 else "1f1b"
    now = _fraction(schedule, sizes.stages, sizes.microbatches, sizes.virtual, sizes.scale)
    rows = list_alternatives(
        sizes.stages, sizes.microbatches, sizes.virtual, sizes.layers, step, sizes.scale
    )
    share = now.fraction_of_total if now else 0.0
    chunks = f", {sizes.virtual} chunks a stage" if sizes.virtual > 1 else ""
    said = (
        f"{share * step:.0f} of {step:.0f} ms are bubble ({schedule}, {sizes.stages} stages, "
        f"{sizes.microbatches} micro-batches{chunks})."
    )
    result: dict[str, Json] = {
        "schema": "firstfault.bubble-run/1", "step_ms": round(step, 3), "bubble_ms": round(share * step, 3),
        "fraction_of_total": share, "schedule": schedule, "stages": sizes.stages,
        "microbatches": sizes.microbatches, "virtual": sizes.virtual,
    }  # fmt: skip
    if waited is not None:
        result["waited_ms"] = round(waited, 3)
        said += f" The profile shows {waited:.0f} ms of waiting in transfers on this rank."
    if sizes.terms:
        room = find_card(card).total_gib - CONTEXT_GIB[1] if card else None
        result["gib"] = round(_add_memory(rows, sizes.terms, room), 2)
        assumed.append("GiB of the fullest stage, as the memory calculator counts it")
        if room is None:
            assumed.append("every schedule is weighed, whether it fits or not: state --card")
    said += _say_best(rows)
    result["alternatives"] = list(rows)
    if sizes.layers and sizes.head:
        balanced = _balance(
            sizes.layers, sizes.stages, sizes.microbatches, sizes.head, step, sizes.held
        )
        result["balance"] = balanced
        if isinstance(balanced["saves_ms"], float) and balanced["saves_ms"] > step * 0.002:
            said += f" Layers split {balanced['best']} would save {balanced['saves_ms']:.0f} ms."
    return {**result, "sentence": said, "assumptions": assumed}


def _say_best(rows: Sequence[Mapping[str, Any]]) -> str:
    rows = [row for row in rows if row.get("fits", True)]
    lean = [
        row
        for row in rows
        if row["saves_ms"] > 0 and row["activations"] <= 1.001 and row["weights"] == 1
    ]
    said = ""
    for best, note in (
        (next(iter(rows), None), "most"),
        (next(iter(lean), None), "without more memory"),
    ):
        if best is None or best["saves_ms"] <= 0:
            continue
        size = f", {best['gib']:.1f} GiB" if "gib" in best else ""
        how = best["schedule"] + (f" with {best['virtual']} chunks" if best["virtual"] > 1 else "")
        said += (
            f" {how}, {best['microbatches']} micro-batches: {best['saves_ms']:.0f} ms less "
            f"({note}; {best['activations']:.2f} x the activations"
            f"{', 2 x the weights' if best['weights'] == 2 else ''}"
            f"{size})."
        )
        if lean and best is lean[0]:
            break
    return said


CALCULATOR = Calculator(
    name="bubble_run",
    summary="Bubble of a run's own step in milliseconds from its log and arguments, and what every other "
    "schedule, m and layer split would save, with the memory each takes",
    parameters=PARAMETERS,
    run=run_bubble_of_run,
)
