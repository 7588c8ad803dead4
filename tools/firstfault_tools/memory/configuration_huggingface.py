"""What do a Hugging Face config.json and a TrainingArguments dump say?"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.expressions import expression
from firstfault_tools.memory.configuration import Draft, read_bool, read_int

_SIZES = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "n_head_kv", "num_kv_heads"),
    "head_dim": ("head_dim",),
    "ffn": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    "vocab": ("vocab_size",),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "experts_per_token": ("num_experts_per_tok", "num_experts_per_token", "top_k"),
    "expert_ffn": ("moe_intermediate_size",),
    "shared_expert_ffn": ("shared_expert_intermediate_size",),
    "dense_layers": ("first_k_dense_replace",),
}
_POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx")
_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "relu2": "squared_relu",
}
_UNSUPPORTED = {
    "kv_lora_rank": "multi-head latent attention",
    "ssm_cfg": "state-space layers",
    "mamba_d_state": "state-space layers",
    "is_encoder_decoder": "encoder-decoder models",
}


@cache
def list_families() -> dict[str, dict[str, Any]]:
    """What each model_type implies."""
    data = json.loads(Path(__file__).with_name("families.json").read_text(encoding="utf-8"))
    return {name: value for name, value in data.items() if isinstance(value, dict)}


def read_huggingface(config: Mapping[str, Any], source: str = "config.json") -> Draft:
    """Draft of a config.json. Raises InvalidParameter for what is not modelled."""
    inner = config.get("text_config")
    if isinstance(inner, Mapping) and "vocab_size" in inner:
        config = {**config, **inner}
    for key, what in _UNSUPPORTED.items():
        if config.get(key):
            raise InvalidParameter(key, f"{what} are not modelled; no number would be right")
    family = str(config.get("model_type") or "")
    assumed: list[str] = []
    shape: dict[str, Any] = dict(list_families().get(family, {}))
    if family not in list_families():
        assumed.append(
            f"model_type {family or 'missing'} read as a Llama-like model (RMSNorm, gated MLP, rotary)"
        )
    shape["family"] = family
    for name, keys in _SIZES.items():
        for key in keys:
            if config.get(key) is not None:
                shape[name] = read_int(key, config[key])
                break
    if config.get("n_shared_experts") and shape.get("expert_ffn"):
        shape["shared_expert_ffn"] = (
            read_int("n_shared_experts", config["n_shared_experts"]) * (shape["expert_ffn"])
        )
    if shape.get("experts") == 0:
        shape.pop("experts")
    if "tie_word_embeddings" in config:
        shape["tied"] = bool(config["tie_word_embeddings"])
    for key in ("hidden_act", "activation_function"):
        if str(config.get(key)) in _ACTIVATIONS:
            shape["activation"] = _ACTIVATIONS[str(config[key])]
    if "attention_bias" in config:
        shape["qkv_bias"] = shape["attention_out_bias"] = bool(config["attention_bias"])
    if "mlp_bias" in config:
        shape["mlp_bias"] = bool(config["mlp_bias"])
    extra: dict[str, Any] = {}
    for key in _POSITIONS:
        if config.get(key):
            extra["max_positions"] = read_int(key, config[key])
            break
    return Draft(shape, {}, tuple(assumed), source, extra)


_ARGUMENT = expression(r"^\s*([a-z0-9_]{2,60})=(.{0,200}?),?\s*$", re.MULTILINE)


def read_training_arguments(text: str, source: str = "TrainingArguments") -> Draft:
    """Draft of the repr that `print(training_args)` writes, one `name=value,` a line."""
    found = {match[1]: match[2].strip("'\"") for match in _ARGUMENT.finditer(text[: 1 << 18])}
    setup: dict[str, Any] = {"framework": "huggingface"}
    if "per_device_train_batch_size" in found:
        setup["micro_batch"] = read_int(
            "per_device_train_batch_size", found["per_device_train_batch_size"]
        )
    if "gradient_accumulation_steps" in found:
        setup["micro_batches"] = read_int(
            "gradient_accumulation_steps", found["gradient_accumulation_steps"]
        )
    if read_bool(found.get("bf16", "")):
        setup["precision"] = "amp"
    elif read_bool(found.get("fp16", "")):
        setup["precision"] = "fp16_amp"
    if "gradient_checkpointing" in found:
        full = read_bool(found["gradient_checkpointing"])
        setup["recompute"] = "full" if full else "none"
    if "optim" in found:
        setup["optimizer"] = read_optimizer(found["optim"].rsplit(".", 1)[-1])
    if found.get("fsdp", "[]") not in ("[]", "", "None", "False"):
        setup["sharding"] = "fsdp"
    if found.get("deepspeed", "None") not in ("None", ""):
        setup["framework"] = "deepspeed"
    return Draft({}, setup, (), source, {})


def read_optimizer(name: str) -> str:
    """Our name of an optimizer as frameworks write it."""
    text = name.strip().lower().replace("-", "_")
    if "8bit" in text:
        return "adamw_8bit"
    if "adafactor" in text:
        return "adafactor"
    if "lion" in text:
        return "lion"
    if "muon" in text:
        return "muon"
    if text.startswith("sgd"):
        return "sgd_momentum" if "momentum" in text else "sgd"
    if "adam" in text:
        if "fused" in text:
            return "adamw_fused"
        if "loop" in text or "single" in text:
            return "adamw_loop"
        return "adamw_foreach"
    if text in ("none", ""):
        return "none"
    raise InvalidParameter("optimizer", f"unknown optimizer {name[:60]!r}")
