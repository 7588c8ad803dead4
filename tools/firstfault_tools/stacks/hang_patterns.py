"""What is a process doing, by the frames it stands in?

The patterns are data (hang_patterns.json). A culprit does something that no collective waits for (data
loading, saving, a lock); a victim waits in a collective or for its GPU, as everybody does when one
rank is missing. Earlier patterns win, whatever the depth of their frame: a data loader that waits for
a queue is a data loader.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category
from firstfault_tools.stacks.dump import StackFrame, ThreadStack


class Role(StrEnum):
    """Whether a rank that stands here holds others up, or is held up."""

    CULPRIT = "culprit"
    VICTIM = "victim"


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of standing still. `file` and `function` must match the same frame, if given.

    page: id of the knowledge page with the fixes.
    """

    id: str
    says: str
    role: Role
    category: Category
    page: str
    file: re.Pattern[str] | None
    function: re.Pattern[str] | None

    def matches(self, frame: StackFrame) -> bool:
        """Whether a frame is of this kind."""
        if self.file is not None and not self.file.search(frame.file):
            return False
        if self.function is None:
            return True
        # py-spy may print `Event.wait`; the bare name is matched as well.
        bare = frame.function.rsplit(".", 1)[-1]
        return bool(self.function.search(frame.function) or self.function.search(bare))


@dataclass(frozen=True, slots=True)
class Standing:
    """What a thread does: the pattern and the frame that shows it; `pattern` None if none fits."""

    pattern: Pattern | None
    frame: StackFrame | None

    @property
    def is_victim(self) -> bool:
        """Whether it only waits for others."""
        return self.pattern is not None and self.pattern.role is Role.VICTIM


@cache
def patterns() -> tuple[Pattern, ...]:
    """All patterns, in order of precedence."""
    raw = json.loads(Path(__file__).with_name("hang_patterns.json").read_text("utf-8"))
    return tuple(
        Pattern(
            id=row["id"],
            says=row["says"],
            role=Role(row["role"]),
            category=Category(row["category"]),
            page=row["page"],
            file=expression(row["file"]) if row.get("file") else None,
            function=expression(row["function"]) if row.get("function") else None,
        )
        for row in raw["patterns"]
    )


def classify(thread: ThreadStack) -> Standing:
    """What a thread is doing; a `Standing` without a pattern where nothing fits."""
    for pattern in patterns():
        for frame in thread.frames:
            if pattern.matches(frame):
                return Standing(pattern, frame)
    return Standing(None, thread.frames[0] if thread.frames else None)
