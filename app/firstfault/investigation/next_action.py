"""What is done next? One thing: what is run, where, how its output is read, and what to do then.

Where the evidence itself shows the cause, it is the fix; where mechanisms of one class look alike, it is the check
that tells them apart. Page, terminal, alert, report, MCP and conversation give the same.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from firstfault.investigation.alternative import is_same, list_rivals, name_alternative
from firstfault.investigation.blanks import fill_command, keep_first_step
from firstfault.investigation.diagnosis import CitationKind, Diagnosis, Fix, NextArtefact
from firstfault.investigation.fixes import has_label
from firstfault.investigation.handed_in import was_handed_in
from firstfault.investigation.run_place import EITHER, RunPlace, find_fix_place, find_run_place
from firstfault.investigation.scheduler import choose_scheduler
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Verdict
from firstfault_tools.kind_pages import check_of_kind
from firstfault_tools.knowledge.page import Check, Page

NAMED_BY_MESSAGE = frozenset({Category.OOM, Category.ENVIRONMENT})
"""Kinds whose own message names what failed: a fix at hand tells more than another artefact."""

GONE = frozenset({Category.OOM})
"""Kinds whose process is gone with what it held: its memory can be looked at in the next run only, which should have
the fix in it."""


_STEP = expression(r"\b([Ss]tep|[Ii]teration|[Ee]poch)[ :=]{1,3}(\d{1,9})\b(?!\.\d)")


_BESIDE = expression(r"; (?:together with it|the line says): .*|`[^`]*`|'[^']*'|\([^()]*\)")
_EITHER = expression(r", or |\bor (?:an?|the|by|its?) ")
"""Two mechanisms in one sentence; `inf or NaN` names one."""


_ALTERNATIVE = expression(
    r"(?:, |; )or,? (?:(?:with|where|if|on|in|for) [^,;]{1,60}, )?(?:a |an |the )?"
    r"(?:[a-z]{3,12}|`[^`]{2,60}`|torch\.\w+|[A-Z]{2,}\S*)\b(?!\s*[,)])"
)
"""A second way to do it that ends a sentence: `..., or raise tensor parallelism`."""


class ActionKind(StrEnum):
    """Whether it mends the fault or settles what it is."""

    FIX = "fix"
    CHECK = "check"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do: in words, and as a command where there is one."""

    kind: ActionKind
    what: str
    why: str = ""
    command: str = ""
    where: RunPlace | None = None
    supports_if: str = ""
    """What the output shows where the explanation holds."""
    refutes_if: str = ""
    """What it shows where it does not."""
    then: str = ""
    """The fix, to be done where the output bears the explanation out."""
    blanks: tuple[str, ...] = ()
    """What the person has to put into the command: `NODE, the name of the node`."""
    changes_state: bool = False
    citations: tuple[int, ...] = ()
    follows: str = ""
    """What is done with the run once that is done: a node that is taken out takes no running job with it."""
    worked_if: str = ""
    """What is seen where a fix has helped."""
    choices: tuple[tuple[str, str], ...] = ()
    """(scheduler, its command) where nothing shows which one the job runs on: one of them is run."""
    otherwise: str = ""
    """What is looked at where the check speaks against the explanation and `refutes_if` does not say it."""

    @property
    def title(self) -> str:
        """`Do next` for a fix, `Check next` for what would settle the verdict."""
        return "Do next" if self.kind is ActionKind.FIX else "Check next"

    @property
    def reading(self) -> tuple[tuple[str, str], ...]:
        """How the output is read: (condition, what follows), the supporting one first."""
        rows = [("Then", self.follows)] if self.follows else []
        rows += [("Worked if", self.worked_if)] if self.worked_if else []
        if self.then or self.supports_if:
            shown = (
                f"If it shows {self.supports_if}" if self.supports_if else "If it bears that out"
            )
            rows.append((shown, self.then or "the explanation above holds"))
        if self.refutes_if:
            shown, _, follows = self.refutes_if.partition(": ")
            rows.append(
                (
                    f"If {shown}",
                    follows.removeprefix("then ") or self.otherwise or "it is not this",
                )
            )
        return tuple(rows)


