"""Which kind of configuration is this text, and what does it say?

DeepSpeed JSON, torchtitan TOML, Accelerate and FSDP YAML, NeMo YAML, and by recognition also the
Hugging Face and Megatron forms. Nothing is executed; YAML is loaded safely.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from firstfault_tools.errors import InvalidParameter, UnreadableArtefact
from firstfault_tools.expressions import expression
from firstfault_tools.memory.configuration import Draft, read_bool, read_int, read_section
from firstfault_tools.memory.configuration_huggingface import (
    read_huggingface,
    read_optimizer,
    read_training_arguments,
)
from firstfault_tools.memory.configuration_megatron import (
    find_dump,
    read_megatron_dump,
    read_megatron_flags,
)
from firstfault_tools.memory.configuration_nemo import is_nemo, read_nemo, read_nemo_script
from firstfault_tools.memory.configuration_recipes import read_recipe, read_trainer_flags
from firstfault_tools.memory.configuration_reinforcement import read_openrlhf, read_verl
from firstfault_tools.memory.launch_script import list_open, list_words, nest, read_flags
from firstfault_tools.memory.models import find_model

_DOTTED = expression(r"--([a-z_]{2,40})\.([a-z_]{2,60})(?:[= ](?!--)([^\s]{1,200}))?")
MAX_BYTES = 64 * 1024 * 1024
MAX_STRUCTURED = 4 * 1024 * 1024
_AUTO = ("auto", "Auto", None)
_DEEPSPEED_COUNTS = {
    "train_micro_batch_size_per_gpu": "micro_batch",
    "gradient_accumulation_steps": "micro_batches",
}


def read_configuration(text: str, name: str = "configuration") -> Draft:
    """Draft of any supported configuration text. Raises UnreadableArtefact where none fits."""
    if len(text) > MAX_BYTES:
        raise UnreadableArtefact(f"{name}: larger than 64 MiB; give the part with the arguments")
    if find_dump(text) >= 0 and (draft := read_megatron_dump(text, name)) is not None:
        return draft
    lower = name.lower()
    stripped = text.lstrip()
    if "TrainingArguments(" in text and not stripped.startswith("{"):
        return read_training_arguments(text, name)
    if len(text) > MAX_STRUCTURED:
        raise UnreadableArtefact(f"{name}: no argument dump found, too large for a settings file")
    if lower.endswith(".toml"):
        return read_torchtitan(_load_toml(text, name), name, whole=True)
    if stripped.startswith("{"):
        return _read_json(text, name)
    if lower.endswith((".yaml", ".yml")):
        return _read_yaml(text, name)
    return _read_by_words(text, name)


def _read_by_words(text: str, name: str) -> Draft:
    """A text whose kind neither its name nor its first character tells."""
    if is_nemo(text):
        return read_nemo_script(text, name)
    if re.search(r"^\[[a-z_.]+\]\s*$", text, re.MULTILINE) and "--" not in text:
        return read_torchtitan(_load_toml(text, name), name, whole=True)
    if re.search(r"--[a-z][a-z-]+|actor_rollout_ref\.", text):
        return read_launch(text, name)
    raise UnreadableArtefact(
        f"{name}: not a config.json, a launch script, Megatron arguments, DeepSpeed JSON, torchtitan TOML or "
        "a recipe's YAML; pass flags instead"
    )


_TRAINER_FLAGS = frozenset({"model_name_or_path", "per_device_train_batch_size"})


def read_launch(text: str, name: str = "launch script") -> Draft:
    """Draft of a command line, or of a script whose variables end in one."""
    words = list_words(text)
    flags = read_flags(words)
    if any(word.lstrip("+").startswith("actor_rollout_ref.") for word in words):
        draft = read_verl(nest(words), name)
    elif any("openrlhf" in word for word in words) or "micro_train_batch_size" in flags:
        draft = read_openrlhf(flags, name)
    elif re.search(r"--(?:training|parallelism|activation_checkpoint|model)\.[a-z]", text):
        draft = read_torchtitan(read_dotted_flags(text), name)
    elif flags.keys() & _TRAINER_FLAGS:
        draft = read_trainer_flags(flags, name)
    else:
        draft = read_megatron_flags(flags, name)
    if not (missing := list_open(words)):
        return draft
    note = f"only the environment holds the values of {', '.join(missing[:6])}: state them as flags"
    return draft.merge(Draft({}, {}, (note,)))


def _read_json(text: str, name: str) -> Draft:
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UnreadableArtefact(f"{name}: not valid JSON ({error})") from None
    if not isinstance(data, dict):
        raise UnreadableArtefact(f"{name}: a JSON object is needed")
    if "zero_optimization" in data or "train_micro_batch_size_per_gpu" in data:
        return read_deepspeed(data, name)
    return read_huggingface(data, name)


def _load_toml(text: str, name: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UnreadableArtefact(f"{name}: not valid TOML ({error})") from None


def _read_yaml(text: str, name: str) -> Draft:
    import yaml

    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise UnreadableArtefact(f"{name}: not valid YAML ({str(error)[:200]})") from None
    if not isinstance(data, dict):
        raise UnreadableArtefact(f"{name}: a YAML mapping is needed")
    recipe = read_recipe(data, name)
    if recipe is not None:
        return recipe
    if "actor_rollout_ref" in data:
        return read_verl(data, name)
    if "distributed_type" in data or "fsdp_config" in data or "deepspeed_config" in data:
        return read_accelerate(data, name)
    if "model" in data or "trainer" in data:
        return read_nemo(data, name)
    if "hidden_size" in data or "model_type" in data:
        return read_huggingface(data, name)
    raise UnreadableArtefact(f"{name}: neither an Accelerate nor a NeMo configuration")


def read_deepspeed(config: Mapping[str, Any], source: str = "DeepSpeed JSON") -> Draft:
    """Draft of a DeepSpeed configuration. "auto" values are left to other sources."""
    setup: dict[str, Any] = {"framework": "deepspeed"}
    zero = config.get("zero_optimization") or {}
    if not isinstance(zero, Mapping):
        raise InvalidParameter("zero_optimization", "must be an object")
    stage = zero.get("stage", 0)
    stage = 0 if stage in _AUTO else read_int("zero_optimization.stage", stage)
    if stage > 3:
        raise InvalidParameter("zero_optimization.stage", f"must be 0, 1, 2 or 3, got {stage}")
    setup["sharding"] = ("ddp", "zero1", "zero2", "zero3")[stage]
    assumed = _take_offload(zero, setup)
    if read_section(zero, "offload_param").get("device") in ("cpu", "nvme"):
        setup["offload_parameters"] = True
    setup |= {
        name: read_int(key, config[key])
        for key, name in _DEEPSPEED_COUNTS.items()
        if config.get(key) not in _AUTO
    }
    for key in ("bf16", "fp16"):
        if read_section(config, key).get("enabled") is True:
            setup["precision"] = key
    if optimizer := read_section(config, "optimizer").get("type"):
        name = read_optimizer(str(optimizer))
        setup["optimizer"] = "adamw_fused" if name == "adamw_foreach" else name
    extra: dict[str, Any] = {}
    batch = config.get("train_batch_size")
    if batch not in _AUTO:
        extra["global_batch"] = read_int("train_batch_size", batch)
    return Draft({}, setup, assumed, source, extra)


def _take_offload(zero: Mapping[str, Any], setup: dict[str, Any]) -> tuple[str, ...]:
    """Optimizer states in host memory or on a drive; what is assumed of them."""
    offload = read_section(zero, "offload_optimizer")
    device = offload.get("device")
    if device not in ("cpu", "nvme"):
        return ()
    setup["offload_optimizer"] = True
    setup["host_pinned"] = bool(offload.get("pin_memory"))
    if device == "cpu":
        return ()
    return (
        "states on NVMe: host memory is given as if they stood there, its upper bound; in fact it "
        "holds buffer_count buffers of the largest sub-group",
    )


_TITAN_FLAVORS = {
    "llama3": {"8b": "llama-3.1-8b", "70b": "llama-3.1-70b", "405b": "llama-3.1-405b"},
    "deepseek_v3": {"16b": "deepseek-v2-lite", "236b": "deepseek-v2", "671b": "deepseek-v3"},
    "qwen3": {
        size: f"qwen3-{size}"
        for size in ("0.6b", "1.7b", "4b", "8b", "14b", "32b", "30b-a3b", "235b-a22b")
    },
    "gpt_oss": {"20b": "gpt-oss-20b", "120b": "gpt-oss-120b"},
}
"""torchtitan's own flavors (torchtitan/models/*/__init__.py) by the published model of the same sizes."""
_TITAN_SIZES = {
    "seq_len": "sequence",
    "local_batch_size": "micro_batch",
    "batch_size": "micro_batch",
}
_TITAN_DEGREES = {
    "tensor_parallel_degree": "tensor",
    "pipeline_parallel_degree": "pipeline",
    "context_parallel_degree": "context",
    "expert_parallel_degree": "expert",
}
_TITAN_OPTIMIZERS = {"fused": "adamw_fused", "foreach": "adamw_foreach", "for-loop": "adamw_loop"}


