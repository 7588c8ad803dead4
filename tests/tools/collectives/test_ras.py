from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault_tools.collectives.ras import READER
from firstfault_tools.collectives.ras_report import parse_ras
from firstfault_tools.errors import ToolError, UnreadableArtefact
from firstfault_tools.findings import Finding, Level
from firstfault_tools.registry import Artefact

HEAD = """NCCL version 2.28.9 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          8            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         8         8         8   RUNNING  {errors}

Errors
======

{error_text}
Warnings
========

{warning_text}
"""
LAGGING = """#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation {most}
  Rank 5 has launched up to operation {least} -- GPU 5 managed by process 483077 on node 10.0.0.7

"""
INCOMPLETE = """INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 5 -- GPU 5 managed by process 3487984 on node 172.16.64.213

"""
OLD_INCOMPLETE = """DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 5

"""
CROSSED = """#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different Broadcast operation counts
  7 ranks have not launched any operations
  Rank 5 has launched up to operation 1 -- GPU 5 managed by process 483077 on node 10.0.0.7

  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation 8
  Rank 5 has launched up to operation 7 -- GPU 5 managed by process 483077 on node 10.0.0.7

"""


def text(errors: str = "OK", error_text: str = "", warning_text: str = "") -> str:
    return HEAD.format(errors=errors, error_text=error_text, warning_text=warning_text)


def report(counts: dict[int, int], missing: dict[int, bool] | None = None) -> dict[str, Any]:
    place = {"host": "10.0.0.7", "pid": 7, "cuda_dev": 0, "nvml_dev": 0}
    status = {"init_state": 0, "async_error": 0, "finalize_called": False}
    return {
        "nccl_version": "2.29.1",
        "timestamp": "2025-12-19 13:06:53",
        "communicators_count": 1,
        "communicators": [
            {
                "hash": "0xae94423cfbb2ef4a",
                "secondary_hash": "0xb7:0xb8",
                "size": len(counts) + len(missing or {}),
                "ranks": [
                    {"rank": r, **place, "status": status, "collective_counts": {"AllReduce": n}}
                    for r, n in counts.items()
                ],
                "missing_ranks": [
                    {"rank": r, **place, "status": {"unresponsive": True, "considered_dead": d}}
                    for r, d in (missing or {}).items()
                ],
            }
        ],
        "ras": {"collection_time_sec": 0.1, "timeouts_count": 0},
    }


def findings(folder: Path, *answers: str) -> list[Finding]:
    artefacts = []
    for number, answer in enumerate(answers):
        path = folder / f"ras_{number}.txt"
        path.write_text(answer)
        assert READER.recognise(path.name, path.read_bytes())
        artefacts.append(Artefact(path.name, path))
    return list(READER.read(tuple(artefacts)).findings)


def lagging(most: int = 64, least: int = 60) -> str:
    return text("MISMATCH", warning_text=LAGGING.format(most=most, least=least))


def test_mismatch_counts_only_if_it_stands(tmp_path: Path) -> None:
    once = findings(tmp_path, lagging())[0]
    assert (once.kind, once.level) == ("collective.ras_mismatch", Level.CONTEXT)
    moved = findings(tmp_path, lagging(), lagging(80, 79))[0]
    assert moved.level is Level.CONTEXT
    stands = findings(tmp_path, lagging(), lagging())[0]
    assert (stands.kind, stands.rank, stands.host) == ("collective.lagging_rank", 5, "10.0.0.7")
    assert stands.level is Level.FAILURE
    assert "operation 60 of 64" in stands.title
    assert any("Rank 5 has launched up to operation 60" in q.text for q in stands.evidence)


def test_two_answers_in_one_file(tmp_path: Path) -> None:
    assert findings(tmp_path, lagging() + lagging())[0].kind == "collective.lagging_rank"


def test_evidence_lines_are_those_of_the_file(tmp_path: Path) -> None:
    answer = lagging() + lagging()
    lines = answer.splitlines()
    for quote in findings(tmp_path, answer)[0].evidence:
        assert lines[quote.line - 1].strip() == quote.text


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (INCOMPLETE, "collective.unresponsive_rank"),
        (OLD_INCOMPLETE, "collective.dead_rank"),
    ],
)
def test_silent_process_is_named(tmp_path: Path, body: str, kind: str) -> None:
    finding = findings(tmp_path, text("INCOMPLETE", error_text=body))[0]
    assert (finding.kind, finding.rank) == (kind, 5)
    assert (finding.host, finding.gpu) == ("172.16.64.213", "5")


