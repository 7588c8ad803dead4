"""Which commits lie between a good and a bad one, and where can one be tried without touching the checkout?

Each commit is checked out into a folder of its own (`git worktree add --detach`), so the user's files, index
and branches stay as they are. Hooks of the repository are not run.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter, ToolError

MOST_COMMITS = 20_000
GIT_S, CHECKOUT_S = 60.0, 600.0
_QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "advice.detachedHead=false")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Repository:
    """A checkout of the user's."""

    folder: Path

    def ask(self, *arguments: str, limit_s: float = GIT_S) -> str:
        """Output of one git command. Raises ToolError with git's own words."""
        argv = ["git", "-C", str(self.folder), *_QUIET, *arguments]
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolError(f"git {arguments[0]} in {self.folder}: {error}") from error
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise ToolError(f"git {arguments[0]} in {self.folder}: {said[-1] if said else done.returncode}")  # fmt: skip
        return done.stdout.decode("utf-8", "replace")

    def resolve(self, field: str, name: str) -> str:
        """The full id of a commit. Raises InvalidParameter."""
        if name.startswith("-"):
            raise InvalidParameter(field, f"{name!r} is no commit")
        try:
            return self.ask("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}").strip()  # fmt: skip
        except ToolError as error:
            raise InvalidParameter(field, f"{name!r} is no commit ({error})") from error

    def list_between(self, good: str, bad: str) -> tuple[str, ...]:
        """From good to bad along first parents, so that works and fails are in one order.

        Raises InvalidParameter where good is no ancestor of bad, or too many lie between.
        """
        first, last = self.resolve("good", good), self.resolve("bad", bad)
        try:
            self.ask("merge-base", "--is-ancestor", first, last)
        except ToolError as error:
            raise InvalidParameter(
                "good", "is no ancestor of the bad commit; name their merge base"
            ) from error
        rows = self.ask("rev-list", "--first-parent", "--reverse", f"{first}..{last}").split()
        if not rows:
            raise InvalidParameter("bad", "is the same commit as the good one")
        if len(rows) > MOST_COMMITS:
            raise InvalidParameter(
                "good", f"lies {len(rows)} commits back; at most {MOST_COMMITS} are searched"
            )
        return (first, *rows)

    def describe(self, commit: str) -> str:
        """`1a2b3c4d Ada, 2026-11-02: Pad the last batch`, with a word where it is a merge."""
        told = self.ask("show", "--no-patch", "--format=%h %an, %as: %s%x00%P", commit).strip()
        line, _, parents = told.partition("\0")
        if len(parents.split()) < 2:
            return line
        return f"{line} (a merge: repeat with --good {commit[:12]}^1 --bad {commit[:12]}^2)"

    def check_out(self, commit: str, folder: Path) -> None:
        """The files of a commit in a folder of its own; a folder that is there already is kept."""
        if (folder / ".git").exists():
            return
        self.ask("worktree", "add", "--force", "--detach", str(folder), commit, limit_s=CHECKOUT_S)

    def remove(self, folders: Sequence[Path]) -> None:
        """Take the folders that `check_out` made away again."""
        for folder in folders:
            if (folder / ".git").is_file():
                self.ask("worktree", "remove", "--force", str(folder), limit_s=CHECKOUT_S)
