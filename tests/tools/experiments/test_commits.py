"""Commits: in a checkout of their own, the user's untouched, its hooks not run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.experiments.commits import Repository


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), "-c", "user.name=Ada", "-c", "user.email=a@b", *arguments], check=True, capture_output=True)  # fmt: skip
    return done.stdout.decode().strip()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for number in range(8):
        (folder / "value").write_text(str(number))
        git(folder, "add", "value")
        git(folder, "commit", "-q", "-m", f"step {number}")
        git(folder, "tag", f"v{number}")
    return Repository(folder)


def test_from_good_to_bad_in_order(repository: Repository) -> None:
    listed = repository.list_between("v2", "HEAD")
    assert [repository.ask("show", f"{c}:value") for c in listed] == ["2", "3", "4", "5", "6", "7"]
    assert "step 3" in repository.describe(listed[1])


def test_a_checkout_of_its_own(repository: Repository, tmp_path: Path) -> None:
    (repository.folder / "value").write_text("my own work")
    hook = repository.folder / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    place = tmp_path / "trial"
    repository.check_out(repository.resolve("good", "v3"), place)
    assert (place / "value").read_text() == "3"
    assert (repository.folder / "value").read_text() == "my own work"
    assert not (tmp_path / "ran").exists()
    repository.remove([place])
    assert not place.exists()
    assert git(repository.folder, "worktree", "list").count("\n") == 0


@pytest.mark.parametrize(("good", "bad"), [("v5", "v2"), ("v2", "v2"), ("nowhere", "v2"), ("--all", "v2")])  # fmt: skip
def test_what_cannot_be_bisected(repository: Repository, good: str, bad: str) -> None:
    with pytest.raises(InvalidParameter):
        repository.list_between(good, bad)
