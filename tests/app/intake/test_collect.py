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
from tests.growth import grow_calls

from firstfault.errors import InputUnreadable
from firstfault.intake import archive
from firstfault.intake.collect import Collection, collect_bytes, collect_paths, collect_stream


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


def make_tar(members: dict[str, bytes], path: Path, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def test_packed_logs_inside_an_archive_are_unpacked_too(tmp_path: Path) -> None:
    inner = make_tar({"deep.log": b"deep"}, tmp_path / "inner.tar.gz").read_bytes()
    path = make_tar(
        {"rank_0.log.gz": gzip.compress(b"zero"), "node1.tar.gz": inner, "plain.log": b"plain"},
        tmp_path / "run.tar.gz",
    )
    collection = collect_paths([path], tmp_path / "spool")
    assert texts(collection) == {
        "run.tar/rank_0.log": b"zero",
        "run.tar/node1.tar/deep.log": b"deep",
        "run.tar/plain.log": b"plain",
    }
    assert collection.skipped == ()


def test_archives_packed_into_each_other_for_ever_are_refused(tmp_path: Path) -> None:
    data = b"x"
    for level in range(6):
        data = make_tar({f"{level}.tar.gz": data}, tmp_path / "level.tar.gz").read_bytes()
    with pytest.raises(InputUnreadable, match="packed more than 3 times"):
        collect_paths([tmp_path / "level.tar.gz"], tmp_path / "spool")
    assert [p for p in (tmp_path / "spool").rglob("*") if p.is_file()] == []


def test_a_bomb_beside_a_log_does_not_take_the_log_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "RATIO_FROM", 1024 * 1024)
    monkeypatch.setattr(archive, "MAX_RATIO", 50)
    path = tmp_path / "run.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("train.log", b"RuntimeError: x")
        bomb.writestr("zeros.log", b"\0" * 20_000_000)
    collection = collect_paths([path], tmp_path / "spool")
    assert texts(collection) == {"run.zip/train.log": b"RuntimeError: x"}
    assert "bomb" in collection.skipped[0].why


def test_a_cut_off_tar_gives_the_members_before_the_cut(tmp_path: Path) -> None:
    whole = make_tar({"a.log": b"a" * 4000, "b.log": b"b" * 4000}, tmp_path / "run.tar", "w")
    cut = tmp_path / "cut.tar"
    cut.write_bytes(whole.read_bytes()[:6000])
    collection = collect_paths([cut], tmp_path / "spool")
    assert texts(collection)["cut.tar/a.log"] == b"a" * 4000
    assert any("damage" in s.why for s in collection.skipped)


def test_a_damaged_member_of_a_zip_is_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive_file:
        archive_file.writestr("a.log", b"a")
        archive_file.writestr("gone.log", os.urandom(4000))
    data = bytearray(path.read_bytes())
    at = data.find(b"gone.log") + 8
    data[at : at + 40] = b"\xff" * 40
    path.write_bytes(data)
    collection = collect_paths([path], tmp_path / "spool")
    assert texts(collection)["run.zip/a.log"] == b"a"
    assert [s.what for s in collection.skipped if "damaged" in s.why] == ["run.zip/gone.log"]


def test_a_zip_member_of_an_unknown_method_is_named_and_the_rest_read(tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    with zipfile.ZipFile(path, "w") as archive_file:
        archive_file.writestr("odd.log", b"odd")
        archive_file.writestr("a.log", b"a")
    data = bytearray(path.read_bytes())
    for marker, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        at = data.find(marker) + offset
        data[at : at + 2] = (97).to_bytes(2, "little")
    path.write_bytes(data)
    collection = collect_paths([path], tmp_path / "spool")
    assert texts(collection) == {"run.zip/a.log": b"a"}
    assert collection.skipped[0].what == "run.zip/odd.log"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"ev\x1b[31mil\x07.log", "ev�[31mil�.log"),
        (b"a\nFAULT forged.log", "a�FAULT forged.log"),
        (b"bad\xff\xfe.log", "bad��.log"),
        ("right\u202egol.log".encode(), "right�gol.log"),
        (b"run-hf_" + b"a1B2" * 8 + b".log", "run-<redacted:huggingface_token>.log"),
    ],
)
def test_a_file_name_cannot_steer_a_terminal_or_carry_a_secret(
    tmp_path: Path, name: bytes, shown: str
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / os.fsdecode(name)).write_bytes(b"x")
    (run / (os.fsdecode(name) + ".empty")).write_bytes(b"")
    collection = collect_paths([run], tmp_path / "spool")
    assert [a.name for a in collection.artefacts] == [shown]
    assert [s.what for s in collection.skipped] == [shown + ".empty"]


