"""Runs that go on although they are slow or wrong: settings, phases, epochs, hosts, stale members."""

from __future__ import annotations

from firstfault_tools.findings import Level
from firstfault_tools.metrics.learning import (
    accumulation,
    member_versions,
    pasted_checks,
)
from firstfault_tools.metrics.pace import (
    epoch_pauses,
    host_parts,
    indexed_rates,
    microbatches,
    optimizer_offload,
    profile_table,
    slow_settings,
)


def number(text: str) -> list[tuple[int, str]]:
    return list(enumerate(text.strip("\n").split("\n"), start=1))


def epochs(pause: int, between: str = "") -> list[tuple[int, str]]:
    rows, clock = [], 0
    for epoch in range(1, 5):
        for at in (50, 100, 150, 200):
            clock += 50
            stamp = f"2026-01-02 {clock // 3600:02}:{clock // 60 % 60:02}:{clock % 60:02}"
            rows.append(f"{stamp} Epoch: [{epoch}][ {at}/200] loss 1.0")
        clock += pause
        rows += [between] if between else []
    return list(enumerate(rows, start=1))


def test_pause_between_epochs_names_the_workers() -> None:
    lines = [(0, "loader: persistent_workers=False num_workers=8"), *epochs(90)]
    (found,) = epoch_pauses.find_in_lines(lines, "log.txt")
    assert found.level is Level.FAILURE
    assert "persistent_workers=False" in found.title
    assert found.facts["pause_s"] == 90


def test_pause_between_epochs_for_evaluation_is_context() -> None:
    (found,) = epoch_pauses.find_in_lines(epochs(90, "running validation"), "log.txt")
    assert found.level is Level.CONTEXT


def test_no_pause_between_epochs() -> None:
    assert epoch_pauses.find_in_lines(epochs(2), "log.txt") == ()


def test_host_with_long_part_and_short_wait() -> None:
    cells = [
        f"n{i:02} launch {1.4 if i == 3 else 0.5} wait {0.02 if i == 3 else 0.9}"
        for i in range(1, 7)
    ]
    (found,) = host_parts.find_in_lines([(7, "times: " + " | ".join(cells))], "log.txt")
    assert found.host == "n03"


def test_hosts_alike() -> None:
    cells = [f"n{i:02} launch 0.5 wait 0.{i}" for i in range(1, 7)]
    assert host_parts.find_in_lines([(7, "times: " + " | ".join(cells))], "log.txt") == ()


def test_slow_group_of_a_list() -> None:
    (found,) = indexed_rates.find_in_lines(
        [(1, "groups bandwidth GB/s: 0:44.1 1:44.0 2:12.0 3:44.2 4:44.3")], "x"
    )
    assert found.facts["index"] == [2]
    assert indexed_rates.find_in_lines([(1, "GB/s: 0:44.1 1:44.0 2:43.0 3:44.2 4:44.3")], "x") == ()


def test_bubble_from_printed_sizes() -> None:
    text = """
  data_parallel_size .............................. 4
  global_batch_size ............................... 32
  micro_batch_size ................................ 1
  pipeline_model_parallel_size .................... 8
"""
    layout = microbatches.read_layout(number(text), "x")
    assert (layout.stages, layout.microbatches) == (8, 8)
    assert layout.bubble == 7 / 15


def test_bubble_with_virtual_stages() -> None:
    text = "pipeline_model_parallel_size ... 4\nnumber of microbatches to constant 16\nvirtual_pipeline_model_parallel_size ... 2"
    assert microbatches.read_layout(number(text), "x").bubble == 3 / 35


def test_optimizer_step_on_nvme() -> None:
    text = """
offload_optimizer: {device: nvme, nvme_path: /x, pipeline_read: false}
time (ms) | fwd_microstep: 100.0 | bwd_microstep: 200.0 | bwd_allreduce_microstep: 10.0 | step_microstep: 3000.0
time (ms) | fwd_microstep: 100.0 | bwd_microstep: 200.0 | bwd_allreduce_microstep: 10.0 | step_microstep: 3000.0
"""
    (found,) = optimizer_offload.find_in_lines(number(text), "x")
    assert "NVMe" in found.title
    assert found.level is Level.CONTEXT
    even = text.replace("3000.0", "50.0")
    assert optimizer_offload.find_in_lines(number(even), "x") == ()


def test_settings_are_context_and_advice_is_none() -> None:
    kinds = [f.kind for f in slow_settings.find_in_lines([(1, "NCCL_P2P_DISABLE=1")], "x")]
    assert kinds == ["setting.p2p-off"]
    assert slow_settings.find_in_lines([(1, "try NCCL_P2P_DISABLE=1")], "x") == ()
    assert slow_settings.find_in_lines([(1, "ds3_gather_for_generation=False")], "x") == ()


def test_running_statistics_not_finite() -> None:
    text = ">>> [k for k, v in sd.items() if not v.isfinite().all()]\n['layer1.bn1.running_mean', 'layer1.bn1.running_var']"
    assert pasted_checks.find_in_lines(number(text), "x") == ()
    text = "bad: not finite: layer1.bn1.running_mean"
    (found,) = pasted_checks.find_in_lines(number(text), "x")
    assert "layer1.bn1.running_mean" in found.title
    assert pasted_checks.find_in_lines([(1, "Missing key(s): bn1.running_mean nan")], "x") == ()


def test_member_that_missed_an_update() -> None:
    rows = [f"server 1: weights version {v} loaded" for v in range(3, 9)]
    rows += [
        "server 2: weights version 3 loaded",
        "server 2: update_weights for version 4 failed, keeping version 3",
    ]
    members: dict[str, member_versions.Member] = {}
    assert member_versions.read_members(list(enumerate(rows, start=1)), "x", members) == 8
    assert members["server 2"].missed is not None
    assert members["server 1"].missed is None


def phases(file: str, steps: int, loss: float, norm: float) -> list[accumulation.Phase]:
    rows = [f"gradient_accumulation_steps={steps}"]
    rows += [f"{{'loss': {loss - i / 100}, 'grad_norm': {norm}}}" for i in range(6)]
    return accumulation.read_phases(list(enumerate(rows, start=1)), file)


def test_loss_that_is_summed_over_accumulation() -> None:
    found = list(
        accumulation._compare([*phases("a", 8, 2.0, 1.5), *phases("b", 8, 16.0, 12.0)], None)
    )
    assert [f.kind for f in found] == ["metrics.loss_summed"]
    assert not list(
        accumulation._compare([*phases("a", 8, 2.0, 1.5), *phases("b", 8, 2.1, 1.5)], None)
    )


def test_communication_in_every_micro_step() -> None:
    rows = []
    for name, steps in (("A", 1), ("B", 4)):
        rows.append(f"=== run {name}: grad_accum_steps={steps} ===")
        rows += [f"iter {i} loss 1.9 (comm {20.0 * steps} s)" for i in range(4)]
    found = list(
        accumulation._compare(accumulation.read_phases(list(enumerate(rows, 1)), "x"), None)
    )
    assert [f.kind for f in found] == ["metrics.reduced_each_micro_step"]


def test_leading_row_of_a_profile() -> None:
    head = "                 Name    Self CPU %      Self CPU   # of Calls"
    row = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter...__next__        71.20%       8.120s           50"
    (found,) = profile_table.find_in_lines([(1, head), (2, row)], "x")
    assert "input data" in found.title
    even = "                                                 aten::mm        71.20%       8.120s           50"
    assert profile_table.find_in_lines([(1, head), (2, even)], "x") == ()
