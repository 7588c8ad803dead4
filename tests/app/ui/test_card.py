"""Is the card one plain sentence with its facts and one thing to do, on page and terminal alike?"""

from __future__ import annotations

import io
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from evals.cases import find_case, load_case
from rich.console import Console
from tests.rows import each_row

from firstfault.investigation.begin import time_of_fault
from firstfault.investigation.diagnosis import (
    Diagnosis,
    FirstLine,
    InputReceipt,
    NextArtefact,
    Struck,
)
from firstfault.investigation.headline import MOST_PLAIN, STRETCH, say_plainly
from firstfault.investigation.next_action import ActionKind, choose_action, take_first
from firstfault.ui.card import (
    LONGEST_LINE,
    make_card,
    say_where,
)
from firstfault.ui.details import order_events, write_chain
from firstfault.ui.extent import say_lost
from firstfault.ui.phases import say_phases, write_opened
from firstfault.ui.terminal import render, write_rows
from firstfault.ui.verdict_card import write_verdict
from firstfault.ui.words import HEALTHY_CERTAINTY
from firstfault.workspace import Workspace
from firstfault_tools.findings import Category, Confidence, Verdict

WORKSPACE = Workspace()
EIGHT = "public-comm-27-per-rank-continue-skips-backward"


@pytest.fixture(scope="module")
def eight() -> Diagnosis:
    return WORKSPACE.diagnose_paths([find_case(EIGHT) / "log.txt"])


@pytest.mark.parametrize(
    ("rank", "host", "cause", "headline", "detail"),
    [
        (11, "gpu-a17", "the handle of shard-00918.tar on NFS went stale", "Rank 11 on gpu-a17: the handle of shard-00918.tar on NFS went stale", ""),
        (11, "gpu-a17", "Rank 11 never came", "Rank 11 never came", ""),
        (None, "n4", "the power limit is 400 W.", "On n4: the power limit is 400 W", ""),
        (None, "localhost", "mlx5_0 is down", "mlx5_0 is down", ""),
        (None, None, "Not decided: it ended; what would decide it: dmesg", "It ended", ""),
        (3, None, "x" * 40 + " y; " + "z" * 90, "Rank 3: " + "x" * 40 + " y", "Z" + "z" * 89),
        # the host of the place is not said again, and what the line says stands with the evidence
        (None, "gpu-a17", "the link of mlx5_3 went down (host gpu-a17)", "On gpu-a17: the link of mlx5_3 went down", ""),
        (None, None, "the token expired; the line says: ExpiredToken; together with it: The save failed", "The token expired", "Also seen: the save failed"),
        # a quotation is not cut, nor an exception within its message
        (6, None, "Rank 6 has 'clip INFO node_split: 25 shards of all the shards that there are', the other ranks have '26 shards': its loader ends earlier than theirs",
            "Rank 6 has 'clip INFO node_split: 25 shards of all the shards that there are', the other ranks have '26 shards'", "Its loader ends earlier than theirs"),
        (8, None, "PipeliningShapeError: Stage 1 forward inputs: expected [1, 8192, 4096] but actual [1, 5376, 4096], raised in validate (utils.py:71), called by main",
            "Rank 8: PipeliningShapeError: Stage 1 forward inputs: expected [1, 8192, 4096] but actual [1, 5376, 4096]", "Raised in validate (utils.py:71), called by main"),
    ],
)  # fmt: skip
def test_the_headline_is_place_and_cause(
    eight: Diagnosis, rank: int | None, host: str | None, cause: str, headline: str, detail: str
) -> None:
    told = replace(eight, first_failing_rank=rank, host=host, root_cause=cause)
    assert say_plainly(told) == (headline, detail)


