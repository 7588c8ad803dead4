"""What does a reinforcement-learning recipe say: verl's YAML or overrides, OpenRLHF's flags?

Both give the actor's update as a draft and, beside it, how answers are generated (`rollout`). Defaults are
each framework's own, with the file that sets them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.memory.configuration import Draft, read_bool, read_int, read_section
from firstfault_tools.memory.configuration_recipes import start_draft
from firstfault_tools.memory.rollout import Rollout

Config = Mapping[str, Any]
PREFILL = 8192
"""Tokens of prompts that vLLM reads at once (max_num_batched_tokens in verl's rollout.yaml)."""
SAME_SIZE = "the critic has the actor's size"
_MEGATRON_SIZES = {
    "tensor_model_parallel_size": "tensor", "pipeline_model_parallel_size": "pipeline",
    "virtual_pipeline_model_parallel_size": "virtual", "context_parallel_size": "context",
    "expert_model_parallel_size": "expert", "expert_tensor_parallel_size": "expert_tensor",
}  # fmt: skip


def read_verl(config: Config, source: str = "verl YAML") -> Draft:
    """verl's actor update: FSDP with fp32 shards and bf16 compute, or Megatron with the distributed
    optimizer, and its rollout (verl/trainer/config/ppo_trainer.yaml, ppo_megatron_trainer.yaml)."""
    parts = read_section(config, "actor_rollout_ref")
    actor, data, trainer = (
        read_section(parts, "actor"),
        read_section(config, "data"),
        read_section(config, "trainer"),
    )
    prompt = _number(data, "max_prompt_length", 512)
    response = _number(data, "max_response_length", 512)
    setup: dict[str, Any] = {"sequence": prompt + response}
    if "config-name" in config and "megatron" in str(config["config-name"]):
        actor = {"strategy": "megatron", **actor}
    kind = str(actor.get("strategy") or ("megatron" if actor.get("megatron") else "fsdp"))
    (_take_megatron if kind == "megatron" else _take_fsdp)(actor, parts, setup)
    micro = _number(actor, "ppo_micro_batch_size_per_gpu", 0)
    notes = []
    if read_bool(actor.get("use_dynamic_bsz", "")):
        tokens = _number(actor, "ppo_max_token_len_per_gpu", 16384) * setup.get("context", 1)
        micro = max(1, tokens // setup["sequence"])
        notes.append(f"dynamic batches of {tokens:,} tokens: {micro} sequences of full length")
    if micro:
        setup["micro_batch"] = micro
    setup["world"] = _number(trainer, "nnodes", 1) * _number(trainer, "n_gpus_per_node", 8)
    estimator = str(read_section(config, "algorithm").get("adv_estimator") or "gae")
    rollout, moved = _read_verl_rollout(config, setup, prompt, response, critic=estimator == "gae")
    if rollout.critic:
        notes.append(SAME_SIZE)
    if moved:
        notes.append(f"{' and '.join(moved)}: on the host between phases, on the GPU in the update")
    draft = start_draft(read_section(parts, "model").get("path"), setup, source)
    return draft.merge(Draft({}, {}, tuple(notes), "", {"rollout": rollout}))


def _take_fsdp(actor: Config, parts: Config, setup: dict[str, Any]) -> None:
    wide, model = read_section(actor, "fsdp_config"), read_section(parts, "model")
    half = str(wide.get("model_dtype") or "fp32") in ("bf16", "bfloat16")
    setup |= {"framework": "torchtitan", "precision": "bf16" if half else "amp", "sharding": "fsdp"}
    checkpointing = read_bool(model.get("enable_gradient_checkpointing", "True"))
    setup["recompute"] = "full" if checkpointing else "none"
    if (context := _number(actor, "ulysses_sequence_parallel_size", 1)) > 1:
        setup["context"] = context
    if read_bool(wide.get("offload_policy", "")):
        setup["offload_optimizer"] = setup["offload_parameters"] = True
    if rank := _number(model, "lora_rank", 0):
        setup["lora_rank"] = rank


def _take_megatron(actor: Config, parts: Config, setup: dict[str, Any]) -> None:
    wide = read_section(actor, "megatron")
    setup |= {
        "framework": "megatron", "precision": "bf16", "distributed_optimizer": True, "attention": "flash",
    }  # fmt: skip
    for key, name in _MEGATRON_SIZES.items():
        if size := _number(wide, key, 0):
            setup[name] = size
    setup["sequence_parallel"] = setup.get("tensor", 1) > 1
    change = read_section(wide, "override_transformer_config")
    if read_bool(
        read_section(read_section(actor, "optim"), "override_optimizer_config").get(
            "optimizer_cpu_offload", ""
        )
    ):
        setup["offload_optimizer"] = True
    if (how := str(change.get("recompute_granularity"))) in ("full", "selective"):
        setup["recompute"] = how
    if rank := _number(read_section(read_section(parts, "model"), "lora"), "rank", 0):
        setup["lora_rank"] = rank


def _read_verl_rollout(
    config: Config, setup: Mapping[str, Any], prompt: int, response: int, *, critic: bool
) -> tuple[Rollout, list[str]]:
    parts = read_section(config, "actor_rollout_ref")
    actor, engine, ref = (
        read_section(parts, "actor"),
        read_section(parts, "rollout"),
        read_section(parts, "ref"),
    )
    wide = read_section(actor, "fsdp_config") or read_section(actor, "megatron")
    moved = [key for key in ("param_offload", "optimizer_offload") if read_bool(wide.get(key, ""))]
    there = {"param_offload": "actor weights", "optimizer_offload": "actor optimizer"}
    gone = {there[key] for key in moved}
    if read_bool(
        (read_section(ref, "fsdp_config") or read_section(ref, "megatron")).get("param_offload", "")
    ):
        gone.add("reference")
    algorithm = read_section(config, "algorithm")
    judged = read_bool(actor.get("use_kl_loss", "")) or read_bool(
        algorithm.get("use_kl_in_reward", "")
    )
    tensor = _number(engine, "tensor_model_parallel_size", 2)
    answers = _number(read_section(config, "data"), "train_batch_size", 1024) * _number(
        engine, "n", 1
    )
    each = -(-answers * tensor // max(1, int(setup["world"])))
    found = Rollout(
        prompt,
        response,
        min(each, _number(engine, "max_num_seqs", 256)),
        engine=tensor,
        share=_share(engine.get("gpu_memory_utilization"), 0.5),
        chunk=_number(engine, "max_num_batched_tokens", PREFILL),
        critic=critic,
        reference=judged and "lora_rank" not in setup,
        sleeps=read_bool(engine.get("free_cache_engine", "True")),
        moved=frozenset(gone),
    )
    return found, moved


_OLD_NAMES = {
    "actor_num_nodes": "actor.num_nodes", "actor_num_gpus_per_node": "actor.num_gpus_per_node",
    "pretrain": "actor.model_name_or_path", "gradient_checkpointing": "actor.gradient_checkpointing_enable",
    "zero_stage": "ds.zero_stage", "adam_offload": "ds.adam_offload", "max_len": "data.max_len",
    "micro_train_batch_size": "train.micro_batch_size", "lora_rank": "ds.lora.rank",
    "load_in_4bit": "ds.load_in_4bit", "generate_max_len": "rollout.max_new_tokens",
    "vllm_gpu_memory_utilization": "vllm.gpu_memory_utilization", "vllm_num_engines": "vllm.num_engines",
    "vllm_tensor_parallel_size": "vllm.tensor_parallel_size", "colocate_all_models": "train.colocate_all",
    "vllm_enable_sleep": "vllm.enable_sleep", "rollout_batch_size": "rollout.batch_size",
    "n_samples_per_prompt": "rollout.n_samples_per_prompt", "advantage_estimator": "algo.advantage.estimator",
    "init_kl_coef": "algo.kl.init_coef", "packing_samples": "ds.packing_samples",
    "deepspeed_enable_sleep": "ds.enable_sleep", "ring_attn_size": "ds.ring_attn_size",
    "prompt_max_len": "data.prompt_max_len", "model.model_name_or_path": "actor.model_name_or_path",
    "model.gradient_checkpointing_enable": "actor.gradient_checkpointing_enable",
}  # fmt: skip
"""OpenRLHF's flags up to 0.9 under their names since 0.10."""


def read_openrlhf(flags: Mapping[str, str], source: str = "OpenRLHF flags") -> Draft:
    """OpenRLHF's actor: DeepSpeed, bf16 with an fp32 copy, stage 2, 2,048 tokens
    (openrlhf/cli/train_ppo_ray.py, train_sft.py)."""
    found = {_OLD_NAMES.get(name, name): value for name, value in flags.items()}
    answer = _number(found, "rollout.max_new_tokens", 1024)
    if "data.prompt_max_len" in found or "data.max_len" not in found:
        prompt = _number(found, "data.prompt_max_len", 1024)
    else:
        whole = _number(found, "data.max_len", 2048)
        answer = min(answer, whole // 2)
        prompt = whole - answer
    moved = read_bool(found.get("ds.adam_offload", ""))
    world = _number(found, "actor.num_nodes", 1) * _number(found, "actor.num_gpus_per_node", 8)
    setup: dict[str, Any] = {
        "framework": "deepspeed", "precision": "bf16_master", "sequence": prompt + answer,
        "micro_batch": _number(found, "train.micro_batch_size", 4),
        "sharding": f"zero{_number(found, 'ds.zero_stage', 2)}", "world": world, "attention": "flash",
        "recompute": "full" if "actor.gradient_checkpointing_enable" in found else "none",
        "offload_optimizer": moved, "host_pinned": moved,
    }  # fmt: skip
    if setup["sharding"] not in ("zero1", "zero2", "zero3"):
        raise InvalidParameter("zero_stage", "must be 1, 2 or 3")
    if rank := _number(found, "ds.lora.rank", 0):
        setup["lora_rank"] = rank
    if read_bool(found.get("ds.load_in_4bit", "")):
        setup["quantized_bits"] = 4
    if (ring := _number(found, "ds.ring_attn_size", 1)) > 1:
        setup["context"] = ring
    notes: list[str] = []
    if read_bool(found.get("train.dynamic_batch_enable", "")):
        tokens = _number(found, "train.max_tokens_per_gpu", 16192)
        setup["micro_batch"] = max(1, tokens // setup["sequence"])
        notes.append(f"dynamic batches of {tokens:,} tokens")
    draft = start_draft(found.get("actor.model_name_or_path"), setup, source)
    extra: dict[str, Any] = {}
    if any(name.startswith(("vllm.", "rollout.", "algo.")) for name in found):
        extra["rollout"] = _read_openrlhf_rollout(found, setup, prompt, answer)
        notes += [SAME_SIZE] if extra["rollout"].critic else []
    return draft.merge(Draft({}, {}, tuple(notes), "", extra))


def _read_openrlhf_rollout(
    found: Mapping[str, str], setup: Mapping[str, Any], prompt: int, answer: int
) -> Rollout:
    shared = read_bool(found.get("train.colocate_all", ""))
    engines = max(1, _number(found, "vllm.num_engines", 1))
    answers = _number(found, "rollout.batch_size", 1024) * _number(
        found, "rollout.n_samples_per_prompt", 1
    )
    together = shared or read_bool(found.get("train.colocate_actor_ref", ""))
    alone = str(found.get("algo.advantage.estimator", "gae")) != "gae"
    moved = (
        {"actor weights", "actor optimizer"}
        if read_bool(found.get("ds.enable_sleep", ""))
        else set()
    )
    return Rollout(
        prompt,
        answer,
        min(-(-answers // engines), 256),
        engine=_number(found, "vllm.tensor_parallel_size", 1),
        share=_share(found.get("vllm.gpu_memory_utilization"), 0.95),
        chunk=PREFILL,
        critic=shared and not alone,
        reference=together
        and _share(found.get("algo.kl.init_coef"), 0.01) > 0
        and "lora_rank" not in setup,
        colocated=shared,
        sleeps=not shared or read_bool(found.get("vllm.enable_sleep", "")),
        moved=frozenset(moved),
    )


def _number(config: Config, name: str, default: int) -> int:
    value = config.get(name)
    if value in (None, "", "null", "None") or str(value).startswith("${"):
        return default
    return read_int(name, value)


def _share(value: object, default: float) -> float:
    try:
        share = float(str(value))
    except ValueError:
        return default
    return share if 0 <= share <= 1 else default
