"""Do Inspector records tell the late rank and the slow communicator, and nothing where none is?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.rows import each_row

from firstfault_tools.collectives.inspector import READER, parse_record
from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.findings import Finding
from firstfault_tools.registry import Artefact


def record(rank: int, sn: int, us: float, comm: str = "0xa", ranks: int = 4, rate: float = 300.0, size: int = 1 << 24) -> str:  # fmt: skip
    return json.dumps(
        {
            "header": {"id": comm, "rank": rank, "n_ranks": ranks, "nnodes": 1},
            "metadata": {
                "inspector_output_format_version": "v4.0",
                "hostname": f"gpu-{comm[-1]}{rank // 2}",
                "pid": 7,
            },
            "coll_perf": {
                "coll": "AllReduce",
                "coll_sn": sn,
                "coll_msg_size_bytes": size,
                "coll_exec_time_us": us,
                "coll_busbw_gbs": rate,
            },
        }
    )


def find(tmp_path: Path, lines: list[str]) -> tuple[Finding, ...]:
    path = tmp_path / "inspector.jsonl"
    path.write_text("\n".join(lines) + "\n")
    artefact = Artefact(path.name, path)
    assert READER.recognise(path.name, artefact.head())
    return READER.read((artefact,)).findings


def test_the_rank_that_comes_last_is_the_shortest(tmp_path: Path) -> None:
    lines = [record(r, sn, 100 if r == 2 else 900 + r) for sn in range(12) for r in range(4)]
    (found,) = find(tmp_path, lines)
    assert (found.kind, found.rank, found.host) == ("collective.inspector_late", 2, "gpu-a1")
    assert "12 of 12" in found.title


def test_alike_ranks_say_nothing(tmp_path: Path) -> None:
    lines = [record(r, sn, 500 + (7 * r + sn) % 5) for sn in range(12) for r in range(4)]
    assert find(tmp_path, lines) == ()


def test_lateness_that_changes_ranks_says_nothing(tmp_path: Path) -> None:
    lines = [record(r, sn, 100 if r == sn % 4 else 900) for sn in range(12) for r in range(4)]
    assert find(tmp_path, lines) == ()


def test_a_slow_communicator(tmp_path: Path) -> None:
    lines = [
        record(r, sn, 500, comm, rate=80.0 if comm == "0xd" else 300.0)
        for comm in ("0xa", "0xb", "0xc", "0xd")
        for sn in range(3)
        for r in range(4)
    ]
    (found,) = find(tmp_path, lines)
    assert found.kind == "collective.inspector_slow_group"
    assert "0xd" in found.title


@each_row("line", ["", "{", "[]", '{"coll_perf": 3, "rank": 1}', "{" * 100_000])
def test_broken_lines_are_passed_over(line: str) -> None:
    assert parse_record(line, "x", 1) is None


def test_a_file_without_a_whole_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"coll_perf": {}, "rank": 1}\n')
    with pytest.raises(UnreadableArtefact, match=r"x\.jsonl"):
        READER.read((Artefact(path.name, path),))


def test_fields_at_the_top_as_older_versions_write_them() -> None:
    flat = '{"id":"a","rank":1,"n_ranks":8,"hostname":"w-0","coll_perf":{"coll":"AllReduce","coll_sn":1,"coll_msg_size_bytes":8,"coll_exec_time_us":6.5}}'
    found = parse_record(flat, "x", 1)
    assert found is not None
    assert (found.rank, found.host, found.exec_us) == (1, "w-0", 6.5)
