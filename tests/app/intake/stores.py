"""Object stores on the loopback: S3 as moto serves it, and the part of Google's JSON API that is read.

Both keep a list of what they were asked, and break answers on demand.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

BUCKET = "runs"
PAGE = 25


@dataclass
class Asked:
    """One request for the bytes of an object, and what is to become of its answer."""

    key: str
    range: str
    number: int


Break = Callable[[Asked], str | None]
"""'500' for a server error, 'cut' for an answer that ends in its middle, None for a whole one."""


@dataclass
class Wire:
    """Requests for bytes that came in, and how to answer them."""

    reads: list[Asked] = field(default_factory=list)
    breaks: Break = lambda asked: None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, key: str, range_header: str) -> str | None:
        with self.lock:
            asked = Asked(key, range_header, len(self.reads))
            self.reads.append(asked)
        return self.breaks(asked)

    def read_bytes(self) -> int:
        """Longest range asked for, in bytes."""
        spans = [a.range.removeprefix("bytes=").split("-") for a in self.reads if a.range]
        return max(int(last) - int(first) + 1 for first, last in spans)


class S3Store:
    """moto's S3 behind a layer that counts and breaks reads."""

    scheme = "s3"

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        self.wire = Wire()
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def open_client(self) -> None:
        import boto3

        self._client = boto3.client("s3", endpoint_url=self.address)
        self._client.create_bucket(Bucket=BUCKET)

    def put(self, key: str, data: bytes) -> None:
        self._client.put_object(Bucket=BUCKET, Key=key, Body=data)

    def delete(self, key: str) -> None:
        self._client.delete_object(Bucket=BUCKET, Key=key)

    def close(self) -> None:
        import requests

        requests.post(f"{self.address}/moto-api/reset", timeout=5)
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        is_read = environ["REQUEST_METHOD"] == "GET" and path.count("/") > 1 and path[-1] != "/"
        fate = None
        if is_read and not path.startswith("/moto-api"):
            fate = self.wire.note(path.split("/", 2)[2], environ.get("HTTP_RANGE", ""))
        if fate == "500":
            body = b"<Error><Code>InternalError</Code><Message>We broke</Message></Error>"
            start("500 Internal Server Error", [("Content-Type", "application/xml")])
            return [body]
        if fate == "cut":
            return _halve(self._app(environ, start))
        return self._app(environ, start)  # type: ignore[no-any-return]


def _halve(body: Iterable[bytes]) -> Iterator[bytes]:
    whole = b"".join(body)
    yield whole[: len(whole) // 2]


class GcsStore:
    """Buckets and objects of Google's JSON API, as far as they are listed and read."""

    scheme = "gs"

    def __init__(self) -> None:
        self.wire = Wire()
        self.objects: dict[str, tuple[bytes, int, str]] = {}
        self.secured = False
        self._generation = 1_000
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                store.answer(self)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def open_client(self) -> None:
        """Nothing to open."""

    def put(self, key: str, data: bytes, encoding: str = "") -> None:
        self._generation += 1
        self.objects[key] = (data, self._generation, encoding)

    def delete(self, key: str) -> None:
        del self.objects[key]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        query = {k: v[0] for k, v in parse_qs(parts.query).items()}
        if self.secured and "Authorization" not in request.headers:
            self._say(request, 401, "Anonymous caller does not have storage.objects.get access")
            return
        media = parts.path.startswith("/download") or query.get("alt") == "media"
        path = parts.path.removeprefix("/download").removeprefix("/storage/v1/b/")
        bucket, _, rest = path.partition("/")
        if bucket != BUCKET:
            self._say(request, 404, "The specified bucket does not exist.")
        elif not rest:
            self._send(request, {"kind": "storage#bucket", "name": bucket, "id": bucket})
        elif rest == "o":
            self._send(request, self._list(query))
        else:
            self._read(request, unquote(rest.removeprefix("o/")), query, media)

    def _describe(self, key: str) -> dict[str, str]:
        data, generation, encoding = self.objects[key]
        out = {"kind": "storage#object", "name": key, "bucket": BUCKET, "size": str(len(data))}
        out |= {"generation": str(generation), "updated": "2026-01-02T03:04:05.678Z"}
        return out | ({"contentEncoding": encoding} if encoding else {})

    def _list(self, query: dict[str, str]) -> dict[str, Any]:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        items, folders = [], set()
        for key in sorted(k for k in self.objects if k.startswith(prefix)):
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.split(delimiter)[0] + delimiter)
            else:
                items.append(self._describe(key))
        first = int(query.get("pageToken", "0"))
        last = first + min(PAGE, int(query.get("maxResults", "1000")))
        out: dict[str, Any] = {"kind": "storage#objects", "items": items[first:last]}
        if first == 0:
            out["prefixes"] = sorted(folders)
        if last < len(items):
            out["nextPageToken"] = str(last)
        return out

    def _read(
        self, request: BaseHTTPRequestHandler, key: str, query: dict[str, str], media: bool
    ) -> None:
        known = self.objects.get(key)
        if known is None or query.get("generation", str(known[1])) != str(known[1]):
            self._say(request, 404, f"No such object: {BUCKET}/{key}")
            return
        if not media:
            self._send(request, self._describe(key))
            return
        asked = request.headers.get("Range", "")
        fate = self.wire.note(key, asked)
        if fate == "500":
            self._say(request, 503, "Backend broke")
            return
        data, status = known[0], 200
        if asked:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            data, status = data[int(first) : int(last) + 1], 206
        request.send_response(status)
        request.send_header("Content-Length", str(len(data)))
        if known[2]:
            request.send_header("Content-Encoding", known[2])
        request.end_headers()
        request.wfile.write(data[: len(data) // 2] if fate == "cut" else data)
        request.close_connection = fate == "cut"

    def _send(self, request: BaseHTTPRequestHandler, said: Any, status: int = 200) -> None:
        body = json.dumps(said).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def _say(self, request: BaseHTTPRequestHandler, status: int, message: str) -> None:
        self._send(request, {"error": {"code": status, "message": message}}, status)


Store = S3Store | GcsStore
