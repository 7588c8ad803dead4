"""Who reaches the page at all, and what may it load? Stands around every request, before Streamlit.

The address at the other end of the connection decides, never a header. `firstfault chat` starts the
server without belief in X-Forwarded-For; where somebody else started it with that belief, the address
of a request that carries the header is not known any more, and it is refused.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from firstfault.access import FOREIGN_PEER, Mode, choose_mode, is_this_machine
from firstfault.settings import Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

BELIEF = "FORWARDED_ALLOW_IPS"
"""Variable of uvicorn: peers whose X-Forwarded-For replaces their address. Empty: nobody's."""

FORGEABLE = (
    "this server was started in a way that lets X-Forwarded-For replace the sender's address. Start the "
    f"page with `firstfault chat`, or set {BELIEF} to nothing before you start it."
)
POLICY = "; ".join(
    (
        "default-src 'self'",
        # Streamlit's start-up script is inline, and Vega compiles its charts
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "media-src 'self' data: blob:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "frame-src 'self'",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'self'",
    )
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)
CLOSED = ("/_stcore/agent",)
"""Streamlit's interface for programs: it would pass by the roles."""


def distrust_forwarded_addresses() -> None:
    """Before the server starts: no header replaces the address of a connection."""
    os.environ[BELIEF] = ""


def set_safe_options() -> None:
    """What `firstfault chat` passes as flags, for a page that somebody else started."""
    from streamlit import config

    config.set_option("browser.gatherUsageStats", False)
    config.set_option("client.showErrorDetails", "none")
    config.set_option("client.toolbarMode", "minimal")
    # after every drawing Streamlit goes through all objects of the process, knowledge included: 0.2 s a viewer
    config.set_option("runner.postScriptGC", False)


class Gate:
    """ASGI middleware: refuses requests, and says to browsers that nothing outside may be loaded."""

    def __init__(self, app: ASGIApp, settings: Settings | None = None) -> None:
        self._app = app
        self._settings = settings or Settings()  # type: ignore[call-arg]
        self._forgeable = os.environ.get(BELIEF) != ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        reason = self._refusal(scope)
        if reason:
            await _refuse(scope, receive, send, reason)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name for name, _ in HEADERS}
                kept = [h for h in message["headers"] if bytes(h[0]).lower() not in known]
                message = {**message, "headers": [*kept, *HEADERS]}
            await send(message)

        await self._app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> str:
        """Why this request goes no further; '' where it may."""
        if scope["path"].startswith(CLOSED):
            return "this interface is closed"
        forwarded = any(name == b"x-forwarded-for" for name, _ in scope["headers"])
        if forwarded and self._forgeable:
            return FORGEABLE
        client: Any = scope.get("client")
        local = choose_mode(self._settings) is Mode.LOCAL
        return FOREIGN_PEER if local and not is_this_machine(client[0] if client else None) else ""


async def _refuse(scope: Scope, receive: Receive, send: Send, reason: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": reason[:120]})
        return
    body = reason.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]  # fmt: skip
    await send({"type": "http.response.start", "status": 403, "headers": [*headers, *HEADERS]})
    await send({"type": "http.response.body", "body": body})
