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
from firstfault_tools.memory.architecture import Latent, StateSpace
from firstfault_tools.memory.configuration import Draft, read_bool, read_int
from firstfault_tools.memory.configuration_diffusion import read_diffusion
from firstfault_tools.memory.hybrids import read_hybrid, read_searched
from firstfault_tools.memory.tally import list_tables, tally
from firstfault_tools.memory.towers import count_tower, read_tower

_SIZES = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "n_head_kv", "num_kv_heads", "num_attention_groups"),
    "head_dim": ("head_dim",),
    "ffn": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    "vocab": ("vocab_size",),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    "experts_per_token": (
        "num_experts_per_tok",
        "num_experts_per_token",
        "top_k_experts",
        "moe_k",
        "moe_topk",
        "top_k",
    ),
    "expert_ffn": ("moe_intermediate_size",),
    "shared_expert_ffn": ("shared_expert_intermediate_size", "shared_intermediate_size"),
    "dense_layers": ("first_k_dense_replace", "moe_layer_start_index"),
}
_POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx")
_ACTIVATION_KEYS = ("hidden_act", "activation_function", "hidden_activation", "mlp_hidden_act")
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


@cache
def list_families() -> dict[str, dict[str, Any]]:
    """What each model_type implies."""
    data = json.loads(Path(__file__).with_name("families.json").read_text(encoding="utf-8"))
    return {name: value for name, value in data.items() if isinstance(value, dict)}


def read_huggingface(config: Mapping[str, Any], source: str = "config.json") -> Draft:
    """Draft of a config.json. Raises InvalidParameter for what is not modelled."""
    if config.get("_class_name"):
        return read_diffusion(config, source)
    config, family, outer = _join_text(config)
    assumed: list[str] = []
    shape: dict[str, Any] = dict(list_families().get(family, {}))
    config = _fill_defaults(
        config, family, shape.pop("config", {}), assumed, nested=outer != family
    )
    if family not in list_families() and family not in list_tables():
        assumed.append(
            f"model_type {family or 'missing'} read as a Llama-like model (RMSNorm, gated MLP, rotary), "
            "its count with it: compare it with the published one"
        )
        if family:
            shape |= {"counted": False, "partial": f"model_type {family[:40]} is not known"}
    shape["family"] = family
    for name, keys in _SIZES.items():
        key = next((k for k in keys if isinstance(config.get(k), int | str)), None)
        if key is not None:
            shape[name] = read_int(key, config[key])
    _read_experts(config, shape)
    _read_special(config, family, shape)
    if latent := read_latent(config, family):
        shape["latent"] = latent
        shape["head_dim"] = latent.key
        if shape.get("heads"):
            shape["kv_heads"] = shape["heads"]
    _read_tying(config, family, shape, assumed)
    named = [str(config.get(key)) for key in _ACTIVATION_KEYS]
    if known := [_ACTIVATIONS[name] for name in named if name in _ACTIVATIONS]:
        shape["activation"] = known[-1]
    _read_biases(config, shape)
    key = next((k for k in _POSITIONS if config.get(k)), None)
    extra: dict[str, Any] = {"max_positions": read_int(key, config[key])} if key else {}
    _read_beside(config, family, outer, shape, extra)
    _read_prediction(config, shape, assumed)
    return Draft(shape, {}, tuple(assumed), source, extra)


def _join_text(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str, str]:
    """One flat configuration, the type of its text part and the type of the whole.

    Tying is the whole model's: its own word on it goes before the text part's.
    """
    outer = str(config.get("model_type") or "")
    inner = config.get("text_config") or config.get("llm_config")
    if not (isinstance(inner, Mapping) and inner):
        return _flatten(config), outer, outer
    joined = {**config, **_flatten(inner)}
    if config.get("tie_word_embeddings") is not None:
        joined["tie_word_embeddings"] = config["tie_word_embeddings"]
    elif outer in UNTIED_OUTSIDE:
        joined["tie_word_embeddings"] = False
    family = str(inner.get("model_type") or "")
    if f"{outer}_text" in list_tables():
        # MiniMax-M3's text part calls itself by the name of the model before.
        family = f"{outer}_text"
    if not family:
        family = f"{outer}_text" if f"{outer}_text" in list_families() else outer
    return joined, family, outer


UNTIED_OUTSIDE = ("qwen3_vl", "qwen3_vl_moe")
"""Whole models that are not tied unless they say so themselves, whatever their text part says
(configuration_qwen3_vl.py; a model built from such a file holds both tables)."""

