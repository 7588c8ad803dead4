"""Baseline: the words people grep for first, the first hit names the category."""

from __future__ import annotations

import re

from evals.answer import Answer

_WORDS = (
    (r"out of memory|OutOfMemory|oom-kill|OOM", "oom"),
    (r"NCCL|timeout|timed out|Connection (?:reset|refused)", "communication"),
    (r"\bnan\b|NaN|\binf\b|overflow", "numerical"),
    (r"Xid|ECC|NVLink|fallen off", "hardware"),
    (r"No such file|ModuleNotFound|ImportError|version", "environment"),
    (r"checkpoint", "checkpoint"),
    (r"slurmstepd|CANCELLED|preempt|evict", "scheduler"),
    (r"dataset|dataloader|tokeni", "data"),
    (r"Error|Exception", "code_bug"),
)


def answer(text: str) -> Answer:
    """Category of the first list entry that occurs anywhere."""
    for pattern, category in _WORDS:
        match = re.search(pattern, text)
        if match is not None:
            line = text[text.rfind("\n", 0, match.start()) + 1 :].split("\n", 1)[0]
            rank = re.search(r"[Rr]ank ?(\d+)", line)
            return Answer("fault", category, int(rank[1]) if rank else None, line, line, line)
    return Answer("healthy", None, None, "", "", "")
