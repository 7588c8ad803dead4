"""What does a fine-tuning recipe say: Axolotl, LLaMA-Factory, TRL?

Defaults are each framework's own, with the file that sets them beside the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.memory.configuration import Draft, read_bool, read_int, read_section
from firstfault_tools.memory.configuration_huggingface import read_optimizer
from firstfault_tools.memory.models import find_model
from firstfault_tools.memory.rollout import Rollout

Config = Mapping[str, Any]
_TRL_KEYS = frozenset({
    "max_length", "max_prompt_length", "max_completion_length", "num_generations", "use_peft", "use_vllm",
    "vllm_mode", "reward_model_path", "beta",
})  # fmt: skip
_LLAMA_FACTORY_KEYS = frozenset(
    {"finetuning_type", "cutoff_len", "template", "stage", "dataset_dir"}
)


def read_recipe(config: Config, source: str) -> Draft | None:
    """Draft of a recipe that is recognised by its keys, None where it is none."""
    if "base_model" in config:
        return read_axolotl(config, source)
    if "model_name_or_path" in config:
        ours = _TRL_KEYS & config.keys() and not _LLAMA_FACTORY_KEYS & config.keys()
        return read_trl(config, source) if ours else read_llama_factory(config, source)
    return None


def read_trainer_flags(flags: Mapping[str, str], source: str) -> Draft:
    """Draft of a Hugging Face script's options: `accelerate launch train.py --model_name_or_path ...`."""
    config: dict[str, Any] = {
        name: int(value) if value.isdecimal() else value for name, value in flags.items()
    }
    draft = read_recipe(config, source) or Draft({}, {}, (), source)
    counts = [flags.get(name, "") for name in ("num_processes", "nproc_per_node", "num_gpus")]
    each = next((int(value) for value in counts if value.isdecimal()), 0)
    nodes = flags.get("nnodes", "1")
    if not each:
        return draft
    world = each * (int(nodes) if nodes.isdecimal() and "nproc_per_node" in flags else 1)
    return draft.merge(Draft({}, {"world": world}))


def start_draft(model: object, setup: dict[str, Any], source: str) -> Draft:
    name = str(model or "")
    if not name:
        return Draft({}, setup, (), source)
    try:
        return find_model(name).merge(Draft({}, setup, (), source))
    except InvalidParameter as error:
        return Draft({}, setup, (), source, {"model": name, "model_problem": error.rule})


def _take(config: Config, setup: dict[str, Any], names: Mapping[str, str]) -> None:
    for key, name in names.items():
        if isinstance(config.get(key), int) and config[key]:
            setup[name] = read_int(key, config[key])


def _take_adapter(config: Config, setup: dict[str, Any], kind: str, rank: object) -> None:
    if "lora" not in kind and kind not in ("dora", "oft"):
        return
    setup["lora_rank"] = read_int("lora_r", rank)
    setup["dora"] = read_bool(config.get("peft_use_dora", config.get("use_dora", "")))


def read_axolotl(config: Config, source: str = "Axolotl YAML") -> Draft:
    """Axolotl: weights are loaded in bf16 unless it is off, trained ones too; defaults of
    src/axolotl/utils/schemas/config.py (micro_batch_size 1, sequence_len 512)."""
    setup: dict[str, Any] = {"framework": "huggingface"}
    adapter = str(config.get("adapter") or "")
    setup["sequence"] = read_int("sequence_len", config.get("sequence_len") or 512)
    _take(
        config,
        setup,
        {"micro_batch_size": "micro_batch", "gradient_accumulation_steps": "micro_batches"},
    )
    half = str(config.get("bf16", "auto")) != "False" and not _is_on(config, "fp16")
    setup["precision"] = "bf16" if half else "fp16_amp" if config.get("fp16") else "fp32"
    _take_axolotl_adapter(config, setup, adapter)
    setup["optimizer"] = read_optimizer(str(config.get("optimizer") or "adamw_torch_fused"))
    _take_axolotl_savings(config, setup)
    assumed = _take_wrapper(config, setup)
    _take_mesh(config, setup, _AXOLOTL_MESH)
    extra = _read_preferences(str(config.get("rl") or ""), setup, adapted=bool(adapter))
    if isinstance(config.get("trl"), Mapping) and config.get("rl") == "grpo":
        extra["rollout"] = read_trl_rollout(
            config["trl"], setup["sequence"], setup.get("micro_batch", 1)
        )
    return start_draft(config.get("base_model"), setup, source).merge(
        Draft({}, {}, assumed, "", extra)
    )


def _is_on(config: Config, key: str) -> bool:
    return read_bool(config.get(key, ""))


def _take_axolotl_adapter(config: Config, setup: dict[str, Any], adapter: str) -> None:
    _take_adapter(config, setup, adapter, config.get("lora_r") or 8)
    targets = config.get("lora_target_modules")
    if adapter and isinstance(targets, list) and not _is_on(config, "lora_target_linear"):
        setup["lora_targets"] = ",".join(map(str, targets))
    four = _is_on(config, "load_in_4bit") or adapter == "qlora"
    setup["quantized_bits"] = 4 if four else 8 if _is_on(config, "load_in_8bit") else 0


