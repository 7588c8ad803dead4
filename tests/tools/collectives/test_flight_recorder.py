from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.growth import grow_calls
from tests.rows import each_row
from tests.tools.collectives.recorder_builder import USER, RankRecorder, world, write

from firstfault_tools.collectives.flight_recorder import READER
from firstfault_tools.collectives.recorder_dump import rank_of_name, read_dump
from firstfault_tools.errors import HostileArtefact, ToolError, UnreadableArtefact
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.registry import Artefact

LAB = Path(__file__).parents[4] / "shared/cases/lab/missing_collective"


def first(folder: Path, recorders: list[RankRecorder]) -> Finding:
    return READER.read(write(folder, recorders)).findings[0]


def missing_rank() -> list[RankRecorder]:
    ranks = world(4)
    for recorder in ranks:
        if recorder.rank != 2:
            recorder.call("all_gather", state="scheduled", line=91)
    return ranks


def different_op() -> list[RankRecorder]:
    ranks = world(4)
    for recorder in ranks:
        recorder.call("broadcast" if recorder.rank == 3 else "all_reduce", state="scheduled")
    return ranks


def different_op_tie() -> list[RankRecorder]:
    ranks = world(2)
    ranks[0].call("all_reduce", state="scheduled")
    ranks[1].call("broadcast", state="scheduled")
    return ranks


def different_size() -> list[RankRecorder]:
    ranks = world(4)
    for recorder in ranks:
        recorder.call(sizes=((4096 + (recorder.rank == 1),),), state="scheduled")
    return ranks


def different_dtype() -> list[RankRecorder]:
    ranks = world(4)
    for recorder in ranks:
        dtype = "BFloat16" if recorder.rank == 0 else "Float"
        recorder.call(dtype=dtype, state="scheduled")
    return ranks


def all_to_all_uneven() -> list[RankRecorder]:
    ranks = world(2)
    ranks[0].call("all_to_all", sizes=((10,),), out=((12,),), state="scheduled")
    ranks[1].call("all_to_all", sizes=((10,),), out=((10,),), state="scheduled")
    return ranks


def stalled_everywhere() -> list[RankRecorder]:
    ranks = world(4)
    for recorder in ranks:
        recorder.call(state="started")
    return ranks


def one_gpu_behind() -> list[RankRecorder]:
    ranks = world(4)
    for recorder in ranks:
        recorder.call(state="scheduled" if recorder.rank == 1 else "started")
    return ranks


def opposite_groups() -> list[RankRecorder]:
    ranks = world(2, groups={"0": (0, 1), "1": (0, 1), "2": (0, 1)})
    for recorder in ranks:
        recorder.call(group="1").call(group="2")
    ranks[0].call(group="1", state="scheduled")
    ranks[1].call(group="2", state="scheduled")
    return ranks


def waits_through_two_groups() -> list[RankRecorder]:
    """Rank 3 is stuck; 2 waits for it in the tensor group, 0 waits for 2 in the data group."""
    groups = {"0": (0, 1, 2, 3), "tp0": (0, 1), "tp1": (2, 3), "dp0": (0, 2), "dp1": (1, 3)}
    ranks = []
    for rank in range(4):
        own = {n: r for n, r in groups.items() if rank in r}
        recorder = RankRecorder(rank, own).steps(2)
        for name in own:
            if name != "0":
                recorder.call(group=name)
        ranks.append(recorder)
    ranks[2].call(group="tp1", state="scheduled")
    for rank in (0, 1):
        ranks[rank].call(group="tp0")
    ranks[0].call(group="dp0", state="scheduled")
    ranks[1].call(group="dp1", state="scheduled")
    return ranks


def both_send() -> list[RankRecorder]:
    ranks = world(2)
    ranks[0].call("send 0->1", p2p=True, state="scheduled")
    ranks[1].call("send 1->0", p2p=True, state="scheduled")
    return ranks


def missing_send() -> list[RankRecorder]:
    ranks = world(2)
    for recorder in ranks:
        recorder.call("recv 0<-1" if recorder.rank == 0 else "send 1->0", p2p=True)
    ranks[0].call("recv 0<-1", p2p=True, state="scheduled")
    return ranks


def send_size() -> list[RankRecorder]:
    ranks = world(2)
    ranks[0].call("send 0->1", p2p=True, state="scheduled", sizes=((8,),))
    ranks[1].call("recv 1<-0", p2p=True, state="scheduled", sizes=((16,),))
    return ranks


def dead_rank() -> list[RankRecorder]:
    ranks = world(4)
    for recorder in ranks:
        recorder.call(state="scheduled")
    return [r for r in ranks if r.rank != 3]


def most_dumps_missing() -> list[RankRecorder]:
    ranks = world(16)
    ranks[0].call(state="scheduled")
    return ranks[:1]


