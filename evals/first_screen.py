"""What does the first screen of each case say, and what keeps a reader from acting on it in ten seconds?

python -m evals.first_screen [--split dev|held] [--case PATTERN] [--every N] [--show]

Counts what can be told without knowing the answer: a headline that is long or cut, a place that is neither named nor
said to be the whole job, no action, a choice in it, a name to be put in, no way to see that it
worked. Whether cause and action are right, a reader judges: --show prints the screen as text.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from evals.cases import Case, Split, load_cases
from evals.diagnosed import Diagnoses

from firstfault.investigation.diagnosis import Diagnosis
from firstfault.investigation.next_action import ActionKind
from firstfault.ui.card import NO_PLACE, Card, make_card
from firstfault_tools.findings import Verdict

LONGEST = 160
"""Characters of a sentence that is read in ten seconds together with a place and an action."""

_CHOICE = re.compile(r"(?:, |; )or,? ")
_FAULTS = (Verdict.FAULT, Verdict.WARNING)


@dataclass(frozen=True, slots=True)
class Screen:
    """One case and its card."""

    case: Case
    diagnosis: Diagnosis
    card: Card


def list_screens(split: str, pattern: str, every: int = 1) -> Iterator[Screen]:
    """Cards of the cases whose id matches."""
    made = Diagnoses()
    pages = made.workspace.knowledge.pages
    for case in [c for c in load_cases(split) if re.search(pattern, c.id)][::every]:
        diagnosis = made.of(case).diagnosis
        yield Screen(case, diagnosis, make_card(diagnosis, pages, case.question))


def find_flaws(screen: Screen) -> list[str]:
    """What a reader stumbles over, in words."""
    card, verdict = screen.card, screen.diagnosis.verdict
    flaws = {
        "headline longer than 160": len(card.headline) > LONGEST,
        "headline cut within a clause": "…" in card.headline.replace("/…/", "/"),
    }
    if verdict in _FAULTS:
        where = dict(card.facts).get("Where", NO_PLACE)
        flaws["place not told"] = where == NO_PLACE
        flaws["only who reports it is told"] = where.startswith("reported ")
    if verdict is not Verdict.HEALTHY:
        action = card.action
        flaws["no action"] = action is None
        if action is not None:
            is_check = action.kind is ActionKind.CHECK
            flaws |= {
                "choice in the action": _CHOICE.search(action.what) is not None,
                "no command": not action.command,
                "name to be put in": bool(action.blanks),
                "fix without a way to see that it worked": not is_check and not action.worked_if,
                "check without how to read it": is_check and not action.supports_if,
                "commands of several schedulers": bool(action.choices),
            }
    return [name for name, found in flaws.items() if found]


def write_screen(screen: Screen) -> str:
    """The first screen as text."""
    case, diagnosis, card = screen.case, screen.diagnosis, screen.card
    rows = [
        f"======== {case.id} | {diagnosis.verdict} | {diagnosis.signature}",
        f"  right: {' '.join(case.expect.root_cause.split())} | rank {case.expect.first_failing_rank}",
        f"  [{len(card.headline)}] {card.headline}",
        *([f"  ANSWER: {card.answer}"] if card.answer else []),
        f"  {card.detail}",
        *(f"  {name}: {value}" for name, value in card.facts),
        f"  {card.certainty}: {card.reason}",
    ]
    if (action := card.action) is not None:
        where = f"{action.where.said}: " if action.where is not None else ""
        rows += [f"  {action.title}: {where}{action.what} {action.why}"]
        rows += [f"    $ {line}" for line in action.command.split("\n") if line]
        rows += [f"    {shown}: {follows}" for shown, follows in action.reading]
        rows += [f"    put in: {blank}" for blank in action.blanks]
    rows += [f"  line: {card.line}"] if card.line else []
    rows += [f"  ! {flaw}" for flaw in find_flaws(screen)]
    return "\n".join(rows)


def main() -> None:
    """Diagnose the cases, print the screens where asked, and the table of flaws by verdict."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--split", default=Split.DEV, choices=list(map(str, Split)))
    parser.add_argument("--case", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    seen: Counter[str] = Counter()
    flaws: Counter[tuple[str, str]] = Counter()
    for screen in list_screens(arguments.split, arguments.case, arguments.every):
        verdict = screen.diagnosis.verdict.value
        seen[verdict] += 1
        flaws.update((flaw, verdict) for flaw in find_flaws(screen))
        if arguments.show:
            print(write_screen(screen))
    print("| flaw | " + " | ".join(f"{v} ({n})" for v, n in sorted(seen.items())) + " |")
    print("| --- |" + " ---: |" * len(seen))
    for name in dict.fromkeys(flaw for flaw, _ in sorted(flaws)):
        print(f"| {name} | " + " | ".join(str(flaws[name, v]) for v in sorted(seen)) + " |")


if __name__ == "__main__":
    main()
