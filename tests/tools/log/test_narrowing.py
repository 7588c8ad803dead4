from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tools.log.samples import HEALTHY, matching_lines, signature_set

from firstfault_tools.log.executors import Workers, scan_logs
from firstfault_tools.log.narrowing import (
    MOST_TELLING_BYTES,
    index_patterns,
    read_telling_lines,
)
from firstfault_tools.log.plan import describe_log, plan_logs
from firstfault_tools.log.progress import Scanning
from firstfault_tools.log.scan import scan_file
from firstfault_tools.log.signature import SignatureSet


def fresh_set() -> SignatureSet:
    known = signature_set()
    return SignatureSet(known.signatures, known.marks)


def telling(path: Path) -> bytes | None:
    return read_telling_lines(plan_logs([describe_log(path.name, path, path.read_bytes()[:65536])]))


@settings(deadline=None, max_examples=25)
@given(st.lists(st.sampled_from(matching_lines() + HEALTHY), min_size=1, max_size=12))
def test_a_narrowed_set_matches_what_the_whole_one_does(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = tmp_path_factory.mktemp("narrow") / "rank.log"
    path.write_text("\n".join(lines), encoding="utf-8")
    text = telling(path)
    assert text is not None
    whole = signature_set()
    narrowed = whole.narrow(index_patterns(whole.patterns).find_possible(text))
    assert narrowed.only is not None
    assert len(narrowed.only) < len(whole.patterns) // 2
    for line in lines:
        ours, wanted = narrowed.match(line.encode()), whole.match(line.encode())
        if wanted is None:
            assert ours is None
        else:
            assert ours is not None
            assert (set(ours.patterns), ours.signatures) == (
                set(wanted.patterns),
                wanted.signatures,
            )


@pytest.mark.parametrize(
    "line",
    [
        '{"log":"torch.\\u004futOfMemoryError: CUDA \\u006fut of memory. Tried to allocate 2.00 GiB\\n"}',
        "\x1b[31mRuntimeError: CUDA out of \x1b[0mmemory. Tried to allocate 2.00 GiB",
    ],
    ids=["escaped JSON", "colours"],
)
def test_what_hides_a_literal_is_undone_first(tmp_path: Path, line: str) -> None:
    path = tmp_path / "rank.log"
    path.write_text(line + "\n")
    text = telling(path)
    assert text is not None
    assert b"out of memory" in text


@pytest.mark.parametrize("compiled", [False, True])
def test_the_scan_finds_the_same_whether_all_patterns_are_compiled_or_not(
    tmp_path: Path, compiled: bool
) -> None:
    path = tmp_path / "rank.log"
    path.write_text("\n".join(matching_lines()[:400]))
    parts = plan_logs([describe_log("rank.log", path, path.read_bytes()[:65536])])
    wanted = scan_file(path, "rank.log", signature_set())
    signatures = fresh_set()
    if compiled:
        signatures.match(b"x")
    found = scan_logs(parts, signatures, Workers(1)).digests["rank.log"]
    assert signatures.is_compiled is compiled
    assert found.hit_counts == wanted.hit_counts
    assert found.conditions == wanted.conditions


def test_a_set_without_any_possible_pattern_matches_nothing(tmp_path: Path) -> None:
    assert signature_set().narrow(()).match(b"CUDA out of memory") is None


def test_long_lists_of_differing_lines_are_left_to_the_whole_set(tmp_path: Path) -> None:
    path = tmp_path / "rank.log"
    words = ("".join(chr(97 + (n // 26**k) % 26) for k in range(5)) for n in range(20_000))
    path.write_text("\n".join(f"{word} {'x' * 20} {word}" for word in words))
    assert path.stat().st_size > MOST_TELLING_BYTES
    assert telling(path) is None


def test_what_is_found_is_told_by_name_while_the_scan_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "rank.log"
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    path.write_text("\n".join([*HEALTHY, oom, oom]), encoding="utf-8")
    said: list[Scanning] = []
    parts = plan_logs([describe_log(path.name, path, path.read_bytes()[:65536])])
    scan_logs(parts, fresh_set(), Workers(jobs=1, tell=said.append))
    assert said[-1].done == said[-1].total
    assert said[-1].lines == len(path.read_text().splitlines())
    assert ("CUDA out of memory", 2) in said[-1].found
