"""The page as a program sees it: headers of our choice on a WebSocket, and the text it is sent."""

from __future__ import annotations

import socket
from collections.abc import Sequence

Header = tuple[str, str]


def draw(address: str, headers: Sequence[Header] = (), patience: float = 60.0) -> str:
    """Open a session with these headers, run the page once, and return all it was sent, as text."""
    from streamlit.proto.BackMsg_pb2 import BackMsg
    from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
    from websockets.sync.client import connect

    url = address.replace("http://", "ws://") + "/_stcore/stream"
    with connect(
        url, additional_headers=list(headers), subprotocols=["streamlit"], proxy=None
    ) as wire:  # type: ignore[list-item]
        back = BackMsg()
        back.rerun_script.query_string = ""
        wire.send(back.SerializeToString())
        said = []
        while True:
            message = ForwardMsg.FromString(bytes(wire.recv(timeout=patience)))  # type: ignore[arg-type]
            said.append(str(message))
            if message.WhichOneof("type") == "script_finished":
                return "\n".join(said)


def request(address: str, path: str = "/", headers: Sequence[Header] = ()) -> tuple[int, str]:
    """Status line and everything that came back for a raw request."""
    host, port = address.removeprefix("http://").split(":")
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}:{port}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers]
    with socket.create_connection((host, int(port)), timeout=30) as raw:
        raw.sendall("\r\n".join([*lines, "", ""]).encode())
        data = b""
        while piece := raw.recv(65536):
            data += piece
    text = data.decode("utf-8", "replace")
    return int(text.split(" ", 2)[1]), text
