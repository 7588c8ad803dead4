"""Advice of a framework that the run does not use is left out."""

from __future__ import annotations

import pytest

from firstfault.investigation.knowledge import load_knowledge
from firstfault.investigation.stack import FrameworkTable
from firstfault.paths import knowledge_folder


@pytest.fixture(scope="module")
def table() -> FrameworkTable:
    return load_knowledge(knowledge_folder(), None).frameworks


@pytest.mark.parametrize(
    ("line", "advice", "given"),
    [
        ("[titan] step: 10  loss: 8.1", "Turn on `--recompute-activations`.", False),
        ("[titan] step: 10  loss: 8.1", "Keep fewer tokens in a batch.", True),
        ("[titan] step: 10", "Megatron `--manual-gc`, torchtitan `gc_freq`.", True),
        ("iteration 10/ 500 | consumed samples: 2560 |", "Use `--recompute-granularity full`.", True),
        ("openrlhf.cli.train_ppo_ray --x", "Lower actor_rollout_ref.rollout.n of verl.", False),
        ("python -m verl.trainer.main_ppo", "Lower actor_rollout_ref.rollout.n of verl.", True),
        ("python -m verl.trainer.main_ppo", "Use `--recompute-granularity full`.", True),
        ("DeepSpeed info: version=0.16", "Set torchtitan `comm.init_timeout_seconds`.", False),
        ("NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]", "Choose the RoCE v2 entry.", False),
        ("NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]", "Choose the RoCE v2 entry.", True),
        ("NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]", "Use `--recompute-granularity full`.", True),
        # nothing shows the framework: nothing is left out
        ("step 10 loss 3.1", "Use `--recompute-granularity full`.", True),
    ],
)  # fmt: skip
def test_advice_fits(table: FrameworkTable, line: str, advice: str, given: bool) -> None:
    assert table.fits(table.owners(advice), table.shown(line)) is given


COMMAND = "a = 1\n# Megatron-LM\n--a 1\n# NeMo\ncfg.a=1\n# transformers\na: 1"


@pytest.mark.parametrize(
    ("line", "command", "kept"),
    [
        ("megatron training", COMMAND, "--a 1"),
        # NeMo brings Megatron, and is set through its own names
        ("[NeMo W 2026-01-01]", COMMAND, "cfg.a=1"),
        ("[titan] step: 10", COMMAND, "a = 1"),
        ("step 10 loss 3.1", COMMAND, "a = 1"),
        ("[titan] step: 10", "# Megatron-LM\n--a 1", ""),
        (
            "step 10 loss 3.1",
            "# Megatron-LM\n--a 1\n# JAX\na=1",
            "# Megatron-LM\n--a 1\n# JAX\na=1",
        ),
    ],
)
def test_lines_of_the_framework(table: FrameworkTable, line: str, command: str, kept: str) -> None:
    assert table.has_heads(command)
    assert table.keep_lines(command, table.shown(line)) == kept


def test_a_comment_is_no_head(table: FrameworkTable) -> None:
    assert not table.has_heads("# on the node\nnvidia-smi")
