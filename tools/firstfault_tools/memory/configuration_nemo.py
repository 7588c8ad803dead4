"""What do NeMo's YAML, its Python recipes and its command line say? NeMo 1, NeMo 2 and Megatron Bridge.

NeMo 2 names a recipe (`llm.llama3_8b.pretrain_recipe(...)`, `nemo llm pretrain --factory llama3_8b`) and changes
fields of it: `trainer.strategy`, `trainer.devices`, `model.config`, `data`, `optim.config`. Nothing is run: literal
values are read, others are named as open.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.expressions import expression
from firstfault_tools.memory.configuration import Draft, read_section
from firstfault_tools.memory.configuration_megatron import SHAPE, read_megatron
from firstfault_tools.memory.models import find_model, find_named

_FACTORY = expression(
    r"--factory[= ]\s*[\"']?([a-z][a-z0-9_]{2,60})(?:\.\w{1,60})?(?:\(([^)\n]{0,400})\))?"
)
_RECIPE = expression(
    r"(?:llm|vlm|recipes)\.([a-z][a-z0-9_]{2,60})\.(?:pretrain|finetune)_recipe\w{0,40}\(([^)]{0,800})\)"
)
_SET = expression(r"(?:^|[\s\"'])(?:\w{0,20}recipe\w{0,20}\.)?((?:trainer|model|data|optim|peft)[.][\w.]{2,90}) ?= ?([^\s#\\]{1,120})", re.MULTILINE)  # fmt: skip
_ARGUMENT = expression(r"(\w{2,60}) ?= ?([^,\s][^,]{0,100})")
_LORA = expression(
    r"peft ?= ?(?:[\"']?lora|run\.Config\(\s*(?:llm\.peft\.)?LoRA|llm\.peft\.LoRA)", re.IGNORECASE
)
_CLASS = expression(r"([A-Za-z]+?)(\d{0,2})Config(\w{1,20})$")
_NAME = expression(r"([a-z]+?)(\d{0,2})_(\d+(?:x\d+)?(?:p\d+)?[bm])(?:_(\d+)k)?")


LORA_RANK = 32
"""nemo/collections/llm/peft/lora.py: the default of `dim`."""


def is_nemo(text: str) -> bool:
    """Whether a text names a recipe of NeMo 2."""
    head = text[: 1 << 18]
    return bool(_RECIPE.search(head) or ("nemo " in head and _FACTORY.search(head)))


@cache
def _list_recipes() -> dict[str, dict[str, Any]]:
    text = Path(__file__).with_name("nemo_recipes.json").read_text(encoding="utf-8")
    return {name: row for name, row in json.loads(text).items() if isinstance(row, dict)}


def read_nemo_script(text: str, source: str = "NeMo recipe") -> Draft:
    """Draft of a Python script or a command that changes a recipe. Raises InvalidParameter."""
    head = text[: 1 << 18]
    named = _RECIPE.search(head) or _FACTORY.search(head)
    if named is None:
        raise InvalidParameter("configuration", "names no recipe of NeMo")
    found: dict[str, str] = {}
    open_fields = []
    given = [*_ARGUMENT.findall(named[2] or ""), *_SET.findall(head)]
    for key, value in given:
        name = key.rsplit(".", 1)[-1]
        literal = _read_literal(value)
        if literal is None:
            open_fields.append(key)
        else:
            found[name] = literal
    assumed = []
    if open_fields:
        assumed.append(
            f"only the script's variables hold {', '.join(open_fields[:6])}: state them as flags"
        )
    # A recipe for fine-tuning adapts unless it is told not to (peft_scheme).
    tuned = "finetune" in named[0] and found.get("peft_scheme", "lora").lower() in ("lora", "dora")
    lora = int(found.get("dim") or LORA_RANK) if tuned or _LORA.search(head) else 0
    return _build(named[1], found, source, assumed, lora)


def _read_literal(value: str) -> str | None:
    try:
        return str(ast.literal_eval(value.strip().rstrip(",)")))
    except (ValueError, SyntaxError):
        return None


def read_nemo(config: Mapping[str, Any], source: str = "NeMo YAML") -> Draft:
    """Draft of a YAML: NeMo 1 and Megatron Bridge spell the model out, NeMo 2 may name its class alone."""
    model = read_section(config, "model")
    inner = read_section(model, "config")
    name = _find_class(config, model, inner)
    trainer = read_section(config, "trainer")
    found: dict[str, str] = {}
    for part in (
        read_section(config, "train"), read_section(config, "dataset"), read_section(config, "data"),
        read_section(config, "ddp"), read_section(trainer, "strategy"), model, inner,
        read_section(read_section(config, "optim"), "config"), read_section(config, "optimizer"),
    ):  # fmt: skip
        found |= {
            str(k): str(v) for k, v in part.items() if not isinstance(v, Mapping) and v is not None
        }
    for key in ("num_nodes", "devices"):
        if isinstance(trainer.get(key), int):
            found[key] = str(trainer[key])
    found["precision"] = _find_precision(config, model, trainer)
    if "distributed" in str(read_section(model, "optim").get("name", "")):
        found["use_distributed_optimizer"] = "True"
    target = str(model.get("_target_") or "")
    if target and "gpt" not in target.rsplit(".", 1)[-1].lower():
        # Providers of Llama's kin set what the plain GPT's leave at learned positions.
        found.setdefault("position_embedding_type", "rope")
    return _build(name, found, source, [], _find_lora(config, model))


def _find_precision(
    config: Mapping[str, Any], model: Mapping[str, Any], trainer: Mapping[str, Any]
) -> str:
    """The precision, in the first of the places that may state it."""
    places = (
        trainer.get("precision"),
        read_section(trainer, "plugins").get("precision"),
        config.get("mixed_precision"),
        model.get("precision"),
    )
    return str(next((said for said in places if said), "bf16"))


def _find_lora(config: Mapping[str, Any], model: Mapping[str, Any]) -> int:
    """Rank of the adapter; 0 where there is none."""
    peft = read_section(config, "peft") or read_section(model, "peft")
    stated = peft.get("dim") or read_section(peft, "lora_tuning").get("adapter_dim")
    return int(stated or (LORA_RANK if peft.get("_target_") else 0))


def _find_class(
    config: Mapping[str, Any], model: Mapping[str, Any], inner: Mapping[str, Any]
) -> str:
    """The recipe or the class that names the model's sizes."""
    for part in (inner, model, config):
        for key in ("_factory_", "_target_"):
            name = str(part.get(key) or "").rsplit(".", 1)[-1]
            if name and (_CLASS.search(name) or _NAME.match(name)):
                return name
    return ""


