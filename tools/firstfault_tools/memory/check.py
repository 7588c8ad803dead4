"""How far off is the estimate from measured steps? Scores rows of measured training runs.

A row names the model and the setup, and may hold `measured.peak_allocated` in GiB, which is never read
for the prediction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter, UnreadableArtefact
from firstfault_tools.expressions import expression
from firstfault_tools.memory.configuration import Draft, Run, build_run, read_int
from firstfault_tools.memory.configuration_huggingface import (
    list_families,
    read_huggingface,
    read_optimizer,
)
from firstfault_tools.memory.estimate import Phase, StepMemory
from firstfault_tools.memory.rollout import Rollout, size_phases
from firstfault_tools.memory.sizes import GIB
from firstfault_tools.memory.verdict import estimate_step

MAX_ROWS = 100_000
_PRECISIONS = {
    "amp": "amp",
    "bf16_amp": "amp",
    "amp_bf16": "amp",
    "bf16-mixed": "amp",
    "mixed": "amp",
    "fp16_amp": "fp16_amp",
    "amp_fp16": "fp16_amp",
    "16-mixed": "fp16_amp",
    "bf16": "bf16",
    "bf16-true": "bf16",
    "fp16": "fp16",
    "fp32": "fp32",
    "tf32": "fp32",
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "bf16_master": "bf16_master",
    "fp8": "fp8",
}
_ATTENTION = {
    "sdpa": "sdpa",
    "eager": "eager",
    "flash": "flash",
    "flash_attention_2": "flash",
    "flash_attention_3": "flash",
    "flex_attention": "flash",
    "flash_attn": "flash",
    "fa2": "flash",
    "flex": "flash",
}
_PARALLEL = {
    "none": "none",
    "single": "none",
    "ddp": "ddp",
    "zero1": "zero1",
    "zero2": "zero2",
    "zero3": "zero3",
    "fsdp": "fsdp",
    "fsdp2": "fsdp",
    "fsdp1": "fsdp",
    "full_shard": "fsdp",
    "shard_grad_op": "zero2",
    "fsdp_shard_grad_op": "zero2",
    "fsdp_full_shard": "fsdp",
    "false": "none",
}
_RECOMPUTE = {
    "none": "none",
    "false": "none",
    "full": "full",
    "true": "full",
    "selective": "selective",
}
_COUNTS = {
    "lora_rank": "lora_rank",
    "lora_r": "lora_rank",
    "accumulation": "micro_batches",
    "grad_accum": "micro_batches",
    "micro_batches": "micro_batches",
}
_FLAGS = {
    "dora": "dora",
    "activation_offload": "activation_offload",
    "freeze_vision": "tower_frozen",
}
_AS_THEY_STAND = (
    "framework",
    "quantized_bits",
    "double_quant",
    "offload_optimizer",
    "offload_parameters",
)
_SIZES = {
    "hidden": "hidden",
    "layers": "layers",
    "heads": "heads",
    "kv_heads": "kv_heads",
    "head_dim": "head_dim",
    "ffn": "ffn",
    "vocab": "vocab",
    "experts": "experts",
    "experts_per_token": "experts_per_token",
    "top_k": "experts_per_token",
    "expert_ffn": "expert_ffn",
    "moe_ffn": "expert_ffn",
}


@dataclass(frozen=True, slots=True)
class Scored:
    """One row: predicted and, where measured, the relative error (predicted / measured - 1)."""

    label: str
    predicted_gib: float
    measured_gib: float | None
    error: float | None
    phases_gib: Mapping[str, float]


def _choose(name: str, value: object, table: Mapping[str, str]) -> str:
    key = str(value).strip().lower()
    if key not in table:
        raise InvalidParameter(name, f"must be one of {', '.join(table)}, got {key[:60]!r}")
    return table[key]


def read_row(row: Mapping[str, Any]) -> Run:
    """The run a row describes. Raises InvalidParameter naming the field that is wrong."""
    if isinstance(row.get("config"), Mapping):
        return _read_config_row(row)
    family = str(row.get("arch", "llama")).lower()
    assumed = []
    if family not in list_families():
        assumed.append(f"arch {family[:40]} read as a Llama-like model")
    shape: dict[str, Any] = {**list_families().get(family, {}), "family": family}
    shape.pop("config", None)
    for key, name in _SIZES.items():
        if row.get(key) is not None:
            shape[name] = read_int(key, row[key])
    if "tied" in row:
        shape["tied"] = bool(row["tied"])
    setup = _read_setup(row)
    # GPT-2 configurations keep a table of 1024 positions unless the sequence needs more.
    extra = {"max_positions": max(1024, setup["sequence"])}
    return build_run(Draft(shape, setup, tuple(assumed), "row", extra))


def _read_config_row(row: Mapping[str, Any]) -> Run:
    """A row whose model is a whole config.json."""
    draft = read_huggingface(row["config"], "row")
    return build_run(draft.merge(Draft({}, _read_setup(row))))


_LORA = expression(r"lora(\d{1,4})")


def _read_setup(row: Mapping[str, Any]) -> dict[str, Any]:
    optimizer = str(row.get("optimizer", "adamw_fused"))
    lora = _LORA.fullmatch(optimizer)
    setup: dict[str, Any] = {
        "sequence": read_int("seq", row.get("seq")),
        "micro_batch": read_int("mbs", row.get("mbs", 1)),
        "precision": _choose("precision", row.get("precision", "bf16"), _PRECISIONS),
        "attention": _choose("attn", row.get("attn", "sdpa"), _ATTENTION),
        "recompute": _choose("recompute", row.get("recompute", "none"), _RECOMPUTE),
        "sharding": _choose("parallel", row.get("parallel", "none"), _PARALLEL),
        "optimizer": read_optimizer("adamw_fused" if lora else optimizer),
        "world": max(1, read_int("world", row.get("world", 1))),
        "compiled": bool(row.get("compile")),
        "loss_eager": row.get("compile") == "blocks",
        "host_pinned": bool(row.get("pin")),
    }
    setup |= {name: read_int(key, row[key]) for key, name in _COUNTS.items() if row.get(key)}
    setup |= {name: True for key, name in _FLAGS.items() if row.get(key)}
    setup |= {key: row[key] for key in _AS_THEY_STAND if row.get(key)}
    if lora or row.get("lora"):
        setup["lora_rank"] = int(lora[1]) if lora else read_int("lora", row["lora"])
    targets = row.get("lora_targets")
    if targets:
        setup["lora_targets"] = targets if isinstance(targets, str) else ",".join(targets)
    if row.get("rollouts"):
        setup["micro_batches"] = max(
            1, read_int("rollouts", row["rollouts"]) // setup["micro_batch"]
        )
    if row.get("fp8"):
        setup["fp8_bytes"] = 2 if row["fp8"] == "torchao" else 1
    if row.get("image_patches"):
        # Rows tell the side of a square image.
        setup["image_patches"] = read_int("image_patches", row["image_patches"]) ** 2
    if "_class_name" in (row.get("config") or {}):
        setup["text_tokens"] = read_int("text", row.get("text", 512))
    if row.get("experts") == "eager":
        setup["experts_loop"] = True
    return setup


def list_phases(step: StepMemory) -> dict[str, float]:
    """GiB at the moments that a measurement records."""
    forward = step.highest(Phase.FORWARD, Phase.LOSS)
    backward = step.highest(
        Phase.LOSS_BACKWARD, Phase.BACKWARD_START, Phase.BACKWARD_END, Phase.EMBEDDING_BACKWARD
    )
    sizes = {
        "params": step.weights,
        "after_forward": step.after_forward,
        "peak_forward": forward,
        "after_backward": step.after_backward,
        "peak_backward": max(forward, backward),
        "after_step": step.after_step,
        "peak_step": step.peak.total,
    }
    return {name: round(size / GIB, 4) for name, size in sizes.items()}


def _read_measured(row: Mapping[str, Any]) -> float | None:
    measured = row.get("measured")
    value = measured.get("peak_allocated") if isinstance(measured, Mapping) else None
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    return None


def score_row(row: Mapping[str, Any]) -> Scored:
    """Predict one row and compare."""
    run = read_row(row)
    step = estimate_step(run.shape, run.setup)
    phases = list_phases(step)
    predicted = step.peak.total / GIB
    if row.get("rollouts"):
        prompt = read_int("prompt", row.get("prompt"))
        rollout = Rollout(
            prompt, run.setup.sequence - prompt, read_int("rollouts", row["rollouts"]),
            engine=int(bool(row.get("engine"))), critic=not row.get("no_critic"),
        )  # fmt: skip
        sizes = size_phases(run.shape, run.setup, rollout, step)
        phases = {name: round(sum(terms.values()) / GIB, 4) for name, terms in sizes.items()}
        predicted = max(phases.values())
    value = _read_measured(row)
    error = None if value is None else predicted / value - 1
    setup = run.setup
    label = (
        f"{run.shape.family} {run.shape.parameters / 1e9:.2f}B {setup.precision} {setup.attention} "
        f"recompute={setup.recompute} s={setup.sequence} b={setup.micro_batch} {setup.sharding} "
        f"{setup.optimizer}"
    )
    return Scored(
        label,
        round(predicted, 4),
        value,
        round(error, 6) if error is not None else None,
        phases,
    )


def read_rows(text: str, name: str) -> list[Mapping[str, Any]]:
    """JSON lines as mappings. Raises UnreadableArtefact with the line."""
    rows: list[Mapping[str, Any]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        if len(rows) >= MAX_ROWS:
            raise UnreadableArtefact(f"{name}: more than {MAX_ROWS} rows")
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise UnreadableArtefact(f"{name} line {number}: not JSON ({error})") from None
        if not isinstance(row, dict):
            raise UnreadableArtefact(f"{name} line {number}: a JSON object is needed")
        rows.append(row)
    return rows


def score_rows(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Every row and, over those measured, mean and worst absolute relative error.

    A row that cannot be read keeps its place with a `problem`; if it was measured it counts as an
    error of 1, so that refusing a row never improves the score.
    """
    out: list[dict[str, Any]] = []
    errors: list[float] = []
    failed = 0
    for row in rows:
        try:
            scored = score_row(row)
        except InvalidParameter as error:
            failed += 1
            value = _read_measured(row)
            errors += [1.0] if value is not None else []
            out.append(
                {"predicted_gib": None, "measured_gib": value, "error": None, "problem": str(error)}
            )
            continue
        if scored.error is not None:
            errors.append(abs(scored.error))
        out.append(
            {
                "label": scored.label,
                "predicted_gib": scored.predicted_gib,
                "measured_gib": scored.measured_gib,
                "error": scored.error,
                "phases_gib": dict(scored.phases_gib),
            }
        )
    return {
        "schema": "firstfault.memory-check/1",
        "rows": out,
        "rows_measured": len(errors),
        "rows_failed": failed,
        "mean_error": round(sum(errors) / len(errors), 6) if errors else None,
        "worst_error": round(max(errors), 6) if errors else None,
    }
