"""What an exception's words are about; words of code stay a bug of the code."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.causality.message_words import read_category


@each_row(
    ("message", "category"),
    [
        ("worker could not allocate 3.2 GiB for the optimizer", "oom"),
        ("allocation of 81920 bytes of pinned memory failed", "oom"),
        ("accelerator 5 hung and needs a reset", "hardware"),
        ("HBM stack 2: uncorrectable error", "hardware"),
        ("blob service answered: response code 403", "environment"),
        ("the session token has expired, run the login again", "environment"),
        ("svc-train does not have s3:GetObject access", "environment"),
        ("driver 470.57 is too old for this build", "environment"),
        ("this kernel requires torch>=2.8", "environment"),
        ("FP8 kernels are only supported on Hopper and newer", "environment"),
        ("wall clock limit reached, no time for another epoch", "scheduler"),
        ("trial was preempted by a job of higher priority", "scheduler"),
        ("not enough GPUs: 16 asked for, 8 there", "scheduler"),
        ("snapshot 1200 is incomplete", "checkpoint"),
        ("failed to restore the state_dict from step 900", "checkpoint"),
        ("logits overflow in layer 3", "numerical"),
        ("policy loss is inf", "numerical"),
        ("rank 12 did not respond to the barrier", "communication"),
        ("UCX remote operation failed", "communication"),
        ("missed 3 heartbeats, timed out", "communication"),
        ("shard 00017 is truncated at byte 900", "data"),
        ("ran out of batches before the other ranks", "data"),
        ("token id 151936 out of range", "data"),
        ("expected input batch_size (4) to match target batch_size (3)", None),
        ("mat1 and mat2 shapes cannot be multiplied (4x8 and 9x2)", None),
        ("num_heads must be divisible by tensor parallel size", None),
        ("unknown activation gelu_fast", None),
        ("gradient checkpointing is incompatible with this model", None),
        ("invalid value for argument lr", None),
        ("", None),
    ],
)  # fmt: skip
def test_words(message: str, category: str | None) -> None:
    found = read_category(message)
    assert (found.value if found is not None else None) == category
