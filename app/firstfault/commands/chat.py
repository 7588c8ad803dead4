"""`firstfault chat`: open the page."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
import webbrowser
from pathlib import Path

import click

UPLOAD_MIB = 1024


@click.command("chat", epilog="FIRSTFAULT_* variables set the database, data folder and access.")
@click.option("--port", type=click.IntRange(1, 65535), default=None, help="Port (8501).")
@click.option("--address", default=None, help="Address to bind to (127.0.0.1).")
@click.option("--upload-mib", type=click.IntRange(1, 8192), default=UPLOAD_MIB, show_default=True)
@click.option("--open/--no-open", "opens", default=None, help="Open a browser window.")
def COMMAND(port: int | None, address: str | None, upload_mib: int, opens: bool | None) -> None:
    """Serve the page and open it. No account, no key, no usage statistics."""
    from streamlit.web import cli as streamlit_cli

    from firstfault.access import check_binding, is_loopback
    from firstfault.paths import streamlit_script
    from firstfault.settings import Settings
    from firstfault.ui.gate import distrust_forwarded_addresses
    from firstfault.ui.theme import streamlit_flags

    settings = Settings()  # type: ignore[call-arg]
    host, number = address or settings.address, port or settings.port
    check_binding(settings, host)
    _check_port(host, number)
    _check_folder(settings.data)
    shown = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{number}"
    click.echo(
        f"Firstfault: {shown}   (Ctrl+C ends it; incidents stay in {settings.data})", err=True
    )
    if opens if opens is not None else (sys.stderr.isatty() and is_loopback(host)):
        threading.Thread(target=_open_when_up, args=(shown,), daemon=True).start()
    os.umask(0o077)
    distrust_forwarded_addresses()
    flags = streamlit_flags(host, number, upload_mib)
    streamlit_cli.main(["run", str(streamlit_script()), *flags], prog_name="firstfault chat")


def _check_folder(folder: Path) -> None:
    """Say before the page is up that it could keep nothing. Raises CannotAnalyse."""
    from firstfault.errors import CannotAnalyse
    from firstfault.paths import keep_private

    try:
        keep_private(folder)
        reason = "" if os.access(folder, os.W_OK) else "permission denied"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise CannotAnalyse(
            f"{folder} cannot be written ({reason}); set FIRSTFAULT_DATA to a folder that can"
        )


def _check_port(host: str, port: int) -> None:
    """Say how to go on where another program has the port. Raises UsageError."""
    from firstfault.errors import UsageError

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError as error:
            raise UsageError(
                f"{host}:{port} cannot be served ({error.strerror}); choose another port with "
                f"--port {port % 65535 + 1} or FIRSTFAULT_PORT"
            ) from error


def _open_when_up(address: str, patience: float = 20.0) -> None:
    limit = time.monotonic() + patience
    while time.monotonic() < limit:
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=1):
                webbrowser.open(address)
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
