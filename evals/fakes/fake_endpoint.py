"""What can go wrong on the wire? A small OpenAI-compatible server that misbehaves on request.

The behaviour is the model's name: `good`, `tools`, `stall`, `dribble`, `cut`, `garbage`, `html`, `empty`,
`prose`, `fenced`,
`lies`, `length`, `429`, `429-once`, `500`, `500-once`, `401`, `404`, `400`, `drop`. Loopback only.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REPLY: dict[str, Any] = {
    "answer": [],
    "explanations": [],
    "doubts": [],
    "not_applying": [],
    "question": None,
}
LIE = {
    **REPLY,
    "answer": [{"text": "GPU 6 on host badnode-99 fell off the bus with Xid 79.", "lines": ["F1:1", "F7:77"]}],
    "explanations": [{"verdict": "fault", "category": "hardware", "cause": "Xid 79 on GPU 6 of host badnode-99.", "lines": ["F4:404"]}],
}  # fmt: skip


@dataclass
class FakeEndpoint:
    """A running server: its address and every request body it got, keys included."""

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    reply: dict[str, Any] = field(default_factory=lambda: dict(REPLY))
    tool_call: tuple[str, dict[str, Any]] = ("overview", {})


@contextmanager
def serve_fake() -> Iterator[FakeEndpoint]:
    """Serve on a free port of 127.0.0.1 until the block ends."""
    state = FakeEndpoint("")
    stop = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Silent."""

        def do_GET(self) -> None:
            names = ["good", "tools", "lies"]
            self._send(
                200, {"object": "list", "data": [{"id": n, "object": "model"} for n in names]}
            )

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.requests.append(body)
            state.keys.append(self.headers.get("Authorization", ""))
            kind = str(body["model"])
            tries = sum(r["model"] == kind for r in state.requests)
            once = kind.endswith("-once")
            code = kind.removesuffix("-once")
            if code.isdigit() and not (once and tries > 1):
                headers = {"Retry-After": "0"} if code == "429" else {}
                self._send(int(code), {"error": {"message": "no", "type": "x"}}, headers)
            elif kind == "drop":
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
            elif kind == "stall":
                stop.wait(30)
            elif kind == "html":
                self._raw(200, b"<html>proxy login</html>", "text/html")
            elif kind == "garbage":
                self._raw(200, b"\x00\xff{not json", "application/json")
            elif body.get("stream"):
                self._stream(kind, body)
            else:
                message = self._message(kind, body)
                self._send(200, _completion(kind, message))

        def _message(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
            if kind == "empty":
                return {"role": "assistant", "content": ""}
            if kind == "prose":
                return {"role": "assistant", "content": "I think that rank 1 ran out of memory."}
            if kind == "fenced":
                fenced = f"Here it is:\n```json\n{json.dumps(state.reply)}\n```"
                return {"role": "assistant", "content": fenced}
            answered = any(m["role"] == "tool" for m in body["messages"])
            names = [t["function"]["name"] for t in body.get("tools", [])]
            if kind == "tools" and not answered and state.tool_call[0] in names:
                name, arguments = state.tool_call
            else:
                name, arguments = "Reply", LIE if kind == "lies" else state.reply
            if "Reply" not in names and name == "Reply":
                return {"role": "assistant", "content": json.dumps(arguments)}
            number = len(body["messages"])
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"id": f"call_{number}", "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}

        def _stream(self, kind: str, body: dict[str, Any]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            message = self._message(kind, body)
            try:
                for number, delta in enumerate(_deltas(message)):
                    if kind == "cut" and number == 2:
                        return
                    self._event(_chunk(kind, delta))
                    if kind == "dribble":
                        for _ in range(10_000):
                            if stop.wait(0.05):
                                return
                            self._event(_chunk(kind, {"content": " "}))
                finish = (
                    "length"
                    if kind == "length"
                    else ("tool_calls" if message.get("tool_calls") else "stop")
                )
                self._event(_chunk(kind, {}, finish))
                self._event(
                    {
                        **_chunk(kind, {}),
                        "choices": [],
                        "usage": {
                            "prompt_tokens": 900,
                            "completion_tokens": 40,
                            "total_tokens": 940,
                        },
                    }
                )
                self.wfile.write(b"data: [DONE]\n\n")
            except (BrokenPipeError, ConnectionResetError):
                return

        def _event(self, row: dict[str, Any]) -> None:
            self.wfile.write(b"data: " + json.dumps(row).encode() + b"\n\n")
            self.wfile.flush()

        def _send(
            self, code: int, body: dict[str, Any], headers: dict[str, str] | None = None
        ) -> None:
            self._raw(code, json.dumps(body).encode(), "application/json", headers)

        def _raw(
            self, code: int, data: bytes, kind: str, headers: dict[str, str] | None = None
        ) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield state
    finally:
        stop.set()
        server.shutdown()
        server.server_close()


def _completion(kind: str, message: dict[str, Any]) -> dict[str, Any]:
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    return {
        "id": "x", "object": "chat.completion", "created": int(time.time()), "model": kind,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 900, "completion_tokens": 40, "total_tokens": 940},
    }  # fmt: skip


def _chunk(kind: str, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "x", "object": "chat.completion.chunk", "created": int(time.time()), "model": kind,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }  # fmt: skip


def _deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    text = message.get("content") or ""
    for start in range(0, len(text), 40):
        yield {"content": text[start : start + 40]}
    for index, call in enumerate(message.get("tool_calls") or []):
        function = call["function"]
        head = {"name": function["name"], "arguments": ""}
        yield {
            "tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": head}]
        }
        for start in range(0, len(function["arguments"]), 40):
            piece = {"arguments": function["arguments"][start : start + 40]}
            yield {"tool_calls": [{"index": index, "function": piece}]}
