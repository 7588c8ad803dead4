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
from firstfault_tools.memory.changes import Change, rank_changes
from firstfault_tools.memory.configuration import Draft, Run
from firstfault_tools.memory.estimate import GIB
from firstfault_tools.memory.setup import Framework, Sharding, TrainingSetup
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
) -> dict[str, Json]:
    """Estimate, verdict and ranked changes of a run. Raises InvalidParameter.

    observed_peak_gib: one peak of allocated memory seen in the run; scales the dynamic terms.
    """
    step = estimate_step(run.shape, run.setup)
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
    verdict = judge(step, run.setup, card)
    ranked = rank_changes(run.shape, run.setup, card, factor) if changes else ()
    return _describe(run, verdict, ranked, calibration)


def _describe(
    run: Run,
    verdict: Verdict,
    changes: Sequence[Change],
    calibration: Mapping[str, Json] | None,
) -> dict[str, Json]:
    step = verdict.step
    name, size = step.largest_tensor
    return {
        "schema": SCHEMA,
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
    }


def _list_assumptions(run: Run) -> list[str]:
    setup = run.setup
    found = []
    if setup.framework is Framework.MEGATRON:
        found.append("Transformer Engine kernels: fused norms, activation and attention")
    else:
        found.append("eager execution, nothing compiled; loss in fp32 over all positions")
    if setup.sharding is Sharding.FSDP:
        found.append(
            "one FSDP unit a layer, root kept unsharded, one layer prefetched, fp32 reduction"
        )
    if run.shape.experts and setup.imbalance == 1:
        found.append("tokens spread evenly over experts (imbalance 1)")
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
