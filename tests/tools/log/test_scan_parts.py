from __future__ import annotations

import itertools
import json
import random
from functools import reduce
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tools.log.samples import HEALTHY, matching_lines, signature_set

from firstfault_tools.log import blocks, gate, plan, scan
from firstfault_tools.log.digest import FileDigest, Mark, merge_parts
from firstfault_tools.log.plan import Budget, Part
from firstfault_tools.log.scan import scan_file, scan_part
from firstfault_tools.log.window import read_window

SMALL = Budget(complete=False, head=2_000, tail=4_000, windows=40_000, hits=6)
ROOMY = Budget(complete=False, head=2_000, tail=4_000, windows=400_000, hits=6)


def write_log(path: Path, seed: int, lines: int, share: float) -> list[str]:
    """A log of ordinary lines with matching ones strewn in."""
    dice = random.Random(seed)
    out = []
    for _ in range(lines):
        pool = matching_lines() if dice.random() < share else HEALTHY
        out.append(f"[rank{dice.randrange(8)}]: {dice.choice(pool)}")
    path.write_text("\n".join(out) + "\n", encoding="utf-8")
    return out


def outline(digest: FileDigest) -> dict[str, Any]:
    """What two scans of the same bytes must agree on."""
    return {
        "lines": digest.lines_total,
        "hits": [(h.index, h.line.number, h.line.text, dict(h.captures)) for h in digest.hits],
        "counts": dict(digest.hit_counts),
        "conditions": digest.conditions,
        "marks": {m: n for m, n in digest.marked.items() if n},
    }


@pytest.mark.parametrize("seed", range(3))
def test_gate_finds_what_a_look_at_every_line_finds(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same digest without a gate, with one, and with hyperscan before it."""
    engines = [("re2", gate.QUICK_AFTER)]
    engines += [("hyperscan", 0)] if find_spec("hyperscan") else []
    path = tmp_path / "train.log"
    write_log(path, seed, 3_000, 0.02)
    monkeypatch.setattr(scan, "UNGATED_BYTES", 1 << 40)
    plain = scan_file(path, "train.log", signature_set())
    assert plain.hits
    monkeypatch.setattr(scan, "UNGATED_BYTES", 0)
    for engine, quick_after in engines:
        monkeypatch.setattr(gate, "QUICK_AFTER", quick_after)
        monkeypatch.setenv("FIRSTFAULT_ENGINE", engine)
        signature_set().gates.gates.clear()
        gated = scan_file(path, "train.log", signature_set())
        assert outline(gated) == outline(plain), engine


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FileDigest]:
    """A log in which every third line matches, and what one scan of it gives."""
    path = tmp_path_factory.mktemp("dense") / "train.log"
    write_log(path, 5, 700, 0.3)
    size = path.stat().st_size
    whole = scan_part(Part("train.log", path, 0, size, size, 2026, False, SMALL), signature_set())
    return path, whole


@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(0, 200_000), min_size=1, max_size=6), data=st.data())
def test_parts_merge_in_any_grouping(
    dense: tuple[Path, FileDigest], cuts: list[int], data: st.DataObject
) -> None:
    """Merging is associative and gives what one scan gives, wherever the log is cut."""
    path, whole = dense
    size = path.stat().st_size
    bounds = sorted({0, size, *(c % size for c in cuts)})
    parts = [
        scan_part(Part("train.log", path, a, b, size, 2026, False, SMALL), signature_set())
        for a, b in itertools.pairwise(bounds)
    ]
    left = reduce(merge_parts, parts)
    grouped = list(parts)
    while len(grouped) > 1:
        at = data.draw(st.integers(0, len(grouped) - 2))
        grouped[at : at + 2] = [merge_parts(grouped[at], grouped[at + 1])]
    assert grouped[0] == left
    exact = [i for i in whole.hit_counts if i not in whole.sampled | left.sampled]
    assert left.lines_total == whole.lines_total
    assert {i: left.hit_counts[i] for i in exact} == {i: whole.hit_counts[i] for i in exact}
    assert left.conditions == whole.conditions
    assert [(h.index, h.line.number) for h in left.hits if h.index in exact] == [
        (h.index, h.line.number) for h in whole.hits if h.index in exact
    ]


def test_kept_lines_are_the_lines_of_the_file(tmp_path: Path) -> None:
    """Numbers and texts of kept lines and hits hold when the file is read again."""
    path = tmp_path / "train.log"
    write_log(path, 9, 6_000, 0.002)
    size = path.stat().st_size
    thirds = [0, size // 3, 2 * size // 3, size]
    digest = reduce(
        merge_parts,
        (
            scan_part(Part("t", path, a, b, size, 2026, False, ROOMY), signature_set())
            for a, b in itertools.pairwise(thirds)
        ),
    )
    numbers = [n for n, _ in digest.kept]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 1
    assert numbers[-1] == digest.lines_total == 6_000
    assert len(numbers) < 6_000
    for number, text in digest.kept:
        assert read_window(path, number, number, digest.offsets) == [(number, text)]
    kept = set(numbers)
    for hit in digest.hits:
        assert read_window(path, hit.line.number, hit.line.number) == [
            (hit.line.number, hit.line.text)
        ]
        assert hit.line.number in kept
    assert [digest.kept[i] for i in range(len(digest.kept))] == list(digest.kept)
    assert digest.kept[3:9] == list(digest.kept)[3:9]
    assert all(digest.kept[digest.position(n)][0] == n for n in numbers)


def test_a_traceback_across_two_parts_is_kept_whole(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    frames = "".join(f'  File "train.py", line {i}, in f{i}\n    g()\n' for i in range(20))
    trace = f"Traceback (most recent call last):\n{frames}KeyError: 'labels'\n"
    filler = "step 1 of 9 is done and all is well here\n" * 4_000
    path.write_text(filler + trace + filler)
    cut = len(filler) + len(trace) // 2
    size = path.stat().st_size
    digest = merge_parts(
        scan_part(Part("t", path, 0, cut, size, 2026, False, SMALL), signature_set()),
        scan_part(Part("t", path, cut, size, size, 2026, False, SMALL), signature_set()),
    )
    start = digest.marked[Mark.TRACEBACK][0]
    assert start == 4_001
    assert [t for _, t in digest.lines_after(start, 41)][-1] == "KeyError: 'labels'"


def test_storm_is_counted_by_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line matches: few are kept, the count is near the truth, and a rare cause is not lost."""
    path = tmp_path / "storm.log"
    dice = random.Random(3)
    rows = [
        f"[rank{dice.randrange(32)}]: ConnectionResetError: [Errno 104] Connection reset by peer (attempt {i})"
        for i in range(60_000)
    ]
    rows[41_234] = "[rank7]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    path.write_text("\n".join(rows) + "\n")
    signatures = signature_set()
    digest = scan_file(path, "storm.log", signatures, SMALL)
    assert digest.sampled
    for index in digest.sampled:
        assert digest.hit_counts[index] == pytest.approx(60_000, rel=0.05)
    assert len(digest.hits) < 400
    assert any(
        h.line.number == 41_235 and signatures.signatures[h.index].category.value == "oom"
        for h in digest.hits
    )


def test_secrets_never_stay_in_a_digest(tmp_path: Path) -> None:
    path = tmp_path / "env.log"
    rows = [
        f"[rank0]: export HF_TOKEN=hf_{'a' * 20}{i:06d} and step {i} loss: 2.0"
        for i in range(6_000)
    ]
    rows += ["-----BEGIN RSA PRIVATE KEY-----", "MIIEowIBAAKCAQEA" + "x7Qz" * 12, "-----END"]
    path.write_text("\n".join(rows) + "\n")
    for budget in (Budget(), SMALL):
        digest = scan_file(path, "env.log", signature_set(), budget)
        text = "\n".join(t for _, t in digest.kept)
        assert "hf_aaaa" not in text
        assert "x7Qz" not in text
        assert digest.redactions


def test_one_endless_line_is_read_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "PART_BYTES", 3 * blocks.LONGEST)
    path = tmp_path / "long.log"
    path.write_bytes(b"first\n" + b"y" * (8 * blocks.LONGEST) + b"\nDisk quota exceeded\nlast\n")
    digest = scan_file(path, "long.log", signature_set(), SMALL)
    assert digest.lines_total == 4
    assert digest.kept[-1] == (4, "last")
    assert [h.line.number for h in digest.hits] == [3] * len(digest.hits)
    assert digest.hits
    assert read_window(path, 3, 4, digest.offsets) == [(3, "Disk quota exceeded"), (4, "last")]