def read_torchtitan(
    config: Mapping[str, Any], source: str = "torchtitan TOML", *, whole: bool = False
) -> Draft:
    """Draft of a torchtitan job file: fp32 shards, bf16 compute, FSDP2 over what is left.

    whole: a file, whose gaps take the defaults of torchtitan/config/job_config.py; flags leave them open.
    """
    setup: dict[str, Any] = {"framework": "torchtitan", "precision": "amp", "sharding": "fsdp"}
    model = read_section(config, "model")
    training = read_section(config, "training")
    parallel = {**read_section(config, "experimental"), **read_section(config, "parallelism")}
    shape: dict[str, Any] = {}
    name, flavor = (str(model.get(key, "")).lower() for key in ("name", "flavor"))
    assumed: list[str] = []
    extra: dict[str, Any] = {}
    if known := _TITAN_FLAVORS.get(name, {}).get(flavor):
        shape = dict(find_model(known).shape)
    elif model:
        problem = f"{name} {flavor} is not known here: give --model, its config.json or its sizes as flags"
        extra["model_problem"] = problem
        assumed.append(f"model {problem}")
    setup |= _read_titan_widths(config)
    setup |= {
        name: read_int(f"training.{key}", training[key])
        for key, name in _TITAN_SIZES.items()
        if key in training
    }
    if whole and model:
        _take_titan_defaults(config, setup, assumed)
    setup |= {
        name: max(1, read_int(f"parallelism.{key}", place[key]))
        for key, name in _TITAN_DEGREES.items()
        for place in (parallel, training)
        if key in place
    }
    shard = parallel.get("data_parallel_shard_degree", training.get("data_parallel_shard_degree"))
    if isinstance(shard, int) and shard > 0:
        replicate = parallel.get("data_parallel_replicate_degree", 1)
        extra["data"] = shard * (replicate if isinstance(replicate, int) else 1)
    checkpoint = read_section(config, "activation_checkpoint")
    if "mode" in checkpoint:
        mode = str(checkpoint["mode"])
        setup["recompute"] = mode if mode in ("full", "selective", "none") else "none"
    compiled = read_section(config, "compile")
    parts = compiled.get("components", ["model", "loss"])
    if read_bool(compiled.get("enable", "")) and "model" in parts:
        setup["compiled"] = True
        setup["loss_eager"] = "loss" not in parts
    if "global_batch_size" in training and int(training["global_batch_size"]) > 0:
        extra["global_batch"] = read_int(
            "training.global_batch_size", training["global_batch_size"]
        )
    return Draft(shape, setup, tuple(assumed), source, extra)


