"""What do Megatron arguments say, on the command line or in the dump a run prints?

Megatron prints `------------------------ arguments ------------------------` and then one
`  name ........ value` a line (megatron/training/arguments.py, _print_args).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.expressions import expression
from firstfault_tools.memory.architecture import Latent
from firstfault_tools.memory.configuration import Draft, read_bool, read_int

DUMP_START = expression(r"-{10,60} arguments -{10,60}")
DUMP_END = expression(r"-{10,60} end of arguments -{10,60}")
_LINE = expression(r"(?:^|[ \]:])([A-Za-z0-9_]{1,60}) \.{2,50} ?(.{0,400})$")
MAX_LINES = 5000
MAX_DUMP = 2 * 1024 * 1024
MARK = "- arguments -"

SHAPE = {
    "hidden_size": "hidden",
    "num_layers": "layers",
    "num_attention_heads": "heads",
    "ffn_hidden_size": "ffn",
    "kv_channels": "head_dim",
    "num_experts": "experts",
    "moe_router_topk": "experts_per_token",
    "moe_ffn_hidden_size": "expert_ffn",
    "moe_shared_expert_intermediate_size": "shared_expert_ffn",
}
_SETUP = {
    "seq_length": "sequence",
    "micro_batch_size": "micro_batch",
    "world_size": "world",
    "tensor_model_parallel_size": "tensor",
    "pipeline_model_parallel_size": "pipeline",
    "context_parallel_size": "context",
    "expert_model_parallel_size": "expert",
    "expert_tensor_parallel_size": "expert_tensor",
}


def read_megatron_dump(text: str, source: str = "argument dump") -> Draft | None:
    """Draft of the first argument dump in a log, None where there is none."""
    start = find_dump(text)
    if start < 0:
        return None
    found: dict[str, str] = {}
    for line in text[start : start + MAX_DUMP].splitlines()[1:MAX_LINES]:
        if DUMP_END.search(line):
            break
        match = _LINE.search(line)
        if match:
            found.setdefault(match[1], match[2].strip())
    return read_megatron(found, source) if found else None


def find_dump(text: str) -> int:
    """Where the first argument dump begins, -1 where there is none. Linear in the text."""
    place = text.find(MARK)
    while place >= 0:
        line = text.rfind("\n", max(0, place - 400), place) + 1
        if DUMP_START.search(text[max(line, place - 400) : place + 80]):
            return place
        place = text.find(MARK, place + len(MARK))
    return -1


def read_megatron_flags(flags: Mapping[str, str], source: str) -> Draft:
    """Draft of options by name; the launcher's give the world size."""
    found = dict(flags)
    nodes, each = found.get("nnodes", "1"), found.get("nproc_per_node", "")
    if "world_size" not in found and nodes.isdecimal() and each.isdecimal():
        found["world_size"] = str(int(nodes) * int(each))
    return read_megatron(found, source)


_EXTRA = {
    "global_batch_size": "global_batch",
    "max_position_embeddings": "max_positions",
    "data_parallel_size": "data",
}


def read_megatron(found: Mapping[str, str], source: str) -> Draft:
    """Draft of Megatron arguments by name (underscores), values as printed."""

    def number(key: str) -> int | None:
        value = found.get(key)
        if value in (None, "None", ""):
            return None
        return read_int(key, value)

    def flag(key: str) -> bool:
        return read_bool(found.get(key, ""))

    def numbers(names: Mapping[str, str]) -> dict[str, Any]:
        return {name: value for key, name in names.items() if (value := number(key))}

    shape: dict[str, Any] = {"family": "megatron"}
    shape |= {name: value for key, name in SHAPE.items() if (value := number(key)) is not None}
    setup: dict[str, Any] = {"framework": "megatron", **numbers(_SETUP)}
    assumed: list[str] = []
    _read_model(found, shape, setup, number, flag, assumed)
    _read_pipeline(found, shape, setup, number)
    _read_precision(found, setup, flag)
    return Draft(shape, setup, tuple(assumed), source, numbers(_EXTRA))


