"""How much memory do real training steps of many model families take? Measured on one GPU.

Every row of memory_families.json is one run: a model built from its whole configuration, a few steps,
the allocator's counters at each phase of the last. `--tiny` shrinks every row for a dry run without a
GPU (no numbers). Rows that cannot run are reported, never dropped.

Usage: python3 memory_families.py OUT.jsonl [--tiny] [--only WORD] [--seconds 500]
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from plain_kernels import Adam8bit, Fp8Linear, RmsNorm

GIB = 2**30
STEPS = 3
Json = dict[str, Any]


class Meter:
    """The allocator's counters, in GiB; zeros without a GPU."""

    def __init__(self) -> None:
        self.gpu = torch.cuda.is_available()

    def now(self) -> float:
        return torch.cuda.memory_allocated() / GIB if self.gpu else 0.0

    def peak(self) -> float:
        return torch.cuda.max_memory_allocated() / GIB if self.gpu else 0.0

    def reserved(self) -> float:
        return torch.cuda.max_memory_reserved() / GIB if self.gpu else 0.0

    def reset(self) -> None:
        if self.gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()

    def clear(self) -> None:
        gc.collect()
        if self.gpu:
            torch._C._cuda_clearCublasWorkspaces()
            torch.cuda.empty_cache()
            self.reset()


def replace_norms(model: torch.nn.Module) -> None:
    """Every torch.nn.RMSNorm by the plain one."""
    for module in model.modules():
        if isinstance(module, torch.nn.RMSNorm):
            module.forward = lambda x, m=module: RmsNorm.apply(x, m.weight, m.eps or 1e-6)


def use_fp8(model: torch.nn.Module, how: object) -> None:
    """Every linear layer but the head runs its forward in fp8: by hand, or as torchao's training recipe."""
    if how == "torchao":
        from torchao.float8 import convert_to_float8_training

        convert_to_float8_training(
            model,
            module_filter_fn=lambda part, name: (
                isinstance(part, torch.nn.Linear) and "head" not in name
            ),
        )
        return
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and "head" not in name:
            module.forward = lambda x, m=module: Fp8Linear.apply(x, m.weight)


def build_model(row: Json) -> torch.nn.Module:
    """The model of a row on the device, weights random."""
    config = dict(row["config"])
    if kind := config.pop("_class_name", None):
        import diffusers

        return getattr(diffusers, kind)(**config)
    import transformers

    made = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    if row.get("experts"):
        made._experts_implementation = row["experts"]
    kinds = {
        "seq2seq": "AutoModelForSeq2SeqLM", "speech": "AutoModelForSpeechSeq2Seq",
        "image": "AutoModelForImageTextToText",
    }  # fmt: skip
    auto = getattr(transformers, kinds.get(row.get("kind", ""), "AutoModelForCausalLM"))
    extra = {} if row.get("attn") is None else {"attn_implementation": row["attn"]}
    return auto.from_config(made, **extra)


def add_lora(model: torch.nn.Module, row: Json) -> torch.nn.Module:
    """PEFT adapters on the row's targets."""
    from peft import LoraConfig, get_peft_model

    targets = row.get("lora_targets", "all-linear")
    made = LoraConfig(
        r=row["lora"], lora_alpha=row["lora"], lora_dropout=0.0, target_modules=targets,
        use_dora=bool(row.get("dora")),
    )  # fmt: skip
    if hasattr(model, "add_adapter") and "_class_name" in row["config"]:
        model.requires_grad_(False)
        made.target_modules = (
            ["to_q", "to_k", "to_v", "to_out.0"] if targets == "all-linear" else targets
        )
        model.add_adapter(made)
        return model
    return get_peft_model(model, made)


