"""How much memory, on GPU and host, do recipes take that move or shrink states? Measured on one and two GPUs.

8-bit and paged optimizers and NF4 weights of bitsandbytes, diffusion transformers with adapters, compiled
blocks before an eager loss; and on two GPUs DeepSpeed's ZeRO with and without offload and FSDP2. Every row
prints the allocator's peak, what is reserved, what nvidia-smi shows and what the process holds in host memory.

Usage: python3 memory_recipes.py OUT.jsonl single [--part I/N]
       torchrun --nproc-per-node 2 memory_recipes.py OUT.jsonl pair
       torchrun --nproc-per-node 1 memory_recipes.py OUT.jsonl alone --part I/N     (a process a row)
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import time
import traceback
from pathlib import Path
from typing import Any

import torch

GIB = 2**30
STEPS = 3
Json = dict[str, Any]


def read_rows(kind: str) -> list[Json]:
    data = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return [{**row, "config": data["models"][row["model"]]} for row in data[kind]]


def smi_gib(device: int) -> float:
    """Used memory of the card in GiB, as nvidia-smi says it."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    lines = subprocess.run(query, capture_output=True, text=True, timeout=20).stdout.split()
    return round(int(lines[device]) / 1024, 3)


def host_gib() -> Json:
    """Resident memory of this process and what the machine has in use, in GiB."""
    import psutil

    return {
        "rss": psutil.Process().memory_info().rss / GIB,
        "used": psutil.virtual_memory().used / GIB,
    }


class Watch:
    """Counters of one row: steps are reset between phases."""

    def __init__(self) -> None:
        self.measured: Json = {}

    def begin(self) -> None:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()

    def end(self, name: str) -> None:
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() / GIB
        self.measured[name] = max(self.measured.get(name, 0.0), peak)

    def close(self, device: int) -> Json:
        found = self.measured
        found["peak_allocated"] = max(v for k, v in found.items() if k.startswith("peak_"))
        found["peak_reserved"] = torch.cuda.max_memory_reserved() / GIB
        found["nvidia_smi"] = smi_gib(device)
        return {name: round(value, 3) for name, value in found.items()}


def clear() -> None:
    gc.collect()
    torch._dynamo.reset()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def build(row: Json, dtype: torch.dtype, device: str) -> torch.nn.Module:
    config = dict(row["config"])
    if kind := config.pop("_class_name", None):
        import diffusers

        with torch.device(device):
            return getattr(diffusers, kind)(**config).to(dtype)
    import transformers

    made = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(made, attn_implementation="sdpa").to(
            dtype
        )


def quantize(model: torch.nn.Module, row: Json) -> torch.nn.Module:
    """Linear layers but the head as bitsandbytes' 4- or 8-bit ones, norms and tables in bf16."""
    import bitsandbytes as bnb

    for name, module in list(model.named_modules()):
        if not isinstance(module, torch.nn.Linear) or "head" in name:
            continue
        if row["quantized_bits"] == 4:
            small = bnb.nn.Linear4bit(
                module.in_features, module.out_features, bias=False, compute_dtype=torch.bfloat16,
                quant_type="nf4", compress_statistics=bool(row.get("double_quant")),
            )  # fmt: skip
            small.weight = bnb.nn.Params4bit(
                module.weight.data, requires_grad=False, quant_type="nf4",
                compress_statistics=bool(row.get("double_quant")), module=small,
            )  # fmt: skip
        else:
            small = bnb.nn.Linear8bitLt(
                module.in_features, module.out_features, bias=False, has_fp16_weights=False
            )
            small.weight = bnb.nn.Int8Params(
                module.weight.data.half(), requires_grad=False, has_fp16_weights=False
            )
        parent = model.get_submodule(name.rpartition(".")[0])
        setattr(parent, name.rpartition(".")[2], small)
    return model


def adapt(model: torch.nn.Module, row: Json) -> torch.nn.Module:
    from peft import LoraConfig, get_peft_model

    if "_class_name" in row["config"]:
        model.requires_grad_(False)
        model.add_adapter(
            LoraConfig(
                r=row["lora"],
                lora_alpha=row["lora"],
                target_modules=["to_q", "to_k", "to_v", "to_out.0"],
            )
        )
        return model
    return get_peft_model(
        model,
        LoraConfig(
            r=row["lora"], lora_alpha=row["lora"], lora_dropout=0.0, target_modules="all-linear"
        ),
    )