@each_row("case", [EIGHT, "lab-oom_one_rank", "hw-xid79-off-bus", "mem-last-stage-logits", "lab-healthy"])  # fmt: skip
def test_a_headline_is_short_and_nothing_of_the_cause_is_lost(case: str) -> None:
    folder = find_case(case)
    files = [p for p in folder.iterdir() if p.name != "case.yaml"]
    diagnosis = WORKSPACE.diagnose_paths(files)
    card = make_card(diagnosis, WORKSPACE.knowledge.pages)
    assert len(card.headline) <= MOST_PLAIN + STRETCH + 40
    assert not card.headline.endswith((".", ";", ":"))
    # what the deciding line says stands with the evidence, and the host in the place
    line = diagnosis.first_line.text if diagnosis.first_line is not None else ""
    shown = f"{card.headline} {card.detail} {line} together with it the line says host".lower()
    lost = [
        w
        for w in re.findall(r"[\w./-]{2,}", diagnosis.root_cause.lower())
        if w.strip(".") not in shown
    ]
    assert not lost
    assert (card.action is None) is (diagnosis.verdict is Verdict.HEALTHY)


def test_in_80_columns_every_line_is_quoted_once_and_the_cause_said_once(eight: Diagnosis) -> None:
    out = io.StringIO()
    render(
        eight,
        Console(file=out, width=80, highlight=False, soft_wrap=False),
        WORKSPACE.knowledge.pages,
    )
    flat = " ".join(out.getvalue().replace("│", " ").split())
    card = make_card(eight, WORKSPACE.knowledge.pages)
    assert flat.count(card.headline) == 1
    assert flat.count("skipping batch 14743") <= 2  # the line, and a rival that quotes its words
    assert card.action is not None
    assert flat.index("Rank 5 skipped a batch") < flat.index(card.action.title)
    assert flat.index(card.action.title) < flat.index("Evidence")
    assert max(len(row) for row in out.getvalue().splitlines() if not row.startswith("    ")) <= 80


def receipt(eight: Diagnosis, **changes: object) -> InputReceipt:
    return replace(eight.input, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("world", "until", "category", "said"),
    [
        (16, "2026-06-08T20:40:06Z", Category.COMMUNICATION, "16.0 GPU-hours to the last line (16 GPUs, one a rank)"),
        (None, "2026-06-08T19:50:06Z", Category.COMMUNICATION, "at least 1.3 GPU-hours to the last line (8 GPUs, one a rank seen)"),
        (16, "2026-06-08T19:40:07Z", Category.OOM, "16 GPU-hours an hour (while it stays down; 16 GPUs, one a rank)"),
        (16, "2026-06-08T20:40:06Z", Category.PERFORMANCE, ""),
    ],
)  # fmt: skip
def test_idle_time_names_what_it_assumes(
    eight: Diagnosis, world: int | None, until: str, category: Category, said: str
) -> None:
    span = ("2026-06-08T19:40:01Z", until)
    told = replace(
        eight,
        category=category,
        input=receipt(eight, world_size=world, time_range=span),
        extent=None,
    )
    at, about = time_of_fault(told)
    assert not about
    name, value = say_lost(told, at)
    assert value == said
    assert name == ("Idle costs" if "an hour" in said else "Idle so far")


def test_what_is_confirmed_is_mended_and_what_is_likely_is_checked(eight: Diagnosis) -> None:
    pages = WORKSPACE.knowledge.pages
    sure = make_card(replace(eight, confidence=Confidence.CONFIRMED), pages).action
    of_class = tuple(replace(fix, own=False) for fix in eight.fixes)
    unsure = replace(eight, confidence=Confidence.LIKELY, fixes=of_class)
    likely = make_card(unsure, pages).action
    open_ = make_card(replace(unsure, confidence=Confidence.POSSIBLE), pages).action
    of_mechanism = make_card(replace(eight, confidence=Confidence.POSSIBLE), pages).action
    assert sure is not None
    assert likely is not None
    assert open_ is not None
    assert (sure.what, sure.title) == (take_first(eight.fixes[0].text), "Do next")
    assert likely.kind is ActionKind.CHECK
    assert likely.command
    assert open_.command == eight.next_artefacts[0].command
    # what has a check of its own is checked by that before logs of any fault are collected
    assert of_mechanism is not None
    assert of_mechanism.supports_if
    assert of_mechanism.citations


