"""What does a diff that somebody handed in say was there before, and what after?

Unified diffs (`git diff`, `diff -u`), normal ones (`12c12`, `<`, `>`) and those of `pip freeze` are read; a removed
line speaks of the run before, an added one of the run after. Nothing is applied.
"""

from __future__ import annotations

from firstfault_tools.expressions import expression

_HUNK = expression(r"^(?:@@ -\d+(?:,\d+)? \+\d+|\d+(?:,\d+)?[acd]\d+(?:,\d+)?\s*$)")
_HEADER = ("--- ", "+++ ", "@@ ", "diff ", "index ")


def read_diff(text: str) -> tuple[str, str] | None:
    """(lines only before, lines only after) of a diff; None where the text holds none."""
    lines = text.splitlines()
    if not any(_HUNK.match(line) for line in lines):
        return None
    before: list[str] = []
    after: list[str] = []
    for line in lines:
        if line.startswith(_HEADER) or line.rstrip() == "---":
            continue
        if line[:1] == "-" or line[:2] == "< ":
            before.append(line[1:].strip())
        elif line[:1] == "+" or line[:2] == "> ":
            after.append(line[1:].strip())
    return ("\n".join(before), "\n".join(after)) if before or after else None
