"""Are memory, pace, resumes, several runs in one log and timers judged rightly?"""

import math

from evals.simulated_runs import judge_lines as judge
from evals.simulated_runs import megatron_line as megatron
from tests.rows import each_row

from firstfault_tools.findings import Category, Finding, Level

ALARMING = (Level.CAUSE, Level.FAILURE, Level.SYMPTOM)


def kinds(lines: list[str]) -> set[str]:
    return {f.kind.removeprefix("metrics.") for f in judge(lines)}


def alarms(lines: list[str]) -> list[str]:
    return [f.kind for f in judge(lines) if f.level in ALARMING]


@each_row("text", ["RAM: {p:.1f}%", "host_free: {f:.1f} GB", "rss {g:.2f}GB", "cpu_mem_gb={g:.2f}"])
def test_host_memory_in_its_spellings(text: str) -> None:
    lines = [
        f"step {s * 10} | loss {2 - s / 100:.4f} | "
        + text.format(p=20 + s * 1.5, f=400 - 6 * s, g=30 + 5 * s)
        for s in range(40)
    ]
    found = [f for f in judge(lines) if f.kind == "metrics.host_memory_growth"]
    assert [f.category for f in found] == [Category.OOM]


def test_cache_that_fills_up_is_no_leak() -> None:
    lines = [
        f"step {s} | loss 2.0 | RAM used: {60 + 80 * (1 - math.exp(-s / 8)):.2f} GB / 512 GB"
        for s in range(80)
    ]
    assert not alarms(lines)


def test_gpu_staircase_is_told_from_a_slope() -> None:
    def grow(size: int) -> Finding:
        lines = [
            f"step {s} | loss 2.0 | mem-allocated-gb: {20 + 0.02 * (s // size * size):.3f}"
            for s in range(400)
        ]
        return next(f for f in judge(lines) if f.kind == "metrics.gpu_memory_growth")

    assert grow(1).facts["shape"] == "slope"
    assert grow(50).facts["shape"] == "staircase"


def test_batch_ramp_is_meant() -> None:
    lines = [
        megatron(s, 2.0)
        .replace("batch size:   64", f"batch size:   {64 if s < 60 else 128}")
        .replace("(ms): 1000.0", f"(ms): {1000.0 if s < 60 else 1900.0}")
        for s in range(120)
    ]
    assert not alarms(lines)
    assert "step_load_changed" in kinds(lines)


def test_resume_seam_is_context_and_its_loss_jump_is_not() -> None:
    def run(extra: float) -> list[str]:
        lines = [megatron(s, 3.0 - s / 500 + (s % 3) / 100) for s in range(100, 200)]
        return lines + [megatron(s, 3.0 - s / 500 + (s % 3) / 100 + extra) for s in range(150, 250)]

    assert not alarms(run(0.0))
    assert "resume_seam" in kinds(run(0.0))
    assert "metrics.resume_loss_jump" in alarms(run(0.8))


def test_fresh_start_without_a_checkpoint_is_healthy() -> None:
    lines = [
        "WARNING: could not find the metadata file /c/latest_checkpointed_iteration.txt",
        "    will not load any checkpoints and will start from random",
        *[megatron(s, 10.5 - s / 50) for s in range(1, 40)],
    ]
    assert not alarms(lines)


def test_peak_memory_that_creeps_on_a_full_card() -> None:
    lines = [
        f"[step {s}] loss=2.5 | gpu/peak_gb={78.4 + max(0, s - 800) / 1700:.2f}"
        for s in range(50, 3000, 50)
    ]
    assert "metrics.gpu_memory_growth" in alarms(lines)


def test_clock_that_falls_with_the_throughput_is_hardware() -> None:
    lines = [
        f"step {s} | loss 2.0 | step_time {400 if s < 60 else 640}ms | sm_clock={1980 if s < 60 else 1230} | "
        f"gpu_temp={64 if s < 60 else 89}"
        for s in range(120)
    ]
    found = next(f for f in judge(lines) if f.kind == "metrics.throughput_drop")
    assert found.category is Category.HARDWARE
    assert "1980 to 1230" in found.title