def choose_action(diagnosis: Diagnosis, pages: Mapping[str, Page]) -> Action | None:
    """The first fix of what is confirmed or of what the evidence itself shows; of what is likely its own check, else
    the first fix; of what is less than that the artefact that is missing; nothing for a healthy run."""
    action = _choose(diagnosis, pages)
    if action is None or not action.refutes_if:
        return action
    return replace(action, otherwise=name_alternative(diagnosis, pages, action.what))


def choose_next(
    diagnosis: Diagnosis, pages: Mapping[str, Page], ruled_out: Collection[str]
) -> Action | None:
    """What is next where a person's check has ruled the leading explanation out, and others perhaps: the check of the
    first that is left, else another check of the page of what was ruled out, else the artefact that is missing."""
    done = choose_action(diagnosis, pages)
    was = done.what if done is not None else ""
    left = leave_out(diagnosis, ruled_out)
    # fixes, and what is asked for the fault, are of the explanation that was ruled out
    page = pages.get((left.hypotheses or diagnosis.hypotheses)[0].page)
    checks = [c for c in page.checks if not is_same(c.text, was)] if page is not None else []
    wanted = [a for a in _list_wanted(left) if not is_same(a.what, was)]
    return (
        _best_check([c for c in checks if c.command], left, "", ())
        or _ask(left, [a for a in wanted if not a.of_fault] or wanted, "")
        or _best_check(checks, left, "", ())
    )


def leave_out(diagnosis: Diagnosis, ruled_out: Collection[str]) -> Diagnosis:
    """The diagnosis with what is left first: nothing is proven any more, and no fix is of it."""
    left = tuple(h for h in list_rivals(diagnosis) if h.root_cause not in ruled_out)
    first = left[0] if left else None
    return replace(
        diagnosis,
        hypotheses=left,
        root_cause=first.root_cause if first is not None else diagnosis.root_cause,
        category=first.category if first is not None else None,
        confidence=first.confidence if first is not None else Confidence.UNKNOWN,
        verdict=diagnosis.verdict if first is not None else Verdict.UNKNOWN,
        signature=None,
        fixes=(),
        disproof="",
    )


def _choose(diagnosis: Diagnosis, pages: Mapping[str, Page]) -> Action | None:
    if diagnosis.verdict is Verdict.HEALTHY:
        return None
    fixes = sorted(
        (f for f in diagnosis.fixes if f.kind == "immediate"), key=lambda f: bool(f.condition)
    )
    fixes = fixes or list(diagnosis.fixes)
    named = _find_named_check(diagnosis, pages, fixes)
    if named is not None:
        return named
    is_open = bool(fixes) and _is_open(diagnosis, fixes[0])
    check = _find_check(diagnosis, pages, fixes) if is_open else None
    if check is not None and check.supports_if:
        return check
    if fixes and (diagnosis.confidence is Confidence.CONFIRMED or _is_at_hand(fixes[0], diagnosis)):
        return _fix(fixes[0], diagnosis)
    return (
        _find_check(diagnosis, pages, fixes)
        or (_fix(fixes[0], diagnosis) if fixes else None)
        or _ask(diagnosis, _list_wanted(diagnosis) or diagnosis.next_artefacts[:1], "")
    )


def write_action(action: Action) -> str:
    """Where and what, in one sentence: `On gpu-a17: space of each target.`"""
    where = f"{action.where.said}: " if action.where is not None else ""
    why = f": {action.why}" if action.why else ""
    return f"{where}{action.what}{why}".rstrip(".") + "."


def describe_action(diagnosis: Diagnosis, pages: Mapping[str, Page]) -> dict[str, Any] | None:
    """The same as a JSON-able mapping."""
    action = choose_action(diagnosis, pages)
    if action is None:
        return None
    told = {**asdict(action), "kind": action.kind.value, "blanks": list(action.blanks), "citations": list(action.citations)}  # fmt: skip
    return {**told, "choices": dict(action.choices)}


def describe_answer(diagnosis: Diagnosis, pages: Mapping[str, Page]) -> dict[str, Any]:
    """The diagnosis as every door gives it to a machine: schema `firstfault.diagnosis/1` with its next action."""
    return {**diagnosis.to_json(), "next_action": describe_action(diagnosis, pages)}


