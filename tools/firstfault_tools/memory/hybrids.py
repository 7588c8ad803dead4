"""Which layers does a hybrid model's config.json lay out, in order?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.memory.architecture import Delta, Hybrid, Scan, StateSpace
from firstfault_tools.memory.configuration import read_int

Config = Mapping[str, Any]
_LETTERS = {"M": "scan", "-": "mlp", "*": "attention", "E": "experts"}
_KINDS = {
    "linear_attention": "M", "mamba": "M", "mlp": "-", "full_attention": "*", "attention": "*", "moe": "E",
}  # fmt: skip


def _size(config: Config, key: str, default: int | None = None) -> int:
    return read_int(key, config.get(key, default))


def read_hybrid(config: Config, family: str, shape: dict[str, Any]) -> None:
    """Set `hybrid` and what it implies in the draft's shape. Raises InvalidParameter."""
    readers: dict[str, Callable[[Config, dict[str, Any]], Hybrid | None]] = {"mamba2": _read_mamba2, "nemotron_h": _read_nemotron, "qwen3_next": _read_qwen3_next,
               "qwen3_5_text": _read_qwen3_next, "qwen3_5_moe_text": _read_qwen3_next,
               "jamba": _read_jamba, "granitemoehybrid": _read_granite, "bamba": _read_granite,
               "falcon_h1": _read_falcon}  # fmt: skip
    if family in readers and (found := readers[family](config, shape)):
        shape["hybrid"] = found


