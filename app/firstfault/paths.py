"""Where do knowledge, caches and data live? Works from a checkout and from an installed wheel."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).parent


def knowledge_folder() -> Path:
    """Folder with pages/ and signatures/: FIRSTFAULT_KNOWLEDGE, inside the wheel, or the checkout."""
    override = os.environ.get("FIRSTFAULT_KNOWLEDGE")
    if override:
        return Path(override)
    packaged = _PACKAGE / "_knowledge"
    return packaged if packaged.is_dir() else _PACKAGE.parent.parent / "knowledge"


def streamlit_script() -> Path:
    """Entry script of the chat page."""
    packaged = _PACKAGE / "_streamlit_app.py"
    return packaged if packaged.is_file() else _PACKAGE.parent / "streamlit_app.py"


def cache_folder() -> Path:
    """Folder for packs and indexes that can be rebuilt at any time."""
    override = os.environ.get("FIRSTFAULT_CACHE")
    if override:
        return Path(override)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "firstfault"


def data_folder() -> Path:
    """Folder for incidents and their evidence."""
    override = os.environ.get("FIRSTFAULT_DATA")
    if override:
        return Path(override)
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "firstfault"
