"""Lines that report nothing are not quoted: arguments and source that programs print, banners."""

from __future__ import annotations

from pathlib import Path

from firstfault.workspace import Workspace

STEPS = [f"step {n} loss 2.{90 - n}" for n in range(1, 30)]
SILLY = [
    "*" * 41,
    "stopping_strategy=first_exhausted,",
    '  "on_missing_key": "warn",',
    "@torch.compile",
    "# this optimizer may be slow to compile",
    'print0(f"compiled for CUDA {torch.version.cuda}")',
]


def read_quotes(tmp_path: Path, lines: list[str]) -> list[str]:
    path = tmp_path / "log.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [c.quote.strip() for c in Workspace().diagnose_paths([path]).citations]


def test_a_healthy_run_quotes_no_arguments_and_no_source(tmp_path: Path) -> None:
    said = "UserWarning: cache folder missing, using a temporary one"
    quotes = read_quotes(tmp_path, [*SILLY, said, *STEPS])
    assert said in quotes
    assert not {line.strip() for line in SILLY if "on_missing" not in line} & set(quotes)


def test_an_end_without_a_reason_quotes_no_arguments(tmp_path: Path) -> None:
    told = "storage server does not answer, retry in 5 s"
    lines = [*SILLY[1:3], told, *STEPS, "Signal 9 (SIGKILL) received by PID 77"]
    quotes = read_quotes(tmp_path, lines)
    assert not {line.strip() for line in SILLY} & set(quotes)
