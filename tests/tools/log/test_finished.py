"""Does a reading that was stopped go on without reading twice, and does it leave out what it did not finish?"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tools.log.samples import signature_set

from firstfault_tools.log import executors, plan, progress
from firstfault_tools.log.digest import STOPPED
from firstfault_tools.log.executors import Workers, scan_logs
from firstfault_tools.log.finished import FinishedBatches, mark_reading
from firstfault_tools.log.plan import Part, describe_log, pack_batches, plan_logs
from firstfault_tools.log.progress import Scanning

LINE = "[rank{rank}]: 2026-11-27 03:{minute:02d}:00 INFO step {step} loss 2.31 grad_norm 0.97\n"
OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
PIECE = 64 * 1024


class Stop(Exception):
    """A person stopped the reading."""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PART_BYTES", PIECE)
    monkeypatch.setattr(plan, "BATCH_BYTES", PIECE)
    monkeypatch.setattr(progress, "TELL_SECONDS", 0.0)


def write_logs(folder: Path, sizes: tuple[int, ...]) -> list[Part]:
    """Parts of logs of so many bytes, about."""
    logs = []
    for rank, size in enumerate(sizes):
        path = folder / f"rank_{rank}.log"
        lines = (LINE.format(rank=rank, minute=s // 60 % 60, step=s) for s in range(size // 68))
        path.write_text(OOM + "".join(lines))
        logs.append(describe_log(path.name, path, path.read_bytes()[:65536]))
    return plan_logs(logs)


def kept_in(folder: Path, *inputs: object) -> FinishedBatches:
    return FinishedBatches(folder / "kept", mark_reading(inputs, signature_set()), 0)


def stop_at(size: int) -> Callable[[Scanning], None]:
    def tell(at: Scanning) -> None:
        if size <= at.done < at.total:
            raise Stop

    return tell


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(
    ("sizes", "stop"),
    [((400_000,), 150_000), ((9_000,) * 40, 200_000), ((70_000, 300_000, 20_000), 250_000)],
    ids=["one-log", "many-small", "mixed"],
)
def test_it_goes_on_and_gives_what_one_reading_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], stop: int, jobs: int
) -> None:
    parts, kept = write_logs(tmp_path, sizes), kept_in(tmp_path)
    total = executors.size_of(parts)
    with pytest.raises(Stop):
        scan_logs(parts, signature_set(), Workers(jobs, tell=stop_at(stop), kept=kept))
    before = kept.count()
    # a pool finishes the few batches that its processes hold
    assert PIECE < before.size < total + (jobs > 1)
    assert before.lines > 500
    scanned: list[int] = []
    whole = executors.scan_batch

    def count(batch: Any, *more: Any) -> Any:
        scanned.append(executors.size_of(batch))
        return whole(batch, *more)

    monkeypatch.setattr(executors, "scan_batch", count)
    said: list[Scanning] = []
    again = scan_logs(parts, signature_set(), Workers(1, tell=said.append, kept=kept))
    assert sum(scanned) == total - before.size, "what was finished is not read twice"
    assert (said[-1].done, said[-1].files) == (total, len(sizes))
    plain = scan_logs(parts, signature_set(), Workers(1))
    assert again.digests == plain.digests
    assert kept.count().files == len(sizes)


def test_what_is_kept_holds_for_the_same_logs_alone(tmp_path: Path) -> None:
    parts = write_logs(tmp_path, (100_000,))
    batch = pack_batches(parts)[0]
    kept = kept_in(tmp_path, "size 1")
    kept.keep(batch, executors.scan_batch(batch, signature_set()))
    assert kept.find(batch) is not None
    changed = kept_in(tmp_path, "size 2")
    assert changed.find(batch) is None
    assert changed.count().size == 0
    changed.forget_others()
    assert kept.find(batch) is None


class Harm:
    """Would run a command where it is built."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("harm",)


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", pickle.dumps((1, [])) + pickle.dumps(Harm()), pickle.dumps(Harm())],
    ids=["empty", "garbage", "harm", "harm-first"],
)
def test_a_file_that_is_no_digest_is_read_again(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    parts, kept = write_logs(tmp_path, (100_000,)), kept_in(tmp_path)
    batch = pack_batches(parts)[0]
    kept.keep(batch, executors.scan_batch(batch, signature_set()))
    (file,) = (tmp_path / "kept").rglob("*.batch")
    file.write_bytes(content)
    assert kept.find(batch) is None
    kept.count()
    assert "harm" not in capsys.readouterr().out


def test_a_log_that_cannot_be_read_is_not_kept(tmp_path: Path) -> None:
    parts, kept = write_logs(tmp_path, (9_000, 9_000)), kept_in(tmp_path)
    (batch,) = pack_batches(parts)
    (tmp_path / "rank_1.log").unlink()
    kept.keep(batch, executors.scan_batch(batch, signature_set()))
    assert kept.find(batch) is None


LEFT = f"{STOPPED} "


@pytest.mark.parametrize(
    ("sizes", "finished", "read", "left"),
    [
        # (batches that were finished; logs that are read; logs left out, with what is said of them)
        ((70_000,) * 3, {0, 1}, {"rank_0.log"}, {"rank_1.log": "within", "rank_2.log": "before"}),
        ((300_000,), {0, 1}, {"rank_0.log"}, {"rank_0.log": "after line"}),
        ((300_000,), {0, 2}, {"rank_0.log"}, {"rank_0.log": "after line 9"}),
        ((300_000,), {1, 2}, set(), {"rank_0.log": "before"}),
        ((300_000,), set(), set(), {"rank_0.log": "before"}),
    ],
    ids=["begun-beside-whole", "begun-alone", "hole", "no-begin", "nothing"],
)  # fmt: skip
def test_only_what_was_finished_is_taken(
    tmp_path: Path,
    sizes: tuple[int, ...],
    finished: set[int],
    read: set[str],
    left: dict[str, str],
) -> None:
    parts, kept = write_logs(tmp_path, sizes), kept_in(tmp_path)
    for number, batch in enumerate(pack_batches(parts)):
        if number in finished:
            kept.keep(batch, executors.scan_batch(batch, signature_set()))
    taken = scan_logs(parts, signature_set(), Workers(1, kept=kept, finished_only=True))
    assert set(taken.digests) == read
    assert set(taken.failed) == set(left)
    for file, why in left.items():
        assert taken.failed[file].startswith(LEFT + why), taken.failed[file]
    whole = read - set(left)
    assert all(taken.digests[f].bytes_total == (tmp_path / f).stat().st_size for f in whole)
