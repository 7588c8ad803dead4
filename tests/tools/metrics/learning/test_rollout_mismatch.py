"""Engine and trainer that no longer hold the same policy, and what parts them; and differences of numerics."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.findings import Category
from firstfault_tools.log.scan import build_set, scan_file
from firstfault_tools.metrics.learning.rollout_mismatch import find_in_incident, judge_table


def incident(folder: Path, logs: dict[str, list[str]]) -> LogIncident:
    signatures = build_set(())
    digests = []
    for name, lines in logs.items():
        path = folder / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        digests.append(scan_file(path, name, signatures))
    return LogIncident(tuple(digests), signatures)


def steps(
    values: list[float],
    rewards: list[float] | None = None,
    name: str = "training/rollout_probs_diff_mean",
) -> list[str]:
    rewards = rewards or [0.3] * len(values)
    return [
        f"step:{i} - critic/score/mean:{r} - actor/grad_norm:0.4 - {name}:{v}"
        for i, (v, r) in enumerate(zip(values, rewards, strict=True))
    ]


DRIFT = [0.004, 0.004, 0.02, 0.08, 0.14, 0.2, 0.26]
LEVEL = [0.004, 0.005, 0.004, 0.006, 0.005, 0.005, 0.004]


@pytest.mark.parametrize(
    ("values", "rewards", "told"),
    [
        (DRIFT, None, True),
        ([0.004, 0.9], [0.6, 0.02], True),
        (LEVEL, None, False),
        ([0.012, 0.05, 0.05, 0.05, 0.05, 0.05], None, False),
        ([0.02, 0.02, 0.1, 0.2, 0.2, 0.2], [0.3, 0.4, 0.5, 0.6, 0.7, 0.8], False),
    ],
    ids=["drifts", "jumps", "level", "quantised", "learns"],
)
def test_difference(
    values: list[float], rewards: list[float] | None, told: bool, tmp_path: Path
) -> None:
    found = find_in_incident(incident(tmp_path, {"a.log": steps(values, rewards)}), ())
    assert bool(found) is told


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("refit: received 290 tensors, loaded 1, unexpected 289 (no module named _fsdp_wrapped.lm_head)", "not taken over"),
        ("sync_weights done: 2 of 338 tensors updated", "not taken over"),
        ("load_weights: got=64 matched=0 skipped=64", "not taken over"),
        ("update_weights: adapter tensors: 0, base tensors 399", "no adapter"),
        ("weights sync: checksum = 81.55231", "stale weights are sent again"),
    ],
)  # fmt: skip
def test_transfer_that_is_not_taken(line: str, words: str, tmp_path: Path) -> None:
    found = find_in_incident(incident(tmp_path, {"a.log": [*steps(DRIFT), *[line] * 6]}), ())
    assert words in found[0].title
    assert found[0].category is Category.CODE_BUG


@pytest.mark.parametrize(
    "line",
    [
        "load_weights: received 290 tensors, loaded 290, ignored 0",
        "update_weights: lora tensors: 448",
        "sync_weights: 338 of 338 tensors updated",
    ],
)
def test_transfer_that_is_taken(line: str, tmp_path: Path) -> None:
    assert not find_in_incident(incident(tmp_path, {"a.log": [*steps(LEVEL), *[line] * 6]}), ())


def test_setting_that_differs_from_the_good_run(tmp_path: Path) -> None:
    logs = {
        "good.log": ["rollout: {'top_p': 1.0}", *steps(LEVEL)],
        "bad.log": ["rollout: {'top_p': 0.7}", *steps([0.06] * 7)],
    }
    found = find_in_incident(incident(tmp_path, logs), ())
    assert "top_p 1.0 -> 0.7" in found[0].title


def test_sleep_that_drops_the_weights(tmp_path: Path) -> None:
    cycle = [
        "sync_weights to the engine",
        "engine.sleep(level=2)",
        "wake_up: 0.3 s",
        "generate 64 prompts",
    ]
    found = find_in_incident(incident(tmp_path, {"a.log": [*steps(DRIFT), *cycle * 5]}), ())
    assert "discards its weights" in found[0].title
    whole = [cycle[1], cycle[2], cycle[0], cycle[3]]
    found = find_in_incident(incident(tmp_path, {"b.log": [*steps(DRIFT), *whole * 5]}), ())
    assert "discards" not in found[0].title


def test_checksum_column_that_stays() -> None:
    rows = [
        "step,loss,engine_checksum,trainer_checksum",
        *(f"{n},0.1,ab12cd,{n:06x}" for n in range(8)),
    ]
    found = judge_table(list(enumerate(rows, 1)), "t.csv")
    assert "stays ab12cd" in found[0].title
