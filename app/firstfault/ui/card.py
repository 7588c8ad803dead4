"""What does somebody need in ten seconds? One sentence, four facts, how sure, and one thing to do.

Page, terminal and `watch` draw the same card.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from firstfault.investigation.begin import read_wait, time_of_fault
from firstfault.investigation.diagnosis import Diagnosis, LedBy, Struck
from firstfault.investigation.headline import capitalise, say_plainly
from firstfault.investigation.next_action import Action, choose_action
from firstfault.investigation.part import find_part
from firstfault.ui.extent import say_duration, say_lost, say_run, say_since
from firstfault.ui.words import CONFIDENCE, HEALTHY_CERTAINTY, HEALTHY_CONFIDENCE, name_category
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Verdict
from firstfault_tools.hardware.bus import call_gpu
from firstfault_tools.knowledge.page import Page
from firstfault_tools.log.place import name_ranks
from firstfault_tools.log.prefix import read_prefix

NO_PLACE = "not known (no rank or host is named in what was read)"
WHOLE_JOB = "the whole job ({why})"
MOST_PREFIX, MOST_SPEAKERS = 400, 6
LONGEST_LINE = 520
"""Characters of the deciding line that stand on the card: a whole message of an allocator that ran out, five rows."""

LEAD_IN = 40
"""Characters that stand before the first of what the cause takes from a line that is cut."""

_TAKEN = expression(r"\d[\d.,]*\d|[A-Z_]{4,60}|[A-Za-z_][\w.-]{5,60}")

_TAKES_OUT = expression(r"(?i)\bstate=drain\b|\bkubectl (?:cordon|drain)\b")
"""Commands after which nothing is placed on a node any more."""

DECIDING = "Deciding line"
"""Name of the fact that says where it stands; the page shows it beside the line."""


@dataclass(frozen=True, slots=True)
class Card:
    """headline: place and cause. answer: what was asked, in one sentence; '' where the headline says it or nothing was
    asked. detail: what else the cause says. facts: (name, value), known ones only. line: the deciding line, as quoted."""

    headline: str
    answer: str
    detail: str
    facts: tuple[tuple[str, str], ...]
    certainty: str
    reason: str
    leads: str
    action: Action | None
    line: str = ""


def make_card(
    diagnosis: Diagnosis, pages: Mapping[str, Page] | None = None, question: str = ""
) -> Card:
    """The card of a diagnosis. pages: the knowledge, whose checks may be the next thing to do. question: what the person
    asked with the evidence."""
    headline, detail = say_plainly(diagnosis)
    healthy = diagnosis.verdict is Verdict.HEALTHY
    reason = HEALTHY_CONFIDENCE if healthy else CONFIDENCE[diagnosis.confidence]
    certainty = HEALTHY_CERTAINTY if healthy else diagnosis.confidence.value.capitalize()
    action = choose_action(diagnosis, pages or {})
    state, told = say_run(diagnosis, leaves_out := _name_left_out(diagnosis, action))
    if action is not None and leaves_out:
        # told with the action, whose command does the half of it
        action, told = replace(action, follows=told), ""
    run = f"{state} ({told})" if told else state
    return Card(
        headline,
        _answer(question, diagnosis),
        detail,
        _facts(diagnosis, run),
        certainty,
        reason,
        _say_leader(diagnosis),
        action,
        _quote_deciding(diagnosis),
    )


def _answer(question: str, diagnosis: Diagnosis) -> str:
    if not question.strip():
        return ""
    # a command that nobody asked anything starts without the conversation
    from firstfault.conversation.first_answer import answer_briefly

    return answer_briefly(question, diagnosis, say_where(diagnosis))


def _quote_deciding(diagnosis: Diagnosis) -> str:
    """The line that decides, on one row: where all of it is too long for a first look, the part that the cause is of."""
    first = diagnosis.first_line
    if first is None or not first.line or diagnosis.verdict is Verdict.HEALTHY:
        return ""
    text = " ".join(first.text.split())
    if len(text) > LONGEST_LINE:
        text = text[read_prefix(text[:MOST_PREFIX])[1] :].lstrip()
    return text if len(text) <= LONGEST_LINE else _cut_around(text, diagnosis.root_cause)


def _cut_around(text: str, cause: str) -> str:
    """As much of a long line as fits, from where most of the numbers and names stand that the cause takes from it."""
    wanted = set(_TAKEN.findall(cause))
    places = [m.start() for m in _TAKEN.finditer(text) if m[0] in wanted]
    starts = [0, *(max(0, place - LEAD_IN) for place in places)]
    best = max(starts, key=lambda s: (sum(s <= p < s + LONGEST_LINE for p in places), -s))
    begin = text.find(" ", best) + 1 if best else 0
    shown = text[begin : begin + LONGEST_LINE].rstrip()
    return f"{'… ' if begin else ''}{shown}{' …' if begin + LONGEST_LINE < len(text) else ''}"


def _say_leader(diagnosis: Diagnosis) -> str:
    leader = {
        LedBy.RULE: f"by rule {diagnosis.signature}" if diagnosis.signature else "",
        LedBy.MODEL: "led by the model's reasoning",
        LedBy.PERSON: "led by what a person checked",
    }[diagnosis.led_by]
    return "" if diagnosis.verdict is Verdict.HEALTHY else leader


def _facts(diagnosis: Diagnosis, run: str) -> tuple[tuple[str, str], ...]:
    at, about = time_of_fault(diagnosis)
    since = say_since(at, about)
    if since and (waited := read_wait(diagnosis)):
        since += f" (reported {say_duration(waited)} later)"
    first = diagnosis.first_line
    line = (f"{first.file}:{first.line}" if first.line else first.file) if first else ""
    rows = [
        ("What", _name_part(diagnosis)),
        ("Where", say_where(diagnosis)),
        ("Since", since),
        ("Run", run),
        say_lost(diagnosis, at),
        (DECIDING, line),
    ]
    if diagnosis.verdict is Verdict.HEALTHY:
        rows = rows[1:2]
    return tuple((name, value) for name, value in rows if value)


def _name_left_out(diagnosis: Diagnosis, action: Action | None) -> str:
    """The host that the next action takes out of the job; '' for any other action."""
    host = diagnosis.host or ""
    return host if action is not None and host and _TAKES_OUT.search(action.command) else ""


def _name_part(diagnosis: Diagnosis) -> str:
    part = find_part(diagnosis)
    return capitalise(part) if part else name_category(diagnosis.category)


def say_where(diagnosis: Diagnosis) -> str:
    """`rank 11 on gpu-a17, GPU 3 (local rank 3)`, as far as it is known; what is not known is said."""
    rank, host, gpu = diagnosis.first_failing_rank, diagnosis.host, call_gpu(diagnosis.gpu)
    pods = (diagnosis.named.get("pod"), diagnosis.struck.pod)
    of_host = f" on {host}" if rank is not None else f"{'pod' if host in pods else 'host'} {host}"
    place = ("" if rank is None else f"rank {rank}") + (of_host if host else "")
    where = ", ".join(p for p in (place, gpu) if p)
    if diagnosis.verdict is Verdict.HEALTHY or (not where and diagnosis.first_line is None):
        return where
    unknown = [] if host else ["host not named in what was read"]
    local = [] if diagnosis.local_rank is None else [f"local rank {diagnosis.local_rank}"]
    notes = "; ".join([*local, *unknown])
    return f"{where}{f' ({notes})' if notes else ''}" if where else _say_scope(diagnosis)


def _say_scope(diagnosis: Diagnosis) -> str:
    """Whom it strikes where it is no rank's or host's: the ranks, hosts or part that it names, the whole job, what all
    of it share; else who reports it, or that it is not known."""
    if diagnosis.alike:
        return f"{name_ranks(diagnosis.alike)} alike (the same error: their common code, setting or input)"
    struck, row = diagnosis.struck, _find_scope(diagnosis)
    if struck.part:
        return struck.part
    one_host = row.get("or_host") and len(struck.hosts) == 1
    if row.get("whole") and not one_host:
        return WHOLE_JOB.format(why=row["why"])
    named = _name_struck(struck, diagnosis, row)
    if named:
        return named
    who = _name_reporters(struck, diagnosis)
    part = "" if row.get("pages") else find_part(diagnosis)
    said = f"the {part}" if part else str(row.get("say", ""))
    if said:
        return said + (f" (reported {who})" if who else "")
    return f"reported {who}" if who else NO_PLACE


def _name_struck(struck: Struck, diagnosis: Diagnosis, row: Mapping[str, Any]) -> str:
    """The hosts that the cause names, else the ranks that alone are struck; '' where nothing singles any out."""
    if struck.hosts and not row.get("shared"):
        several = "s" if len(struck.hosts) > 1 else ""
        return f"host{several} {', '.join(struck.hosts)}"
    parties = struck.ranks or struck.quoted
    if row.get("ranks") and parties:
        return name_ranks(list(parties))
    seen = diagnosis.input.ranks_seen
    # a part of the ranks that were seen is singled out; all of them are the whole job
    if 1 < len(struck.ranks) < len(seen) and not row.get("shared"):
        return f"{name_ranks(list(struck.ranks))} (no other rank reports it)"
    return ""


@cache
def _scopes() -> tuple[dict[str, Any], ...]:
    told = Path(__file__).with_name("scopes.json").read_text(encoding="utf-8")
    return tuple(json.loads(told))


def _find_scope(diagnosis: Diagnosis) -> dict[str, Any]:
    """The first row of scopes.json that is of the rule, the page or the category; empty where none is."""
    if diagnosis.verdict is Verdict.UNKNOWN:
        return {}
    pages = {c.page for c in diagnosis.citations if c.page}
    category = diagnosis.category.value if diagnosis.category else ""
    for row in _scopes():
        rule = any(
            (diagnosis.signature or "").startswith(begins) for begins in row.get("rules", ())
        )
        if rule or pages & set(row.get("pages", ())) or category in row.get("categories", ()):
            return row
    return {}


def _name_reporters(struck: Struck, diagnosis: Diagnosis) -> str:
    """Who wrote what the verdict rests on: `by rank 11`, `on c1-15`; '' where nobody is named."""
    if ranks := struck.ranks or struck.quoted:
        many = len(ranks) > MOST_SPEAKERS
        return f"by {len(ranks)} ranks" if many else f"by {name_ranks(list(ranks))}"
    first = diagnosis.first_line
    task = read_prefix(first.text[:MOST_PREFIX])[0].task if first is not None else None
    if task is not None:
        return f"by task {task}"
    return f"on {struck.reporters[0]}" if len(struck.reporters) == 1 else ""
