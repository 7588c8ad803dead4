"""An out-of-memory message joined with the settings that came with it, in the log or as files."""

from __future__ import annotations

import json

from tests.rows import each_row

from firstfault_tools.memory.oom_calculator import run_oom
from firstfault_tools.memory.oom_run import find_settings

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.83 GiB. GPU 2 has a total capacity "
    "of 79.11 GiB of which 3.12 GiB is free. Including non-PyTorch memory, this process has 75.98 GiB "
    "memory in use. Of the allocated memory 70.55 GiB is allocated by PyTorch, and 3.81 GiB is reserved "
    "by PyTorch but unallocated."
)
ARGUMENTS = """TrainingArguments(
bf16=True,
fsdp=[<FSDPOption.FULL_SHARD: 'full_shard'>],
gradient_accumulation_steps=4,
gradient_checkpointing=False,
optim=OptimizerNames.ADAMW_TORCH,
per_device_train_batch_size=8,
)
"""
CONFIG = json.dumps(
    {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
    }
)


def explain(text: str, **files: str) -> dict:
    return dict(run_oom(text, files=files, fields={"world": 4}))


def check(result: dict) -> None:
    assert result["configuration_problem"] is None
    assert result["tensor"][0]["name"].startswith("fp32 logits")
    assert result["estimate"]["changes"]
    assert any("sequence length 2048" in line for line in result["estimate"]["assumptions"])


def test_a_config_file_beside_the_log() -> None:
    check(explain(ARGUMENTS + MESSAGE, **{"config.json": CONFIG, "notes.yaml": "just: words"}))


def test_the_model_config_that_the_log_prints() -> None:
    check(explain(f"INFO Model config LlamaConfig {CONFIG}\n{ARGUMENTS}{MESSAGE}"))


def test_a_deepspeed_file_and_a_config_file_are_put_together() -> None:
    settings = json.dumps(
        {
            "train_micro_batch_size_per_gpu": 8,
            "zero_optimization": {"stage": 3},
            "bf16": {"enabled": True},
        }
    )
    check(explain(MESSAGE, **{"ds.json": settings, "config.json": CONFIG}))


@each_row("files", [{}, {"a.json": "{"}, {"a.json": "[1]"}, {"x.toml": "= 3"}])
def test_the_books_stand_without_settings(files: dict[str, str]) -> None:
    result = explain(MESSAGE, **files)
    assert result["estimate"] is None
    assert result["books"]["reason"]


def test_a_length_that_no_logits_explain_is_not_invented() -> None:
    result = explain(ARGUMENTS + MESSAGE.replace("7.83 GiB", "1.11 GiB"), **{"config.json": CONFIG})
    assert any("sequence length 4096" in line for line in result["estimate"]["assumptions"])


def test_broken_settings_in_a_log_are_passed_over() -> None:
    assert find_settings("Model config X {broken") == []
    assert find_settings("") == []