def make_optimizer(model: torch.nn.Module, row: Json) -> Any:
    trained = [p for p in model.parameters() if p.requires_grad]
    name = row.get("optimizer", "adamw_fused")
    if "8bit" in name or "paged" in name:
        import bitsandbytes as bnb

        kinds = {
            "adamw_8bit": bnb.optim.AdamW8bit, "paged_adamw_8bit": bnb.optim.PagedAdamW8bit,
            "paged_adamw_32bit": bnb.optim.PagedAdamW32bit,
        }  # fmt: skip
        return kinds[name](trained, lr=1e-5)
    return torch.optim.AdamW(trained, lr=1e-5, fused=True)


def make_batch(row: Json, dtype: torch.dtype, device: str) -> Json:
    config, size, seq = row["config"], row["mbs"], row["seq"]

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device, dtype=dtype)

    kind = config.get("_class_name")
    if kind is None:
        ids = torch.randint(10, 30000, (size, seq), device=device)
        return {"input_ids": ids, "labels": ids}
    text = row.get("text", 512)
    states = {
        "encoder_hidden_states": noise(
            size, text, config.get("joint_attention_dim", config.get("text_dim"))
        )
    }
    if kind == "FluxTransformer2DModel":
        return {
            **states, "hidden_states": noise(size, seq, config["in_channels"]),
            "pooled_projections": noise(size, config["pooled_projection_dim"]),
            "timestep": torch.full((size,), 0.5, device=device, dtype=dtype),
            "guidance": torch.ones(size, device=device, dtype=dtype),
            "img_ids": torch.zeros(seq, 3, device=device, dtype=dtype),
            "txt_ids": torch.zeros(text, 3, device=device, dtype=dtype),
        }  # fmt: skip
    side = 2 * int(seq**0.5)
    if kind == "SD3Transformer2DModel":
        return {
            **states, "hidden_states": noise(size, config["in_channels"], side, side),
            "pooled_projections": noise(size, config["pooled_projection_dim"]),
            "timestep": torch.full((size,), 500.0, device=device, dtype=dtype),
        }  # fmt: skip
    return {
        **states, "hidden_states": noise(size, config["in_channels"], 1, side, side),
        "timestep": torch.full((size,), 500, device=device),
    }  # fmt: skip


def loss_of(model: Any, row: Json, batch: Json) -> torch.Tensor:
    if "_class_name" in row["config"]:
        out = model(**batch, return_dict=False)[0]
        return torch.nn.functional.mse_loss(out.float(), torch.zeros_like(out, dtype=torch.float32))
    return model(**batch, use_cache=False).loss


def prepare(model: torch.nn.Module, row: Json) -> None:
    """Recomputation and compiled blocks."""
    if row.get("recompute") == "full":
        if hasattr(model, "gradient_checkpointing_enable"):
            model.gradient_checkpointing_enable(
                gradient_checkpointing_kwargs={"use_reentrant": False}
            )
        else:
            model.enable_gradient_checkpointing()
    if row.get("compile") == "blocks":
        for layer in model.model.layers:
            layer.compile()
    model.train()


def measure_single(row: Json, device: str) -> Json:
    clear()
    torch.manual_seed(0)
    dtype = torch.float32 if row["precision"] == "amp" else torch.bfloat16
    model = build(row, dtype, "cpu" if row.get("quantized_bits") else device)
    if row.get("quantized_bits"):
        model = quantize(model, row).to(device)
    if row.get("lora"):
        model = adapt(model, row).to(device)
        if row.get("recompute") == "full" and hasattr(model, "enable_input_require_grads"):
            model.enable_input_require_grads()
    prepare(model, row)
    clear()
    watch = Watch()
    watch.measured["params"] = torch.cuda.memory_allocated() / GIB
    optimizer = make_optimizer(model, row)
    batch = make_batch(row, dtype, device)
    cast = torch.autocast("cuda", dtype=torch.bfloat16, enabled=row["precision"] == "amp")
    for step in range(STEPS):
        if step == STEPS - 1:
            watch.measured = {"params": watch.measured["params"]}
        watch.begin()
        with cast:
            loss = loss_of(model, row, batch)
        watch.measured["after_forward"] = torch.cuda.memory_allocated() / GIB
        watch.end("peak_forward")
        watch.begin()
        loss.backward()
        watch.end("peak_backward")
        watch.begin()
        optimizer.step()
        watch.end("peak_step")
        optimizer.zero_grad(set_to_none=True)
        watch.measured["after_step"] = torch.cuda.memory_allocated() / GIB
    measured = watch.close(0)
    measured["host_rss"] = round(host_gib()["rss"], 3)
    return {
        **row, "parallel": "none", "world": 1, "params": sum(p.numel() for p in model.parameters()),
        "trainable": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "measured": measured, "loss": round(loss.item(), 3),
    }  # fmt: skip


