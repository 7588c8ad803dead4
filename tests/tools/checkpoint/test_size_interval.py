import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.checkpoint.interval import (
    derive_mtbf,
    find_daly,
    find_young,
    measure_waste,
    plan_interval,
)
from firstfault_tools.checkpoint.interval_calculator import run_interval
from firstfault_tools.checkpoint.size import Content, size_checkpoint
from firstfault_tools.checkpoint.size_calculator import run_size
from firstfault_tools.errors import InvalidParameter


@each_row(
    ("model", "full_gb", "weights_gb"),
    [("llama-3-8b", 112.4, 16.1), ("llama-3-70b", 987.8, 141.1), ("mixtral-8x7b", 653.8, 93.4)],
)
def test_sizes_of_known_models(model, full_gb, weights_gb):
    result = run_size(model=model)
    assert result["total_gb"] == pytest.approx(full_gb, abs=0.06)
    assert result["weights_only_gb"] == pytest.approx(weights_gb, abs=0.06)


def test_fp32_states_are_twelve_bytes_and_replicas_do_not_multiply_them():
    size = size_checkpoint(10**9, content=Content.FP32_ADAM, writers=128)
    assert size.total_bytes == 12e9
    assert size.per_rank_bytes == pytest.approx(12e9 / 128)


def test_the_slower_of_storage_and_writers_decides():
    fast_storage = size_checkpoint(10**9, writers=2, bandwidth_gbs=100, per_writer_gbs=1)
    slow_storage = size_checkpoint(10**9, writers=200, bandwidth_gbs=7, per_writer_gbs=1)
    assert fast_storage.write_seconds == pytest.approx(7.0)
    assert slow_storage.write_seconds == pytest.approx(2.0)


def test_retention():
    assert size_checkpoint(10**9, keep=5).retained_bytes == 5 * 14e9


@each_row(
    ("field", "arguments"),
    [
        ("parameters", {"parameters": 0}),
        ("writers", {"parameters": 1, "writers": 0}),
        ("keep", {"parameters": 1, "keep": 0}),
        ("bandwidth_gbs", {"parameters": 1, "bandwidth_gbs": -1.0}),
        ("bytes_per_parameter", {"parameters": 1, "bytes_per_parameter": 0.0}),
    ],
)
def test_bad_sizes_name_the_field(field, arguments):
    with pytest.raises(InvalidParameter) as caught:
        size_checkpoint(**arguments)
    assert caught.value.field == field


def test_young_is_the_textbook_root():
    assert find_young(60, 24 * 3600) == pytest.approx(math.sqrt(2 * 60 * 86400))


def test_daly_by_hand():
    # d = 2, M = 100: root(400) (1 + sqrt(.01)/3 + .01/9) - 2
    assert find_daly(2, 100) == pytest.approx(20 * (1 + 0.1 / 3 + 0.01 / 9) - 2)


def test_daly_where_saving_takes_longer_than_failures():
    assert find_daly(300, 100) == 100


@given(
    save=st.floats(1, 300),
    mtbf=st.floats(3600, 1e6),
    factor=st.floats(0.2, 5).filter(lambda f: abs(f - 1) > 0.1),
)
def test_no_other_interval_wastes_less_than_dalys(save, mtbf, factor):
    best = find_daly(save, mtbf)
    assert (
        measure_waste(best, save, 600, mtbf) <= measure_waste(best * factor, save, 600, mtbf) + 1e-4
    )


def test_more_gpus_fail_more_often():
    assert derive_mtbf(16384, 2e-5) == pytest.approx(3600 / (16384 * 2e-5))


def test_an_incident_in_gpu_hours():
    plan = plan_interval(60, 86400, restart_seconds=540, interval_seconds=3600, gpus=1024,
                         price_per_gpu_hour=2.0)  # fmt: skip
    expected = (1800 + 30 + 540) * 1024 / 3600
    assert plan.incident_gpu_hours == pytest.approx(expected)
    assert plan.incident_cost == pytest.approx(2 * expected)
    assert plan.lost_work_seconds == 1800


def test_waste_of_a_rare_interval_is_larger():
    assert plan_interval(60, 7200, interval_seconds=7200).waste > plan_interval(60, 7200).waste


def test_hopeless_settings_waste_everything():
    assert measure_waste(1e9, 1, 1, 1) == 1.0


@each_row(
    ("field", "arguments"),
    [
        ("mtbf_hours", {"save_seconds": 60}),
        ("save_seconds", {"save_seconds": 0, "mtbf_hours": 1}),
        ("interval_seconds", {"save_seconds": 1, "mtbf_hours": 1, "interval_seconds": -5}),
        ("step_seconds", {"save_seconds": 1, "mtbf_hours": 1, "step_seconds": 0}),
        ("failures_per_gpu_hour", {"save_seconds": 1, "failures_per_gpu_hour": 2}),
    ],
)
def test_bad_intervals_name_the_field(field, arguments):
    with pytest.raises(InvalidParameter) as caught:
        run_interval(**arguments)
    assert caught.value.field == field


def test_interval_in_steps():
    result = run_interval(60, mtbf_hours=24, step_seconds=10)
    assert result["best_interval_steps"] == round(result["daly_s"] / 10)


def test_interval_from_a_log_says_what_it_measured_and_assumed():
    log = "".join(
        f"Finished saving the checkpoint (or staging if async is enabled) in {s} seconds.\n"
        for s in (30, 34, 41)
    )
    answer = run_interval(log=log, gpus=1024)
    assert answer["save_s"] == 34
    assert "saving took 34.0 s, the median of 3 saves in the log" in answer["sentence"]
    # Llama 3: 419 interruptions in 54 days on 16,384 GPUs.
    assert answer["mtbf_h"] == pytest.approx(54 * 24 * 16384 / 419 / 1024, abs=0.01)
    assert any("Llama 3" in line for line in answer["assumptions"])