def test_what_asks_for_more_of_everything_does_not_come_before_a_fix(eight: Diagnosis) -> None:
    """Logs of more ranks would be collected for any fault; what this fault's own signature asks for would not."""
    general = NextArtefact(
        "the logs of the ranks that are not here", "one may tell more", "torchrun --log-dir logs"
    )
    of_class = tuple(replace(fix, own=False) for fix in eight.fixes)
    likely = replace(eight, confidence=Confidence.LIKELY, next_artefacts=(general,), fixes=of_class)
    fix = choose_action(likely, {})
    own = replace(general, of_fault=True)
    check = choose_action(replace(likely, next_artefacts=(own,)), {})
    assert fix is not None
    assert (fix.title, fix.what) == ("Do next", take_first(likely.fixes[0].text))
    assert check is not None
    assert (check.title, check.then) == ("Check next", take_first(likely.fixes[0].text))


@each_row(
    ("case", "told"),
    [
        ("b2-oom-host-ram-every-rank-loads-full-model", "memory-mapped"),
        ("b5-oom-eager-attention-32k-context", "flash"),
        ("b12-comm-17-evicted-ephemeral-storage", "Evicted for storage"),
        ("b8-comm-10-worker-evicted-memory-pressure", "Evicted for memory"),
        ("b3-hardware-local-nvme-dropped", "/dev/nvme2"),
        ("ckpt-enospc-on-save", "du -xh --max-depth=1 /mnt/hdfs_cache"),
    ],
)
def test_the_next_thing_to_do_is_of_this_fault(case: str, told: str) -> None:
    action = make_card(
        WORKSPACE.diagnose_paths(load_case(find_case(case)).inputs), WORKSPACE.knowledge.pages
    ).action
    assert action is not None
    assert told in f"{action.what} {action.command}"
    # what is started again is named by no log of a fault
    assert {b.split(",")[0] for b in action.blanks} <= {"train.sbatch", "JOBID", "POD"}


def test_events_stand_in_order_of_time_with_their_silence(eight: Diagnosis) -> None:
    times = [at for at, _, _ in order_events(eight) if at is not None]
    assert times == sorted(times)
    places = [(link.file, link.line) for _, _, link in order_events(eight)]
    assert len(places) == len(set(places))
    shown = write_chain(eight)
    assert "of silence" in shown
    assert "19:40:06" in shown


def test_phases_open_into_their_reasons(eight: Diagnosis) -> None:
    shown = write_opened(eight.phases, eight)
    assert shown.count("<details") == 5
    for wanted in ("Question", "For", "Would change it", "Would separate them"):
        assert f"<dt>{wanted}</dt>" in shown, wanted
    for phase in shown.split("<details")[1:]:
        names = re.findall("<dt>(.*?)</dt>", phase)
        assert len(names) == len(set(names))
        assert "Would change it" in names
    healthy = replace(eight, verdict=Verdict.HEALTHY, disproof="", next_artefacts=())
    assert write_opened(healthy.phases, healthy).count("Would change it") >= 3
    assert "of 5 answered" in say_phases(eight.phases)


@pytest.mark.parametrize(
    ("rank", "host", "local", "gpu", "told"),
    [
        (11, "gpu-a17", 3, "3", "rank 11 on gpu-a17, GPU 3 (local rank 3)"),
        (11, None, None, None, "rank 11 (host not named in what was read)"),
        (None, "gpu-a17", None, None, "host gpu-a17"),
    ],
)  # fmt: skip
def test_what_is_not_known_of_the_place_is_said(
    eight: Diagnosis, rank: int | None, host: str | None, local: int | None, gpu: str | None, told: str
) -> None:  # fmt: skip
    assert (
        say_where(replace(eight, first_failing_rank=rank, host=host, local_rank=local, gpu=gpu))
        == told
    )


