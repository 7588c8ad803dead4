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


_OURS = ("evidence", "scratch", "draft_cases", "experiments")
_OUR_FILES = ("incidents.sqlite", "agent.sqlite", "agent_checkpoints.sqlite")


def keep_private(folder: Path) -> None:
    """Make the data folder and what is ours in it for its owner only, also where it was there before.

    A folder that holds other things too keeps its own rights. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    entries = list(folder.iterdir())
    if all(entry.name.startswith((*_OURS, *_OUR_FILES)) for entry in entries):
        _tighten(folder, 0o700)
    for name in _OURS:
        part = folder / name
        part.mkdir(exist_ok=True, mode=0o700)
        if _tighten(part, 0o700):
            for root, folders, files in os.walk(part):
                for inside in (*folders, *files):
                    _tighten(Path(root, inside), 0o700 if inside in folders else 0o600)
    for entry in entries:
        if entry.name.startswith(_OUR_FILES):
            _tighten(entry, 0o600)


def _tighten(path: Path, mode: int) -> bool:
    """Take everybody else's rights away; whether they had some."""
    if path.is_symlink() or not path.stat().st_mode & 0o077:
        return False
    path.chmod(mode)
    return True


def data_folder() -> Path:
    """Folder for incidents and their evidence."""
    override = os.environ.get("FIRSTFAULT_DATA")
    if override:
        return Path(override)
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "firstfault"