def test_a_pipe_named_as_a_file_says_how_to_read_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputUnreadable, match="not a regular file; pipe what it gives"):
        collect_paths([tmp_path / "pipe"], tmp_path / "spool")


def test_a_path_that_no_system_has_is_unreadable_and_the_others_are_read(tmp_path: Path) -> None:
    good = tmp_path / "a.log"
    good.write_bytes(b"a")
    collection = collect_paths([good, tmp_path / ("x" * 300), Path("nul\0")], tmp_path / "spool")
    assert texts(collection) == {"a.log": b"a"}
    assert len(collection.skipped) == 2


def test_what_may_not_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = Path.stat

    def refuse(path: Path, **options: bool) -> os.stat_result:
        if path.name == "closed.log":
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(InputUnreadable, match="permission denied; make it readable"):
        collect_paths([tmp_path / "closed.log"], tmp_path / "spool")


def test_a_long_list_of_missing_files_stays_short(tmp_path: Path) -> None:
    with pytest.raises(InputUnreadable) as caught:
        collect_paths([tmp_path / f"{n}.log" for n in range(3000)], tmp_path)
    assert len(str(caught.value)) < 2000
    assert "2995 more" in str(caught.value)


def test_a_pipe_is_copied_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = tmp_path / "spool"
    assert texts(collect_stream("stdin", io.BytesIO(b"one\ntwo"), spool)) == {"stdin": b"one\ntwo"}
    packed = collect_stream("stdin", io.BytesIO(gzip.compress(b"three")), spool)
    assert texts(packed) == {"stdin": b"three"}
    with pytest.raises(InputUnreadable, match="stdin: empty"):
        collect_stream("stdin", io.BytesIO(b" \n "), spool)
    monkeypatch.setattr(archive, "MAX_UNPACKED", 5)
    cut = collect_stream("stdin", io.BytesIO(b"123456789"), spool)
    assert texts(cut) == {"stdin": b"12345"}
    assert "what comes after" in cut.skipped[0].why


def test_a_spool_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for read in (
        lambda spool: collect_stream("stdin", io.BytesIO(b"x"), spool),
        lambda spool: collect_bytes("paste", b"x", spool),
    ):
        with pytest.raises(InputUnreadable, match="set FIRSTFAULT_DATA"):
            read(tmp_path / "file" / "spool")


def test_many_paths_and_many_twins_cost_linear_work(tmp_path: Path) -> None:
    logs = [tmp_path / str(n) / "x" / "log.txt" for n in range(8_000)]
    for log in logs:
        log.parent.mkdir(parents=True)
        log.write_text("x")
    growth = grow_calls(lambda n: lambda: collect_paths(logs[:n], tmp_path / "spool"), 500)
    assert growth < 6  # quadratic: 16
    collection = collect_paths(logs, tmp_path / "spool")
    names = [a.name for a in collection.artefacts]
    assert len(set(names)) == 8_000
    assert names[:3] == ["x/log.txt", "x/log.txt~2", "x/log.txt~3"]


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 1\n")
    (tmp_path / "link.log").symlink_to(log)
    (tmp_path / "copy.log").write_text("step 1\n")
    given = [log, tmp_path / "." / "train.log", tmp_path / "link.log", tmp_path / "copy.log"]
    collection = collect_paths(given, tmp_path / "spool")
    assert [a.name for a in collection.artefacts] == ["train.log", "copy.log"]
    assert [s.why for s in collection.skipped] == ["named twice; read once"] * 2
