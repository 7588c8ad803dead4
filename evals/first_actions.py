"""Which action comes first for each rule, and where does it come from?

python -m evals.first_actions [--case PART] [--source SOURCE]

A rule is a signature or a kind of finding that leads the verdict of a dev case. Its first action is of the mechanism
(`own fix`: named by the rule's data, a label or shared words; `asked for`: an artefact that the rule names; `check`: one
of its page that says what its output means), else of the class (`check, unread`, `first fix`, `collect`).
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from evals.cases import load_cases
from evals.diagnosed import Diagnoses

from firstfault.investigation.diagnosis import Diagnosis
from firstfault.investigation.next_action import Action, ActionKind, choose_action, take_first


class Source(StrEnum):
    """Where a first action comes from, those of the mechanism first."""

    OWN = "own fix"
    ASKED = "asked for"
    CHECK = "check"
    UNREAD = "check, unread"
    FIRST = "first fix"
    COLLECT = "collect"
    NONE = "none"


OF_MECHANISM = (Source.OWN, Source.ASKED, Source.CHECK)


@dataclass(frozen=True, slots=True)
class First:
    """The first action of one case: whose rule leads, what is done, and where that comes from."""

    rule: str
    page: str
    source: Source
    text: str


def find_source(diagnosis: Diagnosis, action: Action | None) -> Source:
    """Where the action of a diagnosis comes from."""
    if action is None:
        return Source.NONE
    if action.kind is ActionKind.FIX:
        own = any(f.own and take_first(f.text) == action.what for f in diagnosis.fixes)
        return Source.OWN if own else Source.FIRST
    if action.citations:
        return Source.CHECK if action.supports_if else Source.UNREAD
    asked = {a.what.lower() for a in diagnosis.next_artefacts if a.of_fault}
    return Source.ASKED if action.what.lower() in asked else Source.COLLECT


def list_first(part: str = "") -> list[First]:
    """First actions of the dev cases whose verdict a rule leads."""
    made = Diagnoses()
    pages = made.workspace.knowledge.pages
    out = []
    for case in load_cases():
        if part not in case.id:
            continue
        diagnosis = made.of(case).diagnosis
        action = choose_action(diagnosis, pages)
        if diagnosis.signature is None or action is None:
            continue
        page = next((c.page for c in diagnosis.citations if c.page), "") or ""
        text = f"{action.where.said}: {action.what}" if action.where is not None else action.what
        out.append(First(diagnosis.signature, page, find_source(diagnosis, action), text))
    return out


def write_table(firsts: Iterable[First]) -> str:
    """Rules by cases that they lead, each with its commonest first action."""
    by_rule: dict[tuple[str, str], list[First]] = defaultdict(list)
    for first in firsts:
        by_rule[first.rule, first.page].append(first)
    lines = ["| rule | page | cases | from | first action |", "| --- | --- | ---: | --- | --- |"]
    for (rule, page), rows in sorted(by_rule.items(), key=lambda r: (-len(r[1]), r[0])):
        (source, text), _ = Counter((f.source, f.text) for f in rows).most_common(1)[0]
        lines.append(
            f"| {rule} | {page} | {len(rows)} | {source} | {' '.join(text.split())[:160]} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Diagnose the dev cases, print the table and the share of the mechanism."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", default="")
    parser.add_argument("--source", default="", choices=["", *map(str, Source)])
    arguments = parser.parse_args()
    firsts = list_first(arguments.case)
    print(write_table(f for f in firsts if arguments.source in ("", f.source)))
    counts = Counter(f.source for f in firsts)
    own = sum(counts[s] for s in OF_MECHANISM)
    print("\n" + ", ".join(f"{s}: {counts[s]}" for s in Source if counts[s]))
    print(f"of the mechanism: {own} of {len(firsts)} ({own / max(1, len(firsts)):.0%})")


if __name__ == "__main__":
    main()
