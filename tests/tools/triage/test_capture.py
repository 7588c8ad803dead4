"""Hosts that delay, fail and lie: nothing hangs, what is missing is named, what came is kept."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.rows import each_row

from firstfault_tools.triage.bundle import Bundle
from firstfault_tools.triage.capture import Capture, Capturing, Plan
from firstfault_tools.triage.execution import State, run_command
from firstfault_tools.triage.processes import Rank, ask_times, read_times
from firstfault_tools.triage.steps import Manager, Step, select_steps
from firstfault_tools.triage.transports import KubectlExec, Srun, Ssh, Transport

Site = Callable[[dict[str, Any]], Path]
GOOD = {"ranks": [0, 1], "world": 4}
TAKEN = frozenset({"last-lines", "stacks", "disk"})


def capture(
    folder: Path, hosts: tuple[str, ...], transport: Transport | None = None, limit_s: float = 30.0,
    steps: tuple[Step, ...] | None = None,
) -> Capture:  # fmt: skip
    transport = transport or Ssh()
    chosen = select_steps(transport.manager, TAKEN) if steps is None else steps
    plan = Plan(chosen, hosts, limit_s=limit_s, parallel=4)
    return Capturing(plan, transport, Bundle(folder / "out"), lambda _: None).run()


@pytest.mark.parametrize(
    ("transport", "taken"),
    [(Ssh(), TAKEN), (Srun("7"), TAKEN), (KubectlExec("ns", "main"), TAKEN | {"pod-log"})],
    ids=["ssh", "srun", "kubectl"],
)
def test_every_way_reaches_all_ranks(
    site: Site, tmp_path: Path, transport: Transport, taken: frozenset[str]
) -> None:
    site({"gpu1": GOOD, "gpu2": {"ranks": [2, 3], "world": 4}})
    done = capture(
        tmp_path, ("gpu1", "gpu2"), transport, steps=select_steps(transport.manager, taken)
    )
    assert [(r.rank, r.host) for r in done.ranks] == [
        (0, "gpu1"),
        (1, "gpu1"),
        (2, "gpu2"),
        (3, "gpu2"),
    ]
    assert [(r.rank, r.step) for r in done.last_lines] == [(0, 40), (1, 41), (2, 42), (3, 43)]
    assert (done.world, done.missing_ranks, done.missing_hosts) == (4, (), {})
    assert {o.state for o in done.outcomes} == {State.OK}
    assert "train.py:12" in (tmp_path / "out/captured/gpu1/rank1-stacks.txt").read_text()


@pytest.mark.parametrize(
    ("acts", "why"),
    [
        ({"*": "255"}, "No route to host"),
        ({"uname": "hang"}, "no end within"),
        ({"uname": "hang-on-with-child"}, ""),
        ({"uname": "silent"}, "it gave no name"),
        ({"uname": "fails"}, "not permitted"),
        ({"uname": "says:gpu1"}, "gpu1 answered, as it already did for gpu1"),
    ],
    ids=lambda value: str(value),
)
def test_a_host_that_does_not_answer_is_named(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acts: dict[str, str], why: str
) -> None:
    monkeypatch.setattr("firstfault_tools.triage.capture.IDENTITY_S", 1.0)
    site({"gpu1": GOOD, "gpu2": {"ranks": [2, 3], "world": 4, "acts": acts}})
    done = capture(tmp_path, ("gpu1", "gpu2"))
    assert [r.rank for r in done.ranks][:2] == [0, 1]
    if why:
        assert why in done.missing_hosts["gpu2"]
        assert done.missing_ranks == (2, 3)
    else:
        assert not done.missing_hosts  # a child that holds the pipe holds nothing up


@pytest.mark.parametrize(
    ("acts", "step", "state"),
    [
        ({"py-spy": "hang"}, "stacks", State.TIMED_OUT),
        ({"py-spy": "fails"}, "stacks", State.FAILED),
        ({"py-spy": "missing"}, "stacks", State.OK),
        ({"tail": "huge"}, "last-lines", State.CUT),
        ({"tail": "bytes"}, "last-lines", State.OK),
        ({"df": "255"}, "disk", State.UNREACHABLE),
        ({"tail": "slow"}, "last-lines", State.OK),
    ],
    ids=lambda value: str(value),
)
def test_what_one_command_does_harms_no_other(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    acts: dict[str, str], step: str, state: State,
) -> None:  # fmt: skip
    import dataclasses

    monkeypatch.setattr("firstfault_tools.triage.execution.MOST_BYTES", 1 << 20)
    site({"gpu1": {**GOOD, "acts": acts}})
    steps = tuple(
        dataclasses.replace(s, limit_s=1.0 if "hang" in acts.values() else s.limit_s)
        for s in select_steps(Manager.SSH, TAKEN)
    )
    done = capture(tmp_path, ("gpu1",), steps=steps)
    states = {o.step: o.state for o in done.outcomes}
    assert states[step] is state
    assert all(o.reason for o in done.outcomes if o.state is not State.OK)
    assert all(s is State.OK for name, s in states.items() if name != step)
    assert done.missing_ranks == (2, 3)


def test_a_machine_with_another_name_is_noted(site: Site, tmp_path: Path) -> None:
    site({"gpu1": {**GOOD, "acts": {"uname": "says:login-node"}}})
    done = capture(tmp_path, ("gpu1",))
    assert done.notes == ("gpu1: the machine that answered calls itself login-node",)


@pytest.mark.parametrize(
    "listing", ["silent", "bytes", "says:12 no numbers here", "fails", "says:" + "9" * 300]
)
def test_a_process_list_that_makes_no_sense_gives_no_rank(
    site: Site, tmp_path: Path, listing: str
) -> None:
    site({"gpu1": {**GOOD, "acts": {"ps": listing}}})
    done = capture(tmp_path, ("gpu1",))
    assert (done.ranks, done.notes) == ((), ("gpu1: no training process was found",))


def test_the_whole_ends_in_time_and_keeps_what_it_has(site: Site, tmp_path: Path) -> None:
    site({"gpu1": {**GOOD, "acts": {"py-spy": "hang"}}})
    done = capture(tmp_path, ("gpu1",), limit_s=3.0)
    states = [o.state for o in done.outcomes]
    assert State.NOT_RUN in states
    assert [r.step for r in done.last_lines] == [40, 41]


def test_a_person_may_stop_it(site: Site, tmp_path: Path) -> None:
    site({"gpu1": {**GOOD, "acts": {"py-spy": "hang"}}, "gpu2": {**GOOD, "acts": {"*": "hang"}}})
    stop = threading.Event()

    def show(text: str) -> None:
        if "py-spy" in text:
            stop.set()

    plan = Plan(select_steps(Manager.SSH, TAKEN), ("gpu1", "gpu2"), parallel=1)
    monkey = threading.Timer(20, stop.set)
    monkey.start()
    done = Capturing(plan, Ssh(), Bundle(tmp_path / "out"), show, stop).run()
    monkey.cancel()
    assert done.stopped
    assert "gpu2" in done.missing_hosts


def test_secrets_stay_where_they_are(site: Site, tmp_path: Path) -> None:
    site({"gpu1": GOOD})
    capture(tmp_path, ("gpu1",))
    files = [f for f in (tmp_path / "out").rglob("*") if f.is_file()]
    text = "".join(f.read_text(errors="replace") for f in files)
    assert "hf_Ab3d" not in text
    assert "private matter" not in text
    assert "# also set: HF_TOKEN UNRELATED" in text or "# also set: UNRELATED" in text
    assert "NCCL_DEBUG=INFO" in text
    assert all(f.stat().st_mode & 0o077 == 0 for f in (tmp_path / "out").rglob("*"))


def test_two_hosts_that_claim_one_rank_are_named(site: Site, tmp_path: Path) -> None:
    site({"gpu1": GOOD, "gpu2": GOOD})
    done = capture(tmp_path, ("gpu1", "gpu2"))
    assert done.notes[0].startswith("rank 0 runs on gpu1, gpu2")


@each_row(
    ("times", "dump", "stale"),
    [
        ({"/d/0": 950.0}, "/d/0", ()),
        ({"/d/0": 800.0}, "", ("/d/0",)),
        ({}, "", ()),
    ],
    ids=["own", "another job's", "none"],
)
def test_a_dump_of_another_job_is_left_out(
    times: dict[str, float], dump: str, stale: tuple[str, ...]
) -> None:
    rank = Rank("gpu1", 100, 0, 2, 100, "python train.py", {"TORCH_FR_DUMP_TEMP_FILE": "/d/"})
    said = "\n".join(["1000.0 /proc/self/stat", *(f"{at} {file}" for file, at in times.items())])
    ranks, old = read_times((rank,), said)
    assert (ranks[0].dump, old) == (dump, stale)


def test_the_hosts_clock_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("step 1\n")
    os.utime(log, (time.time() - 600, time.time() - 600))
    rank = Rank("here", 100, 0, 1, 9000, "python train.py", logs=(str(log),))
    said = run_command(ask_times(rank.logs), 20, threading.Event()).output.decode()
    age = read_times((rank,), said)[0][0].log_age_s
    assert age is not None
    assert 500 < age < 5000
