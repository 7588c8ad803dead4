"""What did a person put into the box: a question, a log, or a question above a log?"""

from __future__ import annotations

import re
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

LONG_LINE = 240
LEAD_LINES = 4
MAX_PATHS = 200
_LOG_LIKE = expression(
    r"""
    \d{1,2}:\d{2}:\d{2}                         # a clock
    | ^\s*File\ "[^"]+",\ line\ \d+             # a Python frame
    | \bTraceback\ \(most\ recent
    | ^\s*(?:\[|\()?(?:rank|Rank|default)?\d+\s*[\]\):|]   # a rank prefix
    | \b\w*(?:Error|Exception|Warning):\s
    | ^[EWIF]\d{4}\s                            # glog
    | \b(?:NCCL\ (?:INFO|WARN)|NVRM:|Xid)\b
    | \b\w*(?:loss|iteration|step)\b['"]?\s*[:=/]?\s*(?:\d|nan\b)
    | ^\s*\[(?:[EWIF]|INFO|WARN|WARNING|ERROR|DEBUG)\b[^\]]*\]\s   # a level in brackets
    | ^[\w./+-]+:\ (?:[\w.-]+:\ )*(?:error|fatal|warning|task\ \d+|can't|cannot|line\ \d+)\b   # a program's own message
    | \[\s*\d+\.\d{6}\]                         # kernel ring buffer
    | ^\(\w[\w.:]{0,60}\ pid=\d+                 # an actor of Ray
    | \d{1,3}%\|.{0,200}\d+/\d+\ \[              # a progress bar
    """,
    re.M | re.X,
)
_TABLE = expression(
    r"^\s*[$#]\s"  # a prompt, or a comment above output
    r"|(?:\S+\s{2,}){2}\S"  # columns
    r"|(?:[^,]*,){3}"
    r"|^\s*[\w-]+[^.?!]*:?\s[^.?!]*\d"  # a name with a number
)
_PROMPT = expression(
    r"^\s*(?:\([^()\n]{1,60}\)\s?|[\w.@:~/-]{1,60}:?\s?){0,2}[$#]\s[\w./][\w./-]+(?:\s|$)"
)
"""A command typed at a prompt; what stands below it is its output."""
_ASKS = expression(
    r"(?i)^(?:what|why|how|which|who|where|when|is|are|can|could|does|do|did|should|would|my|our|i|we)\s"
)


@dataclass(frozen=True, slots=True)
class Split:
    """question and log of one message; either may be empty."""

    question: str
    log: str


def split_message(text: str) -> Split:
    """Tell a question from a log. A short lead-in above a log is the question about it."""
    text = text.strip("\n")
    if not text.strip():
        return Split("", "")
    lines = text.splitlines()
    for number in range(1, min(LEAD_LINES, len(lines) - 1) + 1):
        ends = lines[number - 1].rstrip().endswith(("?", ":")) or not lines[number].strip()
        lead, rest = "\n".join(lines[:number]).strip(), "\n".join(lines[number:]).strip("\n")
        if ends and lead and not looks_like_log(lead) and looks_like_log(rest):
            return Split(lead, rest)
    return Split("", text) if looks_like_log(text) else Split(text.strip(), "")


_ASKED_WITHIN = expression(r"[^\W\d_]\?\s+[^\W\d_]")
_HEAD_OF_LOG = expression(r"\s*(?:[\[({<|]|\d{2,4}[-/:.]\d|[A-Z]{4,8}[:\s]|\S{1,60}:\d)")


def is_statement(text: str) -> bool:
    """A line or two that ask nothing: perhaps one message of a log, without its marks."""
    lines = [line for line in text.splitlines() if line.strip()]
    return 0 < len(lines) <= 2 and not _is_asking(text)


def _is_asking(text: str) -> bool:
    """It ends as a question, begins as one, or asks in its midst and has no mark of a log before it."""
    if text.rstrip().endswith("?") or _ASKS.match(text.lstrip()) is not None:
        return True
    return _ASKED_WITHIN.search(text) is not None and _HEAD_OF_LOG.match(text) is None


def looks_like_log(text: str) -> bool:
    """Machine output rather than a sentence: many lines, a very long line, or a log's marks."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 12 or any(len(line) > LONG_LINE for line in lines):
        return True
    marked = sum(1 for line in lines if _LOG_LIKE.search(line))
    asked = _is_asking(text)
    if len(lines) <= 2:
        return marked > 0 and not asked
    if marked * 3 >= len(lines):
        return True
    if any(_PROMPT.match(line) for line in lines[:-1]) and not asked:
        return True
    return not asked and sum(1 for line in lines if _TABLE.search(line)) * 2 > len(lines)


def read_paths(text: str) -> tuple[Path, ...]:
    """Absolute paths, one a line; empty where any line is something else."""
    lines = [line.strip().strip("'\"") for line in text.splitlines() if line.strip()]
    if not lines or len(lines) > MAX_PATHS:
        return ()
    if not all(line.startswith(("/", "~")) and "\0" not in line for line in lines):
        return ()
    return tuple(Path(line).expanduser() for line in lines)
