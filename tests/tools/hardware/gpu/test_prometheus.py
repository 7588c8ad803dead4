"""dcgm-exporter's fields in answers of Prometheus: an idle GPU, an Xid, a hot one, healthy hosts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.findings import Finding
from firstfault_tools.hardware.gpu.prometheus import READER
from firstfault_tools.registry import Artefact

BEGIN = 1_795_947_000
BUSY = (98, 97, 96, 98, 97, 98)


def series(name: str, gpu: int, values: Sequence[float], host: str = "node-09") -> dict[str, Any]:
    labels = {"__name__": name, "gpu": str(gpu), "Hostname": host, "instance": "10.0.0.9:9400"}
    return {"metric": labels, "values": [[BEGIN + 15 * i, str(v)] for i, v in enumerate(values)]}


def read(folder: Path, *found: dict[str, Any]) -> tuple[Finding, ...]:
    path = folder / "range.json"
    answer = {"status": "success", "data": {"resultType": "matrix", "result": list(found)}}
    path.write_text(json.dumps(answer), encoding="utf-8")
    assert READER.recognise(path.name, path.read_bytes())
    return READER.read((Artefact(path.name, path),)).findings


UTIL, XID, DBE = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
CLOCK, HEAT = "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_THERMAL_VIOLATION"


@pytest.mark.parametrize(
    ("found", "kind", "gpu"),
    [
        ([series(UTIL, g, BUSY if g != 2 else [0] * 6) for g in range(4)], "hardware.gpu_idle", "GPU 2"),
        ([series(UTIL, g, [97, 0] * 3 if g != 2 else [0] * 6) for g in range(4)], "hardware.gpu_use_low", None),
        ([series(UTIL, g, [0] * 6) for g in range(4)], "hardware.gpus_idle", None),
        ([series("DCGM_FI_PROF_SM_ACTIVE", g, [0.3] * 6) for g in range(4)], "hardware.gpu_use_low", None),
        ([series(XID, g, [0, 0, 79 if g == 1 else 0]) for g in range(4)], "hardware.xid", "GPU 1"),
        ([series(DBE, 3, [0, 0, 2])], "hardware.ecc_uncorrectable", "GPU 3"),
        ([series(HEAT, 0, [700, 700, 91_000])], "hardware.throttled", "GPU 0"),
        ([s for g in range(4) for s in (series(UTIL, g, BUSY), series(CLOCK, g, [1755 if g else 1100] * 6))], "hardware.clock_odd", "GPU 0"),
    ],
    ids=["one idle", "one idle among waiting ones", "all idle", "low", "xid", "ecc", "heat", "clock"],
)  # fmt: skip
def test_what_is_found(
    found: list[dict[str, Any]], kind: str, gpu: str | None, tmp_path: Path
) -> None:
    told = next(f for f in read(tmp_path, *found) if f.kind == kind)
    assert (told.gpu, told.host) == (gpu, "node-09")
    assert "node-09" in told.title


def test_hosts_are_judged_apart_and_healthy_ones_say_nothing(tmp_path: Path) -> None:
    busy = [series(UTIL, g, BUSY) for g in range(4)]
    other = [series(UTIL, g, [0] * 6, "node-10") for g in range(4)]
    found = read(tmp_path, *busy, *other)
    assert [f.host for f in found if f.kind == "hardware.gpus_idle"] == ["node-10"]
    assert not [f for f in found if f.host == "node-09" and f.kind != "hardware.gpu_activity"]


@pytest.mark.parametrize("text", ["{", '{"resultType": "DCGM_FI_", "data": 3}', "[1]"])
def test_what_is_no_answer_is_refused_in_words(text: str, tmp_path: Path) -> None:
    path = tmp_path / "range.json"
    path.write_text(text)
    with pytest.raises(UnreadableArtefact, match=r"range\.json"):
        READER.read((Artefact(path.name, path),))
