"""What do these configuration files say about a run, put together?

A reader turns one file into a `Draft`: fields of Architecture and TrainingSetup it found, and what it
had to assume. Drafts merge, later ones win, flags last; `build` makes the two objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, replace
from functools import lru_cache
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.memory.architecture import Activation, Architecture, Norm, NormPlace
from firstfault_tools.memory.rollout import Rollout
from firstfault_tools.memory.setup import (
    Attention,
    Framework,
    Precision,
    Recompute,
    Sharding,
    TrainingSetup,
)

EVERYDAY_SEQUENCE = 4096
"""Assumed where nothing names a sequence length: what a model *can* take is not what a run uses."""

_SHAPE_FIELDS = {f.name for f in fields(Architecture)}
_SETUP_FIELDS = {f.name for f in fields(TrainingSetup)}


@dataclass(frozen=True, slots=True)
class Draft:
    """What one source says. shape, setup: keyword arguments found. assumed: sentences. source: name."""

    shape: Mapping[str, Any] = field(default_factory=dict)
    setup: Mapping[str, Any] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    source: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Facts that are no field: global batch, model name, card."""

    def merge(self, later: Draft) -> Draft:
        """This draft with everything `later` says on top."""
        return Draft(
            {**self.shape, **later.shape},
            {**self.setup, **later.setup},
            self.assumed + later.assumed,
            ", ".join(name for name in (self.source, later.source) if name),
            {**self.extra, **later.extra},
        )


@dataclass(frozen=True, slots=True)
class Run:
    """A run ready to be estimated."""

    shape: Architecture
    setup: TrainingSetup
    assumed: tuple[str, ...]
    source: str
    rollout: Rollout | None = None
    """How answers are generated, where the run is reinforcement learning."""
    reference: bool = False
    """A frozen copy stands beside the trained model (DPO)."""


def _assume_sizes(
    draft: Draft, shape: dict[str, Any], setup: dict[str, Any], assumed: list[str]
) -> None:
    """Everyday values of the sizes that nothing states."""
    if not setup.get("sequence"):
        longest = int(
            shape.get("positions") or draft.extra.get("max_positions") or EVERYDAY_SEQUENCE
        )
        setup["sequence"] = min(longest, EVERYDAY_SEQUENCE)
        assumed.append(f"sequence length {setup['sequence']}: state it with --sequence")
    if "micro_batch" not in setup:
        setup["micro_batch"] = 1
        assumed.append("micro-batch 1: state it with --micro-batch")
    if not shape.get("ffn") and not shape.get("experts"):
        shape["ffn"] = 4 * shape["hidden"]
        assumed.append(f"MLP width 4h = {shape['ffn']}")
    shape.setdefault("ffn", 0)


def build_run(draft: Draft) -> Run:
    """Architecture and setup of a draft. Raises InvalidParameter naming what is missing or wrong."""
    shape = dict(draft.shape)
    setup = dict(draft.setup)
    assumed = list(draft.assumed)
    if not shape.get("hidden") and draft.extra.get("model_problem"):
        raise InvalidParameter("model", str(draft.extra["model_problem"]))
    for name in ("hidden", "layers", "heads", "vocab"):
        if not shape.get(name):
            raise InvalidParameter(
                name, "is not given by any configuration file or flag; give it or a config.json"
            )
    _assume_sizes(draft, shape, setup, assumed)
    _take_framework_defaults(setup, assumed)
    _derive_parallel(draft, setup, assumed)
    if shape.pop("learned_positions", False):
        shape["positions"] = draft.extra.get("max_positions") or setup["sequence"]
        shape["positions"] += shape.pop("position_offset", 0)
    shape.pop("position_offset", None)
    unknown = (set(shape) - _SHAPE_FIELDS) | (set(setup) - _SETUP_FIELDS)
    if unknown:
        raise InvalidParameter(sorted(unknown)[0], "is no field of a model or a setup")
    whole = draft.extra.get("parameters")
    fields_of_shape = _enums(
        shape, {"norm": Norm, "activation": Activation, "norm_place": NormPlace}
    )
    built = _build_shape(tuple(sorted(fields_of_shape.items())), int(whole or 0))
    if setup.get("prediction") and built.prediction_layers and built.hybrid is None:
        built = _add_prediction(built)
    if built.tower is not None and (setup.get("image_patches") or setup.get("tower_frozen")):
        built = replace(built, partial="")
    run = TrainingSetup(
        **_enums(
            setup,
            {
                "framework": Framework,
                "precision": Precision,
                "attention": Attention,
                "recompute": Recompute,
                "sharding": Sharding,
            },
        )
    )
    run.check(built)
    return Run(
        built,
        run,
        tuple(dict.fromkeys(assumed)),
        draft.source,
        draft.extra.get("rollout"),
        bool(draft.extra.get("reference")),
    )