def _read_model(
    found: Mapping[str, str],
    shape: dict[str, Any],
    setup: dict[str, Any],
    number: Any,
    flag: Any,
    assumed: list[str],
) -> None:
    if flag("group_query_attention") and number("num_query_groups"):
        shape["kv_heads"] = number("num_query_groups")
    shape["gated"] = flag("swiglu")
    shape["activation"] = (
        "silu" if flag("swiglu") else ("squared_relu" if flag("squared_relu") else "gelu")
    )
    if shape.get("hidden") and "ffn" not in shape:
        # Megatron's default: 4h, and for SwiGLU 4h x 2/3 rounded down to a multiple of 64.
        wide = 4 * shape["hidden"]
        shape["ffn"] = int(wide * 2 / 3) // 64 * 64 if flag("swiglu") else wide
    shape["norm"] = "rms" if found.get("normalization", "LayerNorm") == "RMSNorm" else "layer"
    biased = not (flag("disable_bias_linear") or found.get("add_bias_linear") == "False")
    shape["attention_out_bias"] = shape["mlp_bias"] = biased
    shape["qkv_bias"] = biased or flag("add_qkv_bias")
    shape["tied"] = not (flag("untie_embeddings_and_output_weights"))
    kind = found.get("position_embedding_type", "learned_absolute")
    if kind == "learned_absolute":
        shape["learned_positions"] = True
    shape["qk_norm"] = flag("qk_layernorm")
    _read_vocabulary(found, shape, setup, number, assumed)
    if flag("multi_latent_attention"):
        shape["latent"] = _read_latent(number)
        shape["head_dim"] = shape["latent"].key
    dropout = found.get("hidden_dropout", "0.1")
    setup["dropout"] = dropout not in ("0.0", "0", "0.00")
    fused = found.get("attention_backend", "auto").rsplit(".", 1)[-1]
    setup["attention"] = "eager" if fused in ("unfused", "local") else "flash"