def make_optimizer(model: torch.nn.Module, row: Json) -> Any:
    trained = [p for p in model.parameters() if p.requires_grad]
    name = row.get("optimizer", "adamw_fused")
    if name == "adam8bit":
        return Adam8bit(trained)
    if name == "adafactor":
        return torch.optim.Adafactor(trained)
    if name == "sgd":
        return torch.optim.SGD(trained, lr=1e-4)
    if name == "muon":
        return torch.optim.Muon([p for p in trained if p.ndim == 2], lr=1e-4)
    return torch.optim.AdamW(trained, lr=1e-5, fused=name == "adamw_fused")


def make_batch(row: Json, device: str, dtype: torch.dtype) -> Json:
    """Inputs of one step."""
    size, seq = row["mbs"], row["seq"]
    config = row["config"]
    if "_class_name" in config:
        return make_latents(row, device, dtype)
    vocab = config.get("vocab_size") or config.get("text_config", {}).get("vocab_size", 1000)
    ids = torch.randint(10, min(vocab, 30000) - 10, (size, seq), device=device)
    if row.get("kind") == "speech":
        frames = 2 * config["max_source_positions"]
        sound = torch.randn(size, config["num_mel_bins"], frames, device=device, dtype=dtype)
        return {"input_features": sound, "labels": ids}
    if row.get("kind") == "image":
        vision = config["vision_config"]
        side = row["image_patches"]
        merge = vision.get("spatial_merge_size", 2)
        count = side * side // merge**2
        ids[:, :count] = config["image_token_id"]
        width = 3 * vision.get("temporal_patch_size", 2) * vision.get("patch_size", 14) ** 2
        pixels = torch.randn(size * side * side, width, device=device, dtype=dtype)
        grid = torch.tensor([[1, side, side]] * size, device=device)
        return {"input_ids": ids, "labels": ids.clone(), "pixel_values": pixels, "image_grid_thw": grid,
                "mm_token_type_ids": (ids == config["image_token_id"]).int()}  # fmt: skip
    return {"input_ids": ids, "labels": ids}


def make_latents(row: Json, device: str, dtype: torch.dtype) -> Json:
    """Latents, text states and times of a diffusion transformer; seq is the number of latent tokens."""
    config, size, seq = row["config"], row["mbs"], row["seq"]

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device, dtype=dtype)

    text = row.get("text", 512)
    if config["_class_name"] == "FluxTransformer2DModel":
        return {
            "hidden_states": noise(size, seq, config["in_channels"]),
            "encoder_hidden_states": noise(size, text, config["joint_attention_dim"]),
            "pooled_projections": noise(size, config["pooled_projection_dim"]),
            "timestep": torch.full((size,), 0.5, device=device, dtype=dtype),
            "guidance": torch.ones(size, device=device, dtype=dtype)
            if config.get("guidance_embeds")
            else None,
            "img_ids": torch.zeros(seq, 3, device=device, dtype=dtype),
            "txt_ids": torch.zeros(text, 3, device=device, dtype=dtype),
        }
    side = int(seq**0.5)
    if config["_class_name"] == "QwenImageTransformer2DModel":
        return {
            "hidden_states": noise(size, seq, config["in_channels"]),
            "encoder_hidden_states": noise(size, text, config["joint_attention_dim"]),
            "timestep": torch.full((size,), 0.5, device=device, dtype=dtype),
            "img_shapes": [[(1, side, side)]] * size,
        }
    if config["_class_name"] == "SD3Transformer2DModel":
        return {
            "hidden_states": noise(size, config["in_channels"], 2 * side, 2 * side),
            "encoder_hidden_states": noise(size, text, config["joint_attention_dim"]),
            "pooled_projections": noise(size, config["pooled_projection_dim"]),
            "timestep": torch.full((size,), 500.0, device=device, dtype=dtype),
        }
    return {
        "hidden_states": noise(size, config["in_channels"], 1, 2 * side, 2 * side),
        "encoder_hidden_states": noise(size, text, config["text_dim"]),
        "timestep": torch.full((size,), 500, device=device),
    }


def take_loss(model: torch.nn.Module, row: Json, batch: Json) -> torch.Tensor:
    if "_class_name" in row["config"]:
        out = model(**batch, return_dict=False)[0]
        return torch.nn.functional.mse_loss(out.float(), torch.zeros_like(out, dtype=torch.float32))
    return model(**batch, use_cache=False).loss


