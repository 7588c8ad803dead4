"""A fake site on PATH."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("ssh", "srun", "kubectl", "squeue", "scontrol")


def build_site(folder: Path, monkeypatch: pytest.MonkeyPatch, hosts: dict[str, Any]) -> Path:
    """Fake programs first on PATH; the file that says how the hosts behave."""
    here = Path(__file__).parent
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name in PROGRAMS:
        file = programs / name
        file.write_text(
            f"#!{sys.executable} -SE\nimport sys\nsys.path.insert(0, {str(here)!r})\n"
            f"import fake_site\nfake_site.main({name!r}, sys.argv[1:])\n"
        )
        file.chmod(0o755)
    site = folder / "site.json"
    site.write_text(json.dumps({"hosts": hosts}))
    monkeypatch.setenv("SITE", str(site))
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], Path]:
    """Call it with the hosts."""
    return lambda hosts: build_site(tmp_path, monkeypatch, hosts)
