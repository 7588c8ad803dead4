"""Are settings read from what launchers, libraries and people print?"""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.run_comparison.settings import (
    Kind,
    normalise_value,
    quote_setting,
    read_settings,
)

ROWS = [
    ("m.log", "  micro_batch_size ................ 2", Kind.OPTION, "micro_batch_size", "2"),
    (
        "d.log",
        "[2025-11-04 09:30:41,221] [INFO] [config.py:1001:print]   gradient_clipping ............ 1.0",
        Kind.OPTION,
        "gradient_clipping",
        "1.0",
    ),
    ("env.txt", "NCCL_IB_DISABLE=1", Kind.VARIABLE, "nccl_ib_disable", "1"),
    ("job.sh", 'export NCCL_P2P_LEVEL="NVL"', Kind.VARIABLE, "nccl_p2p_level", "NVL"),
    (
        "t.log",
        "gpu-1:7:9 [0] NCCL INFO NCCL_DEBUG set by environment to INFO.",
        Kind.VARIABLE,
        "nccl_debug",
        "INFO",
    ),
    ("t.log", "NCCL version 2.21.5+cuda12.4", Kind.VERSION, "nccl", "2.21.5+cuda12.4"),
    ("t.log", "gpu-1:7:9 [0] NCCL INFO Using network Socket", Kind.USED, "nccl network", "Socket"),
    ("pip.txt", "transformers==4.51.3", Kind.VERSION, "transformers", "4.51.3"),
    ("pip.txt", "torch                    2.6.0", Kind.VERSION, "torch", "2.6.0"),
    ("e.txt", "[pip3] nvidia-nccl-cu12==2.21.5", Kind.VERSION, "nvidia_nccl_cu12", "2.21.5"),
    (
        "run.sh",
        "torchrun --nproc_per_node 8 train.py --lr 1e-4 --bf16",
        Kind.OPTION,
        "bf16",
        "true",
    ),
    (
        "run.sh",
        "torchrun --nproc_per_node 8 train.py --lr 1e-4 --bf16",
        Kind.OPTION,
        "lr",
        "1e-4",
    ),
    (
        "run.sh",
        "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.optim.lr=1e-6",
        Kind.OPTION,
        "actor_rollout_ref.actor.optim.lr",
        "1e-6",
    ),
    ("run.sh", "    --data-path /data/a \\", Kind.DATA, "data_path", "/data/a"),
    (
        "t.log",
        "Namespace(lr=0.001, layers='a,b', seed=3)",
        Kind.OPTION,
        "layers",
        "a,b",
    ),
    (
        "t.log",
        "transformers 4.57.1 | torch 2.9.1+cu130 | flash-attn not installed | NVIDIA H200 x8",
        Kind.VERSION,
        "flash_attn",
        "not installed",
    ),
    (
        "t.log",
        "[INFO] flash_attn import failed, packed sequences need a mask -> attn_implementation='eager'",
        Kind.OPTION,
        "attn_implementation",
        "eager",
    ),
    ("c.yaml", "optimizer:\n  lr: 0.0003\n  name: adamw\n", Kind.OPTION, "optimizer.lr", "0.0003"),
    (
        "c.json",
        '{"zero_optimization": {"stage": 3}}',
        Kind.OPTION,
        "zero_optimization.stage",
        "3",
    ),
    (
        "c.toml",
        "[training]\nlocal_batch_size = 8\n",
        Kind.OPTION,
        "training.local_batch_size",
        "8",
    ),
    (
        "hf.log",
        "TrainingArguments(\ngradient_checkpointing=True,\n)",
        Kind.OPTION,
        "gradient_checkpointing",
        "True",
    ),
]


@each_row(("name", "text", "kind", "setting", "value"), ROWS)
def test_forms(name: str, text: str, kind: Kind, setting: str, value: str) -> None:
    found = {(s.kind, s.name): s.value for s in read_settings(name, text)}
    assert found.get((kind, setting)) == value, found


@each_row(
    "line",
    [
        " iteration 1/ 100 | elapsed time per iteration (ms): 900.0 | lm loss: 9.0E+00 |",
        "RuntimeError: size mismatch, got 3 and 4",
        "step=3 loss=2.0",
        "{'loss': 1.288, 'grad_norm': 0.717, 'run_name': 'a'}",
        "KeyError: 'model_name'",
        "epoch 2 | loss 2.31 | torch 1.2",
        "Downloading shards: 100%|####| 4/4 [00:01<00:00]",
    ],
)
def test_ordinary_lines_state_nothing(line: str) -> None:
    assert read_settings("t.log", line) == ()


@each_row(
    ("one", "other"),
    [("1e-4", "0.0001"), ("True", "yes"), ("'a'", "a"), ("None", "null"), ("1_000", "1000.0")],
)
def test_spellings_of_one_value(one: str, other: str) -> None:
    assert normalise_value(one) == normalise_value(other)


def test_secrets_stay_hidden() -> None:
    (found,) = read_settings("env.txt", "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567")
    assert "0123456789abcdef" not in quote_setting(found) + repr(found)


def test_broken_files_are_read_as_text() -> None:
    assert read_settings("c.json", "{broken") == ()
    assert read_settings("c.yaml", "a: [1,\nmicro_batch_size ..... 2") != ()