def _read_titan_widths(config: Mapping[str, Any]) -> dict[str, Any]:
    """Types and optimizer: fp32 shards cast to bf16, unless the model itself is trained in bf16 (`training.dtype`)."""
    training, found = read_section(config, "training"), {}
    if training.get("dtype") == "bfloat16":
        found["precision"] = "bf16"
    elif training.get("mixed_precision_param") == "float32":
        found["precision"] = "fp32"
    optimizer = read_section(config, "optimizer")
    if str(optimizer.get("name", "AdamW")) == "AdamW" and (
        way := _TITAN_OPTIMIZERS.get(str(optimizer.get("implementation", "")))
    ):
        found["optimizer"] = way
    return found


def read_dotted_flags(text: str) -> Mapping[str, Any]:
    """torchtitan's command line, `--training.seq_len 8192`, as the sections of its TOML."""
    found: dict[str, dict[str, Any]] = {}
    for match in _DOTTED.finditer(text[: 1 << 18]):
        value = (match[3] or "true").strip("'\"")
        found.setdefault(match[1], {})[match[2]] = int(value) if value.isdecimal() else value
    return found


def _take_titan_defaults(
    config: Mapping[str, Any], setup: dict[str, Any], assumed: list[str]
) -> None:
    defaults: dict[str, Any] = {"sequence": 2048, "micro_batch": 8}
    if not read_section(config, "activation_checkpoint"):
        defaults["recompute"] = "selective"
    for name, value in defaults.items():
        if name not in setup:
            setup[name] = value
            flag = name.replace("_", "-")
            assumed.append(f"{flag} {value}, torchtitan's default: state it with --{flag}")