def read_searched(config: Config, shape: dict[str, Any], extra: dict[str, Any]) -> None:
    """Set what a `block_configs` list says: every layer's own heads and MLP width, or none of them.

    Widths follow modeling_decilm.py: 2/3 of the multiple of the hidden size, up to a multiple of 256.
    """
    hidden, heads = _size(config, "hidden_size"), _size(config, "num_attention_heads")
    width = hidden // max(1, heads)
    whole = hidden + _size(config, "vocab_size") * hidden * (
        2 - bool(config.get("tie_word_embeddings"))
    )
    widths, pairs = [0], [1]
    for number, block in enumerate(config["block_configs"]):
        if not isinstance(block, Mapping):
            raise InvalidParameter("block_configs", f"entry {number} must be an object")
        for part, kind in ((block.get("attention"), "attention"), (block.get("ffn"), "ffn")):
            if not isinstance(part, Mapping) or part.get("no_op"):
                continue
            if part.get("replace_with_linear"):
                whole += hidden * hidden + hidden
            elif kind == "attention":
                groups = max(1, heads // max(1, _size(part, "n_heads_in_group", 1)))
                pairs.append(groups)
                whole += 2 * hidden * heads * width + 2 * hidden * groups * width + hidden
            else:
                ffn = -(-int(2 * float(part.get("ffn_mult") or 0) * hidden / 3) // 256) * 256
                widths.append(ffn)
                whole += 3 * hidden * ffn + hidden
    extra["parameters"] = whole
    used = [ffn for ffn in widths if ffn]
    shape |= {
        "layers": len(config["block_configs"]),
        "ffn": sum(used) // max(1, len(used)) or hidden,
        "kv_heads": max(pairs),
    }


def _read_mamba2(config: Config, shape: dict[str, Any]) -> Hybrid:
    # Configuration classes' defaults: configuration_mamba2.py.
    scan = Scan(
        heads=_size(config, "num_heads", 128), width=_size(config, "head_dim", 64), state=_size(config, "state_size", 128),
        groups=_size(config, "n_groups", 8), chunk=_size(config, "chunk_size", 256),
    )  # fmt: skip
    shape["kv_heads"] = shape["heads"] = 1
    shape.pop("head_dim", None)
    return Hybrid(
        ("scan",) * shape["layers"], scan, wide_residual=bool(config.get("residual_in_fp32", True))
    )


def _read_nemotron(config: Config, shape: dict[str, Any]) -> Hybrid:
    pattern = str(config.get("hybrid_override_pattern") or "")
    if not pattern and isinstance(config.get("layers_block_type"), list):
        pattern = "".join(_KINDS.get(str(kind), "?") for kind in config["layers_block_type"])
    if not pattern or set(pattern) - set(_LETTERS):
        raise InvalidParameter(
            "hybrid_override_pattern", "must be letters M, -, * and E, one a layer"
        )
    scan = Scan(
        heads=_size(config, "mamba_num_heads", 128), width=_size(config, "mamba_head_dim", 64),
        state=_size(config, "ssm_state_size", 128), groups=_size(config, "n_groups", 8),
        chunk=_size(config, "chunk_size", 128), grouped_norm=True,
    )  # fmt: skip
    shape |= {"rotary": False, "layers": len(pattern)}
    if "head_dim" not in shape:
        shape["head_dim"] = _size(config, "attention_head_dim", 128)
    return Hybrid(
        tuple(_LETTERS[letter] for letter in pattern),
        scan,
        wide_residual=bool(config.get("residual_in_fp32")),
    )


def _read_qwen3_next(config: Config, shape: dict[str, Any]) -> Hybrid:
    delta = Delta(
        key_heads=_size(config, "linear_num_key_heads", 16), heads=_size(config, "linear_num_value_heads", 32),
        key_width=_size(config, "linear_key_head_dim", 128), value_width=_size(config, "linear_value_head_dim", 128),
    )  # fmt: skip
    every = max(1, _size(config, "full_attention_interval", 4))
    mlp = "experts" if shape.get("experts") else "mlp"
    shape |= {"attention_gate": True, "norm": "rms_offset"}
    shape["shared_expert_gate"] = mlp == "experts"
    layers = tuple(
        f"attention {mlp}" if (layer + 1) % every == 0 else f"delta {mlp}"
        for layer in range(shape["layers"])
    )
    return Hybrid(layers, delta=delta)


def _read_jamba(config: Config, shape: dict[str, Any]) -> Hybrid:
    inner = shape["hidden"] * _size(config, "mamba_expand", 2)
    rank = config.get("mamba_dt_rank", "auto")
    shape["state_space"] = StateSpace(
        inner=inner, state=_size(config, "mamba_d_state", 16), kernel=_size(config, "mamba_d_conv", 4),
        rank=-(-shape["hidden"] // 16) if rank == "auto" else read_int("mamba_dt_rank", rank),
    )  # fmt: skip
    shape["rotary"] = False
    turn, first = _size(config, "attn_layer_period", 8), _size(config, "attn_layer_offset", 4)
    every, start = _size(config, "expert_layer_period", 2), _size(config, "expert_layer_offset", 1)
    return Hybrid(tuple(
        ("attention" if layer % max(1, turn) == first else "mamba")
        + (" experts" if layer % max(1, every) == start and shape.get("experts", 0) > 1 else " mlp")
        for layer in range(shape["layers"])
    ))  # fmt: skip


def _read_scan(config: Config, *, heads: int, groups: int, state: int) -> Scan:
    """A Mamba-2 mixer under the names of Bamba's kin, with their classes' defaults."""
    return Scan(
        heads=_size(config, "mamba_n_heads", heads), width=_size(config, "mamba_d_head", 64),
        state=_size(config, "mamba_d_state", state), groups=_size(config, "mamba_n_groups", groups),
        chunk=_size(config, "mamba_chunk_size", 256),
    )  # fmt: skip


def _read_granite(config: Config, shape: dict[str, Any]) -> Hybrid | None:
    """Granite 4 and Bamba: a mixer or attention, then an MLP. Granite's experts are not spelled out."""
    if shape.get("experts"):
        return None
    shape.pop("shared_expert_ffn", None)
    if config.get("shared_intermediate_size"):
        # Its MLP is the shared one, gate and up in one matrix (modeling_granitemoehybrid.py).
        shape |= {"ffn": _size(config, "shared_intermediate_size"), "fused_gate_up": True}
    kinds = config.get("layer_types") or config.get("layers_block_type")
    if not isinstance(kinds, list):
        turns = config.get("attn_layer_indices") or ()
        kinds = ["attention" if n in turns else "mamba" for n in range(shape["layers"])]
    if config.get("position_embedding_type", "rope") != "rope":
        shape["rotary"] = False
    names = ("attention mlp" if "attention" in str(kind) else "scan mlp" for kind in kinds)
    return Hybrid(tuple(names), _read_scan(config, heads=128, groups=1, state=256))


def _read_falcon(config: Config, shape: dict[str, Any]) -> Hybrid:
    """Falcon-H1: mixer and attention side by side on one norm, then an MLP."""
    width = shape["hidden"] * _size(config, "mamba_expand", 2)
    inner = _size(config, "mamba_d_ssm", width)
    scan = _read_scan(config, heads=128, groups=1, state=256)
    scan = replace(scan, normed=bool(config.get("mamba_rms_norm")))
    if not config.get("mamba_d_head"):
        scan = replace(scan, width=inner // max(1, scan.heads))
    return Hybrid(("scan+attention mlp",) * shape["layers"], scan)
