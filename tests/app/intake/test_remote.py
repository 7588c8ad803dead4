"""Logs behind addresses: fsspec's memory file system and an HTTP server on the loopback."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from firstfault.errors import InputUnreadable
from firstfault.intake import remote
from firstfault.intake.remote import RemotePath, collect_sources, is_remote
from firstfault.workspace import Workspace
from firstfault_tools.log.executors import Workers

LINES = b"".join(b"[rank1]: step %d loss: 2.0\n" % i for i in range(20_000))
END = b"[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
LOG = LINES + END


@pytest.fixture
def memory() -> Iterator[None]:
    fsspec = pytest.importorskip("fsspec")
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe("/run/rank_0.log", b"step 1 loss: 2.0\n")
    filesystem.pipe("/run/rank_1.log", LOG)
    filesystem.pipe("/run/old/rank_2.log.gz", gzip.compress(b"[rank2]: step 3 loss: 2.0\n"))
    yield
    filesystem.rm("/run", recursive=True)


class Handler(BaseHTTPRequestHandler):
    """Serves one log, with or without ranges."""

    def __init__(self, ranges: bool, *arguments: object) -> None:
        self.ranges = ranges
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        if self.path != "/logs/rank_1.log":
            self.send_error(404)
            return
        data, status = LOG, 200
        asked = self.headers.get("Range", "")
        if self.ranges and asked.startswith("bytes="):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            data = LOG[int(first) : int(last or len(LOG)) + 1]
            status = 206
        self.send_response(status)
        if self.ranges:
            self.send_header("Accept-Ranges", "bytes")
        if status == 206:
            self.send_header(
                "Content-Range", f"bytes {first}-{int(first) + len(data) - 1}/{len(LOG)}"
            )
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture(params=[True, False], ids=["ranges", "no ranges"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    pytest.importorskip("aiohttp")
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, request.param))
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{httpd.server_address[1]}"
    httpd.shutdown()
    httpd.server_close()


def test_what_is_an_address() -> None:
    assert is_remote("s3://bucket/run/*.log")
    assert is_remote("https://host/a.log")
    assert not is_remote("run/a.log")
    assert not is_remote("file:///etc/passwd")


def test_folder_glob_and_archive_in_memory(memory: None, tmp_path: Path) -> None:
    whole = collect_sources(["memory://run"], tmp_path)
    assert [a.name for a in whole.artefacts] == [
        "run/old/rank_2.log",
        "run/rank_0.log",
        "run/rank_1.log",
    ]
    some = collect_sources(["memory://run/rank_*.log"], tmp_path)
    assert [a.path.read_bytes() for a in some.artefacts] == [b"step 1 loss: 2.0\n", LOG]


@pytest.mark.parametrize("copied", [True, False])
def test_diagnosis_from_memory_is_that_of_the_file(
    memory: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    """Copied or read in place: the same verdict and quotes as from a local file."""
    if not copied:
        monkeypatch.setattr(remote, "COPY_BYTES", 1_000)
    workspace = Workspace(cache=None, spool=tmp_path / "spool")
    collection = collect_sources(["memory://run/rank_1.log"], workspace.spool)
    assert isinstance(collection.artefacts[0].path, RemotePath) is not copied
    local = tmp_path / "run" / "rank_1.log"
    local.parent.mkdir()
    local.write_bytes(LOG)
    found = workspace.diagnose_collection(collection, "", Workers(1)).to_json()
    expected = workspace.diagnose_paths([local], "", Workers(1)).to_json()
    assert found["citations"][0]["quote"] == expected["citations"][0]["quote"]
    assert found["first_line"]["line"] == expected["first_line"]["line"] == 20_001
    assert found["root_cause"] == expected["root_cause"]


def test_log_on_a_server(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "COPY_BYTES", 1_000)
    workspace = Workspace(cache=None, spool=tmp_path / "spool")
    collection = collect_sources([f"{server}/logs/rank_1.log"], workspace.spool)
    diagnosis = workspace.diagnose_collection(collection, "", Workers(1))
    assert diagnosis.first_failing_rank == 1
    assert diagnosis.input.lines_total == 20_001


def test_what_is_missing_is_said(server: str, tmp_path: Path) -> None:
    for source in (f"{server}/logs/none.log", "memory://nothing/here", str(tmp_path / "*.log")):
        with pytest.raises(InputUnreadable, match="nothing to read"):
            collect_sources([source], tmp_path)


def test_local_globs_and_files_mix(memory: None, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("one\n")
    (tmp_path / "b.log").write_text("two\n")
    found = collect_sources(
        [str(tmp_path / "*.log"), "memory://run/rank_0.log"], tmp_path / "spool"
    )
    assert [a.name for a in found.artefacts] == ["a.log", "b.log", "run/rank_0.log"]