_AXOLOTL_FUSED_LOSSES = (
    "liger_fused_linear_cross_entropy",
    "cut_cross_entropy",
    "chunked_cross_entropy",
)


def _take_axolotl_savings(config: Config, setup: dict[str, Any]) -> None:
    """What keeps activations small: recomputation, attention and a loss in one kernel, compilation."""
    checkpointing = config.get("gradient_checkpointing")
    setup["recompute"] = "full" if checkpointing else "none"
    if checkpointing == "offload" or config.get("activation_offloading"):
        setup["activation_offload"] = True
    flash = config.get("flash_attention") or "flash" in str(config.get("attn_implementation"))
    setup["attention"] = "flash" if flash else "sdpa"
    plugins = " ".join(map(str, config.get("plugins") or ()))
    if "CutCrossEntropy" in plugins or any(_is_on(config, key) for key in _AXOLOTL_FUSED_LOSSES):
        setup["loss_fused"] = True
    if _is_on(config, "torch_compile"):
        setup["compiled"] = True


_AXOLOTL_MESH = {
    "tensor_parallel_size": "tensor", "context_parallel_size": "context", "expert_parallel_size": "expert",
    "dp_shard_size": "", "dp_replicate_size": "",
}  # fmt: skip


def _take_mesh(config: Config, setup: dict[str, Any], names: Mapping[str, str]) -> None:
    """Sizes of a device mesh; together they are the world, experts lie within it."""
    world = 1
    for key, name in names.items():
        size = config.get(key)
        if not isinstance(size, int) or size < 1:
            continue
        if name != "expert":
            world *= size
        if name and size > 1:
            setup[name] = size
    if world > 1:
        setup["world"] = max(world, int(setup.get("world") or 1))


def _read_preferences(kind: str, setup: dict[str, Any], *, adapted: bool) -> dict[str, Any]:
    """Preference losses pass chosen and rejected answers together; DPO, IPO and KTO hold a frozen
    reference unless an adapter can be switched off for it (trl/trainer/dpo_trainer.py)."""
    if kind in ("dpo", "ipo", "orpo", "simpo", "cpo", "rm"):
        setup["micro_batch"] = 2 * int(setup.get("micro_batch") or 1)
    return {"reference": True} if kind in ("dpo", "ipo", "kto") and not adapted else {}


_NAMED_DEEPSPEED = (
    "DeepSpeed by the name of its file ({name}): stage {stage}{offload}; give the file beside this one where it "
    "says otherwise"
)
_UNDER_DEEPSPEED = {"amp": "bf16", "fp16_amp": "fp16"}
"""DeepSpeed turns the model to half precision and keeps the fp32 copy itself."""


def _take_wrapper(config: Config, setup: dict[str, Any]) -> tuple[str, ...]:
    """FSDP's settings, or DeepSpeed's by the name of its file; what was assumed."""
    deepspeed = str(config.get("deepspeed") or "")
    if config.get("fsdp") or config.get("fsdp_config"):
        setup["sharding"] = "fsdp"
        wide = read_section(config, "fsdp_config")
        said = {str(key).removeprefix("fsdp_"): value for key, value in wide.items()}
        if read_bool(said.get("offload_params", "")):
            setup["offload_optimizer"] = setup["offload_parameters"] = True
        if read_bool(said.get("activation_checkpointing", "")):
            setup["recompute"] = "full"
    elif deepspeed:
        setup["framework"] = "deepspeed"
        stage = next((n for n in "321" if f"zero{n}" in deepspeed or f"z{n}" in deepspeed), "2")
        setup["sharding"] = f"zero{stage}"
        setup["precision"] = _UNDER_DEEPSPEED.get(setup["precision"], setup["precision"])
        # Both projects ship files that end on offload, all or params, all of them with pin_memory on.
        moved = "offload" in deepspeed
        setup["offload_optimizer"] = moved and "params" not in deepspeed
        setup["offload_parameters"] = moved and stage == "3"
        setup["host_pinned"] = moved
        parts = [name for name in ("optimizer", "parameters") if setup[f"offload_{name}"]]
        offload = f", {' and '.join(parts)} in pinned host memory" if parts else ""
        return (_NAMED_DEEPSPEED.format(name=deepspeed, stage=stage, offload=offload),)
    return ()