def test_each_rank_of_a_host_leak() -> None:
    lines = [
        f"[rank{r}] step {s * 100} loss 2.5 host_rss_gb={30 + (4.1 * s if r == 3 else 0.02 * s):.2f}"
        for s in range(30)
        for r in range(4)
    ]
    found = next(f for f in judge(lines) if f.kind == "metrics.host_memory_growth")
    assert found.rank == 3


def test_trials_of_a_sweep_are_judged_one_by_one() -> None:
    def trial(ms: int, top: float) -> list[str]:
        return [
            f"step {s} | loss {top - s / 20:.3f} | lr 1e-4 | step_time {ms + s % 3}ms"
            for s in range(80)
        ]

    assert not alarms(trial(400, 6.0) + trial(700, 9.0) + trial(400, 9.0)[:30])
    sick = [f"step {s} | loss {2.0 if s < 40 else 9.0} | lr 1e-1" for s in range(80)]
    assert alarms(trial(400, 6.0) + sick) == ["metrics.divergence"]


def test_restart_from_nothing_within_a_log_where_a_resume_was_asked() -> None:
    lines = [megatron(s, 10.0 - s / 20) for s in range(1, 120)]
    lines += ["resume_from_checkpoint: latest", "No checkpoint found, starting from scratch"]
    lines += [megatron(s, 10.0 - s / 20) for s in range(1, 40)]
    assert alarms(lines) == ["metrics.restarted_from_scratch"]
    assert not alarms([line for line in lines if "iteration" in line])


def test_wait_at_the_start_of_each_epoch_is_context() -> None:
    lines = [
        f"Epoch: [{i // 20}][{i % 20:3d}/20] Time {0.3 if i % 20 else 2.1:.3f} Data {0.03 if i % 20 else 1.8:.3f} "
        f"Loss {3 - i / 100:.4f}"
        for i in range(100)
    ]
    assert not alarms(lines)
    assert "epoch_start_wait" in kinds(lines)


def timed(data: float, recv: float, spread: bool) -> list[str]:
    lines = []
    for s in range(1, 12):
        lines.append(megatron(s, 9 - s / 20))
        timers = {
            "forward-compute": 400.0,
            "backward-compute": 800.0,
            "forward-recv": recv,
            "batch-generator": data,
            "all-grads-sync": 30.0,
        }
        if spread:
            lines.append("(min, max) time across ranks (ms):")
            lines += [f"    {n} {'.' * 20}: ({v / 2:.2f}, {v:.2f})" for n, v in timers.items()]
        else:
            lines.append("time (ms) | " + " | ".join(f"{n}: {v:.2f}" for n, v in timers.items()))
    return lines


@each_row("spread", [True, False])
def test_timers_tell_data_from_waiting_for_a_neighbour(spread: bool) -> None:
    assert "metrics.dataloader_stall" in alarms(timed(900.0, 20.0, spread))
    assert "pipeline_wait" in kinds(timed(2.0, 700.0, spread))
    assert not alarms(timed(2.0, 700.0, spread))
    assert not kinds(timed(2.0, 20.0, spread))


def waits(every: int, above: str) -> list[str]:
    lines = [above]
    for s in range(1, 8):
        for step in range(s * every - 2, s * every + 3):
            data = 20.1 if step == s * every else 0.06
            lines.append(
                f"Iter [{step}/9000]\tlr: 1.0e-03, time: {data + 0.5:.3f}, data_time: {data:.3f}, memory: 3642, loss: 2.1"
            )
    return lines


@each_row(
    ("every", "above", "said"),
    [
        (94, "94 iters per epoch", "the length of an epoch"),
        (94, "start", "as at the borders of epochs"),
        (12, "steps_per_epoch: 12", "the length of an epoch"),
        (12, "num_workers=12", "num_workers"),
    ],
)
def test_waits_at_the_borders_of_epochs(every: int, above: str, said: str) -> None:
    (found,) = [f for f in judge(waits(every, above)) if f.kind == "metrics.dataloader_stall"]
    assert said in found.title
    assert ("persistent_workers" in found.title) is ("epoch" in said)
