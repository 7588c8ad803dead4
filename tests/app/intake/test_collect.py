"""What intake makes of files, folders and archives, honest and hostile."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest
import zstandard
from firstfault.errors import InputUnreadable
from firstfault.intake import archive
from firstfault.intake.collect import Collection, collect_bytes, collect_paths


def texts(collection: Collection) -> dict[str, bytes]:
    return {a.name: a.data() for a in collection.artefacts}


def test_a_folder_is_one_incident(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "node1").mkdir(parents=True)
    (run / "a.log").write_text("one")
    (run / "node1" / "b.log.gz").write_bytes(gzip.compress(b"two"))
    (run / "c.log.zst").write_bytes(zstandard.compress(b"three"))
    (run / "empty.log").write_bytes(b"")
    collection = collect_paths([run], tmp_path / "spool")
    assert texts(collection) == {"a.log": b"one", "node1/b.log": b"two", "c.log": b"three"}
    assert [(s.what, s.why) for s in collection.skipped] == [("empty.log", "empty file")]


def test_same_names_stay_apart(tmp_path: Path) -> None:
    for node in ("n1", "n2"):
        (tmp_path / node).mkdir()
        (tmp_path / node / "log.txt").write_text(node)
    collection = collect_paths([tmp_path / "n1/log.txt", tmp_path / "n2/log.txt"], tmp_path / "s")
    assert set(texts(collection)) == {"n1/log.txt", "n2/log.txt"}


def test_nothing_to_read_says_what_and_what_next(tmp_path: Path) -> None:
    with pytest.raises(InputUnreadable, match=r"missing\.log: no such file.*diagnose -"):
        collect_paths([tmp_path / "missing.log"], tmp_path)
    with pytest.raises(InputUnreadable, match="empty"):
        collect_bytes("stdin", b" \n ", tmp_path)


def test_tar_members_are_labels_and_links_are_skipped(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in ("../../etc/passwd", "/abs/x.log"):
            info = tarfile.TarInfo(name)
            info.size = 3
            tar.addfile(info, io.BytesIO(b"abc"))
        link = tarfile.TarInfo("link.log")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/shadow"
        tar.addfile(link)
    path = tmp_path / "logs.tar.gz"
    path.write_bytes(buffer.getvalue())
    collection = collect_paths([path], tmp_path / "spool")
    assert texts(collection) == {"logs.tar/etc/passwd": b"abc", "logs.tar/abs/x.log": b"abc"}
    assert any("link or device" in s.why for s in collection.skipped)
    assert not (tmp_path.parent / "etc").exists()


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "RATIO_FROM", 1024 * 1024)
    monkeypatch.setattr(archive, "MAX_RATIO", 50)
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("zeros.log", b"\0" * 20_000_000)
    with pytest.raises(InputUnreadable, match="bomb"):
        collect_paths([path], tmp_path / "spool")
    assert [p for p in (tmp_path / "spool").rglob("*") if p.is_file()] == []


def test_a_cut_off_gzip_gives_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress(os.urandom(200_000))[:150_000])
    collection = collect_paths([path], tmp_path / "spool")
    assert len(collection.artefacts[0].data()) > 100_000
    assert "up to the damage" in collection.skipped[0].why


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("x")
    run = tmp_path / "run"
    run.mkdir()
    (run / "a.log").write_text("a")
    (run / "out.log").symlink_to(secret)
    collection = collect_paths([run], tmp_path / "spool")
    assert set(texts(collection)) == {"a.log"}
    assert "outside" in collection.skipped[0].why


def test_utf16_is_transcoded(tmp_path: Path) -> None:
    collection = collect_bytes("paste", "RuntimeError: x".encode("utf-16"), tmp_path)
    assert texts(collection) == {"paste": b"RuntimeError: x"}