def _is_open(diagnosis: Diagnosis, first: Fix) -> bool:
    """The cause is one of several: another explanation is not clearly behind, or its sentence names two. Where a fix is
    of what was found, only its first clause counts: later ones tell what follows and what to do."""
    told = diagnosis.root_cause.partition("; ")[0] if first.own else diagnosis.root_cause
    return diagnosis.disputed or _EITHER.search(_BESIDE.sub("", told)) is not None


def _is_at_hand(fix: Fix, diagnosis: Diagnosis) -> bool:
    """What is likely and mended by a fix of its own mechanism; or named by its own message, and mended by a command or
    at the next start."""
    if diagnosis.confidence is not Confidence.LIKELY or fix.condition:
        return False
    named = diagnosis.category in NAMED_BY_MESSAGE and bool(fix.command)
    return fix.own or named or diagnosis.category in GONE


def _find_named_check(
    diagnosis: Diagnosis, pages: Mapping[str, Page], fixes: Sequence[Fix]
) -> Action | None:
    """The check that the data of this rule put before any fix, where the cause is not confirmed."""
    if diagnosis.confidence is Confidence.CONFIRMED or diagnosis.signature is None:
        return None
    then = _find_then(fixes)
    row = check_of_kind(diagnosis.signature)
    if (
        row is not None
        and not _is_settled(diagnosis)
        and fixes
        and fixes[0].text.startswith(row.before)
    ):
        # its output may have been handed in: then the fix comes first
        return _check_of_page(diagnosis, pages, then, row.begins)
    if fixes and fixes[0].own:
        return None
    own = [a for a in _list_wanted(diagnosis) if a.of_fault and a.supports_if]
    return _ask(diagnosis, own, then) if diagnosis.confidence is Confidence.LIKELY else None


def _find_then(fixes: Sequence[Fix]) -> str:
    """What is done where a check bears the explanation out: a fix that stands for itself."""
    return next(
        (
            take_first(f.text)
            for f in fixes
            if not f.condition and (f.own or not has_label(f.text)) and not f.text.startswith("Or ")
        ),
        "",
    )


def take_first(text: str) -> str:
    """The first of several ways that a sentence offers: one thing is done, the others stand among the fixes."""
    for found in _ALTERNATIVE.finditer(text):
        kept = text[: found.start()].rstrip()
        if kept.count("(") == kept.count(")") and kept.count("`") % 2 == 0:
            return f"{kept}."
    return text


def _find_check(
    diagnosis: Diagnosis, pages: Mapping[str, Page], fixes: Sequence[Fix]
) -> Action | None:
    """What settles the verdict: the page's own check of what is likely, else the artefact that is missing."""
    wanted = _list_wanted(diagnosis)
    own = [a for a in wanted if a.of_fault]
    then = _find_then(fixes)
    if diagnosis.confidence is not Confidence.LIKELY:
        # what its data names a fix for has a check of its own, which tells more than what is collected for any fault
        named = _check_of_page(diagnosis, pages, then) if fixes and fixes[0].own else None
        if named is not None and named.supports_if:
            return named
        return _ask(diagnosis, wanted, "") or _check_of_page(diagnosis, pages, "")
    # logs of other ranks or a run with more reporting would be collected for any fault: a fix tells more
    return (
        _ask(diagnosis, [a for a in own if a.supports_if], then)
        or _check_of_page(diagnosis, pages, then)
        or _ask(diagnosis, own if fixes else wanted, then)
    )


def _list_wanted(diagnosis: Diagnosis) -> list[NextArtefact]:
    """Artefacts with a command whose output was not handed in and is not what the cause says already."""
    settled = _is_settled(diagnosis)
    return [
        a
        for a in diagnosis.next_artefacts
        if a.command and not _is_known(a.command, diagnosis) and not (settled and a.of_fault)
    ]


def _is_settled(diagnosis: Diagnosis) -> bool:
    """The cause says what the check of its kind would tell, or the evidence names the fix."""
    if diagnosis.fixes and diagnosis.fixes[0].shown:
        return True
    row = check_of_kind(diagnosis.signature) if diagnosis.signature is not None else None
    return row is not None and row.is_settled(diagnosis.root_cause)


