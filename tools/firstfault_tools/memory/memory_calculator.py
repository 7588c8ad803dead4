"""Will this training step fit on this GPU, and which single change makes it fit? The calculator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firstfault_tools.findings import Json
from firstfault_tools.registry import Calculator

_SIZE = {"type": "integer", "minimum": 0}
_COUNT = {"type": "integer", "minimum": 1}

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "configuration": {
            "type": "string",
            "description": "text of a config.json, Megatron arguments or argument dump, DeepSpeed "
            "JSON, torchtitan TOML or Accelerate YAML; the other fields override it",
        },
        "configuration_name": {"type": "string", "description": "its file name"},
        "model": {"type": "string", "description": "a model known by name, instead of its sizes"},
        "card": {"type": "string", "description": "GPU model (H100-80GB, A100-40GB, ...) or GiB"},
        "observed_peak_gib": {"type": "number", "exclusiveMinimum": 0},
        "changes": {"type": "boolean", "description": "rank single changes as well"},
        "plan": {"type": "boolean", "description": "lay changes one after the other until it fits"},
        "hidden": _COUNT,
        "layers": _COUNT,
        "heads": _COUNT,
        "kv_heads": _COUNT,
        "head_dim": _COUNT,
        "ffn": _SIZE,
        "vocab": _COUNT,
        "tied": {"type": "boolean"},
        "gated": {"type": "boolean"},
        "norm": {"enum": ["rms", "layer"]},
        "experts": _SIZE,
        "experts_per_token": _SIZE,
        "expert_ffn": _SIZE,
        "sequence": _COUNT,
        "micro_batch": _COUNT,
        "micro_batches": _COUNT,
        "global_batch": _COUNT,
        "world": _COUNT,
        "tensor": _COUNT,
        "pipeline": _COUNT,
        "virtual": _COUNT,
        "first_stage_layers": _COUNT,
        "last_stage_layers": _COUNT,
        "context": _COUNT,
        "expert": _COUNT,
        "expert_tensor": _COUNT,
        "sequence_parallel": {"type": "boolean"},
        "distributed_optimizer": {"type": "boolean"},
        "framework": {"enum": ["huggingface", "torchtitan", "megatron", "deepspeed"]},
        "precision": {
            "enum": [
                "fp32",
                "amp",
                "fp16_amp",
                "bf16",
                "fp16",
                "bf16_master",
                "fp8",
                "mxfp8",
                "nvfp4",
            ]
        },
        "attention": {"enum": ["eager", "sdpa", "flash"]},
        "recompute": {"enum": ["none", "selective", "full"]},
        "sharding": {"enum": ["none", "ddp", "zero1", "zero2", "zero3", "fsdp"]},
        "optimizer": {"type": "string"},
        "loss_fused": {"type": "boolean"},
        "dropout": {"type": "boolean"},
        "lora_rank": _SIZE,
        "quantized_bits": {"enum": [0, 4, 8]},
        "offload_optimizer": {"type": "boolean"},
        "offload_parameters": {"type": "boolean"},
        "activation_offload": {"type": "boolean"},
        "compiled": {"type": "boolean", "description": "layers run under torch.compile"},
        "loss_eager": {
            "type": "boolean",
            "description": "the loss is not compiled with the layers",
        },
        "experts_loop": {"type": "boolean", "description": "every expert has modules of its own"},
        "low_weights": {"type": "boolean", "description": "weights stand in fp8 or fp4 alone"},
        "host_pinned": {"type": "boolean", "description": "offloaded states in pinned memory"},
        "prediction": {
            "type": "boolean",
            "description": "multi-token prediction layers are trained",
        },
        "lora_targets": {"type": "string"},
        "text_tokens": {**_COUNT, "description": "text beside a diffusion transformer's latents"},
        "image_patches": {
            **_COUNT,
            "description": "patches of a sequence's images, before merging",
        },
        "tower_frozen": {"type": "boolean", "description": "the vision tower is not trained"},
        "fp8_bytes": {
            "enum": [0, 1, 2],
            "description": "bytes of an input that fp8 matmuls keep: 1 Transformer Engine, 2 torchao",
        },
        "resume": {"type": "boolean", "description": "count the checkpoint load as a phase"},
        "imbalance": {"type": "number", "minimum": 1},
    },
}


def run_memory(
    configuration: str | None = None,
    configuration_name: str = "configuration",
    model: str | None = None,
    card: str | None = None,
    observed_peak_gib: float | None = None,
    changes: bool = True,
    plan: bool = True,
    **fields: Any,
) -> Mapping[str, Json]:
    """Estimate of one run. Raises InvalidParameter and UnreadableArtefact."""
    from firstfault_tools.memory.cards import find_card
    from firstfault_tools.memory.configuration import Draft, build_run
    from firstfault_tools.memory.configuration_files import read_configuration
    from firstfault_tools.memory.models import find_model
    from firstfault_tools.memory.report import report_memory, split_fields

    draft = find_model(model) if model else Draft()
    if configuration:
        draft = draft.merge(read_configuration(configuration, configuration_name))
    return report_memory(
        build_run(draft.merge(split_fields(fields))),
        find_card(card) if card else None,
        observed_peak_gib=observed_peak_gib,
        changes=changes,
        plan=plan,
    )


CALCULATOR = Calculator(
    name="memory",
    summary="Peak GPU memory of a training step by phase, term and pipeline stage, against a card, "
    "with every single change ranked by what it saves and costs",
    parameters=PARAMETERS,
    run=run_memory,
)
