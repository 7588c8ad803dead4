"""Which places of this machine may a visitor name? What the kernel shows and our own data never."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from firstfault.settings import Settings

KERNEL = (Path("/proc"), Path("/sys"), Path("/dev"))


def refuse_place(path: Path, settings: Settings) -> str:
    """Why nobody may give this file or folder as evidence, links resolved; '' where one may."""
    try:
        real = path.expanduser().resolve()
        own = settings.data.expanduser().resolve()
    except (OSError, RuntimeError) as error:
        return f"cannot be resolved ({error})"
    for place in KERNEL:
        if real.is_relative_to(place):
            return f"{place} shows the machine itself and is never read"
    if real.is_relative_to(own):
        return "Firstfault's own data is never read as evidence"
    return ""


def read_roots(said: str) -> tuple[Path, ...]:
    """Folders of a setting such as FIRSTFAULT_PATH_ROOTS, links resolved."""
    parts = said.split(os.pathsep)
    return tuple(Path(p).expanduser().resolve() for p in parts if p.strip())


def refuse_outside(path: Path, roots: Sequence[Path], setting: str) -> str:
    """Why this path may not be named; '' where it lies, links resolved, below a root of the setting."""
    try:
        real = path.expanduser().resolve()
    except (OSError, RuntimeError) as error:
        return f"cannot be resolved ({error})"
    if any(real.is_relative_to(root) for root in roots):
        return ""
    return f"outside the folders of {setting}"
