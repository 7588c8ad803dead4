"""Values of all ranks in one line, and the line that one rank never says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.odd_ranks.listed import find_in_incident, read_list
from firstfault_tools.causality.odd_ranks.silence import find_silent
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.log.scan import build_set, scan_file


def incident(tmp_path: Path, *lines: str) -> LogIncident:
    path = tmp_path / "log.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    signatures = build_set(())
    return LogIncident((scan_file(path, "log.txt", signatures),), signatures)


def trouble(level: Level, category: Category = Category.CODE_BUG) -> Finding:
    return Finding("test", "x", level, category, evidence=(Evidence("log.txt", 99, "x"),))


@pytest.mark.parametrize(
    ("text", "rank", "value"),
    [
        ("number of batches differs: rank 0: 9, rank 1: 9, rank 2: 8, rank 3: 9", 2, "8"),
        ("dataset sizes across ranks: {0: 1250, 1: 1249, 2: 1250, 3: 1250}", 1, "1249"),
        ("param counts per rank: [416, 416, 416, 412]", 3, "412"),
        ("checkpoint steps: rank0=500 rank1=500, rank2=400", 2, "400"),
        ("gathered seq lengths from all ranks [4096, 2048, 4096]", 1, "2048"),
    ],
)
def test_a_list_by_rank(tmp_path: Path, text: str, rank: int, value: str) -> None:
    assert read_list(text)[rank] == value
    made = incident(tmp_path, f"[rank0]: RuntimeError: {text}")
    found = find_in_incident(made, (trouble(Level.FAILURE),))
    if found:
        assert (found[0].rank, found[0].level) == (rank, Level.CAUSE)


@pytest.mark.parametrize(
    "text",
    [
        "tensor of shape [4, 4, 3] on this device",
        "losses per rank: [2.1, 2.1, 2.2, 2.3]",
        "rank 0: 9, rank 1: 8",
        "visible devices by rank: {0: 0, 1: 1, 2: 2}",
        "memory per rank: [61, 61, 60, 61] GiB allocated",
    ],
)
def test_lists_that_blame_nobody(tmp_path: Path, text: str) -> None:
    made = incident(tmp_path, text)
    assert find_in_incident(made, (trouble(Level.FAILURE),)) == []


LOADED = [f"[rank{r}]: building dataset" for r in range(4)] + [
    f"[rank{r}]: dataset ready" for r in (0, 1, 3)
]


def test_the_rank_that_never_said_it(tmp_path: Path) -> None:
    (found,) = find_silent(incident(tmp_path, *LOADED), (trouble(Level.SYMPTOM),))
    assert (found.rank, found.category, found.level) == (2, Category.DATA, Level.FAILURE)
    assert "building dataset" in found.title


@pytest.mark.parametrize("level", [Level.CAUSE, Level.FAILURE, Level.CONTEXT])
def test_silence_is_asked_only_where_all_wait(tmp_path: Path, level: Level) -> None:
    assert find_silent(incident(tmp_path, *LOADED), (trouble(level),)) == []


def test_rank_zero_may_keep_silent(tmp_path: Path) -> None:
    lines = [f"[rank{r}]: start" for r in range(4)] + [f"[rank{r}]: ready" for r in (1, 2, 3)]
    assert find_silent(incident(tmp_path, *lines), (trouble(Level.SYMPTOM),)) == []


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        st.text(max_size=200),
        st.builds(lambda a: f"per rank {a}", st.lists(st.integers(), max_size=9)),
        st.builds(
            lambda a: f"by rank {a}", st.dictionaries(st.integers(), st.integers(), max_size=9)
        ),
        st.builds(
            lambda a: ", ".join(f"rank {k}: {v}" for k, v in a.items()),
            st.dictionaries(st.integers(), st.text(), max_size=9),
        ),
    )
)
def test_damage_raises_nothing(text: str) -> None:
    read_list(text)
