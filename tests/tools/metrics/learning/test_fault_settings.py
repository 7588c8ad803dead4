"""Which setting explains that numbers broke or that an index is out of range?"""

from __future__ import annotations

import re
from dataclasses import replace

from tests.rows import each_row

from firstfault_tools.findings import Category, Evidence, Finding, Json, Level
from firstfault_tools.metrics.learning.fault_settings import TABLE, explain_by_settings, groups_of


def fault(kind: str, title: str = "Loss is NaN", **facts: Json) -> Finding:
    return Finding(
        kind=kind,
        title=title,
        level=Level.CAUSE,
        category=Category.NUMERICAL,
        evidence=(Evidence("a.log", 9, "loss: nan"),),
        facts=facts,
    )


def explain(finding: Finding, texts: list[str], question: str = "", *beside: Finding) -> Finding:
    return explain_by_settings(finding, [("a.log", list(enumerate(texts, 1)))], question, beside)


CASES: list[tuple[str, dict[str, Json], list[str], str, str]] = [
    ("metrics.nan_loss", {}, ["fp16=True", "torch_dtype=bfloat16"], "", "fp16-of-bf16-model"),
    ("metrics.loss_constant", {}, ["DPO args: beta=0.0, lr=1e-6"], "", "preference-beta-zero"),
    ("metrics.loss_constant", {}, ["DPO args: beta=0.01, adam_beta=0.9"], "", ""),
    ("metrics.loss_constant", {}, ["max_length=128", "prompt tokens: min 160"], "", "preference-cut-alike"),
    ("signature.hf-zero-loss", {}, [">>> batch['labels']", "tensor([[-100, -100, -100, ..., -100, -100],"], "", "labels-all-ignored"),
    ("signature.hf-zero-loss", {}, [">>> batch['labels']", "tensor([[-100, -100, -100, ..., 318, 2],"], "", ""),
    ("metrics.nan_loss", {}, [">>> [k for k, v in sd.items() if torch.isnan(v).any()]", "['layers.3.norm.weight']"], "", "weights-hold-nan"),
    ("metrics.nan_loss", {}, [">>> [k for k, v in sd.items() if torch.isnan(v).any()]", "[]"], "", ""),
    ("metrics.nan_loss", {}, ["loss scaler 0 reducing loss scale to 1.4e-09"], "", "loss-scale-at-bottom"),
    ("metrics.nan_loss", {}, ["loss scaler 0 reducing loss scale to 32768.0"], "", ""),
    ("metrics.resume_loss_jump", {}, ["There were missing keys in the checkpoint model loaded: ['a.lora_A.weight']."], "", "keys-not-restored"),
    ("metrics.dataloader_stall", {}, ["Too many dataloader workers: 8 (max is dataset.num_shards=4)."], "", "fewer-shards-than-workers"),
    ("metrics.dataloader_stall", {}, ["load average: 612.4, 598.1", "$ nproc", "96"], "", "cpus-overbooked"),
    ("metrics.dataloader_stall", {}, ["load average: 40.4, 38.1", "$ nproc", "96"], "", ""),
    ("signature.cuda-library-execution-failed", {}, ["num_output: 64", "num_output: 12", "$ print(np.unique(gt_labels))", "[ 0 3 11 17 255]"], "", "label-above-outputs"),
    ("signature.cuda-illegal-memory-access", {}, ["(fc): Linear(in_features=8, out_features=5)", ">>> torch.unique(targets)", "tensor([0, 1, 5])"], "", "label-above-outputs"),
    ("signature.cuda-library-execution-failed", {}, ["num_output: 64", "num_output: 12", "$ print(np.unique(gt_labels))", "[ 0 3 11 255]"], "", ""),
    ("metrics.nan_loss", {}, ["Model config MT5Config {"], "I only added --fp16", "fp16-of-bf16-model"),
    ("metrics.loss_scale_collapse", {}, ['"fp16": {', '"enabled": true,', "google/flan-t5-xl"], "", "fp16-of-bf16-model"),
    ("metrics.nan_loss", {}, ["mixed_precision: fp16"], "In fp32 it trains fine.", "fp16-where-fp32-works"),
    ("metrics.nan_loss", {"from_the_start": True}, ["precision=16"], "", "fp16-from-the-start"),
    ("metrics.nan_loss", {}, ["fp16=True", "bf16=True", "torch_dtype=bfloat16"], "", ""),
    ("metrics.nan_loss", {"grad_norm_spike": 1e3}, ["fp16=True", "torch_dtype=bfloat16"], "", ""),
    ("metrics.nan_loss", {}, ["fp16=False bf16=True torch_dtype=bfloat16"], "", ""),
    ("signature.hf-zero-loss", {}, ["max_seq_length=256", "prompt tokens: mean 900, min 300"], "", "prompt-longer-than-limit"),
    ("signature.hf-zero-loss", {}, ["cutoff_len: 256", "prompt tokens: avg 900, min 30"], "", "prompt-usually-longer"),
    ("signature.hf-zero-loss", {}, ["max_seq_length=2048", "prompt tokens: mean 900, min 300"], "", ""),
    ("metrics.rollout_apart", {}, ["rollout.quantization=fp8 rollout_is=null"], "", "rollout-in-fewer-bits-uncorrected"),
    ("metrics.policy_collapse", {}, ["INFO Using quantization: fp8 (online)"], "", "rollout-in-fewer-bits"),
    ("metrics.policy_collapse", {}, ["rollout.quantization=null"], "", ""),
    ("metrics.divergence", {"lr": 0.02}, ["BASE_LR: 0.02 IMS_PER_BATCH: 2"], "", "rate-of-larger-batch"),
    ("metrics.divergence", {"lr": 0.02}, ["BASE_LR: 0.02 IMS_PER_BATCH: 16"], "", ""),
    ("metrics.nan_loss", {"lr": 1e-3}, ["lr_config = dict(policy='cyclic', up=0.4) optimizer = dict(type='AdamW', lr=0.0001)"], "", "peak-of-schedule"),
    ("metrics.divergence", {}, [], "I use 2 GPUs instead of 8.", "rate-of-more-gpus"),
    ("metrics.divergence", {}, ["max_grad_norm: 0.0"], "", "no-clipping"),
    ("metrics.divergence", {}, ["max_grad_norm: 0.5", "warmup_ratio: 0.03"], "", ""),
    ("metrics.divergence", {}, ["warmup_steps=0"], "", "no-warmup"),
    ("signature.index-out-of-bounds-assert", {}, ["num_classes: 2", "classes = ('a', 'b', 'c')"], "", "more-classes-than-set"),
    ("signature.index-out-of-bounds-assert", {}, ["num_classes: 3", "classes = ('a', 'b', 'c')"], "", ""),
    ("signature.cuda-device-side-assert", {}, ["num_classes=19", "unique labels: [0 3 18 255]"], "", "label-above-classes"),
    ("signature.cuda-device-side-assert", {}, ["num_classes=19", "unique labels: [0 3 18]"], "", ""),
    ("signature.token-id-out-of-range", {}, ["len(tokenizer)=32005", "vocab_size: 32000"], "", "tokenizer-larger-than-embedding"),
    ("signature.token-id-out-of-range", {}, ["len(tokenizer)=32000", "vocab_size: 32000"], "", ""),
    ("signature.hf-zero-loss", {}, ["max_length: 512", "max_prompt_length: 512"], "", "prompt-takes-all"),
    ("signature.hf-zero-loss", {}, ["max_length: 512", "max_prompt_length: 256"], "", ""),
    ("metrics.loss_zero", {}, [], "I call model.half() now", "half-weights"),
    ("metrics.loss_scale_collapse", {}, ["fp16=True"], "", "fp16-scale"),
    ("metrics.nan_loss", {}, ["amp=True", "NVIDIA GeForce GTX 1650"], "", "amp-on-gtx16"),
    ("metrics.nan_evaluation", {}, ["fp16_full_eval=True"], "", "fp16-evaluation"),
    ("metrics.divergence", {}, ["Loading checkpoint step_9", "optimizer state not found in step_9"], "", "resumed-without-optimizer"),
    ("metrics.divergence", {}, ["Loading checkpoint step_9", "optimizer state restored"], "", ""),
    ("signature.index-out-of-bounds-assert", {}, ["Overriding nc=80 with nc=3", "class id min 0, max 3"], "", "label-above-classes"),
    ("metrics.lr_jump", {"to": 0.1}, ["$ python main.py --lr 0.1 --resume last.pth"], "", "rate-flag-again"),
]  # fmt: skip


