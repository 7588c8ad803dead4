"""Is a step that is done otherwise on each scheduler given for that of the job alone?"""

from __future__ import annotations

from tests.rows import each_row

from firstfault.investigation.scheduler import find_schedulers, keep_lines, suits

DRAIN = 'scontrol update NodeName=n1 State=DRAIN Reason="x"'
BOTH = f"{DRAIN}\nkubectl cordon n1"


@each_row(
    ("text", "shown"),
    [
        ("slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-10-08 ***", ("slurm",)),
        ("srun: error: n1: task 3: Killed", ("slurm",)),
        ("SLURM_JOB_ID=17", ("slurm",)),
        ("JobID           State ExitCode", ("slurm",)),
        ("logs/slurm-4711.out", ("slurm",)),
        ("$ kubectl get pods", ("kubernetes",)),
        ("    Last State:     Terminated", ("kubernetes",)),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/kubepods/burstable/x", ("kubernetes",)),
        ("$ squeue -j 3\n$ kubectl get pods", ("kubernetes", "slurm")),
        ("rank 3 on n1 died", ()),
    ],
)
def test_lines_show_what_the_job_runs_on(text: str, shown: tuple[str, ...]) -> None:
    assert find_schedulers(text) == shown


@each_row(
    ("command", "runs_on", "kept"),
    [
        (BOTH, ("slurm",), DRAIN),
        (BOTH, ("kubernetes",), "kubectl cordon n1"),
        (BOTH, (), f"# Slurm\n{DRAIN}\n# Kubernetes\nkubectl cordon n1"),
        ("dmesg -T", ("slurm",), "dmesg -T"),
        ("tail a.log; sacct -j 1; kubectl get pod p", ("slurm",), "tail a.log\nsacct -j 1"),
        ("kubectl cordon n1", ("slurm",), ""),
    ],
)
def test_a_command_keeps_the_lines_for_its_scheduler(
    command: str, runs_on: tuple[str, ...], kept: str
) -> None:
    once = keep_lines(command, runs_on)
    assert once == kept
    assert keep_lines(once, runs_on) == kept


def test_words_of_another_scheduler_are_no_advice() -> None:
    assert suits("raise the memory limit of the pod", ())
    assert suits("raise the memory limit of the pod", ("kubernetes",))
    assert not suits("raise the memory limit of the pod", ("slurm",))
    assert not suits("ask for it with `#SBATCH --mem`", ("kubernetes",))
