"""What is complained of is looked at itself: fine makes the answer calm, not fine makes it a finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace

NOISY = [0.61, 0.44, 0.55, 0.31, 0.47, 0.28, 0.39, 0.22, 0.34, 0.19, 0.29, 0.17, 0.26]
RISES = [0.61, 0.44, 0.55, 0.31, 0.47, 0.58, 0.69, 0.72, 0.84, 0.79, 0.89, 0.97, 0.96]
SETTLES = [6.1, 9.8, 13.1, 15.9, 17.8, 18.4, 18.5, 18.5, 18.5, 18.5, 18.5, 18.5]
POLICY = "{{'loss': {loss}, 'reward': {reward}, 'kl': {kl}, 'grad_norm': 0.4, 'epoch': {epoch}}}\n"
BAR = "Running tokenizer on dataset (num_proc=8):  {percent}%|#   | {done}/4000 [0{minute}:10<10:00, 9.0 examples/s]\n"


def losses(values: list[float]) -> str:
    return "".join(f"iter {n * 100} loss: {v:.4f}\n" for n, v in enumerate(values, start=1))


def memory(values: list[float]) -> str:
    return "".join(f"iter {n * 100} loss 0.{90 - n} rss {v} GB\n" for n, v in enumerate(values, 1))


def policy(last: float) -> str:
    rows = [(0.0004 * n, 1.0 + (last - 1.0) * n / 9, 0.01 * n) for n in range(10)]
    return "".join(
        POLICY.format(loss=round(a, 5), reward=round(b, 3), kl=round(c, 3), epoch=i / 10)
        for i, (a, b, c) in enumerate(rows)
    )


def bars(places: list[int]) -> str:
    return "".join(BAR.format(percent=p, done=p * 40, minute=i) for i, p in enumerate(places))


ESTIMATES = ["41 days, 3:22:10", "2:36:41", "1:31:05", "1:25:33", "1:23:12"]


def estimates(told: list[str]) -> str:
    return "".join(f"updates[{n * 500}] train loss[{1.1 - n / 10:.3f}] remaining[{t}]\n" for n, t in enumerate(told))  # fmt: skip


def clock(values: list[float]) -> str:
    return "".join(f"Epoch #{n} at {v}s, lr=1.00e-04\n" for n, v in enumerate(values, start=1))


def speeds(values: list[float], above: str = "") -> str:
    return above + "".join(
        f"Epoch[0] Batch [{10 * n}]\tSpeed: {v:.2f} samples/sec\tloss=2.{99 - n}\n"
        for n, v in enumerate(values, 1)
    )


STEADY = [353.1, 352.9, 354.0, 353.6, 352.2, 353.3, 353.0]
TRIES = "cudnn_algoreg-inl.h:65: Running performance tests to find the best convolution algorithm\n"


def queue(rates: list[float], sizes: list[int]) -> str:
    rows = zip(rates, sizes, strict=True)
    return "".join(
        f"Processing ({n}00) Loss 2.{n} - {r} Hz Q:({q}/10)\n" for n, (r, q) in enumerate(rows, 1)
    )


def evaluation(differ: bool) -> str:
    return "".join(
        f"[rank{r}] Test: [{n}/62] Loss 2.1{r if differ else 0} Acc@1 31.25\n"
        for n in (0, 60)
        for r in (0, 1)
    ) + "".join(f"[rank{r}] step {n} loss 2.{9 - n}{r}1\n" for n in (1, 2, 3, 4) for r in (0, 1))


STARTED = "".join(f"step {n} loss {6 - n / 10:.2f} 0.41 s\n" for n in range(1, 9))
WARNED = "/opt/site-packages/foo/graph.py:7: UserWarning: Frobnication plan rejected, using the fallback plan\n"


@pytest.mark.parametrize(
    ("log", "question", "verdict", "words"),
    [
        (losses(NOISY), "The loss keeps going up and down. What is wrong?", "healthy", "trend falls"),
        (losses(RISES), "The loss keeps going up and down. What is wrong?", None, None),
        (memory(SETTLES), "RAM increases at the start of the training. Is there a memory leak?", "healthy", "is level since"),
        (policy(1.9), "The loss rises instead of falling. Is GRPO broken?", "healthy", "reward rises"),
        (policy(0.4), "The loss rises instead of falling. Is GRPO broken?", None, None),
        (policy(1.9), "The loss is about zero and sometimes negative. Model is not training at all, or?", "healthy", "reward rises"),
        (policy(0.4), "The loss is about zero and sometimes negative. Model is not training at all, or?", None, None),
        (bars([1, 10, 25, 50]), "It seems stuck at the tokenizing. Is it hanging?", "healthy", "not stuck"),
        (bars([0]), "It hangs at tokenizing.", "warning", "stands at 0 of 4000"),
        (estimates(ESTIMATES), "It says 41 days remaining! Why so slow?", "healthy", "first estimate"),
        (clock([81.6, 163.1, 244.6, 326.2, 407.9, 489.3]), "Each epoch takes longer than the previous. A leak?", "healthy", "total since the start"),
        (speeds([61.2, 336.2, *STEADY], TRIES), "The first batches run at 61 samples/s. A slow data loader?", "healthy", "find the best convolution"),
        (speeds([61.2, *STEADY]), "Why is training so slow at the start?", "healthy", "normal warm-up"),
        (speeds(STEADY), "Why is training so slow at the start?", None, None),
        (speeds([610.0, *STEADY]), "The speed drops after the first print. Is something wrong?", "healthy", "only the first of 8 readings is faster"),
        (queue([311, 309, 312, 8.5, 8.4, 8.6], [10, 10, 10, 0, 0, 0]), "Training slows down after a while.", "warning", "queue of prepared batches is empty"),
        (queue([311, 309, 312, 8.5, 8.4, 8.6], [10, 10, 10, 9, 10, 8]), "Training slows down after a while.", "warning", "the speed fell from 311 to 8.5"),
        (queue([90, 71, 55, 43, 34, 26], [9, 9, 9, 9, 9, 9]), "Each epoch is slower than the one before.", "warning", "slower and slower, from 90 to 26"),
        (queue([90, 91, 90, 89, 91, 90], [9, 9, 9, 9, 9, 9]), "Each epoch is slower than the one before.", None, None),
        (speeds([61.2, 353.0, 61.0, 352.0, 60.0, 354.0, 61.0, 355.0, 62.0]), "The first batches run at 61 samples/s, why so slow?", None, None),
        (clock([81.6, 93.1, 107.6, 126.2, 147.9, 179.3]), "Each epoch takes longer than the previous. A leak?", "warning", "longer and longer"),
        (evaluation(differ=False), "The test loss is exactly the same on both ranks. Why?", "healthy", "every rank evaluates"),
        (STARTED.replace("step 2 ", WARNED + "step 2 "), "What does 'Frobnication plan rejected' mean, is the fallback plan slow?", "healthy", "only a warning"),
        (STARTED + WARNED, "What does 'Frobnication plan rejected' mean, is the fallback plan slow?", None, None),
        (estimates(ESTIMATES[::-1]), "It says 41 days remaining! Why so slow?", None, None),
    ],
)  # fmt: skip
def test_the_quantity_decides(
    tmp_path: Path, log: str, question: str, verdict: str | None, words: str | None
) -> None:
    path = tmp_path / "run.log"
    path.write_text(log)
    told = Workspace().diagnose_paths([path], question)
    if verdict is None:
        assert not (told.signature or "").startswith("question.") or told.verdict != "healthy"
        assert not any(w in told.root_cause for w in ("trend falls", "only a warning"))
        return
    assert told.verdict.value == verdict
    assert words is not None
    assert words in told.root_cause
