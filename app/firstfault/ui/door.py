"""How does the page reach the service? One service per process, and reads that are kept.

Session state holds ids only; windows and passages are kept in a bounded cache of the process.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import streamlit as st

from firstfault.errors import FirstfaultError
from firstfault.service import PagePassage, Service, Window, open_service
from firstfault_tools.errors import ToolError

log = logging.getLogger(__name__)

PATIENCE = 2.0
_BELOW = threading.Semaphore(1)


@st.cache_resource(show_spinner=False)
def service() -> Service:
    """The service of this process, with its workers; knowledge is loaded while a person still types."""
    opened = open_service()
    threading.Thread(target=_warm_up, args=(opened,), name="warm-up", daemon=True).start()
    return opened


def _warm_up(opened: Service) -> None:
    opened.warm_search()
    try:
        len(opened.workspace.knowledge.pages)
    except (FirstfaultError, ToolError, OSError):
        log.warning("the knowledge could not be loaded ahead", exc_info=True)
    # what is loaded now stays: the collector need not go through it again and again
    gc.collect()
    gc.freeze()


@st.cache_data(show_spinner=False, max_entries=4_000)
def read_windows(
    incident: str, places: Sequence[tuple[str, int]], around: int, last_turn: int
) -> list[Window | None]:
    """Windows around several places; None where a file is no text or gone.

    last_turn: part of the key, since added evidence may bring other files under the same names.
    """
    return [_window(incident, file, line, around) for file, line in places]


def _window(incident: str, file: str, line: int, around: int) -> Window | None:
    if line < 1:
        return None
    try:
        found = service().window(incident, file, line, around)
    except (FirstfaultError, OSError):
        return None
    return found if any(number == line for number, _ in found.lines) else None


@st.cache_data(show_spinner=False, max_entries=2_000)
def read_passage(page: str, heading: str) -> PagePassage | None:
    """A section of a knowledge page; None where the page has changed since."""
    try:
        return service().passage(page, heading)
    except FirstfaultError:
        return None


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """What stands below a card waits while others are drawn: twenty cards come before twenty times all the rest.

    Nobody waits longer than PATIENCE for somebody whose rest is large.
    """
    got = _BELOW.acquire(timeout=PATIENCE)
    try:
        yield
    finally:
        if got:
            _BELOW.release()


def next_key(purpose: str, said: str = "") -> str:
    """Idempotency key of the next thing this session does; the same for the same words until `spend_key`.

    A run of the page may be broken off between the doing and `spend_key`, by the very next message: that
    one must not pass for a repetition.
    """
    keys: dict[str, str] = st.session_state.setdefault("keys", {})
    key = keys.setdefault(purpose, f"{purpose}-{secrets.token_hex(12)}")
    return f"{key}-{hashlib.sha256(said.encode()).hexdigest()[:12]}" if said else key


def spend_key(purpose: str) -> None:
    """What the key was for is durable; the next one differs."""
    st.session_state.setdefault("keys", {}).pop(purpose, None)
