"""Where do processes stand by stack dumps (`py-spy dump`) that were pasted into a log?

A file that begins as a dump is read by comparison.py; here the dumps stand behind step lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from firstfault_tools.errors import ToolError
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding
from firstfault_tools.hardware.excerpt import keep_marked
from firstfault_tools.stacks.comparison import compare, group_processes
from firstfault_tools.stacks.dump import looks_like_stacks, parse_stacks

MARKERS = ('"MainThread"',)
FIRST_LINES, MOST_LINES = 60, 20_000
_PROCESS = expression(r"^(?:\[[^\]]{1,40}\] ?)?Process \d{1,9}: ")
_PART = expression(
    r"^\s*$|^Python v|^Thread \S|^ {2,12}\S.{0,200} \([^()]{1,300}\)\s*$|^ {6,16}(?:Arguments|Locals):"
)


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """Findings over the stacks of all processes of the pasted dumps."""
    if not keep_marked(lines, MARKERS):
        return ()
    head = "\n".join(text for _, text in lines[:FIRST_LINES])
    if looks_like_stacks(head.encode("utf-8", "replace")):
        return ()  # the whole file is read as a dump
    kept: dict[int, str] = {}
    inside = False
    before = (0, "")
    for number, text in lines:
        if _PROCESS.match(text):
            if "py-spy" in before[1] or "rank" in before[1].lower():
                kept[before[0]] = before[1][:400]
            inside = True
        elif inside and not _PART.match(text):
            inside = False
        if inside:
            kept[number] = text
        before = (number, text)
    if not kept or len(kept) > MOST_LINES:
        return ()
    first, last = min(kept), max(kept)
    if last - first > 10 * MOST_LINES:
        return ()
    text = "\n".join(kept.get(number, "") for number in range(1, last + 1))
    try:
        threads = list(parse_stacks(text.encode("utf-8", "replace"), file))
    except ToolError:
        return ()
    return tuple(compare(threads, group_processes(threads)))