def find_sizes(name: str) -> tuple[str | None, int]:
    """The known model that a recipe or a configuration class stands for, and the length its name tells."""
    match = _CLASS.search(name) or _NAME.match(name.lower())
    if match is None:
        return None, 0
    family, version, size, *rest = (part or "" for part in match.groups())
    version = ".".join(version)
    size = size.lower().replace("p", ".")
    if size.endswith("m") and size[:-1].isdigit() and len(size) == 4:
        size = f"{int(size[:-1]) / 1000:g}b"
    length = int(rest[0]) * 1024 if rest and rest[0] else 0
    for text in (f"{family} {version} {size}", f"{family}{version} {size}"):
        if known := find_named(" ".join(text.lower().split())):
            return known, length
    return None, length


_SAME = {
    "encoder_seq_length": "seq_length", "sequence_length": "seq_length", "bias": "add_bias_linear",
    "activations_checkpoint_granularity": "recompute_granularity", "num_moe_experts": "num_experts",
    "num_gpus_per_node": "devices",
}  # fmt: skip


def _build(
    name: str, given: Mapping[str, str], source: str, assumed: list[str], lora: int
) -> Draft:
    recipe = next((n for n in (name, re.sub(r"_\d+k$", "", name)) if n in _list_recipes()), None)
    found: dict[str, str] = {"use_distributed_optimizer": "True"} if name else {}
    if recipe:
        found |= {key: str(value) for key, value in _list_recipes()[recipe].items()}
    known, length = find_sizes(name)
    if length:
        found["seq_length"] = str(length)
    found |= {_SAME.get(key, key): value for key, value in given.items()}
    _spell(found)
    nodes, devices = found.get("num_nodes", "1"), found.get("devices", "8" if name else "")
    if nodes.isdigit() and devices.isdigit():
        found["world_size"] = str(int(nodes) * int(devices))
    if known:
        found.setdefault("vocab_size", str(find_model(known).shape["vocab"]))
    draft = read_megatron(found, source)
    if recipe:
        assumed.append(
            f"what the script leaves open is NeMo's {recipe} recipe's own: state it in the script"
        )
    elif known:
        assumed.append(
            f"parallel sizes that are not set are 1, not the {name} recipe's: state them"
        )
    setup = {**draft.setup, **({"lora_rank": lora} if lora else {})}
    shape, extra = dict(draft.shape), dict(draft.extra)
    if known:
        model = find_model(known)
        stated = {
            ours: shape[ours] for theirs, ours in SHAPE.items() if theirs in found and ours in shape
        }
        shape = {**model.shape, **stated}
        extra = {**({} if stated else model.extra), **extra}
        source = f"{known}, {source}"
    return Draft(shape, setup, (*draft.assumed, *assumed), source, extra)


def _spell(found: dict[str, str]) -> None:
    """NeMo's words as Megatron's options."""
    if found.get("num_query_groups", "None") not in ("None", ""):
        found.setdefault("group_query_attention", "True")
    if (
        found.get("activation", "").lower() in ("swiglu", "fast-swiglu")
        or found.get("gated_linear_unit") == "True"
    ):
        found["swiglu"] = "True"
    if found.get("normalization", "").lower() in ("rmsnorm", "rms"):
        found["normalization"] = "RMSNorm"
    if found.get("share_embeddings_and_output_weights") == "False":
        found["untie_embeddings_and_output_weights"] = "True"
    precision = found.pop("precision", "bf16").lower()
    found["bf16" if "bf16" in precision else "fp16" if "16" in precision else "fp32"] = "True"
    if "fp8" in precision:
        found.setdefault("fp8", "hybrid")