@pytest.mark.parametrize(
    ("rule", "category", "struck", "told"),
    [
        ("metrics.divergence", Category.NUMERICAL, Struck(ranks=(5,)), "the whole job (the step numbers"),
        ("slurm-time-limit", Category.SCHEDULER, Struck(), "the whole job (the scheduler"),
        ("slurm-credential-refused", Category.SCHEDULER, Struck(hosts=("cn133",)), "host cn133"),
        ("slurm.oom", Category.OOM, Struck(part="task 13 on c1-15"), "task 13 on c1-15"),
        ("disk-full", Category.ENVIRONMENT, Struck(), "the environment of the job"),
        ("driver-too-old", Category.ENVIRONMENT, Struck(hosts=("node07", "node11")), "hosts node07, node11"),
        ("driver-too-old", Category.ENVIRONMENT, Struck(ranks=(3, 4, 5)), "ranks 3-5 (no other rank reports it)"),
        ("memlock-limit", Category.ENVIRONMENT, Struck(reporters=("n3",)), "the environment of the job: image, packages, settings (reported on n3)"),
        ("collective.mismatch", Category.CODE_BUG, Struck(ranks=(0, 1)), "ranks 0, 1"),
        ("ddp-marked-ready-twice", Category.CODE_BUG, Struck(ranks=(0, 1)), "the whole job (all ranks run the same code)"),
        ("network.uneven_uplinks", Category.PERFORMANCE, Struck(part="switch leaf1"), "switch leaf1"),
    ],
)  # fmt: skip
def test_whom_a_fault_strikes_is_said_where_no_rank_is_named(
    eight: Diagnosis, rule: str, category: Category, struck: Struck, told: str
) -> None:
    nowhere = replace(
        eight, first_failing_rank=None, host=None, gpu=None, local_rank=None, citations=()
    )
    line = FirstLine("log.txt", 3, "something failed")
    found = replace(nowhere, signature=rule, category=category, struck=struck, first_line=line)
    assert say_where(found).startswith(told)


def test_ranks_that_raised_the_same_are_named_together(eight: Diagnosis) -> None:
    nowhere = replace(eight, first_failing_rank=None, host=None, gpu=None, local_rank=None)
    assert say_where(replace(nowhere, alike=tuple(range(16)))).startswith("ranks 0-15 alike")


def test_a_pod_is_not_called_a_host(eight: Diagnosis) -> None:
    pending = replace(
        eight, first_failing_rank=None, gpu=None, host="sft-worker-5", named={"pod": "sft-worker-5"}
    )
    assert say_where(pending).startswith("pod sft-worker-5")
    told = replace(pending, named={}, struck=Struck(pod="sft-worker-5"))
    assert say_where(told).startswith("pod sft-worker-5")


@pytest.mark.parametrize(
    ("words", "waited"),
    [
        ("Watchdog caught collective operation timeout: WorkNCCL(Timeout(ms)=600000) ran for 600034 milliseconds", 600.034),
        ("INFO: task python3:4711 blocked for more than 122 seconds.", 122.0),
        ("RuntimeError: CUDA out of memory", 0.0),
    ],
)  # fmt: skip
def test_a_fault_that_a_watchdog_reports_is_as_old_as_its_wait(
    eight: Diagnosis, words: str, waited: float
) -> None:
    line = FirstLine("log.txt", 3, f"2026-02-18 03:20:00 {words}")
    told = replace(eight, extent=None, first_line=line, input=receipt(eight, time_range=("2026-02-18T01:00:00Z", "2026-02-18T03:30:00Z")))  # fmt: skip
    at, about = time_of_fault(told)
    assert at is not None
    assert not about
    assert at + waited == pytest.approx(datetime(2026, 2, 18, 3, 20, tzinfo=UTC).timestamp())
    since = dict(make_card(told).facts)["Since"]
    assert ("later)" in since) is (waited > 0)


