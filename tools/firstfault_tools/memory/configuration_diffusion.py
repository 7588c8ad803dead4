"""What does a diffusion transformer's config.json (diffusers) say?"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from firstfault_tools.memory.architecture import Diffusion, DiffusionKind
from firstfault_tools.memory.configuration import Draft, read_int
from firstfault_tools.memory.tally import list_tables, tally

Config = Mapping[str, Any]
BESIDE = (
    "frozen text encoders and VAE stand elsewhere: FLUX's T5-XXL encoder takes 9.5 GB in bf16, CLIP 0.25 GB, "
    "the VAE 0.17 GB where they share this GPU"
)
UNSPELLED = (
    "modulation and joint attention of this diffusion transformer are priced as a plain layer"
)
KINDS = {
    "FluxTransformer2DModel": DiffusionKind.FLUX, "SD3Transformer2DModel": DiffusionKind.SD3,
    "WanTransformer3DModel": DiffusionKind.WAN, "QwenImageTransformer2DModel": DiffusionKind.QWEN_IMAGE,
}  # fmt: skip
PADDED = {DiffusionKind.SD3: 333}
"""Text tokens that a pipeline pads to, where they are not 512: CLIP's 77 and T5's 256 (pipeline_stable_diffusion_3.py)."""


def read_diffusion(config: Config, source: str) -> Draft:
    """Draft of the file; the sequence is latent tokens, text stands beside them.

    Blocks of FLUX, SD3, Wan and Qwen-Image are spelled out, others a range. Raises InvalidParameter.
    """
    kind = str(config["_class_name"])
    heads = read_int("num_attention_heads", config.get("num_attention_heads"))
    width = heads * read_int("attention_head_dim", config.get("attention_head_dim"))
    layers = read_int("num_layers", config.get("num_layers"))
    layers += read_int("num_single_layers", config.get("num_single_layers") or 0)
    ffn = read_int("ffn_dim", config.get("ffn_dim") or 4 * width)
    shape: dict[str, Any] = {
        "hidden": width, "heads": heads, "layers": layers, "ffn": ffn, "vocab": 1, "tied": True,
        "gated": False, "activation": "gelu", "norm": "layer", "qk_norm": True, "family": kind,
    }  # fmt: skip
    assumed, setup = [BESIDE], {}
    extra: dict[str, Any] = {"max_positions": 4096}
    if kind in list_tables():
        extra["parameters"] = tally(kind, config)
    if spelled := _read_blocks(config, width, extra.get("parameters", 0) // max(1, layers)):
        shape["diffusion"] = spelled
        tokens = setup["text_tokens"] = PADDED.get(spelled.kind, 512)
        assumed.append(f"{tokens} text tokens beside the latents: state --text-tokens")
    else:
        shape["partial"] = UNSPELLED
        if kind not in list_tables():
            shape["partial"] += "; parameters are those of plain layers"
    return Draft(shape, setup, tuple(assumed), source, extra)


def _read_blocks(config: Config, width: int, block: int) -> Diffusion | None:
    """The blocks, where they are known to the tensor; Wan's that look at an image are not."""
    kind = KINDS.get(str(config["_class_name"]))
    if kind is None or config.get("added_kv_proj_dim"):
        return None

    def size(key: str, default: int) -> int:
        return read_int(key, config.get(key) or default)

    patch = config.get("patch_size") or (1 if kind is DiffusionKind.FLUX else 2)
    area = prod(patch) if isinstance(patch, list) else read_int("patch_size", patch) ** 2
    inward = size("in_channels", 16 if kind in (DiffusionKind.SD3, DiffusionKind.WAN) else 64)
    outward = size("out_channels", inward)
    positions = size("pos_embed_max_size", 96) if kind is DiffusionKind.SD3 else 0
    return Diffusion(
        kind=kind,
        patch=area * outward,
        # SD3 and Wan cut patches themselves, FLUX and Qwen-Image are handed them.
        channels=inward * (area if kind in (DiffusionKind.SD3, DiffusionKind.WAN) else 1),
        text_width=size("text_dim" if kind is DiffusionKind.WAN else "joint_attention_dim", 4096),
        singles=size("num_single_layers", 0) if kind is DiffusionKind.FLUX else 0,
        dual=len(config.get("dual_attention_layers") or []),
        head_norm=kind is not DiffusionKind.SD3 or bool(config.get("qk_norm")),
        cross_norm=bool(config.get("cross_attn_norm", True)),
        buffer=positions**2 * width,
        block=block,
    )
