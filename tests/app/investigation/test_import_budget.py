"""The command starts fast because it imports and compiles little: both are counted, not timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HEAVY = (
    "langchain", "langchain_core", "langgraph", "openai", "chromadb", "streamlit", "pandas", "scipy",
    "sqlalchemy", "pydantic", "distributed", "dask", "fsspec", "ruptures", "altair", "tensorboard",
    "yaml", "asyncio", "multiprocessing",
)  # fmt: skip
MOST_MODULES = 560
MOST_OWN_MODULES = 285
MOST_COMPILED = 260
MOST_TRIED = 300

_PROGRAM = """
import io, json, sys
from firstfault.cli import root
before = set(sys.modules)
sys.stdout, real = io.StringIO(), sys.stdout
try:
    root(sys.argv[1:], standalone_mode=False)
except SystemExit as stop:
    code = stop.code
sys.stdout = real
print(json.dumps({"code": code, "modules": sorted(sys.modules)}))
"""


def modules_after(arguments: list[str], cache: Path, program: str = _PROGRAM) -> list[str]:
    """Modules that one run of the command has imported."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'app'}:{ROOT / 'tools'}",
        "FIRSTFAULT_CACHE": str(cache),
        "FIRSTFAULT_DATA": str(cache / "data"),
    }
    for name in ("FIRSTFAULT_MODEL", "OPENAI_API_KEY"):
        environment.pop(name, None)
    for _ in range(2):  # the first run writes the packs
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True,
            text=True,
            env=environment,
            check=True,
        )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["code"] == 1
    modules: list[str] = found["modules"]
    return modules


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(
        "INFO start of the run\n[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    )
    return path


@pytest.mark.parametrize("flags", [["--json", "--no-llm"], ["--no-llm"]], ids=["json", "text"])
def test_diagnose_imports_little(log: Path, tmp_path: Path, flags: list[str]) -> None:
    modules = modules_after(["diagnose", str(log), *flags], tmp_path / "cache")
    packages = {m.split(".")[0] for m in modules}
    assert packages.isdisjoint(HEAVY), packages & set(HEAVY)
    own = [m for m in modules if m.startswith("firstfault")]
    assert len(own) <= MOST_OWN_MODULES
    if "--json" in flags:
        assert len(modules) <= MOST_MODULES


def test_short_logs_need_no_arrays(log: Path, tmp_path: Path) -> None:
    """numpy takes a fifth of a second; only step lines and tables need it."""
    modules = modules_after(["diagnose", str(log), "--json", "--no-llm"], tmp_path / "cache")
    assert "numpy" not in modules


_COUNTED = """
import json, re, sys
compiled = []
original = re._compiler.compile
re._compiler.compile = lambda p, flags=0: (compiled.append(1), original(p, flags))[1]
import re2
sets = []
class Counted(re2.Set):
    def Add(self, pattern):
        sets.append(1)
        return super().Add(pattern)
re2.Set = Counted
"""


def test_short_logs_compile_few_patterns(log: Path, tmp_path: Path) -> None:
    """What a short log cannot match is not compiled: neither in modules nor in signatures."""
    tail = 'print(json.dumps({"code": code, "modules": [str(len(compiled)), str(len(sets))]}))'
    program = _COUNTED + _PROGRAM.strip().rsplit("\n", 1)[0] + "\n" + tail
    arguments = ["diagnose", str(log), "--json", "--no-llm"]
    compiled, tried = map(int, modules_after(arguments, tmp_path / "cache", program))
    assert compiled <= MOST_COMPILED
    assert 0 < tried <= MOST_TRIED