def measure_row(row: Json, device: str, meter: Meter) -> Json:
    """One run: build, STEPS steps, counters of the last."""
    meter.clear()
    torch.manual_seed(0)
    base = meter.now()
    half = row["precision"] == "bf16"
    dtype = torch.bfloat16 if half else torch.float32
    with torch.device(device):
        model = build_model(row)
    model.to(dtype)
    if row.get("recompute") == "full":
        if hasattr(model, "gradient_checkpointing_enable"):
            model.gradient_checkpointing_enable(
                gradient_checkpointing_kwargs={"use_reentrant": False}
            )
        else:
            model.enable_gradient_checkpointing()
    if row.get("lora"):
        model = add_lora(model, row)
        model.to(device)
        if row.get("recompute") == "full" and hasattr(model, "enable_input_require_grads"):
            model.enable_input_require_grads()
    if row.get("freeze_vision"):
        for name, weight in model.named_parameters():
            if "visual" in name or "vision" in name:
                weight.requires_grad_(False)
    if row.get("plain_norms"):
        replace_norms(model)
    if row.get("fp8"):
        use_fp8(model, row["fp8"])
    if row.get("compile") is True:
        model.compile()
    model.train()
    gc.collect()
    measured = {"params": meter.now() - base}
    optimizer = make_optimizer(model, row)
    batch = make_batch(row, device, dtype)
    cast = torch.autocast(device, dtype=torch.bfloat16, enabled=row["precision"] == "amp")
    offload: Callable[[], Any] = contextlib.nullcontext
    if row.get("activation_offload"):
        offload = lambda: torch.autograd.graph.save_on_cpu(pin_memory=True)  # noqa: E731
    loss = torch.zeros(())
    for _ in range(STEPS):
        meter.reset()
        with cast, offload():
            loss = take_loss(model, row, batch)
        measured["after_forward"], measured["peak_forward"] = meter.now(), meter.peak()
        meter.reset()
        loss.backward()
        measured["after_backward"], measured["peak_backward"] = meter.now(), meter.peak()
        meter.reset()
        optimizer.step()
        measured["peak_step"] = meter.peak()
        optimizer.zero_grad(set_to_none=True)
        measured["after_step"] = meter.now()
    parts = ("peak_forward", "peak_backward", "peak_step")
    measured["peak_backward"] = max(measured["peak_forward"], measured["peak_backward"])
    measured["peak_allocated"] = max(measured[name] for name in parts)
    measured["peak_reserved"] = meter.reserved()
    counted = sum(p.numel() for p in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return {
        **row, "parallel": "none", "world": 1, "params": counted, "trainable": trained,
        "measured": {name: round(value, 3) for name, value in measured.items()},
        "loss": round(loss.item(), 3),
    }  # fmt: skip


def measure_rl(row: Json, device: str, meter: Meter) -> Json:
    """Actor, frozen reference and critic side by side: rollout with its cache, scoring, update."""
    meter.clear()
    base = meter.now()
    with torch.device(device):
        actor, reference, critic = (build_model(row).to(torch.bfloat16) for _ in range(3))
    reference.requires_grad_(False)
    measured = {"models": meter.now() - base}
    optimizers = [
        torch.optim.AdamW(m.parameters(), lr=1e-6, fused=device == "cuda") for m in (actor, critic)
    ]
    size, prompt = row["rollouts"], row["prompt"]
    ids = torch.randint(10, 1000, (size, prompt), device=device)
    for _ in range(2):
        meter.reset()
        with torch.no_grad():
            out = actor(input_ids=ids, use_cache=True, logits_to_keep=1)
            cache = out.past_key_values
            text = ids
            for _ in range(row["seq"] - prompt):
                token = out.logits[:, -1:].argmax(-1)
                text = torch.cat((text, token), 1)
                out = actor(
                    input_ids=token, past_key_values=cache, use_cache=True, logits_to_keep=1
                )
        measured["rollout"] = meter.peak()
        del out, cache
        meter.reset()
        with torch.no_grad():
            for begin in range(0, size, row["mbs"]):
                part = text[begin : begin + row["mbs"]]
                logits = reference(input_ids=part, use_cache=False).logits
                torch.log_softmax(logits.float(), -1).gather(2, part.unsqueeze(-1))
                del logits
        measured["scoring"] = meter.peak()
        meter.reset()
        for model, optimizer in zip((actor, critic), optimizers, strict=True):
            for begin in range(0, size, row["mbs"]):
                part = text[begin : begin + row["mbs"]]
                model(input_ids=part, labels=part, use_cache=False).loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        measured["update"] = meter.peak()
        meter.reset()
    measured["resident"] = meter.now()
    measured["peak_allocated"] = max(measured[name] for name in ("rollout", "scoring", "update"))
    counted = sum(p.numel() for p in actor.parameters())
    return {**row, "params": counted,
            "measured": {name: round(value, 3) for name, value in measured.items()}}  # fmt: skip


def shrink(row: Json) -> Json:
    """The same row at a size a laptop runs."""

    def small(config: Json) -> Json:
        out = {}
        for key, value in config.items():
            if isinstance(value, dict):
                out[key] = small(value)
            elif key in ("num_hidden_layers", "num_layers", "num_single_layers", "num_decoder_layers",
                         "encoder_layers", "decoder_layers", "depth"):  # fmt: skip
                out[key] = min(value, 2)
            elif key == "hybrid_override_pattern":
                out[key] = value[:4]
            elif key == "vocab_size" and value < 140000:
                out[key] = min(value, 32000)
            else:
                out[key] = value
        return out

    shrunk = {**row, "config": small(row["config"]), "seq": min(row["seq"], 64), "mbs": 1}
    return {**shrunk, **({"rollouts": 2, "prompt": 8, "seq": 12} if row.get("rollouts") else {})}


def read_rows(tiny: bool, only: str) -> Iterator[Json]:
    data = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    for row in data["rows"]:
        full = {**row, "config": {**data["models"][row["model"]], **row.get("config", {})}}
        if only in json.dumps(row):
            yield shrink(full) if tiny else full


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--skip", type=int, default=0, help="rows done before, by number")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    meter = Meter()
    import transformers

    facts = {
        "gpu": torch.cuda.get_device_name() if device == "cuda" else "none",
        "torch": torch.__version__, "transformers": transformers.__version__,
    }  # fmt: skip
    begin = time.monotonic()
    rows = list(read_rows(given.tiny, given.only))
    with open(given.out, "a" if given.skip else "w", encoding="utf-8") as stream:
        for number, row in enumerate(rows[given.skip :], given.skip + 1):
            if time.monotonic() - begin > given.seconds:
                print("no time left for", row["model"])
                continue
            started = time.monotonic()
            try:
                run = measure_rl if row.get("rollouts") else measure_row
                result = {**run(row, device, meter), **facts}
            except Exception as error:  # noqa: BLE001 - one row must not end the others
                tail = traceback.format_exc().splitlines()[-3:]
                result = {**row, "failed": repr(error)[:300], "where": tail, **facts}
            stream.write(json.dumps(result) + "\n")
            stream.flush()
            said = result.get("failed") or result["measured"].get("peak_allocated")
            print(f"{row['model']:16s} {row.get('precision', '')} {time.monotonic() - started:5.1f} s", said,
                  result.get("where", ""), flush=True)  # fmt: skip
            if "CUDA error" in result.get("failed", "") and number < len(rows):
                # A fault of the device stays with the process: the rows left get a fresh one.
                left = given.seconds - (time.monotonic() - begin)
                only = ["--only", given.only] if given.only else []
                again = [given.out, *only, "--seconds", str(left), "--skip", str(number)]
                os.execv(sys.executable, [sys.executable, __file__, *again])


if __name__ == "__main__":
    main()