def deepspeed_config(row: Json) -> Json:
    stage: Json = {"stage": row["stage"]}
    pin = bool(row.get("pin"))
    if row.get("offload_optimizer"):
        stage["offload_optimizer"] = {"device": "cpu", "pin_memory": pin}
    if row.get("offload_parameters"):
        stage["offload_param"] = {"device": "cpu", "pin_memory": pin}
    return {
        "train_micro_batch_size_per_gpu": row["mbs"], "gradient_accumulation_steps": 1,
        "bf16": {"enabled": True}, "zero_optimization": stage, "gradient_clipping": 1.0,
        "zero_allow_untested_optimizer": True, "steps_per_print": 1000,
    }  # fmt: skip


def wrap_fsdp(model: torch.nn.Module, row: Json) -> torch.nn.Module:
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    policy: Json = {}
    if row["precision"] == "amp":
        policy["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32
        )
    if row.get("offload_parameters"):
        policy["offload_policy"] = CPUOffloadPolicy(pin_memory=bool(row.get("pin")))
    for layer in model.model.layers:
        fully_shard(layer, **policy)
    return fully_shard(model, **policy)


def measure_pair(row: Json, rank: int, device: str) -> Json:
    import torch.distributed as dist

    clear()
    torch.manual_seed(0)
    dist.barrier()
    host = host_gib()
    deep = row["framework"] == "deepspeed"
    dtype = torch.float32 if row["precision"] == "amp" and not deep else torch.bfloat16
    model = build(row, dtype, "cpu" if row.get("offload_parameters") and not deep else device)
    prepare(model, row)
    params = sum(p.numel() for p in model.parameters())
    if deep:
        import deepspeed

        if row.get("offload_optimizer"):
            from deepspeed.ops.adam import DeepSpeedCPUAdam

            optimizer: Any = DeepSpeedCPUAdam(model.parameters(), lr=1e-5)
        else:
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
        engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=deepspeed_config(row)
        )
        forward: Any = engine
    else:
        model = wrap_fsdp(model, row)
        offloaded = bool(row.get("offload_parameters"))
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=1e-5, fused=not offloaded, foreach=offloaded
        )
        engine, forward = None, model
    batch = make_batch(row, dtype, device)
    watch = Watch()
    peak_host = host
    for step in range(STEPS):
        if step == STEPS - 1:
            watch.measured = {}
        watch.begin()
        loss = loss_of(forward, row, batch)
        watch.measured["after_forward"] = torch.cuda.memory_allocated() / GIB
        watch.end("peak_forward")
        watch.begin()
        engine.backward(loss) if engine else loss.backward()
        watch.end("peak_backward")
        watch.begin()
        if engine:
            engine.step()
        else:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        watch.end("peak_step")
        watch.measured["after_step"] = torch.cuda.memory_allocated() / GIB
        now = host_gib()
        peak_host = {key: max(peak_host[key], now[key]) for key in now}
    dist.barrier()
    measured = watch.close(rank)
    measured["host_rss_growth"] = round(peak_host["rss"] - host["rss"], 3)
    measured["node_growth"] = round(peak_host["used"] - host["used"], 3)
    result = {**row, "world": dist.get_world_size(), "rank": rank, "params": params, "measured": measured,
              "loss": round(loss.item(), 3)}  # fmt: skip
    if engine:
        engine.destroy()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("kind", choices=("single", "pair", "alone"))
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--seconds", type=float, default=240.0)
    given = parser.parse_args()
    import transformers

    rank = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(rank)
    device = f"cuda:{rank}"
    facts = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    index, parts = (int(x) for x in given.part.split("/"))
    rows = read_rows(given.kind)[index::parts]
    if given.kind != "single":
        import torch.distributed as dist

        dist.init_process_group("nccl", device_id=torch.device(device))
        dist.all_reduce(torch.ones(1, device=device))
    begin = time.monotonic()
    path = given.out if given.kind == "single" else f"{given.out}.{rank}"
    with open(path, "w", encoding="utf-8") as stream:
        for row in rows:
            if time.monotonic() - begin > given.seconds:
                print("no time left for", row["model"], flush=True)
                continue
            started = time.monotonic()
            try:
                made = (
                    measure_single(row, device)
                    if given.kind == "single"
                    else measure_pair(row, rank, device)
                )
                result = {**made, **facts}
            except Exception as error:  # noqa: BLE001 - one row must not end the others
                tail = traceback.format_exc().splitlines()[-3:]
                result = {**row, "failed": repr(error)[:300], "where": tail, **facts}
            stream.write(json.dumps(result) + "\n")
            stream.flush()
            said = result.get("failed") or result["measured"]
            label = {k: v for k, v in row.items() if k != "config"}
            print(
                f"{time.monotonic() - started:5.1f} s",
                rank,
                label,
                said,
                result.get("where", ""),
                flush=True,
            )


if __name__ == "__main__":
    main()