def read_accelerate(config: Mapping[str, Any], source: str = "Accelerate YAML") -> Draft:
    """Draft of an Accelerate configuration (FSDP, DeepSpeed or DDP)."""
    setup: dict[str, Any] = {"framework": "huggingface"}
    kind = str(config.get("distributed_type", "NO")).upper()
    mixed = str(config.get("mixed_precision", "no")).lower()
    setup["precision"] = {"bf16": "amp", "fp16": "fp16_amp", "fp8": "amp"}.get(mixed, "fp32")
    if mixed == "fp8":
        # Transformer Engine saves the cast input, torchao casts it again in the backward.
        backend = str(read_section(config, "fp8_config").get("backend", "TE")).upper()
        setup["fp8_bytes"] = 2 if backend in ("AO", "TORCHAO") else 1
    if "num_processes" in config:
        setup["world"] = max(1, read_int("num_processes", config["num_processes"]))
    if kind == "FSDP":
        setup |= _read_fsdp_section(read_section(config, "fsdp_config"))
    elif kind == "DEEPSPEED":
        setup |= _read_deepspeed_section(read_section(config, "deepspeed_config"))
        setup["precision"] = mixed if mixed in ("bf16", "fp16") else "fp32"
    elif kind in ("MULTI_GPU", "DDP"):
        setup["sharding"] = "ddp"
    mesh = read_section(config, "parallelism_config")
    for key, name in (("tp_size", "tensor"), ("cp_size", "context"), ("sp_size", "context")):
        size = mesh.get(f"parallelism_config_{key}", mesh.get(key))
        if isinstance(size, int) and size > 1:
            setup[name] = size
    return Draft({}, setup, (), source, {})


def _read_fsdp_section(section: Mapping[str, Any]) -> dict[str, Any]:
    strategy = str(
        section.get("fsdp_sharding_strategy", section.get("fsdp_reshard_after_forward", ""))
    ).upper()
    weak = strategy in ("SHARD_GRAD_OP", "2", "FALSE")
    setup: dict[str, Any] = {
        "sharding": "zero2" if weak else "ddp" if strategy == "NO_SHARD" else "fsdp"
    }
    if read_bool(section.get("fsdp_activation_checkpointing", "")):
        setup["recompute"] = "full"
    if read_bool(section.get("fsdp_offload_params", "")):
        # FSDP steps where its shards are: weights, gradients and moments on the host.
        setup["offload_optimizer"] = setup["offload_parameters"] = True
    return setup


def _read_deepspeed_section(section: Mapping[str, Any]) -> dict[str, Any]:
    stage = read_int("deepspeed_config.zero_stage", section.get("zero_stage", 2))
    if stage > 3:
        raise InvalidParameter("deepspeed_config.zero_stage", "must be 0, 1, 2 or 3")
    setup: dict[str, Any] = {
        "framework": "deepspeed",
        "sharding": ("ddp", "zero1", "zero2", "zero3")[stage],
    }
    for name in ("optimizer", "param"):
        if section.get(f"offload_{name}_device") in ("cpu", "nvme"):
            setup["offload_parameters" if name == "param" else "offload_optimizer"] = True
    steps = section.get("gradient_accumulation_steps")
    if steps not in _AUTO:
        setup["micro_batches"] = read_int("gradient_accumulation_steps", steps)
    return setup