def test_json_lines_with_escapes_are_unwrapped(tmp_path: Path) -> None:
    path = tmp_path / "shipped.log"
    rows = [json.dumps({"log": f"step {i} loss: 2.0\n", "stream": "stdout"}) for i in range(9_000)]
    hidden = json.dumps({"log": "[rank2]: Disk quota exceeded\n"}).replace("Disk", "\\u0044isk")
    rows[7_000] = hidden
    path.write_text("\n".join(rows) + "\n")
    digest = scan_file(path, "shipped.log", signature_set(), SMALL)
    assert [(h.line.number, h.line.text) for h in digest.hits][:1] == [
        (7_001, "[rank2]: Disk quota exceeded")
    ]


@settings(
    max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    body=st.lists(st.sampled_from([b"a", b"bb\r", b"", b"\xff\xfe", b"ccc"]), max_size=40),
    ends=st.booleans(),
    cuts=st.lists(st.integers(0, 120), max_size=5),
)
def test_blocks_cover_a_file_once(
    tmp_path: Path, body: list[bytes], ends: bool, cuts: list[int]
) -> None:
    """Whatever the cuts, every byte comes once and at its offset, and parts begin at line starts."""
    data = b"\n".join(body) + (b"\n" if ends and body else b"")
    path = tmp_path / "any"
    path.write_bytes(data)
    bounds = sorted({0, len(data), *(min(c, len(data)) for c in cuts)})
    seen = b""
    for start, end in itertools.pairwise(bounds):
        for offset, block in blocks.read_blocks(path, start, end):
            assert offset == len(seen)
            assert offset == 0 or data[offset - 1 : offset] == b"\n"
            seen += block
    assert seen == data
