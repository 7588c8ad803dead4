"""What does a complaint in another language say in plain English? The typed complaint, put in one sentence.

Questions are read by English words all over the investigation. A complaint that vetoes.json knows in another
language gets its English sentence beside it, so that the answer does not depend on the language.
"""

from __future__ import annotations

import json
import re
from functools import cache

from firstfault.investigation.complaint import LONGEST_QUESTION
from firstfault.investigation.vetoes import TABLE, read_statement
from firstfault_tools.findings import Complaint
from firstfault_tools.kept_forms import compile_kept

ENGLISH = "en"


@cache
def _rows() -> tuple[tuple[Complaint, dict[str, re.Pattern[str]], str], ...]:
    """(complaint, patterns by language, English sentence), memory that ran out first: it is a death of its own kind."""
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    return tuple(
        (
            Complaint(row["complaint"]),
            {k: compile_kept(p, re.IGNORECASE) for k, p in row["patterns"].items()},
            row["plain"],
        )
        for row in (table["spent"], *table["vetoes"])
    )


def put_plainly(question: str) -> str:
    """The question, and the English sentence of the complaint that only another language's words state."""
    text = question[:LONGEST_QUESTION]
    if not text.strip():
        return question
    rows = _rows()
    if any(p[ENGLISH].search(text) for _, p, _ in rows if ENGLISH in p):
        return question
    stated = read_statement(question).complaints
    for complaint, patterns, plain in rows:
        if complaint in stated and any(pattern.search(text) for pattern in patterns.values()):
            return f"{question.rstrip()} {plain}"
    return question
