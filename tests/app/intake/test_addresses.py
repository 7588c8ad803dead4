"""Signed addresses on a web server: read whole or in ranges, and never shown with their signature."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import random
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.rows import each_row

from firstfault.commands.diagnose import COMMAND
from firstfault.errors import InputUnreadable
from firstfault.intake import objects, ranges, remote
from firstfault.intake.objects import RemotePath, name_object, show_address
from firstfault.intake.remote import collect_sources
from firstfault.workspace import Workspace
from firstfault_tools.log.executors import Workers

LINES = b"".join(b"[rank1]: step %d loss: 2.0\n" % i for i in range(20_000))
LOG = LINES + b"[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
SIGNATURE = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
QUERY = f"X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20260101%2Fs3&Expires=60&Signature={SIGNATURE}"


class WebServer:
    """Files behind signed addresses. `breaks(number of the request)` gives 'cut', '500' or None."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.ranges = True
        self.reads: list[str] = []
        self.breaks: Callable[[int], str | None] = lambda number: None
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                # a signature holds for one method
                self.send_error(403)

            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._httpd.server_address[1]}"
        threading.Thread(target=self._httpd.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._httpd.shutdown()
        self._httpd.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path, _, query = request.path.partition("?")
        data = self.files.get(path)
        if SIGNATURE not in query:
            request.send_error(403)
            return
        if data is None:
            request.send_error(404)
            return
        tag = f'"{hash(data)}"'
        asked = request.headers.get("Range", "")
        if asked and request.headers.get("If-Match", tag) != tag:
            request.send_error(412)
            return
        fate = None
        if asked or not self.ranges:
            self.reads.append(asked)
            fate = self.breaks(len(self.reads))
        if fate == "500":
            request.send_error(503)
            return
        body = data
        if asked and self.ranges:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            body = data[int(first) : int(last) + 1]
            request.send_response(206)
            request.send_header(
                "Content-Range", f"bytes {first}-{int(first) + len(body) - 1}/{len(data)}"
            )
        else:
            request.send_response(200)
        request.send_header("ETag", tag)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body[: len(body) // 2] if fate == "cut" else body)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    pytest.importorskip("aiohttp")
    monkeypatch.setattr(remote, "COPY_BYTES", 100_000)
    monkeypatch.setattr(ranges, "FIRST_BYTES", 16_384)
    monkeypatch.setattr(ranges, "BLOCK_BYTES", 65_536)
    monkeypatch.setattr(objects.time, "sleep", lambda seconds: None)
    server = WebServer()
    server.files["/logs/rank_1.log"] = LOG
    yield server
    server.close()


def signed(web: WebServer, path: str) -> str:
    return f"{web.address}{path}?{QUERY}"


def test_signed_log_is_diagnosed_in_place(web: WebServer, tmp_path: Path) -> None:
    workspace = Workspace(cache=None, spool=tmp_path)
    collection = collect_sources([signed(web, "/logs/rank_1.log")], tmp_path)
    assert isinstance(collection.artefacts[0].path, RemotePath)
    diagnosis = workspace.diagnose_collection(collection, "", Workers(1))
    said = json.dumps(diagnosis.to_json())
    assert diagnosis.first_failing_rank == 1
    assert diagnosis.input.files == (f"{web.address.removeprefix('http://')}/logs/rank_1.log",)
    assert SIGNATURE not in said
    assert "AKIA" not in said


def test_nothing_shows_the_signature(web: WebServer, tmp_path: Path) -> None:
    """Names of spooled files, representations, reasons and errors."""
    web.files["/logs/small.log"] = b"[rank0]: step 1 loss: 2.0\n"
    found = collect_sources(
        [signed(web, "/logs/small.log"), signed(web, "/logs/none.log"), signed(web, "/logs/rank_1.log")],
        tmp_path,
    )  # fmt: skip
    shown = [repr(found), *map(str, tmp_path.iterdir()), str(found.artefacts[1].path)]
    assert found.skipped[0].why == "no such object"
    assert all(SIGNATURE not in text and "AKIA" not in text for text in shown)
    with pytest.raises(InputUnreadable) as caught:
        collect_sources([signed(web, "/logs/none.log")], tmp_path)
    assert SIGNATURE not in str(caught.value)
    copied = pickle.loads(pickle.dumps(found.artefacts[1].path))
    assert SIGNATURE in copied.url, "a worker needs the whole address"


def test_command_shows_no_signature(web: WebServer) -> None:
    from click.testing import CliRunner

    done = CliRunner().invoke(
        COMMAND, [signed(web, "/logs/rank_1.log"), signed(web, "/none.log"), "--json", "--no-llm"]
    )
    assert done.exit_code == 1, done.output
    assert "/logs/rank_1.log" in done.output
    assert SIGNATURE not in done.output


def test_expired_signature_is_said(web: WebServer, tmp_path: Path) -> None:
    with pytest.raises(InputUnreadable, match="a signed address may have expired"):
        collect_sources([f"{web.address}/logs/rank_1.log?Signature=old"], tmp_path)


def test_server_that_is_not_there(web: WebServer, tmp_path: Path) -> None:
    with pytest.raises(InputUnreadable, match=r"127\.0\.0\.1:9") as caught:
        collect_sources(["http://127.0.0.1:9/a.log?token=abc"], tmp_path)
    assert "no such object" not in str(caught.value)
    assert "token=abc" not in str(caught.value)


@pytest.mark.parametrize("fate", ["500", "cut"])
def test_passing_trouble_is_outlived(web: WebServer, tmp_path: Path, fate: str) -> None:
    collection = collect_sources([signed(web, "/logs/rank_1.log")], tmp_path)
    bad = len(web.reads) + 3
    web.breaks = lambda number: fate if number == bad else None
    assert collection.artefacts[0].path.read_bytes() == LOG
    assert web.reads.count(web.reads[bad - 1]) >= 2


def test_change_in_the_middle_of_a_read(web: WebServer, tmp_path: Path) -> None:
    collection = collect_sources([signed(web, "/logs/rank_1.log")], tmp_path)
    with collection.artefacts[0].path.open("rb") as stream:
        assert stream.read(100_000) == LOG[:100_000]
        web.files["/logs/rank_1.log"] = LOG[::-1]
        with pytest.raises(OSError, match="changed since it was listed"):
            stream.read()


def test_large_log_without_ranges_is_copied_whole(web: WebServer, tmp_path: Path) -> None:
    """More than one block of fsspec's own reading, which would ask for ranges."""
    web.ranges = False
    web.files["/logs/rank_1.log"] = LOG * 12
    collection = collect_sources([signed(web, "/logs/rank_1.log")], tmp_path)
    assert not isinstance(collection.artefacts[0].path, RemotePath)
    assert collection.artefacts[0].path.read_bytes() == LOG * 12


def test_cut_copy_is_never_taken_for_whole(web: WebServer, tmp_path: Path) -> None:
    web.ranges = False
    web.breaks = lambda number: "cut"
    with pytest.raises(InputUnreadable, match="cannot be read"):
        collect_sources([signed(web, "/logs/rank_1.log")], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_signed_archives_keep_their_ending(web: WebServer, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("rank_0.log", LOG)
    web.files |= {"/a.zip": packed.getvalue(), "/b.log.gz": gzip.compress(LOG)}
    found = collect_sources([signed(web, "/a.zip"), signed(web, "/b.log.gz")], tmp_path)
    assert [a.name.split("/", 1)[1] for a in found.artefacts] == ["a.zip/rank_0.log", "b.log"]


@each_row(
    ("url", "shown", "name"),
    [
        ("https://u:secret@host/a.log?sig=1", "https://host/a.log?...", "host/a.log"),
        ("https://host:8443/x/a%20b.log", "https://host:8443/x/a%20b.log", "host:8443/x/a b.log"),
        ("s3://runs/a.log?versionId=7", "s3://runs/a.log?versionId=7", "runs/a.log"),
        ("gs://runs/a?b.log", "gs://runs/a?b.log", "runs/a?b.log"),
    ],
)
def test_names_and_addresses(url: str, shown: str, name: str) -> None:
    assert show_address(url) == shown
    assert name_object(url) == name


def test_stream_of_blocks_gives_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any order of seeks and reads, against a stream in memory."""
    monkeypatch.setattr(ranges, "FIRST_BYTES", 100)
    monkeypatch.setattr(ranges, "BLOCK_BYTES", 700)
    data = random.Random(1).randbytes(50_000)
    for seed in range(20):
        dice = random.Random(seed)
        head = data[: dice.choice([0, 1_000])]
        raw = ranges.BlockStream(len(data), lambda: lambda s, e: data[s:e], head, seed % 2 == 0)
        stream, expected = io.BufferedReader(raw, 300), io.BytesIO(data)
        for _ in range(60):
            if dice.random() < 0.3:
                place = dice.randrange(len(data) + 10)
                assert stream.seek(place) == expected.seek(place)
            size = dice.choice([1, 90, 2_000, 9_000])
            assert stream.read(size) == expected.read(size)
        stream.close()


def test_short_answer_is_an_error() -> None:
    raw = ranges.BlockStream(1_000, lambda: lambda s, e: b"x" * (e - s - 1))
    with pytest.raises(OSError, match="the server sent 999 of 1000 bytes"):
        raw.readinto(memoryview(bytearray(10)))
