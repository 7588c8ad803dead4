"""Baseline: the crash analyzer of five patterns that seed 002 describes, written afresh.

It tries five regular expressions over the whole text in a fixed order and answers with the kind of the
first that matches.
"""

from __future__ import annotations

import re

from evals.answer import Answer

_PATTERNS = (
    (r"(?i)CUDA out of memory|OutOfMemoryError", "oom", "out of memory: reduce the batch size"),
    (r"(?i)NCCL (?:error|WARN|timeout)|collective operation timeout", "communication", "NCCL error: check the network"),
    (r"(?i)loss[^\n]{0,20}\bnan\b|\bNaN\b", "numerical", "NaN: lower the learning rate"),
    (r"(?i)segmentation fault|SIGSEGV|core dumped|exitcode\s*:?\s*-11", "code_bug", "segmentation fault"),
    (r"(?i)\bkilled\b|SIGKILL|exitcode\s*:?\s*-9", "scheduler", "killed from outside"),
)  # fmt: skip


def answer(text: str) -> Answer:
    """Kind of the first pattern that matches; the rank is that of the matching line."""
    for pattern, category, words in _PATTERNS:
        match = re.search(pattern, text)
        if match is not None:
            line = text[text.rfind("\n", 0, match.start()) + 1 :].split("\n", 1)[0]
            rank = re.search(r"[Rr]ank ?(\d+)", line)
            claim = f"{words} {line}"
            return Answer("fault", category, int(rank[1]) if rank else None, claim, claim, claim)
    return Answer("unknown", None, None, "", "", "")