def _read_vocabulary(
    found: Mapping[str, str],
    shape: dict[str, Any],
    setup: dict[str, Any],
    number: Any,
    assumed: list[str],
) -> None:
    """Size of the token table, and to what it is padded."""
    padded, vocab = number("padded_vocab_size"), number("vocab_size")
    if padded:
        setup["pad_vocab"] = padded
        shape["vocab"] = vocab or padded
    elif vocab:
        shape["vocab"] = vocab
        if multiple := number("make_vocab_size_divisible_by"):
            step = multiple * int(setup.get("tensor", 1))
            setup["pad_vocab"] = -(-vocab // step) * step
    else:
        shape["vocab"], why = _guess_vocabulary(found)
        assumed.append(f"vocabulary {shape['vocab']:,} ({why}): state it with --vocab")


def _read_latent(number: Any) -> Latent:
    """Defaults of megatron/core/transformer/transformer_config.py, MLATransformerConfig."""
    return Latent(
        kv_rank=number("kv_lora_rank") or 512, nope=number("qk_head_dim") or 128,
        rope=number("qk_pos_emb_head_dim") or 64, value=number("v_head_dim") or 128,
        q_rank=number("q_lora_rank") or 0,
    )  # fmt: skip


EVERYDAY_VOCABULARY = 128_256
"""Assumed where neither size nor tokenizer is named: Llama 3's."""


def _guess_vocabulary(found: Mapping[str, str]) -> tuple[int, str]:
    """From the tokenizer, where its name tells it."""
    kind, model = found.get("tokenizer_type", ""), found.get("tokenizer_model", "")
    if kind.startswith("GPT2") or "gpt2" in found.get("vocab_file", ""):
        return 50_257, "GPT-2's tokenizer"
    from firstfault_tools.memory.models import find_model

    try:
        return int(find_model(model).shape["vocab"]), f"that of {model[:60]}"
    except InvalidParameter:
        return EVERYDAY_VOCABULARY, "no tokenizer known here is named"


def _read_pipeline(
    found: Mapping[str, str], shape: dict[str, Any], setup: dict[str, Any], number: Any
) -> None:
    stages = int(setup.get("pipeline", 1))
    if (virtual := number("virtual_pipeline_model_parallel_size")) or (
        virtual := number("num_virtual_stages_per_pipeline_rank")
    ):
        setup["virtual"] = virtual
    elif (per := number("num_layers_per_virtual_pipeline_stage")) and shape.get("layers"):
        if shape["layers"] % (stages * per):
            raise InvalidParameter(
                "num_layers_per_virtual_pipeline_stage",
                f"times pipeline ({stages} x {per}) must divide num_layers ({shape['layers']})",
            )
        setup["virtual"] = shape["layers"] // stages // per
    for key in ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"):
        if (held := number(key)) is not None:
            setup[key.split("_")[1] + "_stage_layers"] = held
    setup["sequence_parallel"] = read_bool(found.get("sequence_parallel", "")) and (
        int(setup.get("tensor", 1)) > 1
    )
    setup["distributed_optimizer"] = read_bool(found.get("use_distributed_optimizer", ""))
    _read_recompute(found, setup, number)


def _read_recompute(found: Mapping[str, str], setup: dict[str, Any], number: Any) -> None:
    granularity = found.get("recompute_granularity", "None")
    if read_bool(found.get("recompute_activations", "")):
        granularity = "selective"
    if granularity in ("full", "selective"):
        setup["recompute"] = granularity
    if granularity == "full" and found.get("recompute_method") == "block":
        setup["recompute_layers"] = number("recompute_num_layers") or 0
    if modules := found.get("recompute_modules"):
        names = re.findall(r"[a-z_]+", modules)
        if names and names != ["none"]:
            setup["recompute_modules"] = tuple(names)


def _read_precision(found: Mapping[str, str], setup: dict[str, Any], flag: Any) -> None:
    low = {key: found.get(key) or found.get(f"{key}_format", "None") for key in ("fp4", "fp8")}
    if low["fp4"] not in ("None", "False"):
        setup["precision"] = "nvfp4"
        setup["low_weights"] = flag("fp4_param_gather") or flag("fp4_param")
    elif low["fp8"] not in ("None", "False"):
        setup["precision"] = "mxfp8" if found.get("fp8_recipe") == "mxfp8" else "fp8"
        setup["low_weights"] = flag("fp8_param_gather") or flag("fp8_param")
    elif flag("bf16"):
        setup["precision"] = "bf16"
    elif flag("fp16"):
        setup["precision"] = "fp16"
    else:
        setup["precision"] = "fp32"
    if found.get("accumulate_allreduce_grads_in_fp32") == "False" and flag("bf16"):
        setup["gradient_bytes"] = 2
    if flag("grad_reduce_in_bf16"):
        setup["gradient_bytes"] = 2
    widths = {"fp32": 4, "float32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2, "fp8": 1}
    if flag("use_precision_aware_optimizer"):
        pairs = [found.get(key, "fp32") for key in ("exp_avg_dtype", "exp_avg_sq_dtype")]
        setup["moment_bytes"] = sum(widths.get(p.rsplit(".", 1)[-1], 4) for p in pairs) / 2
        main = found.get("main_params_dtype", "fp32").rsplit(".", 1)[-1]
        setup["master_bytes"] = float(widths.get(main, 4))
    optimizer = found.get("optimizer", "adam")
    setup["optimizer"] = {"sgd": "sgd", "muon": "muon"}.get(optimizer, "adam_fused")
    setup["offload_optimizer"] = flag("optimizer_cpu_offload")
    setup["activation_offload"] = flag("cpu_offloading") or flag("cpu_offloading_activations")
    if flag("cross_entropy_loss_fusion"):
        setup["loss_fused"] = True
