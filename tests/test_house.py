"""The house rules that a script can see: file sizes, names, packaging, words that must not appear."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FORBIDDEN_NAMES = {"utils.py", "helpers.py", "common.py", "manager.py", "misc.py"}
HOSTS = re.compile(
    "|".join(
        (
            "py" + "pi" + r"\.org",
            "python" + "hosted",
            "npm" + r"js\.(?:com|org)",
            "debian" + r"\.org",
        )
    )
)


def tracked(*patterns: str) -> list[Path]:
    """Files of the checkout that git knows; a wheel or tarball without git has none to check."""
    try:
        out = subprocess.run(
            ["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, check=True
        ).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / name for name in out.split("\0") if name and (ROOT / name).is_file()]


def modules(*patterns: str) -> list[Path]:
    """Tracked Python of ours: what lies in a case is input, not code."""
    return [p for p in tracked(*patterns) if ROOT / "evals" / "cases" not in p.parents]


def test_no_file_is_too_long_to_read() -> None:
    long = {
        str(p.relative_to(ROOT)): n
        for p in modules("*.py")
        if (n := p.read_text(encoding="utf-8").count("\n")) > 500
    }
    assert not long, f"split these: {long}"


def test_modules_are_nouns() -> None:
    assert not [p for p in modules("*.py") if p.name in FORBIDDEN_NAMES]


def test_containers_are_no_packages() -> None:
    for folder in ("app", "tools", "tests", "evals"):
        assert not (ROOT / folder / "__init__.py").exists()


def test_modules_say_which_question_they_answer() -> None:
    silent = [
        str(p.relative_to(ROOT))
        for p in modules("app/*.py", "tools/*.py", "evals/*.py")
        if p.stat().st_size and not p.read_text(encoding="utf-8").lstrip().startswith(('"""', "#!"))
    ]
    assert not silent


def test_few_functions_are_complex() -> None:
    """Branches by ruff's C901; what is above stays seen, and the bound only falls."""
    command = [sys.executable, "-m", "ruff", "check", "app", "tools", "--select", "C901"]
    command += ["--config", "lint.mccabe.max-complexity=10", "--output-format", "concise"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if "No module named" in done.stderr:
        pytest.skip("ruff is not installed")
    complex_ones = [line for line in done.stdout.splitlines() if "C901" in line]
    assert len(complex_ones) <= 12, "\n".join(complex_ones)


def test_no_circle_of_imports() -> None:
    """Imports inside functions and for types counted; what is left of the graph without its ends is a circle."""
    grimp = pytest.importorskip("grimp")
    graph = grimp.build_graph("firstfault", "firstfault_tools", cache_dir=None)
    left = {m: set(graph.find_modules_directly_imported_by(m)) for m in graph.modules}
    while ends := {m for m, imported in left.items() if not imported & left.keys()}:
        left = {m: imported for m, imported in left.items() if m not in ends}
    assert not left, sorted(left)


ASK_IDENTITY = {
    "recorder_dump.py": "a hostile dump shares one huge list between entries",
    "plain_pickle.py": "a container that holds itself",
    "decisions.py": "a pass hands the same finding on, or another",
    "firstfault_component.py": "the iterators of somebody else's training script",
}
"""Where it is the question whether two names are one object; each within one call, or of objects it holds."""
HOLD_STATE = {"whereabouts.py": "the place of the process, for whoever has to end it"}


def test_nothing_is_kept_by_the_identity_of_an_object() -> None:
    """What is made once stands in a field of the object it is made of, or is cached by value."""
    found = [
        f"{p.relative_to(ROOT)}:{node.lineno}"
        for p in modules("app/*.py", "tools/*.py")
        for node in ast.walk(ast.parse(p.read_text(encoding="utf-8")))
        if (
            isinstance(node, ast.Name)
            and (node.id, type(node.ctx)) == ("id", ast.Load)
            and p.name not in ASK_IDENTITY
        )
        or (isinstance(node, ast.Global) and p.name not in HOLD_STATE)
    ]
    assert not found


def test_no_registry_is_named() -> None:
    named = [
        str(p.relative_to(ROOT))
        for p in tracked()
        if p.suffix not in {".png", ".gz", ".pickle", ".npz", ".docx", ".pdf"}
        and not p.is_relative_to(ROOT / "evals" / "cases")
        and HOSTS.search(p.read_text(encoding="utf-8", errors="ignore"))
    ]
    assert not named