@lru_cache(maxsize=64)
def _build_shape(named: tuple[tuple[str, Any], ...], whole: int) -> Architecture:
    """The architecture of these fields, which holds `whole` elements if that is known. Kept: what it derives
    from its sizes is asked for again with every setup."""
    built = Architecture(**dict(named))
    if not whole:
        return built
    return replace(built, extra_parameters=whole - built.parameters + built.extra_parameters)


PREDICTION = (
    "each prediction layer's own logits come on top: one more output matrix's work at a time"
)


def _add_prediction(shape: Architecture) -> Architecture:
    """The model with its prediction layers: whole layers behind the last, and what joins them."""
    depth = shape.prediction_layers
    layer = shape.moe_layer_parameters if shape.experts else shape.dense_layer_parameters
    return replace(
        shape,
        layers=shape.layers + depth,
        extra_parameters=shape.extra_parameters + shape.prediction_parameters - depth * layer,
        prediction_layers=0,
        partial=shape.partial or PREDICTION,
    )


def _take_framework_defaults(setup: dict[str, Any], assumed: list[str]) -> None:
    """What a framework does where nothing is said. torchtitan shards fp32 weights with FSDP2 and
    computes in bf16 (torchtitan/config/job_config.py: mixed_precision_param, data_parallel_shard_degree
    = -1); Accelerate and TrainingArguments train in fp32; DeepSpeed keeps an fp32 copy."""
    framework = str(setup.get("framework") or "huggingface")
    if framework == "torchtitan":
        if "precision" not in setup:
            setup["precision"] = "amp"
            assumed.append("torchtitan's fp32 shards with bf16 compute: state it with --precision")
        if "sharding" not in setup:
            setup["sharding"] = "fsdp"
            assumed.append(
                "torchtitan's FSDP2 over all data-parallel ranks: state it with --sharding"
            )
    elif "precision" not in setup:
        assumed.append("pure bf16: state mixed precision with --precision amp (or bf16_master)")
    if "optimizer" not in setup:
        assumed.append("fused AdamW: state it with --optimizer")
    if "recompute" not in setup:
        assumed.append("no activation recomputation: state it with --recompute full")


EVERYDAY_RANKS = 8
"""Data-parallel ranks assumed where states are split and nothing says over how many: one node's."""
_SPLITTING = ("zero1", "zero2", "zero3", "fsdp")


def _derive_parallel(draft: Draft, setup: dict[str, Any], assumed: list[str]) -> None:
    split = 1
    for name in ("tensor", "pipeline", "context"):
        split *= int(setup.get(name) or 1)
    if (
        not setup.get("world")
        and not draft.extra.get("data")
        and setup.get("sharding") in _SPLITTING
    ):
        setup["world"] = split * EVERYDAY_RANKS
        assumed.append(
            f"{setup['world']} GPUs, over which the states are split: state it with --world"
        )
    if not setup.get("world"):
        setup["world"] = split * int(draft.extra.get("data") or 1)
        if split > 1 and not draft.extra.get("data"):
            assumed.append(f"world size {setup['world']} (data-parallel size 1)")
    world = int(setup["world"])
    sharding = setup.get("sharding")
    if (
        sharding is None
        and world > split
        and setup.get("framework")
        in (
            None,
            Framework.HUGGINGFACE,
            "huggingface",
        )
    ):
        setup["sharding"] = Sharding.DDP
        assumed.append("DDP whose buckets are the gradients (gradient_as_bucket_view=True)")
    batch = draft.extra.get("global_batch")
    if batch and "micro_batches" not in setup and world % split == 0:
        per_step = int(setup["micro_batch"]) * (world // split)
        setup["micro_batches"] = max(1, int(batch) // max(1, per_step))


def _enums(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(values)
    for name, kind in kinds.items():
        if name in out:
            try:
                out[name] = kind(out[name])
            except ValueError:
                known = ", ".join(str(member) for member in kind)
                raise InvalidParameter(name, f"must be one of {known}, got {out[name]!r}") from None
    return out


def read_section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of a configuration; empty where it is missing or no mapping."""
    value = config.get(name)
    return value if isinstance(value, Mapping) else {}


def read_int(name: str, value: object) -> int:
    """An integer out of a configuration value; raises InvalidParameter naming the field."""
    if isinstance(value, bool) or value is None:
        raise InvalidParameter(name, f"must be an integer, got {value!r}")
    try:
        number = int(str(value).replace("_", "").replace(",", ""))
    except ValueError:
        raise InvalidParameter(name, f"must be an integer, got {str(value)[:40]!r}") from None
    if not 0 <= number < 10**12:
        raise InvalidParameter(name, f"must lie between 0 and 10^12, got {number}")
    return number


def read_bool(value: object) -> bool:
    """A truth value as written in argument dumps, YAML and TOML."""
    return str(value).strip().lower() in ("true", "1", "yes", "on")
