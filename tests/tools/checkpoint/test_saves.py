"""Lines about checkpoints are told apart, and only a whole one is offered to resume from."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.checkpoint.saves import SaveState, read_checkpoints, read_event

ROWS = [
    ("saving checkpoint at iteration    2100 to /ckpt/p in torch_dist format", SaveState.BEGUN, 2100),
    ("  successfully saved checkpoint from iteration    2100 to /ckpt/p [ t 1/8, p 1/2 ]", SaveState.SAVED, 2100),
    ("[titan] 2026-02-17 03:39:31,450 - root - INFO - Saving the checkpoint (or staging if async is enabled) step-9250.", SaveState.BEGUN, 9250),
    ("[titan] INFO - Finished staging step-9250 in 3.4 seconds, upload running in background.", SaveState.BEGUN, 9250),
    ("[titan] INFO - Async checkpoint upload of step-9000 completed in 96.2 seconds.", SaveState.SAVED, 9000),
    ("[rank9]: RuntimeError: async checkpoint future for step-9250 failed: cancelled", SaveState.FAILED, 9250),
    ("WARNING - /lus/ckpt/tt8b/step-9250 has no .metadata, skipping", SaveState.REFUSED, 9250),
    ("Loading the checkpoint from /lus/ckpt/tt8b/step-9000.", SaveState.LOADED, 9000),
    ("[rank0] 2026-04-09 13:20:31 saved checkpoint step=1100", SaveState.SAVED, 1100),
    ("2026-05-06 01:37:51 dgx-11 [rank0] checkpoint: wrote /ckpt/moe/step-60000 (async, 42 s)", SaveState.SAVED, 60000),
    ("Saving model checkpoint to /out/checkpoint-500", SaveState.BEGUN, 500),
    ("[Torch] Saved out/global_step500/zero_pp_rank_0_mp_rank_00_model_states.pt.", SaveState.BEGUN, 500),
    ("[rank0] step_017000: 32/32 shards written, .metadata written, 182.4 GB in 45.1 s", SaveState.SAVED, 17000),
    ("[rank0] checkpoint step 200 saved: 8/8 shards + .metadata, 96.4 GB, 42.6 s", SaveState.SAVED, 200),
    ("[rank0] checkpoint step 12000 complete (async flush finished)", SaveState.SAVED, 12000),
    ("[rank0]: FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/step_018000/.metadata'", SaveState.REFUSED, 18000),
    ("[rank0] CheckpointingException: /lus/moe/iter_0043000 is not a distributed checkpoint: metadata.json not found", SaveState.REFUSED, 43000),
    ("Configuration saved in out/checkpoint-500/config.json", SaveState.BEGUN, 500),
]  # fmt: skip


@each_row(("text", "state", "step"), ROWS)
def test_a_line_about_a_checkpoint(text: str, state: SaveState, step: int) -> None:
    event = read_event("a.log", 1, text)
    assert event is not None
    assert (event.state, event.step) == (state, step)


@each_row(
    "text",
    [
        "supervisor: job sft-32b FAILED, auto_restart=off, checkpoint latest=global_step100",
        "Loading checkpoint shards: 100%|##########| 4/4 [00:11<00:00,  2.81s/it]",
        '  File "/opt/trainer.py", line 12, in save_checkpoint',
        "[rank0]:     trainer.train(resume_from_checkpoint=True)",
        "step 4000 loss 2.1",
        "job Failed: backoffLimit exceeded (3 restarts). last good checkpoint: iteration 20250.",
    ],
)
def test_what_tells_of_none(text: str) -> None:
    assert read_event("a.log", 1, text) is None


def _read(*texts: str, steps: tuple[int, ...] = ()) -> object:
    lines = [("a.log", n, t, None) for n, t in enumerate(texts, 1)]
    found = read_checkpoints(lines, [("a.log", 100 + s, s) for s in steps])
    best, torn = found.usable(), found.unusable()
    return (best.step if best else None, torn.step if torn else None)


@each_row(
    ("texts", "steps", "expected"),
    [
        (("saved checkpoint step_100", "saved checkpoint step_200"), (), (200, None)),
        (("saved checkpoint step_100", "saving checkpoint step_200"), (), (100, 200)),
        (("saved checkpoint step_100", "saving checkpoint step_200"), (210,), (200, None)),
        (("saved checkpoint step_100", "saving checkpoint step_200 (async)"), (210,), (100, 200)),
        (("saved checkpoint step_100", "saved checkpoint step_200", "ckpt step_200 is corrupt"), (), (100, 200)),
        (("step 400: consolidating state for full checkpoint", "full checkpoint: 44 of 126 tensors written"), (), (None, 400)),
    ],
)  # fmt: skip
def test_only_a_whole_one_is_usable(
    texts: tuple[str, ...], steps: tuple[int, ...], expected: object
) -> None:
    assert _read(*texts, steps=steps) == expected


def test_what_a_limit_leaves_and_what_was_deleted_is_read() -> None:
    lines = [
        ("a.log", 1, "saved checkpoint at step 24000 to /ckpt/h", None),
        ("a.log", 2, "saved checkpoint at step 25000 to /ckpt/h", None),
        ("a.log", 3, "saved checkpoint from iteration 26000 to /ckpt/h (keep last 2: 25000, 26000)", None),
        ("a.log", 4, "saved checkpoint at step 27000 to /ckpt/h", None),
    ]  # fmt: skip
    found = read_checkpoints(lines)
    assert found.kept == (25000, 26000)
    assert found.usable(24910) is None
    newest = found.usable()
    assert newest is not None
    assert newest.step == 27000
    gone = "Deleting older checkpoint [out/checkpoint-25000] due to args.save_total_limit"
    left = read_checkpoints([*lines[:2], ("a.log", 3, gone, None)])
    older = left.usable()
    assert left.deleted == {25000}
    assert older is not None
    assert older.step == 24000
    assert read_checkpoints(lines[:2]).kept == ()
