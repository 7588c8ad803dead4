"""What may be said where the reading was stopped? What was seen, never confirmed, and never that all is well.

That a log was left out is a lack of the proof of health (`investigation/health.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault.investigation.diagnosis import InputReceipt, SkippedInput
from firstfault.investigation.verdict import Judgement
from firstfault_tools.findings import Confidence
from firstfault_tools.log.digest import STOPPED

MOST_NAMED = 3


def is_partial(receipt: InputReceipt) -> bool:
    """The verdict is on a part of what was given, because a person stopped the reading."""
    return bool(_list_left(receipt.skipped))


def list_unread(receipt: InputReceipt) -> frozenset[str]:
    """Logs that were not read to their ends."""
    return frozenset(s.what for s in _list_left(receipt.skipped))


def weigh_unread(skipped: Sequence[SkippedInput], judgement: Judgement) -> Judgement:
    """Confirmed becomes likely where logs were left out: what failed first may stand in one of them."""
    if judgement.confidence is Confidence.CONFIRMED and _list_left(skipped):
        return replace(judgement, confidence=Confidence.LIKELY)
    return judgement


def say_unread(receipt: InputReceipt) -> str:
    """What the verdict does not cover, in one sentence; '' where all was read."""
    left = _list_left(receipt.skipped)
    if not left:
        return ""
    names = ", ".join(s.what for s in left[:MOST_NAMED])
    more = f" and {len(left) - MOST_NAMED} more" if len(left) > MOST_NAMED else ""
    return f"This is a verdict on a part: {STOPPED}, and {names}{more} {'was' if len(left) == 1 else 'were'} not read to the end."


def _list_left(skipped: Sequence[SkippedInput]) -> list[SkippedInput]:
    return [s for s in skipped if s.why.startswith(STOPPED)]