def read_llama_factory(config: Config, source: str = "LLaMA-Factory YAML") -> Draft:
    """LLaMA-Factory: gradient checkpointing on unless disabled, adapters of rank 8 on all linear layers,
    cutoff_len 2048 (src/llamafactory/hparams/)."""
    setup: dict[str, Any] = {"framework": "huggingface"}
    kind = str(config.get("finetuning_type") or "lora")
    setup["sequence"] = read_int("cutoff_len", config.get("cutoff_len") or 2048)
    _take(config, setup, {"gradient_accumulation_steps": "micro_batches"})
    setup["micro_batch"] = read_int(
        "per_device_train_batch_size", config.get("per_device_train_batch_size") or 8
    )
    setup["precision"] = _read_llama_factory_precision(config, full=kind == "full")
    if kind == "lora":
        _take_adapter(config, setup, "lora", config.get("lora_rank") or 8)
        targets = str(config.get("lora_target") or "all")
        setup["lora_targets"] = "all-linear" if targets == "all" else targets
        _take(config, setup, {"quantization_bit": "quantized_bits"})
    setup["recompute"] = "none" if _is_on(config, "disable_gradient_checkpointing") else "full"
    setup["optimizer"] = read_optimizer(str(config.get("optim") or "adamw_torch_fused"))
    if _is_on(config, "enable_liger_kernel"):
        setup["loss_fused"] = True
    if str(config.get("flash_attn") or "") in ("fa2", "fa3"):
        setup["attention"] = "flash"
    assumed = _take_wrapper(config, setup)
    extra = _read_preferences(str(config.get("stage") or ""), setup, adapted=kind == "lora")
    draft = start_draft(config.get("model_name_or_path"), setup, source)
    return draft.merge(Draft({}, {}, assumed, "", extra))


def _read_llama_factory_precision(config: Config, full: bool) -> str:
    """full: all weights are trained, and kept in fp32 unless pure_bf16 says otherwise."""
    if _is_on(config, "pure_bf16"):
        return "bf16"
    if _is_on(config, "fp16"):
        return "fp16_amp" if full else "fp16"
    if _is_on(config, "bf16"):
        return "amp" if full else "bf16"
    return "fp32"


def read_trl(config: Config, source: str = "TRL YAML") -> Draft:
    """TRL: fp32 weights under bf16 autocast unless `dtype` says otherwise, checkpointing on, 1,024 tokens or
    prompt and completion, adapters of rank 16 (trl/trainer/sft_config.py, grpo_config.py, model_config.py)."""
    setup: dict[str, Any] = {"framework": "huggingface"}
    completion = config.get("max_completion_length")
    if completion or config.get("num_generations"):
        prompt = read_int("max_prompt_length", config.get("max_prompt_length") or 512)
        setup["sequence"] = prompt + read_int("max_completion_length", completion or 512)
    else:
        setup["sequence"] = read_int("max_length", config.get("max_length") or 1024)
    setup["micro_batch"] = read_int(
        "per_device_train_batch_size", config.get("per_device_train_batch_size") or 8
    )
    extra: dict[str, Any] = {}
    if completion or config.get("num_generations"):
        extra["rollout"] = read_trl_rollout(config, setup["sequence"], setup["micro_batch"])
    _take(config, setup, {"gradient_accumulation_steps": "micro_batches"})
    kind = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    setup["precision"] = "bf16" if kind in ("bfloat16", "bf16") else "amp"
    setup["recompute"] = (
        "full" if read_bool(config.get("gradient_checkpointing", "True")) else "none"
    )
    setup["optimizer"] = read_optimizer(str(config.get("optim") or "adamw_torch_fused"))
    if read_bool(config.get("use_peft", "")):
        setup["lora_rank"] = read_int("lora_r", config.get("lora_r") or 16)
        targets = config.get("lora_target_modules") or "all-linear"
        setup["lora_targets"] = targets if isinstance(targets, str) else ",".join(map(str, targets))
    for bits in (4, 8):
        if read_bool(config.get(f"load_in_{bits}bit", "")):
            setup["quantized_bits"] = bits
    assumed = _take_wrapper(config, setup)
    return start_draft(config.get("model_name_or_path"), setup, source).merge(
        Draft({}, {}, assumed, "", extra)
    )


def read_trl_rollout(config: Config, length: int, micro_batch: int) -> Rollout:
    """GRPO: no critic, a reference only where `beta` is above zero, vLLM on the same cards with 0.3 of them
    (trl/trainer/grpo_config.py: use_vllm False, vllm_mode colocate, beta 0.0)."""
    response = read_int("max_completion_length", config.get("max_completion_length") or 512)
    vllm = read_bool(config.get("use_vllm", ""))
    own = vllm and str(config.get("vllm_mode") or "colocate") == "colocate"
    steps = int(
        config.get("steps_per_generation") or config.get("gradient_accumulation_steps") or 1
    )
    tensor = int(config.get("vllm_tensor_parallel_size") or 1)
    return Rollout(
        length - response,
        response,
        micro_batch * steps * (tensor if vllm else 1),
        engine=tensor if vllm else 0,
        share=float(config.get("vllm_gpu_memory_utilization") or 0.3) if own else 0.0,
        chunk=8192 if vllm else 0,
        reference=float(config.get("beta") or 0) > 0 and not read_bool(config.get("use_peft", "")),
        colocated=own or not vllm,
        sleeps=not own or read_bool(config.get("vllm_enable_sleep_mode", "")),
    )
