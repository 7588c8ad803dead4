"""Do bytes that are no plain UTF-8 text, and archives that are too much, end well and say so?"""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from firstfault.commands import diagnose as command
from firstfault.intake import archive
from firstfault.intake.collect import collect_files
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.workspace import Workspace

OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
BEFORE = "\n".join(f"[rank3]: step {n} loss {3 - n / 100:.3f}" for n in range(30)) + "\n"


def diagnose(folder: Path, data: bytes, name: str = "train.log") -> Diagnosis:
    path = folder / name
    path.write_bytes(data)
    return Workspace(spool=folder / "spool").diagnose_paths([path])


@pytest.mark.parametrize(
    "data",
    [
        (BEFORE + OOM + "\n").encode("utf-16-le"),
        (BEFORE + OOM + "\n").encode("utf-16-be"),
        (BEFORE + OOM + "\n").encode("utf-16"),
        BEFORE.encode() + (OOM + "\r\n").encode("utf-16-le"),
        BEFORE.encode() + BEFORE.encode("utf-16-le") * 9 + (OOM + "\n").encode(),
        BEFORE.encode() + b"\0" * 70_000 + OOM.encode() + b"\n",
        BEFORE.encode() + b"\0" * 3_000_000 + OOM.encode() + b"\n",
        b"\0" * 3_000_000 + OOM.encode() + b"\n",
    ],
    ids=["le", "be", "mark", "last-line", "stretch", "nuls", "many-nuls", "nuls-first"],
)
def test_the_line_is_found(tmp_path: Path, data: bytes) -> None:
    found = diagnose(tmp_path, data)
    assert found.signature == "cuda-oom", found.input.skipped
    assert found.first_failing_rank == 3
    assert found.citations


def test_archives_of_one_incident_share_one_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_UNPACKED", 250_000)
    named = []
    for number in range(4):
        path = tmp_path / f"{number}.log.gz"
        path.write_bytes(gzip.compress(os.urandom(50_000).hex().encode()))
        named.append((path.name, path))
    found = collect_files(named, tmp_path / "spool")
    assert [a.name for a in found.artefacts] == ["0.log", "1.log"]
    assert all("rest of the incident" in s.why for s in found.skipped)
    assert len(found.skipped) == 2


def test_unpacking_leaves_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(os.urandom(50_000).hex().encode()))
    monkeypatch.setattr(archive, "KEPT_FREE", 1 << 62)
    found, reasons = archive.unpack(path, path.name, "gzip", tmp_path / "spool")
    assert not found
    assert "disk" in reasons[0][1]
    assert not any((tmp_path / "spool").iterdir())


def test_a_bomb_of_one_level_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.log.gz"
    with gzip.open(path, "wb", 9) as stream:
        for _ in range(70):
            stream.write(b"0" * (1 << 20))
    found, reasons = archive.unpack(path, path.name, "gzip", tmp_path / "spool")
    assert not found
    assert "archive bomb" in reasons[0][1]


def test_members_are_counted_over_the_incident(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_MEMBERS", 30)
    named = []
    for number in range(2):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as target:
            for member in range(20):
                target.writestr(f"{member}.log", f"step {number} {member}\n")
        path = tmp_path / f"{number}.zip"
        path.write_bytes(packed.getvalue())
        named.append((path.name, path))
    found = collect_files(named, tmp_path / "spool")
    assert len(found.artefacts) == 30
    assert "left out" in found.skipped[0].why


def test_what_a_killed_command_left_behind_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "data_folder", lambda: tmp_path)
    old = time.time() - 3_600
    for name in ("diagnose-dead", "diagnose-held", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "unpacked-x").write_text("raw log")
        os.utime(tmp_path / name, (old, old))
    (tmp_path / "diagnose-fresh").mkdir()
    script = "import fcntl,os,sys;h=os.open(sys.argv[1],os.O_RDONLY);fcntl.flock(h,2);print(1,flush=True);sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "diagnose-held")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with command._open_spool() as spool:
            assert spool.is_dir()
        assert holder.stdin is not None
        holder.stdin.close()
    assert {p.name for p in tmp_path.iterdir()} == {"diagnose-held", "diagnose-fresh", "other"}
