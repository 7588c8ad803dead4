"""How is a memory estimate told to the page, the command line and the model? As one JSON-able mapping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields as list_fields
from typing import Any

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.findings import Json
from firstfault_tools.memory.architecture import Architecture
from firstfault_tools.memory.calibration import apply_calibration, calibrate
from firstfault_tools.memory.cards import Card
from firstfault_tools.memory.changes import Change, rank_changes, try_changes
from firstfault_tools.memory.configuration import Draft, Run
from firstfault_tools.memory.estimate import Fit, StepMemory
from firstfault_tools.memory.host import size_host, size_node
from firstfault_tools.memory.plan import PlannedStep, plan_changes
from firstfault_tools.memory.rollout import size_beside, size_phases, size_reference, write_phases
from firstfault_tools.memory.setup import (
    LOW_BYTES,
    Framework,
    Precision,
    Sharding,
    TrainingSetup,
)
from firstfault_tools.memory.sizes import GIB
from firstfault_tools.memory.states import count_lora
from firstfault_tools.memory.verdict import Range, Verdict, estimate_step, judge

SCHEMA = "firstfault.memory/1"
_SHAPE = frozenset(f.name for f in list_fields(Architecture)) | {"learned_positions"}
_SETUP = frozenset(f.name for f in list_fields(TrainingSetup))
_EXTRA = frozenset({"global_batch", "max_positions", "data"})


def report_memory(
    run: Run,
    card: Card | None = None,
    *,
    observed_peak_gib: float | None = None,
    changes: bool = True,
    plan: bool = True,
) -> dict[str, Json]:
    """Estimate, verdict and ranked changes of a run. Raises InvalidParameter.

    changes, plan: rank single changes; lay them one after the other until it fits.
    observed_peak_gib: one peak of allocated memory seen in the run; scales the dynamic terms.
    """
    plain = step = estimate_step(run.shape, run.setup)
    factor = 1.0
    calibration: dict[str, Json] | None = None
    if observed_peak_gib is not None:
        found = calibrate(step, observed_peak_gib)
        factor = found.factor
        step = apply_calibration(step, found)
        calibration = {
            "observed_peak_gib": observed_peak_gib,
            "dynamic_factor": round(found.factor, 4),
            "plausible": found.plausible,
        }
    beside: Mapping[str, int] = {}
    if run.reference:
        beside = {"reference": size_reference(run.shape, run.setup)}
    if run.rollout is not None:
        capacity = card.total_gib if card else None
        beside = size_beside(run.shape, run.setup, run.rollout, step, capacity)
    verdict = judge(step.with_terms(beside), run.setup, card)
    ranked: Sequence[Change] = ()
    planned: Sequence[PlannedStep] = ()
    if changes:
        trials = try_changes(run.shape, run.setup)
        ranked = rank_changes(run.shape, run.setup, card, factor, plain, beside, trials)
        if plan:
            planned = plan_changes(run.shape, run.setup, card, factor, beside, plain, trials)
    told = _describe(run, verdict, ranked, calibration, _size_rollout(run, step, verdict, card))
    return {**told, "plan": [describe_step(planned_step) for planned_step in planned]}


def _describe(
    run: Run,
    verdict: Verdict,
    changes: Sequence[Change],
    calibration: Mapping[str, Json] | None,
    between: Mapping[str, Any],
) -> dict[str, Json]:
    step = verdict.step
    name, size = step.largest_tensor
    breakdown = list_breakdown(verdict)
    return {
        "schema": SCHEMA,
        "sentence": " ".join(
            part for part in (write_sentence(run, verdict, changes), between["sentence"]) if part
        ),
        "rollout_gib": between["phases"],
        "breakdown": [{"name": part, "gib": gib} for part, gib in breakdown],
        "precision_means": explain_precision(
            run.setup, half_adapters=run.shape.diffusion is not None
        ),
        "host_gib": {
            key: _round(value / GIB) for key, value in size_host(run.shape, run.setup).items()
        },
        "host_node_gib": {
            key: value if key == "ranks" else _round(value / GIB)
            for key, value in size_node(run.shape, run.setup).items()
        },
        "partial": run.shape.partial or None,
        "fit": str(verdict.fit),
        "card": verdict.card,
        "capacity_gib": verdict.capacity,
        "allocated_gib": _range(verdict.allocated),
        "needed_gib": _range(verdict.needed),
        "outside_pytorch_gib": _range(verdict.outside),
        "phase": verdict.phase,
        "stage": verdict.stage,
        "dominant_term": verdict.dominant,
        "terms_gib": {key: _round(value) for key, value in verdict.terms.items()},
        "phases": [
            {
                "phase": str(moment.phase),
                "stage": moment.stage,
                "total_gib": _round(moment.total / GIB),
                "terms_gib": {key: _round(value / GIB) for key, value in moment.terms.items()},
            }
            for moment in step.moments
        ],
        "between_phases_gib": {
            "weights": _round(step.weights / GIB),
            "after_forward": _round(step.after_forward / GIB),
            "after_backward": _round(step.after_backward / GIB),
            "after_step": _round(step.after_step / GIB),
        },
        "largest_tensor": {"name": name, "gib": _round(size / GIB)},
        "parameters": run.shape.parameters,
        "active_parameters": run.shape.active_parameters,
        "assumptions": [*run.assumed, *_list_assumptions(run)],
        "source": run.source,
        "calibration": dict(calibration) if calibration else None,
        "changes": [describe_change(change) for change in changes],
    }


def _size_rollout(
    run: Run, step: StepMemory, verdict: Verdict, card: Card | None
) -> dict[str, Any]:
    """The phases of a reinforcement-learning step beside the update, by term, and their sentence."""
    if run.rollout is None:
        return {"sentence": "", "phases": None}
    capacity = card.total_gib if card else None
    phases = size_phases(run.shape, run.setup, run.rollout, step, capacity)
    said = write_phases(phases, run.rollout, run.shape)
    worst = max(sum(terms.values()) / GIB for terms in phases.values())
    if capacity is not None and worst + verdict.outside.expected > capacity:
        said += f" With {verdict.outside.expected:.1f} outside PyTorch that is more than {capacity:.1f}."
    sizes = {
        phase: {name: _round(size / GIB) for name, size in terms.items()}
        for phase, terms in phases.items()
    }
    return {"sentence": said, "phases": sizes}


CACHED = "cached by the allocator"
OUTSIDE = "outside PyTorch (context, libraries, NCCL)"
PRECISION_MEANS: Mapping[Precision, str] = {
    Precision.FP32: "fp32 throughout: 16 bytes a parameter with Adam",
    Precision.AMP: "mixed precision: fp32 weights, gradients and moments, bf16 matmuls (16 bytes a "
    "parameter with Adam)",
    Precision.FP16_AMP: "mixed precision: fp32 weights, gradients and moments, fp16 matmuls",
    Precision.BF16: "pure bf16: weights, gradients and moments in bf16, no fp32 copy (8 bytes a "
    "parameter with Adam); mixed precision is amp or bf16_master",
    Precision.FP16: "pure fp16: weights, gradients and moments in fp16",
    Precision.BF16_MASTER: "bf16 weights and gradients with an fp32 copy and fp32 moments in the "
    "optimizer (16 bytes a parameter with Adam)",
    Precision.FP8: "bf16 weights with fp8 matmul inputs",
    Precision.MXFP8: "bf16 weights with fp8 matmul inputs, a scale for every 32 values (Blackwell)",
    Precision.NVFP4: "bf16 weights with 4-bit matmul inputs, a scale for every 16 values (Blackwell)",
}
_MEGATRON_BF16 = (
    "bf16 weights with fp32 main gradients, an fp32 copy and fp32 moments (18 bytes a parameter with "
    "Adam before the distributed optimizer)"
)
_LOW_WEIGHTS = {
    False: "matrices stand in bf16 and in both orientations of the low precision, which costs memory: only "
    "saved inputs shrink",
    True: "matrices stand in both orientations of the low precision alone",
}
_DEEPSPEED_HALF = {
    half: f"{half} weights and gradients with an fp32 copy and fp32 moments in ZeRO's partitions (16 bytes a "
    "parameter with Adam before splitting)"
    for half in (Precision.BF16, Precision.FP16)
}


def list_breakdown(verdict: Verdict) -> list[tuple[str, float]]:
    """Parts of the expected need, largest first, in GiB with two decimals that add up to the total."""
    parts = dict(verdict.terms)
    parts[OUTSIDE] = verdict.outside.expected
    parts[CACHED] = verdict.needed.expected - verdict.allocated.expected - verdict.outside.expected
    rows = [(name, round(size, 2)) for name, size in parts.items()]
    rows.sort(key=lambda row: -row[1])
    rest = round(round(verdict.needed.expected, 2) - sum(size for _, size in rows), 2)
    # What rounding leaves over goes to the cache, which is the least certain of them.
    return [(name, round(size + rest, 2) if name == CACHED else size) for name, size in rows]


def explain_precision(setup: TrainingSetup, *, half_adapters: bool = False) -> str:
    """What the precision's short name stands for in this framework. half_adapters: in the base's type (diffusers)."""
    if setup.lora_rank:
        base = (
            f"{setup.quantized_bits}-bit"
            if setup.quantized_bits
            else f"{8 * setup.weight_bytes}-bit"
        )
        width = base if half_adapters else "fp32"
        return f"frozen base in {base}; adapters, their gradients and moments in {width}"
    if setup.precision is Precision.BF16 and setup.framework is Framework.MEGATRON:
        return _MEGATRON_BF16
    if setup.precision in LOW_BYTES and setup.framework is Framework.MEGATRON:
        said = PRECISION_MEANS[setup.precision]
        return f"{said}; {_LOW_WEIGHTS[setup.low_weights]}"
    if setup.framework is Framework.DEEPSPEED and setup.precision in _DEEPSPEED_HALF:
        return _DEEPSPEED_HALF[setup.precision]
    return PRECISION_MEANS[setup.precision]


def write_sentence(run: Run, verdict: Verdict, changes: Sequence[Change]) -> str:
    """The answer in words: need against capacity, where the peak is, which one change helps most."""
    setup, need = run.setup, verdict.needed
    name = run.source.split(",")[0] or run.shape.family or "the model"
    what = (
        f"{name} ({run.shape.parameters / 1e9:.2f} billion parameters), micro-batch "
        f"{setup.micro_batch} of {setup.sequence:,} tokens, {setup.precision}"
    )
    size = f"{need.expected:.1f} GiB a GPU ({need.low:.1f} to {need.high:.1f})"
    place = f"peak in the {verdict.phase}, most of it {verdict.dominant}"
    if verdict.capacity is None:
        said = f"{what}: needs about {size}; {place}."
    else:
        fit = {"fits": "it fits", "tight": "tight", "does not fit": "it does not fit"}
        word = fit.get(str(verdict.fit), str(verdict.fit))
        said = f"{what}: needs about {size} of {verdict.capacity:.1f} on {verdict.card}: {word}; {place}."
    best = next((change for change in changes if change.saved_gib > 0.05), None)
    if best is not None and verdict.fit is not Fit.FITS:
        said += f" The change that helps most: {best.name}, {best.saved_gib:.1f} GiB less ({best.reason})."
    if run.shape.partial and run.shape.counted:
        said += f" Weights, gradients and optimizer are exact, activations a range: {run.shape.partial}."
    elif run.shape.partial:
        said += (
            f" Read as a Llama-like model, activations as a range: {run.shape.partial}; compare "
            f"{run.shape.parameters:,} parameters with the published count."
        )
    host = sum(size_host(run.shape, run.setup).values())
    if host:
        node = size_node(run.shape, run.setup)
        said += (
            f" Host memory: {host / GIB:.1f} GiB a rank{', pinned' * setup.host_pinned}; a node of "
            f"{node['ranks']} ranks {node['unpinned'] / GIB:.0f} GiB, {node['pinned'] / GIB:.0f} pinned."
        )
    return said


def describe_change(change: Change) -> dict[str, Json]:
    """One row of the ranked table."""
    return {
        "change": change.name,
        "saved_gib": _round(change.saved_gib),
        "needed_gib": _round(change.needed_gib),
        "fits": change.fits,
        "throughput_cost": change.throughput_cost,
        "cost": change.cost,
        "side_effects": change.side_effects,
        "flag": change.flag,
        "reason": change.reason,
    }


def describe_step(step: PlannedStep) -> dict[str, Json]:
    """One step of what to do first, second, third."""
    return {
        "change": step.name,
        "saved_gib": _round(step.saved_gib),
        "needed_gib": _round(step.needed_gib),
        "fits": step.fits,
        "cost": step.cost,
        "side_effects": step.side_effects,
        "flag": step.flag,
        "alters_result": step.alters,
    }


def _say_execution(setup: TrainingSetup) -> str:
    if setup.framework is Framework.MEGATRON:
        return "Transformer Engine kernels: fused norms, activation and attention"
    if setup.loss_fused:
        return "eager execution, fused or chunked loss"
    return "eager execution, loss in fp32 over all positions: state --loss-fused where a fused or chunked loss runs"


def _list_assumptions(run: Run) -> list[str]:
    setup = run.setup
    found = []
    if run.rollout is not None and run.rollout.share:
        found.append(
            f"the engine reserves {run.rollout.share:.0%} of the card"
            + (" and frees it after the rollout" if run.rollout.sleeps else " through every phase")
        )
    found.append(_say_execution(setup))
    if setup.pipeline > 1 and len(set(held := setup.split_layers(run.shape))) > 1:
        found.append(
            f"{run.shape.layers} layers over {setup.pipeline} stages: {', '.join(map(str, held))}; state "
            "--first-stage-layers and --last-stage-layers"
        )
    if setup.sharding is Sharding.FSDP:
        found.append(
            "one FSDP unit a layer, root kept unsharded, one layer prefetched, fp32 reduction"
        )
    if run.shape.experts and setup.imbalance == 1:
        found.append(
            "tokens spread evenly over experts: state the worst expert's load with --imbalance"
        )
    if setup.quantized_bits and run.shape.experts and not setup.experts_loop:
        found.append(
            "experts as one tensor (transformers 5), which bitsandbytes leaves in 16 bits: state --experts-loop "
            "where every expert has modules of its own"
        )
    if setup.states.paged:
        trained = count_lora(run.shape, setup) or run.shape.parameters
        size = trained * setup.states.state_bytes / GIB
        found.append(
            f"paged optimizer: {size:.1f} GiB of states stand in managed memory beside what PyTorch "
            "allocates, on the GPU while it has room"
        )
    if setup.compiled and not setup.loss_eager:
        found.append("the loss is compiled with the model: state --loss-eager where it is not")
    if setup.lora_rank:
        found.append(f"LoRA rank {setup.lora_rank} on {setup.lora_targets}, adapters in fp32")
    found.append("gradients are freed at zero_grad (set_to_none)")
    return found


def _range(values: Range) -> dict[str, Json]:
    return {
        "low": _round(values.low),
        "expected": _round(values.expected),
        "high": _round(values.high),
    }


def _round(value: float) -> float:
    return round(value, 4)


def split_fields(fields: Mapping[str, Any]) -> Draft:
    """Flat field names, as the calculator and the page pass them, as a draft.

    Raises InvalidParameter for a name that is no field.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    unknown = set(given) - _SHAPE - _SETUP - _EXTRA
    if unknown:
        raise InvalidParameter(sorted(unknown)[0], "is not a known field")
    return Draft(
        {name: value for name, value in given.items() if name in _SHAPE},
        {name: value for name, value in given.items() if name in _SETUP},
        (),
        "parameters" if given else "",
        {name: value for name, value in given.items() if name in _EXTRA},
    )