def healthy() -> list[RankRecorder]:
    return world(4)


VERDICTS: dict[str, tuple[Any, str, int | None, Level, str]] = {
    "missing rank": (missing_rank, "never_entered", 2, Level.FAILURE, "ALLGATHER"),
    "different op": (different_op, "mismatch", 3, Level.CAUSE, "different operations"),
    "op tie": (different_op_tie, "mismatch", None, Level.CAUSE, "broadcast"),
    "different size": (different_size, "mismatch", 1, Level.CAUSE, "different sizes"),
    "different dtype": (different_dtype, "mismatch", 0, Level.CAUSE, "BFloat16"),
    "all to all": (all_to_all_uneven, "mismatch", None, Level.CAUSE, "fit together"),
    "stalled": (stalled_everywhere, "stalled", None, Level.SYMPTOM, "do not say"),
    "gpu behind": (one_gpu_behind, "not_started", 1, Level.FAILURE, "never started"),
    "groups": (opposite_groups, "order", None, Level.CAUSE, "circle"),
    "two groups": (waits_through_two_groups, "never_entered", 3, Level.FAILURE, "tp1"),
    "both send": (both_send, "order", None, Level.CAUSE, "SEND"),
    "missing send": (missing_send, "never_entered", 1, Level.FAILURE, "RECV from rank 1"),
    "send size": (send_size, "mismatch", None, Level.CAUSE, "differ in size"),
    "dead rank": (dead_rank, "no_dump", 3, Level.SYMPTOM, "no flight-recorder dump"),
    "few dumps": (most_dumps_missing, "undecided", None, Level.SYMPTOM, "undecided"),
    "healthy": (healthy, "agreed", None, Level.CONTEXT, "agree"),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_one_verdict_names_rank_and_reason(name: str, tmp_path: Path) -> None:
    build, kind, rank, level, word = VERDICTS[name]
    finding = first(tmp_path, build())
    assert (finding.kind, finding.rank, finding.level) == (f"collective.{kind}", rank, level)
    assert word in finding.title
    if kind != "agreed":
        assert finding.evidence
        assert all(quote.file.startswith("fr_rank_") for quote in finding.evidence)


@pytest.mark.parametrize("name", VERDICTS)
def test_json_says_the_same_as_pickle(name: str, tmp_path: Path) -> None:
    build, kind, rank, _, _ = VERDICTS[name]
    artefacts = []
    for recorder in build():
        path = tmp_path / f"nccl_trace_rank_{recorder.rank}.json"
        path.write_bytes(recorder.json())
        assert READER.recognise(path.name, path.read_bytes())
        artefacts.append(Artefact(path.name, path))
    finding = READER.read(tuple(artefacts)).findings[0]
    assert (finding.kind, finding.rank) == (f"collective.{kind}", rank)


def test_dumps_of_torchcomms(tmp_path: Path) -> None:
    """The recorder of torchcomms writes JSON of the same form, under names of its own."""
    artefacts = []
    for recorder in missing_rank():
        path = tmp_path / f"torchcomm_fr_trace_{recorder.rank}"
        path.write_bytes(recorder.torchcomms())
        assert READER.recognise(path.name, path.read_bytes()[:65536])
        artefacts.append(Artefact(path.name, path))
    finding = READER.read(tuple(artefacts)).findings[0]
    assert (finding.kind, finding.rank) == ("collective.never_entered", 2)


def test_user_frame_and_last_agreed_are_named(tmp_path: Path) -> None:
    reading = READER.read(write(tmp_path, missing_rank()))
    assert "train_step (/job/train.py:91)" in reading.findings[0].title
    agreed = reading.findings[1]
    assert agreed.kind == "collective.last_agreed"
    assert agreed.facts["seq"] == 3


@pytest.mark.skipif(not LAB.is_dir(), reason="the shared lab cases are not here")
def test_real_pair_names_rank_1_and_sequence_20() -> None:
    artefacts = tuple(Artefact(n, LAB / n) for n in ("fr_rank_0", "fr_rank_1"))
    assert all(READER.recognise(a.name, a.head()) for a in artefacts)
    finding = READER.read(artefacts).findings[0]
    assert (finding.kind, finding.rank) == ("collective.never_entered", 1)
    assert finding.category is Category.CODE_BUG
    assert finding.facts["seq"] == 20
    assert "main (/job/train.py:84)" in finding.title


def test_ring_buffer_that_wrapped_is_aligned_on_the_common_part(tmp_path: Path) -> None:
    ranks = world(2, count=40)
    for recorder, drop in zip(ranks, (25, 10), strict=True):
        recorder.entries = recorder.entries[drop:]
    assert first(tmp_path, ranks).kind == "collective.agreed"


def test_dump_of_active_entries_only(tmp_path: Path) -> None:
    ranks = missing_rank()
    dumps = [r.dump() for r in ranks]
    for dump in dumps:
        dump["entries"] = [e for e in dump["entries"] if e["state"] != "completed"]
    artefacts = []
    for rank, dump in enumerate(dumps):
        (tmp_path / f"fr_rank_{rank}").write_bytes(pickle.dumps(dump, 2))
        artefacts.append(Artefact(f"fr_rank_{rank}", tmp_path / f"fr_rank_{rank}"))
    finding = READER.read(tuple(artefacts)).findings[0]
    assert (finding.kind, finding.rank) == ("collective.never_entered", 2)


@each_row(
    ("name", "rank"),
    [
        ("fr_rank_0", 0),
        ("nccl_trace_rank_12", 12),
        ("comm_lib_trace_rank_3.json", 3),
        ("dumps/host7/trace_5", 5),
        ("nccl_trace_rank_12.pkl", 12),
        ("node2_rank3_fr", 3),
        ("recorder", None),
    ],
)
def test_rank_of_name(name: str, rank: int | None) -> None:
    assert rank_of_name(name) == rank


def test_dump_without_a_rank_in_its_name_takes_the_only_gap(tmp_path: Path) -> None:
    artefacts = list(write(tmp_path, world(3)))
    renamed = tmp_path / "dump-of-the-other-host"
    artefacts[1].path.rename(renamed)
    artefacts[1] = Artefact(renamed.name, renamed)
    assert READER.read(tuple(artefacts)).data["ranks_seen"] == [0, 1, 2]


def test_hostile_dump_beside_good_ones_is_reported_not_run(tmp_path: Path) -> None:
    artefacts = list(write(tmp_path, missing_rank()))
    bad = tmp_path / "fr_rank_9"
    bad.write_bytes(b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00id\x85R.")
    reading = READER.read((*artefacts, Artefact(bad.name, bad)))
    assert reading.findings[0].rank == 2
    assert "os.system" in str(reading.data["unreadable"])
    with pytest.raises(HostileArtefact):
        READER.read((Artefact(bad.name, bad),))


def test_no_dump_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "fr_rank_0"
    path.write_bytes(pickle.dumps([1, 2], 2))
    with pytest.raises(UnreadableArtefact, match="fr_rank_0"):
        READER.read((Artefact(path.name, path),))


ODD_VALUES = (
    st.none() | st.integers(-(2**63), 2**63) | st.text(max_size=8) | st.lists(st.integers())
)


@settings(
    deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_odd_values_raise_tool_errors_only(data: st.DataObject, tmp_path: Path) -> None:
    build = data.draw(st.sampled_from([b for b, *_ in VERDICTS.values()]))
    recorders = build()
    for _ in range(data.draw(st.integers(1, 5))):
        target: Any = data.draw(st.sampled_from(recorders)).entries
        entry = data.draw(st.sampled_from(target))
        entry[data.draw(st.sampled_from(sorted(entry)))] = data.draw(ODD_VALUES)
    artefacts = []
    for recorder in recorders:
        path = tmp_path / f"fr_rank_{recorder.rank}"
        dump = RankRecorder(recorder.rank, recorder.groups).dump()
        dump["entries"] = recorder.entries
        if data.draw(st.booleans()):
            dump[data.draw(st.sampled_from(sorted(dump)))] = data.draw(ODD_VALUES)
        path.write_bytes(pickle.dumps(dump, 2))
        artefacts.append(Artefact(path.name, path))
    try:
        READER.read(tuple(artefacts))
    except ToolError:
        return


@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_truncated_and_mutated_dumps_raise_tool_errors_only(
    data: st.DataObject, tmp_path: Path
) -> None:
    body = bytearray(pickle.dumps(missing_rank()[0].dump(), 2))
    for _ in range(data.draw(st.integers(0, 5))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    path = tmp_path / "fr_rank_0"
    path.write_bytes(bytes(body[:cut]))
    READER.recognise(path.name, bytes(body[:cut]))
    try:
        READER.read((Artefact(path.name, path),))
    except ToolError:
        return


def test_entries_that_are_not_kept_cost_no_calls() -> None:
    """A dump holds 2,000 entries a rank, and of a thousand ranks only the last are looked at."""

    def read(count: int) -> Callable[[], object]:
        recorder = RankRecorder(0, {"0": tuple(range(1024))})
        recorder.call()
        first = recorder.entries[0]
        recorder.entries[:] = [
            {**first, "record_id": n, "collective_seq_id": n, "frames": [dict(USER)] * 8}
            for n in range(count)
        ]
        body = pickle.dumps(recorder.dump(), 2)
        return lambda: read_dump(body, "fr_rank_0", last=100)

    assert grow_calls(read, 500) < 6