_NESTED = {
    "attention_other_setting": {"num_attention_heads": "num_sliding_attention_heads"},
    "sparse_attention_config": {
        "sparse_num_index_heads": "index_n_heads", "sparse_index_dim": "index_head_dim",
        "sparse_attention_freq": "sparse_attention_freq",
    },
}  # fmt: skip
"""Sizes that a part inside the configuration holds (Step 3.5, MiniMax-M3), and their names outside."""


def _flatten(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found = dict(config)
    for part, names in _NESTED.items():
        inside = config.get(part)
        if isinstance(inside, Mapping):
            found |= {name: inside[key] for key, name in names.items() if key in inside}
    return found


_CORE = {
    "hidden_size": "hidden", "n_embd": "hidden", "d_model": "hidden", "num_hidden_layers": "layers",
    "n_layer": "layers", "num_layers": "layers", "num_attention_heads": "heads", "n_head": "heads",
    "num_heads": "heads", "vocab_size": "vocab", "intermediate_size": "ffn",
}  # fmt: skip


@cache
def _list_class_defaults() -> dict[str, dict[str, Any]]:
    text = Path(__file__).with_name("class_defaults.json").read_text(encoding="utf-8")
    return {name: value for name, value in json.loads(text).items() if isinstance(value, dict)}


def _fill_defaults(
    config: Mapping[str, Any],
    family: str,
    ours: Mapping[str, Any],
    assumed: list[str],
    *,
    nested: bool,
) -> dict[str, Any]:
    """The configuration with its class's defaults under it.

    A file that leaves out the hidden size is cut short; a text part inside another model may (LLaVA's
    names no more than its vocabulary), which is said.
    """
    stated = {key: value for key, value in config.items() if value is not None}
    # A null means that there is none, and another name of a size says as much as its own.
    siblings = {key: keys for keys in _SIZES.values() for key in keys}
    defaults = {
        key: value
        for key, value in (_list_class_defaults().get(family, {}) | dict(ours)).items()
        if not any(name in config for name in siblings.get(key, (key,)))
    }
    core = {key for key in defaults if key in _CORE}
    told = {_CORE[key] for key in stated if key in _CORE}
    taken = {key: defaults[key] for key in core if _CORE[key] not in told}
    for key in core:
        del defaults[key]
    if nested and taken:
        defaults |= taken
        named = ", ".join(f"{key} {value}" for key, value in sorted(taken.items()))
        assumed.append(
            f"{family}'s own {named}, which the file leaves out: state them in text_config"
        )
    elif "intermediate_size" in taken and "hidden" in told:
        defaults["intermediate_size"] = taken["intermediate_size"]
        assumed.append(
            f"{family}'s own intermediate_size {taken['intermediate_size']}: state it in the file"
        )
    return {**defaults, **stated}


def _read_experts(config: Mapping[str, Any], shape: dict[str, Any]) -> None:
    """Shared experts, and models whose experts the file counts as none or one."""
    for key in ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"):
        if config.get(key) and shape.get("expert_ffn"):
            shape["shared_expert_ffn"] = read_int(key, config[key]) * shape["expert_ffn"]
    if not shape.get("experts"):
        shape.pop("experts", None)


ALWAYS_TIED = ("t5", "mt5", "umt5")


def _read_tying(
    config: Mapping[str, Any], family: str, shape: dict[str, Any], assumed: list[str]
) -> None:
    """Whether the head shares the token table.

    T5's flag says no more than whether outputs are scaled: transformers 5 ties in any case
    (models/t5/configuration_t5.py; https://github.com/huggingface/transformers/pull/47620).
    """
    if config.get("tie_word_embeddings") is None:
        return
    tied = bool(config["tie_word_embeddings"])
    if family in ALWAYS_TIED and not tied:
        head = int(shape.get("vocab") or 0) * int(shape.get("hidden") or 0)
        assumed.append(
            "transformers 5 shares T5's token table with its head whatever tie_word_embeddings says; "
            f"transformers 4, or a checkpoint with a head of its own, holds {head:,} parameters more"
        )
        tied = True
    shape["tied"] = tied


def _read_biases(config: Mapping[str, Any], shape: dict[str, Any]) -> None:
    """Biases the file states: `bias_on` tells families whose attention bias is not on the way out."""
    inward = shape.pop("bias_on", "") == "qkv"
    for key in ("attention_bias", "use_qkv_bias", "use_bias"):
        if config.get(key) is not None:
            shape["qkv_bias"] = bool(config[key])
            shape["attention_out_bias"] = shape["qkv_bias"] and not (
                inward or key == "use_qkv_bias"
            )
            break
    for key in ("attention_out_bias", "mlp_bias"):
        if config.get(key) is not None:
            shape[key] = bool(config[key])
    flagged = config.get("qk_layernorm") or config.get("use_qk_norm")
    if shape.pop("qk_norm_by_flag", None) and flagged:
        shape["qk_norm"] = True
    more = _count_beside_layers(config, shape)
    if more:
        shape["extra_parameters"] = more


def _count_beside_layers(config: Mapping[str, Any], shape: dict[str, Any]) -> int:
    """Extra parameters with the biases of head and routers and the norm of the embedding, which it takes out of `shape`."""
    more = int(shape.get("extra_parameters") or 0)
    if shape.pop("head_bias", False) or config.get("lm_head_bias"):
        more += int(shape.get("vocab") or 0)
    if shape.pop("embedding_norm", False):
        more += 2 * int(shape.get("hidden") or 0)
    if shape.pop("router_bias", False) and shape.get("experts"):
        depth = int(shape.get("layers") or 0) - int(shape.get("dense_layers") or 0)
        more += depth * int(shape["experts"])
    return more


def _read_prediction(config: Mapping[str, Any], shape: dict[str, Any], assumed: list[str]) -> None:
    """Multi-token prediction: stands in the published file, transformers leaves it out."""
    for key in ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"):
        depth = config.get(key)
        if isinstance(depth, int) and depth > 0 and not isinstance(depth, bool):
            shape["prediction_layers"] = min(depth, 100)
            assumed.append(
                f"{key} {depth}: the published file holds {depth} more layer(s) for multi-token "
                "prediction; transformers leaves them out, Megatron trains them: state --prediction"
            )
            return


HYBRID = "layers of several kinds are priced as plain ones of the width"
INDEXER = "the indexer that picks tokens for sparse attention is counted, its activations are not spelled out"
UNCOUNTED = "the vision tower is not counted: add its parameters"
TOWER = (
    "the vision tower's activations are not spelled out: state --image-patches, or --tower-frozen"
)


def _read_beside(
    config: Mapping[str, Any], family: str, outer: str, shape: dict[str, Any], extra: dict[str, Any]
) -> None:
    """What the model holds beside a plain decoder: exact counts, activations as a range."""
    if isinstance(config.get("block_configs"), list):
        # Layers of several widths, some without attention or MLP (Nemotron from architecture search).
        read_searched(config, shape, extra)
        shape["partial"] = HYBRID
    if family in list_tables():
        extra["parameters"] = tally(family, config)
        shape.setdefault("heads", 1)
        shape.setdefault("ffn", 2 * shape.get("hidden", 0))
        if shape.get("experts"):
            shape.setdefault("experts_per_token", 1)
        if "layers" in shape or family == "nemotron_h":
            read_hybrid(config, family, shape)
        if "hybrid" not in shape:
            shape["partial"] = HYBRID
    if config.get("index_n_heads") and family not in list_tables():
        shape["extra_parameters"] = tally("indexer", config)
        shape["indexer_parameters"] = tally("indexer_layer", config)
        shape["partial"] = INDEXER
    vision = config.get("vision_config")
    if isinstance(vision, Mapping):
        _read_vision(config, outer, vision, shape, extra)


def _read_vision(
    config: Mapping[str, Any],
    outer: str,
    vision: Mapping[str, Any],
    shape: dict[str, Any],
    extra: dict[str, Any],
) -> None:
    count = count_tower(outer, config, vision, int(shape.get("hidden") or 0))
    shape["partial"] = TOWER if count is not None else UNCOUNTED
    if "parameters" in extra:
        extra["parameters"] += count or 0
    else:
        shape["extra_parameters"] = shape.get("extra_parameters", 0) + (count or 0)
        shape["unspelled"] = count or 0
    if tower := read_tower(outer, vision):
        shape["tower"] = tower


def _read_special(config: Mapping[str, Any], family: str, shape: dict[str, Any]) -> None:
    """Encoder-decoder and pure state-space models, whose sizes have other names."""
    if family in ("t5", "mt5", "umt5", "whisper", "mamba", "falcon_mamba"):
        for name in ("hidden",) + (("layers", "heads") if family.endswith("t5") else ()):
            if not shape.get(name):
                raise InvalidParameter(_SIZES[name][0], f"is not given for a {family} model")
    if family in ("t5", "mt5", "umt5", "flan-t5"):
        depth = shape["layers"]
        shape["encoder_layers"] = depth
        shape["layers"] = read_int("num_decoder_layers", config.get("num_decoder_layers") or depth)
        shape["head_dim"] = read_int("d_kv", config.get("d_kv", 64))
        shape["ffn"] = read_int("d_ff", config.get("d_ff", 2048))
        kind = str(config.get("feed_forward_proj", "relu"))
        shape["gated"] = kind.startswith("gated")
        shape["activation"] = "gelu_new" if shape["gated"] else _ACTIVATIONS.get(kind, "relu")
        tables = read_int(
            "relative_attention_num_buckets", config.get("relative_attention_num_buckets", 32)
        )
        # umT5 learns a bias in every layer, T5 in the first of each stack (modeling_umt5.py).
        learned = shape["encoder_layers"] + shape["layers"] if family == "umt5" else 2
        shape["extra_parameters"] = learned * tables * shape["heads"]
    if family == "whisper":
        for name, key in (("layers", "decoder_layers"), ("encoder_layers", "encoder_layers"),
                          ("heads", "decoder_attention_heads"), ("ffn", "decoder_ffn_dim")):  # fmt: skip
            shape[name] = read_int(key, config.get(key))
        width = shape["hidden"]
        length = read_int("max_source_positions", config.get("max_source_positions", 1500))
        shape["encoder_tokens"] = length
        shape["positions"] = read_int(
            "max_target_positions", config.get("max_target_positions", 448)
        )
        mel = read_int("num_mel_bins", config.get("num_mel_bins", 80))
        # Two convolutions of width 3, the encoder's fixed positions; keys carry no bias.
        shape["extra_parameters"] = (
            3 * width * (mel + width) + 2 * width + length * width
            - width * (shape["encoder_layers"] + 2 * shape["layers"])
        )  # fmt: skip
    if family in ("mamba", "falcon_mamba"):
        hidden = shape["hidden"]
        inner = config.get("intermediate_size") or hidden * read_int(
            "expand", config.get("expand", 2)
        )
        rank = config.get("time_step_rank", "auto")
        shape["state_space"] = StateSpace(
            inner=read_int("intermediate_size", inner),
            state=read_int("state_size", config.get("state_size", 16)),
            rank=-(-hidden // 16) if rank == "auto" else read_int("time_step_rank", rank),
            kernel=read_int("conv_kernel", config.get("conv_kernel", 4)),
        )
        shape["heads"], shape["ffn"] = 1, shape["state_space"].inner


def read_latent(config: Mapping[str, Any], family: str) -> Latent | None:
    """Multi-head latent attention, where the configuration has it."""
    if not config.get("kv_lora_rank"):
        return None
    names = {"kv_rank": "kv_lora_rank", "nope": "qk_nope_head_dim", "rope": "qk_rope_head_dim",
             "value": "v_head_dim", "q_rank": "q_lora_rank"}  # fmt: skip
    sizes = {name: read_int(key, config[key]) for name, key in names.items() if config.get(key)}
    for name in ("nope", "rope", "value"):
        if name not in sizes:
            raise InvalidParameter(names[name], "is not given beside kv_lora_rank")
    return Latent(**sizes, interleaved=family != "deepseek_v2")


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


_OPTIMIZERS = (
    ("4bit adam", "adamw_4bit"),
    ("8bit paged adam", "paged_adamw_8bit"),
    ("fp8 paged adam", "paged_adamw_8bit"),
    ("8bit", "adamw_8bit"),
    ("fp8 adam", "adamw_8bit"),
    ("paged adam", "paged_adamw"),
    ("adafactor", "adafactor"),
    ("lion", "lion"),
    ("muon", "muon"),
    ("^sgd momentum", "sgd_momentum"),
    ("^sgd", "sgd"),
    ("adam fused", "adamw_fused"),
    ("adam loop", "adamw_loop"),
    ("adam single", "adamw_loop"),
    ("adam", "adamw_foreach"),
)
"""Our name of an optimizer by words that its name holds, `^` for the beginning; the first row decides."""


def read_optimizer(name: str) -> str:
    """Our name of an optimizer as frameworks write it."""
    text = "^" + name.strip().lower().replace("-", "_")
    if text in ("^none", "^"):
        return "none"
    for words, ours in _OPTIMIZERS:
        if all(word in text for word in words.split()):
            return ours
    raise InvalidParameter("optimizer", f"unknown optimizer {name[:60]!r}")
