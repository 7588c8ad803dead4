"""What evaluations, resumes, engines and preference training leave behind or lose, told by the step lines."""

from __future__ import annotations

import pytest

from firstfault.workspace import Workspace
from firstfault_tools.metrics.learning.equal_rewards import find_in_lines as find_rewards
from firstfault_tools.metrics.learning.preferences import find_in_lines as find_preferences
from firstfault_tools.metrics.log_lines import find_in_lines as find_steps


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


def numbered(lines: list[str]) -> list[tuple[int, str]]:
    return list(enumerate(lines, 1))


def kinds(found: object) -> set[str]:
    return {f.kind for f in found}  # type: ignore[attr-defined]


def test_answers_that_all_end_at_the_limit() -> None:
    row = "{'loss': 0.0, 'grad_norm': 0.0, 'completions/mean_length': 128.0, 'completions/clipped_ratio': %s, 'reward': 0.0, 'reward_std': 0.0}"
    cut = find_rewards(numbered([row % 1.0] * 6), "log.txt")
    whole = find_rewards(numbered([row % 0.1] * 6), "log.txt")
    assert "cut off at the length limit of 128" in cut[0].title
    assert "cut off" not in whole[0].title


def dpo(chosen: list[float], accuracy: list[float]) -> list[str]:
    return [
        f"{{'loss': {0.69 - 0.1 * i}, 'rewards/chosen': {c}, 'rewards/rejected': {1.5 * c}, 'rewards/accuracies': 0.9, 'rewards/margins': {-0.5 * c}, "
        f"'logps/chosen': {-60 + 10 * c}, 'mean_token_accuracy': {a}}}"
        for i, (c, a) in enumerate(zip(chosen, accuracy, strict=True))
    ]


def test_chosen_answers_unlearned() -> None:
    lost = dpo([-0.1, -1.0, -5.0, -20.0, -40.0, -60.0], [0.5, 0.45, 0.3, 0.2, 0.05, 0.01])
    usual = dpo([-0.1, -0.3, -0.5, -0.8, -1.0, -1.2], [0.5, 0.5, 0.49, 0.49, 0.48, 0.48])
    assert kinds(find_preferences(numbered(lost), "log.txt")) == {"metrics.preference_lost"}
    assert "metrics.preference_lost" not in kinds(find_preferences(numbered(usual), "log.txt"))


def rounds(jump: float) -> list[str]:
    out = []
    for part in range(3):
        out += [
            f"step {1000 * part + 10 * i} loss {0.2 - 0.004 * i + jump:.4f}" for i in range(1, 8)
        ]
        out.append("***** Running Evaluation *****")
        out.append(f"{{'eval_loss': {0.4 - 0.01 * part}}}")
    return [*out, f"step 3010 loss {0.196 + jump:.4f}"]


def test_loss_after_evaluations() -> None:
    assert "metrics.loss_after_evaluation" in kinds(find_steps(numbered(rounds(0.02)), "log.txt"))
    falling = [
        line
        for part in range(3)
        for line in (
            *(
                f"step {1000 * part + 10 * i} loss {2 - 0.1 * part - 0.01 * i:.4f}"
                for i in range(1, 8)
            ),
            "***** Running Evaluation *****",
        )
    ]
    assert "metrics.loss_after_evaluation" not in kinds(find_steps(numbered(falling), "log.txt"))


def test_first_update_that_replaces_the_weights() -> None:
    rows = [f"iteration {i} | lm loss: {v} | learning rate: {i}E-09" for i, v in enumerate([2.3, 11.0, 11.1, 11.0, 11.05, 11.02], 1)]  # fmt: skip
    assert "metrics.weights_overwritten" in kinds(find_steps(numbered(rows), "log.txt"))
    fast = [r.replace("E-09", "E-04") for r in rows]
    assert "metrics.weights_overwritten" not in kinds(find_steps(numbered(fast), "log.txt"))


DONE = [
    "Found checkpoint: /ckpt/global_step_40",
    "Resuming from /ckpt/global_step_40",
    "Training Progress:  50%|#####     | 40/80 [00:00<?, ?it/s]",
]


def test_resume_without_a_step(workspace: Workspace) -> None:
    def verdict(*more: str) -> dict[str, object]:
        return workspace.diagnose_text(
            "log.txt", ("\n".join([*DONE, *more]) + "\n").encode()
        ).to_json()

    end = "wandb: Synced 5 W&B file(s), 0 media file(s)"
    assert verdict(end)["category"] == "checkpoint"
    assert verdict("step:41 - loss:0.3", "step:42 - loss:0.3", end)["category"] != "checkpoint"
    assert (
        verdict("Training Progress: 100%|##| 80/80 [09:00<00:00, 1.2s/it]", end)["category"]
        != "checkpoint"
    )


LEVELS = ["[rank0] epoch 1 iter 900/1000 loss 3.2 mem_allocated 20.1 GiB"] * 2
OOM = (
    "[rank0]: RuntimeError: CUDA out of memory. Tried to allocate 1.10 GiB (GPU 0; 23.7 GiB total capacity; "
    "22.9 GiB already allocated; 0.3 GiB free; 23.0 GiB reserved in total by PyTorch)"
)


def test_memory_that_a_save_left(workspace: Workspace) -> None:
    def cause(between: str) -> str:
        lines = [
            *LEVELS,
            between,
            "[rank0] epoch 2 iter 0/1000 loss 3.1 mem_allocated 22.6 GiB",
            OOM,
        ]
        return str(
            workspace.diagnose_text("log.txt", ("\n".join(lines) + "\n").encode()).to_json()[
                "root_cause"
            ]
        )

    assert "across the save of a checkpoint" in cause("[rank0] saved checkpoint epoch_1.pt")
    assert "stepped up" not in cause("[rank0] next epoch")


def test_deleted_before_it_was_wanted(workspace: Workspace) -> None:
    lines = [
        "Deleting older checkpoint [out/checkpoint-12] due to args.save_total_limit",
        "ValueError: Can't find a valid checkpoint at out/checkpoint-12",
    ]
    told = workspace.diagnose_text("log.txt", ("\n".join(lines) + "\n").encode()).to_json()
    assert "was deleted earlier in this run" in str(told["root_cause"])