def test_equal_totals_mean_different_operations(tmp_path: Path) -> None:
    answer = text("MISMATCH", warning_text=CROSSED)
    finding = findings(tmp_path, answer, answer)[0]
    assert finding.rank is None
    assert "different operations: Broadcast, AllReduce" in finding.title


def test_two_communicators_with_different_laggards_are_a_circle(tmp_path: Path) -> None:
    first, second = report({0: 2, 1: 1}), report({0: 1, 1: 2})
    second["communicators"][0]["hash"] = "0x5a19"
    first["communicators"] += second["communicators"]
    answer = json.dumps(first)
    found = findings(tmp_path, answer, answer)
    assert [f.kind for f in found] == ["collective.order"]
    assert found[0].rank is None


def test_text_and_json_of_one_moment_agree(tmp_path: Path) -> None:
    body = json.loads(json.dumps(report({r: 60 if r == 5 else 64 for r in range(8)})))
    body["communicators"][0]["hash"] = "0x27a079b828ff1a75"
    stands = findings(tmp_path, lagging(), json.dumps(body))[0]
    assert (stands.kind, stands.rank) == ("collective.lagging_rank", 5)


def test_operation_that_one_rank_never_called_blames_nobody(tmp_path: Path) -> None:
    body = CROSSED.split("\n\n")[0] + "\n\n"
    answer = text("MISMATCH", warning_text=body)
    finding = findings(tmp_path, answer, answer)[0]
    assert finding.rank is None


def test_healthy_answer(tmp_path: Path) -> None:
    assert [f.kind for f in findings(tmp_path, text())] == ["collective.ras_ok"]


EXCERPT = "Group  Comms  Nodes  Ranks  Status   Errors\n0      1      2      16     RUNNING  {}\n"
BEHIND = (
    "Warnings: Communicator ranks have different AllReduce operation counts\n"
    "  14 ranks have launched up to operation 1234\n   2 ranks have launched up to operation 1233\n"
)


def test_excerpts_without_the_summary(tmp_path: Path) -> None:
    assert findings(tmp_path, EXCERPT.format("OK"))[0].kind == "collective.ras_ok"
    once = findings(tmp_path, EXCERPT.format("MISMATCH") + BEHIND)[0]
    assert once.kind == "collective.ras_mismatch"
    stands = findings(tmp_path, *[EXCERPT.format("MISMATCH") + BEHIND] * 2)[0]
    assert (stands.kind, stands.rank) == ("collective.lagging_rank", None)


def test_json(tmp_path: Path) -> None:
    answer = json.dumps(report({0: 9, 1: 8, 2: 9}))
    stands = findings(tmp_path, answer, answer)[0]
    assert (stands.kind, stands.rank) == ("collective.lagging_rank", 1)
    dead = findings(tmp_path, json.dumps(report({0: 9, 2: 9}, {1: True})))[0]
    assert (dead.kind, dead.rank) == ("collective.dead_rank", 1)


def test_json_without_the_comma_that_some_releases_forget(tmp_path: Path) -> None:
    answer = json.dumps(report({0: 9}, {1: False}), indent=2)
    broken = answer.replace('],\n      "missing_ranks"', ']\n      "missing_ranks"')
    assert broken != answer
    assert findings(tmp_path, broken)[0].kind == "collective.unresponsive_rank"


def test_other_text_is_unreadable() -> None:
    with pytest.raises(UnreadableArtefact):
        parse_ras(b"hello", "x")


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_damaged_answers_raise_tool_errors_only(tmp_path_factory: Any, data: st.DataObject) -> None:
    base = data.draw(
        st.sampled_from([lagging(), text("INCOMPLETE", INCOMPLETE), json.dumps(report({0: 9}))])
    )
    start = data.draw(st.integers(0, len(base)))
    stop = data.draw(st.integers(0, len(base)))
    body = base[:start] + data.draw(st.text(max_size=20)) + base[stop:]
    path = tmp_path_factory.getbasetemp() / "ras_fuzz"
    path.write_text(body, encoding="utf-8", errors="surrogatepass")
    try:
        READER.read((Artefact("ras_fuzz", path),))
    except ToolError:
        return