def _is_known(command: str, diagnosis: Diagnosis) -> bool:
    return was_handed_in(command, diagnosis.handed_in, diagnosis.input.files)


def _ask(diagnosis: Diagnosis, wanted: Sequence[NextArtefact], then: str) -> Action | None:
    """The first artefact, with its command where it has one."""
    if not wanted:
        return None
    first = wanted[0]
    command, blanks = fill_command(first.command, diagnosis)
    return Action(
        ActionKind.CHECK,
        first.what[:1].upper() + first.what[1:],
        first.why,
        command,
        find_run_place(diagnosis, command, first.run_on, first.what) if command else None,
        first.supports_if,
        first.refutes_if,
        first.then or then,
        blanks,
        choices=choose_scheduler(command),
    )


def _check_of_page(
    diagnosis: Diagnosis, pages: Mapping[str, Page], then: str, begins: str = ""
) -> Action | None:
    """A check of the page that the verdict rests on, the one that begins so."""
    for citation in diagnosis.citations:
        page = pages.get(citation.page or "") if citation.kind is CitationKind.PAGE else None
        if page is not None:
            checks = [check for check in page.checks if check.text.startswith(begins)]
            return _best_check(checks, diagnosis, then, (citation.n,))
    return None


def _best_check(
    checks: Sequence[Check], diagnosis: Diagnosis, then: str, citations: tuple[int, ...]
) -> Action | None:
    """One of these checks: one whose output is explained and whose names are all known comes first."""
    found = [
        (bool(check.supports_if), not blanks, check, command, blanks)
        for check in checks
        for command, blanks in [fill_command(check.command, diagnosis)]
    ]
    if not found:
        return None
    *_, check, command, blanks = max(found, key=lambda f: f[:2])
    if _is_known(command, diagnosis):
        return None  # what the page asks first was handed in, and the verdict has used it
    place = find_run_place(diagnosis, command, check.run_on, check.text)
    return Action(
        ActionKind.CHECK,
        check.text,
        "",
        _lines_at(place, command, diagnosis, check.run_on),
        place,
        check.supports_if,
        check.refutes_if,
        then,
        blanks,
        citations=citations,
        choices=choose_scheduler(command),
    )


def _lines_at(place: RunPlace, command: str, diagnosis: Diagnosis, run_on: str) -> str:
    """The lines that are run at one place: a page may add what is asked elsewhere."""
    if run_on:
        return command
    if place.kind == EITHER:
        return command
    lines = [x for x in command.split("\n") if find_run_place(diagnosis, x).kind == place.kind]
    return "\n".join(lines) or command


FAILED = "{failed}"
"""What stands for the step that failed in worked_if.json."""


@lru_cache(maxsize=1)
def _worked() -> dict[str, str]:
    told = Path(__file__).with_name("worked_if.json").read_text(encoding="utf-8")
    return {str(k): str(v) for k, v in json.loads(told).items()}


def _say_worked(diagnosis: Diagnosis) -> str:
    """What shows for any fix of its category that it has helped: that the step which failed is passed; '' where neither
    the category nor a step says more than that it works."""
    line = diagnosis.first_line.text if diagnosis.first_line is not None else ""
    found = _STEP.search(diagnosis.root_cause) or _STEP.search(line)
    of_category = _worked().get(diagnosis.category.value if diagnosis.category else "", "")
    told = of_category or _worked()["any"]
    if found is None:
        return "" if FAILED in told else told
    return told.replace(FAILED, f"{found[1].lower()} {found[2]}")


def _fix(fix: Fix, diagnosis: Diagnosis) -> Action:
    command, blanks = fill_command(keep_first_step(fix.command or "", diagnosis), diagnosis)
    condition = f"{fix.condition[:1].upper()}{fix.condition[1:]}"
    return Action(
        ActionKind.FIX,
        take_first(fix.text),
        condition,
        command,
        find_fix_place(diagnosis, fix.text, command),
        blanks=blanks,
        changes_state=fix.changes_state,
        worked_if=fix.worked_if or _say_worked(diagnosis),
        choices=choose_scheduler(command),
        citations=fix.citations,
    )