@pytest.mark.parametrize("mark", ["|", "   "])
def test_a_job_that_ended_is_as_old_as_its_end(eight: Diagnosis, mark: str) -> None:
    row = mark.join(
        ("90217", "CANCELLED", "2026-02-18T01:10:00", "2026-02-18T03:20:00", "02:10:00")
    )
    told = replace(
        eight, extent=None, signature="slurm.cancelled", first_line=FirstLine("sacct.txt", 2, row),
        input=receipt(eight, time_range=("2026-02-18T01:00:00Z", "2026-02-18T03:30:00Z")),
    )  # fmt: skip
    at, _ = time_of_fault(told)
    assert at == datetime(2026, 2, 18, 3, 20, tzinfo=UTC).timestamp()


def test_a_healthy_card_is_not_graded_and_asks_for_nothing(eight: Diagnosis) -> None:
    card = make_card(replace(eight, verdict=Verdict.HEALTHY, confidence=Confidence.LIKELY))
    assert (card.certainty, card.action) == (HEALTHY_CERTAINTY, None)


def test_the_card_answers_the_question_and_holds_the_deciding_line(eight: Diagnosis) -> None:
    card = make_card(eight, {}, "torchrun blames rank 1. Is GPU 1 broken?")
    assert card.answer.startswith("Not the GPU, by this evidence")
    assert "skipping batch 14743" in card.line
    assert make_card(eight, {}, "What happened?").answer == ""
    shown = write_verdict(eight, card)
    assert shown.index(card.answer[:20]) < shown.index("skipping batch 14743")
    rows = "\n".join(row.text for row in write_rows(eight, {}, "Is GPU 1 broken?"))
    assert rows.index("Not the GPU") < rows.index("skipping batch 14743")


@each_row(
    ("before", "deciding", "after"),
    [
        ("", "NumelIn=64 on rank 6", " and more" * 60),
        ("terminated with exception " * 20, "NumelIn=64 on rank 6", " and more" * 60),
        ("terminated with exception " * 20, "NumelIn=64 on rank 6", ""),
    ],
)
def test_of_a_long_line_that_part_is_shown_of_which_the_cause_is(
    before: str, deciding: str, after: str
) -> None:
    made = WORKSPACE.diagnose_paths([find_case(EIGHT) / "log.txt"])
    line = FirstLine("log.txt", 3, f"{before}{deciding}{after}")
    cause = "rank 6 sent NumelIn of 64 elements"
    card = make_card(replace(made, first_line=line, root_cause=cause), {})
    assert deciding in card.line
    assert card.line.endswith("…") is bool(after)
    assert card.line.startswith("…") is bool(before)
    assert len(card.line) <= LONGEST_LINE + 4


def test_where_the_scheduler_is_unknown_each_has_its_command(eight: Diagnosis) -> None:
    fix = replace(
        eight.fixes[0],
        own=True,
        command="# Slurm\nscontrol update NodeName=n1 State=DRAIN\nscontrol requeue JOBID\n# Kubernetes\nkubectl cordon n1\nkubectl delete pod POD",
    )
    told = replace(eight, confidence=Confidence.CONFIRMED, fixes=(fix,), schedulers=())
    action = choose_action(told, {})
    assert action is not None
    # what needs a name that nobody knows is left to the person
    assert action.choices == (
        ("Slurm", "scontrol update NodeName=n1 State=DRAIN"),
        ("Kubernetes", "kubectl cordon n1"),
    )
    assert action.blanks == ()
    rows = [row.text for row in write_rows(told, {})]
    assert rows.index("Slurm:") < rows.index("Kubernetes:")
    one = choose_action(replace(told, schedulers=("slurm",)), {})
    assert one is not None
    assert one.choices == ()
    assert one.command == "scontrol update NodeName=n1 State=DRAIN"
