"""What printed samples show, and what they do not."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.metrics.learning.pasted_checks import find_in_lines

TOLD = [
    ("samples.same_draws", ["transforms use np.random", *[f"worker {w} crop [40, 90, 37]" for w in range(4)]]),
    ("samples.same_draws", ["augmentation on", *[f"[worker_id={w}] rand [1 2 3 4]" for w in range(3)]]),
    ("samples.same_augmentation", [f"epoch {e} sample {i} rotation {i}.25" for e in range(3) for i in (17, 18)]),
    ("samples.begin_token_twice", ["bos_token_id: 1", ">>> ds[0]['input_ids'][:5]", "[1, 1, 887, 526, 263]"]),
    ("samples.begin_token_twice", [">>> tok.bos_token_id, tok.add_bos_token", "(151646, True)", "input_ids: [151646, 151646, 9]"]),
]  # fmt: skip
QUIET = [
    ["transforms use np.random", "worker 0 crop [40 90 37]", "worker 1 crop [41 90 37]", "worker 2 crop [7 8 9]"],
    [f"epoch {e} sample {i} rotation {e}.25" for e in range(3) for i in (17, 18)],
    [f"epoch {e} sample {i} length 512.00" for e in range(3) for i in (17, 18)],
    ["worker 0 crop [40 90 37]", "worker 1 crop [40 90 37]"],
    ["worker 0 step 1 loss [0.5 0.5 0.5]", "worker 1 step 1 loss [0.5 0.5 0.5]", "worker 2 step 1 loss [0.5 0.5 0.5]"],
    ["bos_token_id: 1", "input_ids: [1, 887, 887, 526]"],
    ["bos_token_id: 1", "input_ids: [2, 2, 887, 526]"],
]  # fmt: skip


@each_row(("kind", "lines"), TOLD)
def test_told(kind: str, lines: list[str]) -> None:
    (found,) = find_in_lines(list(enumerate(lines, 1)), "log")
    assert found.kind == kind
    assert found.evidence


@each_row("lines", QUIET)
def test_quiet(lines: list[str]) -> None:
    assert find_in_lines(list(enumerate(lines, 1)), "log") == ()
