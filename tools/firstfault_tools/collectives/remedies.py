"""What does it tell that a run works with a setting and not without it?

An engineer who tried a variable has made the experiment that singles out a path: with peer access off
it runs, so peer access is at fault. Read from a command pasted in a log whose output goes well, or from
the words of a question.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import keep_marked

GATE = ("NCCL_", "_SOCKET_IFNAME=")
LOOKED_AHEAD = 40
QUESTION = 2_000
_PASTED = expression(
    r"^\s*(?:\(\S+\) ?)?(?:\S{1,60}[$#>]|[$#>]) (?:(?:export|env) )?(?P<settings>(?:[A-Z][A-Z0-9_]+=\S+ )+)(?P<command>\S.{2,})$"
)
_GOES_WELL = expression(
    r"(?i)\b(?:step|iter|iteration|epoch)\b.{0,40}\bloss\b|# Out of bounds values : 0 OK|\bloss\b[ :=]+\d|\ball(?:_|-)?reduce (?:ok|done|passed)|\bfinished\b|\bOK$"
)
_GOES_BADLY = expression(
    r"(?i)\berror\b|traceback|timed? ?out|failed|\babort|killed|NCCL WARN|\bhang|\bnan\b|^\s*\^C|KeyboardInterrupt"
)
_WORKS = (
    r"(?:works?|worked|working|runs?|ran|trains?|is fine|are fine|fine|ok|okay|goes? away|went away|disappears?|"
    r"disappeared|fixe[sd]|solved?|solves|no (?:hang|error|problem)|helps?|helped|succeeds?|passes)"
)
_NEGATED = expression(
    r"(?i)\b(?:not|n't|never|no longer|nor|even|despite|although|still|neither|without)\b[^.;]{0,40}$|^[^.;]{0,40}\b(?:not|n't|still|no (?:effect|change|difference)|same)\b"
)


@dataclass(frozen=True, slots=True)
class Remedy:
    """A setting and what is at fault where it helps."""

    setting: re.Pattern[str]
    means: str
    category: Category
    page: str


@cache
def load_remedies() -> tuple[Remedy, ...]:
    """The table, in its order."""
    raw = json.loads((Path(__file__).parent / "remedies.json").read_text(encoding="utf-8"))
    return tuple(
        Remedy(
            expression(row["setting"], re.IGNORECASE),
            row["means"],
            Category(row["category"]),
            row["page"],
        )
        for row in raw["rows"]
    )


def read_question(question: str) -> tuple[Remedy, str] | None:
    """(remedy, its spelling) of a setting that the question says helps; None where none is said to."""
    for clause in re.split(r"(?<=[.!?;])\s+|\n", question[:QUESTION]):
        if (
            "=" not in clause
            and "--" not in clause
            and "IOMMU" not in clause
            and "ACS" not in clause
        ):
            continue
        for remedy in load_remedies():
            match = remedy.setting.search(clause)
            if match is None:
                continue
            before, after = clause[: match.start()], clause[match.end() :]
            helps = re.search(rf"(?i)\b{_WORKS}\b", after[:60]) or re.search(
                rf"(?i)\b{_WORKS}\b[^.;]{{0,24}}\b(?:with|when|after|if|by|using|once)\b[^.;]{{0,24}}$",
                before,
            )
            only = re.search(r"(?i)\b(?:only|unless)\b[^.;]{0,30}$", before)
            if (helps or only) and not _NEGATED.search(before) and not _NEGATED.search(after[:60]):
                return remedy, match[0]
    return None


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """A command pasted with a setting in front, whose output goes well after something that did not."""
    if not keep_marked(lines, GATE):
        return ()
    for index, (number, text) in enumerate(lines):
        if "=" not in text or not any(mark in text for mark in GATE):
            continue
        match = _PASTED.match(text[:2000])
        if match is None:
            continue
        remedy = next((r for r in load_remedies() if r.setting.search(match["settings"])), None)
        if remedy is None or not any(
            _GOES_BADLY.search(t) or "100 %" in t for _, t in lines[:index]
        ):
            continue
        output = lines[index + 1 : index + 1 + LOOKED_AHEAD]
        well = next(((n, t) for n, t in output if _GOES_WELL.search(t)), None)
        if well is None or any(_GOES_BADLY.search(t) for _, t in output):
            continue
        evidence = (Evidence(file, number, text), Evidence(file, *well))
        return (describe_remedy(remedy, match["settings"].strip(), evidence, Level.CAUSE),)
    return ()


def describe_remedy(
    remedy: Remedy, spelling: str, evidence: tuple[Evidence, ...], level: Level
) -> Finding:
    """The finding that a setting which helps stands for."""
    return Finding(
        kind="experiment.remedy",
        title=f"it works with {spelling}, so {remedy.means}",
        level=level,
        category=remedy.category,
        evidence=evidence,
        page=remedy.page,
        facts={"survived": False, "setting": spelling},
    )