@each_row(("kind", "facts", "texts", "question", "row"), CASES)
def test_deciding_setting(
    kind: str, facts: dict[str, Json], texts: list[str], question: str, row: str
) -> None:
    finding = fault(kind, **facts)
    told = explain(finding, texts, question)
    assert told.facts.get("setting", "") == row
    if not row:
        assert told is finding
        return
    # what is said quotes what was read
    for words in re.findall(r"«([^»]+)»", told.title):
        assert any(words.rstrip("…") in text for text in [" ".join(texts), question])


def test_quoted_lines_become_evidence() -> None:
    told = explain(fault("metrics.nan_loss"), ["fp16=True", "x", "torch_dtype=bfloat16"])
    assert [e.line for e in told.evidence] == [9, 1, 3]


def test_crash_is_told_as_consequence() -> None:
    crash = Finding(
        "signature.cuda-illegal-memory-access",
        "illegal memory access on the GPU of rank 1: x",
        Level.FAILURE,
        evidence=(Evidence("a.log", 20, "CUDA error: an illegal memory access"),),
    )
    told = explain(fault("metrics.divergence"), [], "", crash)
    assert "illegal memory access that ends the run" in told.title
    assert told.evidence[-1].line == 20


def test_other_faults_are_left_alone() -> None:
    finding = fault("signature.cuda-oom", "out of memory")
    assert not groups_of(finding)
    assert explain(finding, ["fp16=True", "torch_dtype=bfloat16"]) is finding


def test_every_row_speaks_of_facts_that_exist() -> None:
    import json

    table = json.loads(TABLE.read_text(encoding="utf-8"))
    for row in table["rows"]:
        named = set(re.findall(r"\{(\w+)", row["says"]))
        assert named <= set(row["all"]) <= set(table["facts"]), row["id"]
        assert set(row["faults"]) <= set(table["faults"])
        assert set(row.get("none", ())) <= set(table["facts"])


def test_nan_weights_belong_to_all_ranks() -> None:
    nan = replace(fault("metrics.nan_loss", "Loss is NaN on rank 3"), rank=3)
    sampled = fault(
        "signature.probability-tensor-nan", "model outputs contain NaN or Inf on rank 1"
    )
    found = explain(nan, ["loss: nan"], "", sampled)
    assert found.facts["setting"] == "sampling-after-nan"
    assert found.rank is None
    assert "on rank 3" not in found.title
