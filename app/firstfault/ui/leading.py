"""Whose explanation leads, is it disputed, and when does a fix hold? The same words on page and terminal."""

from __future__ import annotations

from firstfault.incidents.events import RuledOut
from firstfault.investigation.diagnosis import Diagnosis, Fix, LedBy


def say_ruled_out(ruled: RuledOut) -> str:
    """That a person's check has dropped the verdict, by whom and when, and what is first since."""
    now = f"now first: {ruled.now.rstrip('. ')}" if ruled.now else "the cause is open"
    return f"Ruled out by {ruled.who}; {now}."


def say_leading(diagnosis: Diagnosis, ruled: RuledOut | None = None) -> list[str]:
    """Sentences under the verdict; none where the tools lead and nothing speaks against it."""
    said = [say_ruled_out(ruled)] if ruled is not None else []
    if diagnosis.led_by is LedBy.MODEL:
        said.append("Led by the model's reasoning, not confirmed; the tools' reading stands below.")
    if diagnosis.disputed:
        other = diagnosis.hypotheses[1].root_cause if len(diagnosis.hypotheses) > 1 else ""
        against = f": {other.rstrip('. ')}" if other else ""
        said.append(f"Disputed{against}.")
        if diagnosis.disproof:
            said.append(f"What separates them: {diagnosis.disproof}")
    return said


def say_condition(fix: Fix) -> str:
    """When a fix holds; empty where it holds for the leading explanation."""
    return f"{fix.condition[:1].upper()}{fix.condition[1:]}" if fix.condition else ""
