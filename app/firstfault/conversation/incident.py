"""What does an incident answer about itself? From the objects of its diagnosis and its post-mortem."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from firstfault.conversation.accounts import (
    tell_manager,
    tell_newcomer,
    tell_postmortem,
    tell_summary,
    tell_ticket,
    tell_verify,
    tell_whys,
)
from firstfault.conversation.answerer import Question
from firstfault.conversation.asked import Asked
from firstfault.conversation.beside import say_consequence, say_nearer
from firstfault.conversation.blocks import write_block, write_quote
from firstfault.conversation.cost import tell_cost
from firstfault.conversation.differences import tell_attempts_differ, tell_difference
from firstfault.conversation.evidence_lines import answer_line, answer_words
from firstfault.conversation.facts import Facts
from firstfault.conversation.going_on import tell_leave_alone, tell_stop_now
from firstfault.conversation.line_facts import tell_only
from firstfault.conversation.loss_answers import tell_trend
from firstfault.conversation.memory_steps import tell_steps
from firstfault.conversation.named_events import (
    TROUBLE,
    answer_named,
    relate,
    say_relation,
)
from firstfault.conversation.particulars import (
    answer_rank,
    step_after,
)
from firstfault.conversation.places import say_straggler, tell_host
from firstfault.conversation.proofs import tell_proof
from firstfault.conversation.recovery import find_recovery, say_recovery
from firstfault.conversation.reply import Reply
from firstfault.conversation.run_answers import (
    at_event,
    at_time,
    tell_checkpoint,
    tell_lose_less,
    tell_lost_steps,
    tell_onset,
    tell_restart,
    tell_resumed,
)
from firstfault.conversation.searches import find_other_victims, tell_changes
from firstfault.conversation.soundness import tell_nothing_wrong
from firstfault.conversation.sources import Sources
from firstfault.conversation.spoken_of import quote_lines, tell_foreign
from firstfault.conversation.suspects import tell_suspect, which_memory
from firstfault.conversation.telling import SURE, Telling
from firstfault.conversation.topics import team_of, topics_in
from firstfault.conversation.triage_tree import tell_tree
from firstfault.investigation.alternative import NOT_IT, list_mistaken, name_alternative
from firstfault.investigation.diagnosis import Citation, CitationKind, Diagnosis
from firstfault.investigation.next_action import choose_action, write_action
from firstfault.investigation.return_point import says_none_left
from firstfault.postmortem.report import Cited
from firstfault.postmortem.victims import ranks_in_trouble
from firstfault_tools.findings import Category, Verdict
from firstfault_tools.log.place import name_ranks

MAX_ROWS = 12


def answer_from_incident(
    question: Question, diagnosis: Diagnosis, asked: Asked, sources: Sources
) -> Reply | None:
    """Answer to a question about the incident; None where it holds nothing on it."""
    telling = Telling(question, diagnosis, sources, asked)
    steps = tell_steps(telling) if asked.intent == "steps" else None
    text, tool = (steps.text, steps.tool) if steps else (_TELL[asked.intent](telling), None)
    asks_next = suggest(diagnosis, asked.intent)
    return Reply(text, f"incident.{asked.intent}", asks_next, tool) if text else None


def suggest(
    diagnosis: Diagnosis, asked: str, earlier: Collection[str] = (), branches: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """What goes on from here: the outcomes of the check that was just told, then what was not asked yet.

    asked: the question that is answered now; earlier: those before it; branches: outcomes of the check that it told.
    """
    wanted = [
        ("next", "What do I run next?"),
        ("why", "Why did it happen?"),
        ("verify", "How do I verify the fix?"),
        ("other_causes", "What else could it be?"),
        ("whys", "Draft the five whys"),
        ("page_whom", "Who should I page?"),
    ]
    if diagnosis.verdict in (Verdict.HEALTHY, Verdict.UNKNOWN):
        wanted = [("collect", "What should I collect?"), ("certainty", "How sure are you?"), ("timeline", "What happened, in order?")]  # fmt: skip
    left = [text for name, text in wanted if name != asked and name not in earlier]
    return (*branches, *(left or [text for name, text in wanted if name != asked]))[:4]


def _rank(t: Telling) -> str:
    rank = t.asked.rank
    if rank is None:
        return ""
    if (
        t.asked.intent == "rank"
        and _RELATED.search(t.asked.text)
        and (named := answer_named(t, t.evidence))
    ):
        return named
    blocks = answer_rank(t.question, t.diagnosis, t.sources, rank)
    late = t.straggler
    if late is not None:
        verdict = (
            "Rank {0} is where it began."
            if rank == late.rank
            else "It began at rank {1}, not at rank {0}."
        )
        blocks[0] = f"{verdict.format(rank, late.rank)}{say_straggler(t)} {t.cause} {t.main}."
    if (
        rank != t.diagnosis.first_failing_rank
        and t.diagnosis.verdict is Verdict.FAULT
        and len(blocks) > 1
    ):
        own = [x for x in t.evidence.lines if x.place.rank == rank and TROUBLE.search(x.text)]
        timed = [r for x in own if (r := relate(t, t.evidence, x)).seconds is not None]
        first = min(timed, key=lambda r: r.seconds or 0.0, default=None)
        if first is not None and first.is_before is False:
            claim = " A launcher names the first failure that its own agent saw, which is a claim about order and no proof." if _CLAIMS.search(t.asked.text) else ""  # fmt: skip
            blocks[0] += f" The first trouble of rank {rank}, {say_relation(t, first)}.{claim}"
    return "\n\n".join(blocks)


_RELATED = re.compile(
    r"(?i)\brelated|\binnocent|\b(?:the|a|is that|is it) (?:cause|reason|culprit)|\bcaused?\b|\bharmless|\bmatter|\bhardware\W*$|\bbad gpu"
)
_CLAIMS = re.compile(r"(?i)torchrun|launcher|agent|elastic|first observed|root cause")


def _suspect(t: Telling) -> str:
    return tell_suspect(Facts(t.question, t.diagnosis, t.sources, t.asked))


def _line(t: Telling) -> str:
    number = int(t.asked.named["line"])
    return answer_line(t.question, number, t.asked.file, t.sources) or (
        f"No file of this incident has a line {number}"
        + (f" under the name {t.asked.file}." if t.asked.file else ".")
    )


def _words(t: Telling) -> str:
    return answer_words(t.question, t.sources)


def _first_line(t: Telling) -> str:
    first = t.diagnosis.first_line
    if first is None:
        return "No single line carries the verdict. " + (f"{t.cause} {t.main}." if t.main else "")
    quote = Citation(0, CitationKind.LOG, first.text, file=first.file, line=first.line)
    mark = t.sources.add(quote)
    return (
        f"It is {first.file}, line {first.line} {mark}:\n\n{write_quote(first.text)}\n\n{t.cause}."
    )


def _timeline(t: Telling) -> str:
    import time

    rows = []
    for row in t.report.timeline[:MAX_ROWS]:
        stamp = (
            time.strftime("%H:%M:%S", time.gmtime(row.time)) if row.time is not None else "no time"
        )
        about = "about " if row.about else ""
        rows.append(f"- {about}{stamp}, {row.source}: {t.cited(Cited(row.text, row.citations))}")
    if not rows:
        return f"No order can be read from the evidence. {t.cause} {t.main}."
    where = f" at {t.place}" if t.place else ""
    return f"First{where}: {t.cause} {t.main}. In order (UTC):\n\n" + "\n".join(rows)


_ASKS_REASON = re.compile(r"(?i)\bwhy\b|\bhow come\b|\breason\b|\bwarum\b")


def _facts(t: Telling) -> Facts:
    return Facts(t.question, t.diagnosis, t.sources, t.asked)


def _why(t: Telling) -> str:
    if t.diagnosis.verdict is Verdict.HEALTHY:
        return tell_nothing_wrong(t)
    facts = _facts(t)
    if nearer := say_nearer(t) or (
        tell_foreign(facts) if _ASKS_REASON.search(t.asked.text) else ""
    ):
        return nearer
    explained = t.sources.carry(t.diagnosis.explanation, t.diagnosis)
    if t.diagnosis.verdict is Verdict.UNKNOWN:
        return f"That is open: {t.cause}. {explained}"
    where = f" ({t.place})" if t.place and t.place not in t.cause else ""
    opening = which_memory(facts) or (
        "" if re.match(r"(?i)\W{0,8}(?:\w{1,20} )?what\b", t.asked.text) else "Because of this: "
    )
    if explained.lower().startswith(t.whole_cause.lower()):
        marks, explained = _split_marks(explained[len(t.whole_cause) :])
        where += "".join(f" {m}" for m in marks if m not in t.main)
    beside = say_consequence(t)
    return f"{opening}{t.whole_cause}{where}{at_time(t)} {t.main}.{f' {beside}' if beside else ''}\n\n{explained}".strip()


def _split_marks(text: str) -> tuple[list[str], str]:
    """Marks at the start of `text`, and what follows the full stop."""
    head = re.match(r"(?:\s?\[\d+\])*", text)
    marks = re.findall(r"\[\d+\]", head[0]) if head is not None else []
    return marks, re.sub(r"^[.\s]+", "", text[head.end() if head is not None else 0 :])


def _others_failed(t: Telling) -> str:
    """Why ranks failed that were not the first."""
    if len(t.diagnosis.cascade) < 2:
        return f"No other failure is in the evidence. {t.cause} {t.main}."
    rows = []
    for x in t.diagnosis.cascade[1:7]:
        if x.file and x.line:
            mark = t.sources.add(Citation(0, CitationKind.LOG, x.text, file=x.file, line=x.line))
            who = f"rank {x.rank}, " if x.rank is not None else ""
            rows.append(f"- {x.role.value}: {who}{x.file}:{x.line} {mark}")
    where = f" at {t.place}" if t.place else ""
    return (
        f"Because every rank waits for all others: once the first fault struck{where}, the rest could only time out, "
        f"lose their peer or be ended by the launcher. The first fault: {t.cause} {t.main}.\n\n"
        + "\n".join(rows)
    )


_ASKS_WRONG = re.compile(r"(?i)\b(?:wrong|bad|broken|problems?|fail\w*|dead|amiss|off)\b")


def _health(t: Telling) -> str:
    turned = _ASKS_WRONG.search(t.asked.text) is not None
    words = {
        Verdict.FAULT: "Yes, there is a fault" if turned else "No, there is a fault",
        Verdict.WARNING: "It runs, with a warning",
        Verdict.HEALTHY: "No, nothing is wrong in what was read"
        if turned
        else "Yes, it looks healthy",
        Verdict.UNKNOWN: "That is open",
    }[t.diagnosis.verdict]
    step = step_after(t.question, t.diagnosis) if t.diagnosis.verdict is Verdict.FAULT else None
    if step is not None:
        return (
            f"No, though it went on after the fault: a later step is at {step.file}:{step.line} {t.sources.add(step)}. "
            f"That does not show that the cause is gone: {t.cause} {t.main}."
        )
    return f"{words} ({t.diagnosis.confidence.value}): {t.cause} {t.main}."


def _fact(t: Telling) -> str:
    """A value that the question asks for: the lines that have its words, or that there is none."""
    what = t.asked.named.get("what", "")
    lines = answer_words(replace(t.question, text=f'"{what}"'), t.sources) if what else ""
    return lines or (
        f"The evidence does not say: no line that was read gives the {what or 'value'}. "
        f"What it does show: {t.cause} {t.main}."
    )


def _certainty(t: Telling) -> str:
    d = t.diagnosis
    wrong = f"\n\nIt would be wrong if: {t.sources.carry(d.disproof, d)}" if d.disproof else ""
    against = t.sources.marks(d.hypotheses[0].against, d) if d.hypotheses else ""
    counter = f" Against it: {against}." if against else " Nothing that was read contradicts it."
    return f"{d.confidence.value.capitalize()}: {t.cause} {t.main}.{counter}{wrong}"


def _disproof(t: Telling) -> str:
    d = t.diagnosis
    if told := tell_proof(t):
        return told
    if not d.disproof:
        return _collect(t)
    return f"This would prove it wrong: {t.sources.carry(d.disproof, d)}\n\nThe verdict is: {t.cause} {t.main}."


def _others(t: Telling) -> str:
    d = t.diagnosis
    if topics_in(t.asked.text) and (told := _suspect(t)):
        return told
    if len(d.hypotheses) < 2:
        return _no_rival(t)
    rows = [
        f"- {h.confidence.value}: {h.root_cause}; for {t.sources.marks(h.for_, d) or 'nothing quoted'}"
        + (f", against {t.sources.marks(h.against, d)}" if h.against else "")
        for h in d.hypotheses[1:]
    ]
    return f"Yes, {len(rows)} other cause{'s' if len(rows) > 1 else ''} would fit in part:\n\n" + "\n".join(rows) + f"\n\nThe verdict stays: {t.cause} {t.main}."  # fmt: skip


def _no_rival(t: Telling) -> str:
    """That nothing else fits what was read, what is looked at if the check speaks against it, and what it is mistaken for."""
    d, pages = t.diagnosis, t.question.knowledge.pages
    if d.verdict is Verdict.HEALTHY:
        return f"No other cause fits the evidence that was given. It shows: {t.cause} {t.main}."
    action = choose_action(d, pages)
    shown = (
        [row for row in action.reading if row[0].startswith("If ")] if action is not None else []
    )
    refuted = shown[-1] if action is not None and action.refutes_if else None
    then = f"{refuted[0]}, {refuted[1].rstrip('.')}." if refuted else _fallback(t)
    told = f"Nothing else that was read fits as well as this: {t.cause} {t.main}. {then}"
    mistaken = list_mistaken(d, pages)
    if mistaken is None:
        return told
    page, rows = mistaken
    cited = Citation(0, CitationKind.PAGE, rows[0], page=page.id, heading=NOT_IT, url=page.url)
    return f"{told}\n\nWhat it is not, by its page {t.sources.add(cited)}:\n\n" + "\n".join(f"- {r}" for r in rows[:4])  # fmt: skip


def _fallback(t: Telling) -> str:
    """What is looked at next where the action is no check with a second outcome."""
    alternative = name_alternative(t.diagnosis, t.question.knowledge.pages, "")
    return f"If it is not this, {alternative}." if alternative else ""


_MOUNT = re.compile(
    r"(?<![\w.])/(?:mnt/|nfs/|lustre/|lus/|gpfs/|net/|fsx/|scratch/)?[\w.-]{2,40}(?=/)"
)
_STORED = frozenset({Category.ENVIRONMENT, Category.DATA, Category.CHECKPOINT})


def _affected(t: Telling) -> str:
    d = t.diagnosis
    world, seen = d.input.world_size, d.input.ranks_seen
    victims = ranks_in_trouble(d, t.record.artefacts)
    size = (
        f"all {world} ranks"
        if world
        else f"the {len(seen)} ranks seen"
        if seen
        else "the whole job"
    )
    start = f"One job, {size}: a synchronous run stops as a whole." if d.verdict is Verdict.FAULT else f"The verdict is {d.verdict.value}; {size} were looked at."  # fmt: skip
    where = f" It began at {t.place} {t.main}." if t.place else " Where it began is not known."
    told = (
        f" Trouble after it is reported by {name_ranks(victims)}, as a consequence."
        if victims
        else ""
    )
    shared = ""
    if t.host and d.category is Category.HARDWARE:
        shared = f" Other jobs on {t.host} are at risk: tell the {team_of(d.category, d.root_cause).removeprefix('the ')}."
    elif (path := _MOUNT.search(d.root_cause)) is not None and d.category in _STORED:
        shared = f" Whoever else uses {path[0]} may meet it too: tell the storage team; what was read tells nothing of other jobs."  # fmt: skip
    others = find_other_victims(Facts(t.question, d, t.sources, t.asked))
    if others:
        rows = quote_lines(Facts(t.question, d, t.sources, t.asked), others[:3])
        shared += f" Others were struck too:\n\n{rows}"
    elif not shared and d.verdict is Verdict.FAULT:
        shared = " What was read tells nothing of other jobs."
    return start + where + told + shared


def _page_whom(t: Telling) -> str:
    d = t.diagnosis
    if d.verdict is Verdict.HEALTHY:
        return f"Nobody: nothing is wrong in what was read. {t.cause} {t.main}."
    team = team_of(d.category, d.root_cause)
    if d.verdict is Verdict.UNKNOWN or not team:
        return f"Nobody yet: the cause is open. {_collect(t)}"
    name = team[:1].upper() + team[1:]
    where = f", with {t.place}" if t.place else ""
    return f"{name}{where}: {t.cause} {t.main}. {SURE[d.confidence]}."


def _fix(t: Telling) -> str:
    d = t.diagnosis
    if d.verdict is Verdict.HEALTHY:
        return f"Nothing needs fixing: {t.cause} {t.main}."
    if not d.fixes:
        return f"No fix is shown, since no cause is established with a page to cite. {_collect(t)}"
    rows = []
    for fix in d.fixes[:5]:
        command = f"\n{write_block(fix.command, 2)}" if fix.command else ""
        label = " (changes state)" if fix.changes_state else ""
        rows.append(f"- {fix.text}{label} {t.sources.marks(fix.citations, d)}{command}")
    return f"{d.fixes[0].text} That comes first, for: {t.cause} {t.main}.\n\nWhat helps, most urgent first:\n\n" + "\n".join(rows)  # fmt: skip


def _next(t: Telling) -> str:
    """The same action as the card's: what to run, where, and how to read it."""
    d = t.diagnosis
    action = choose_action(d, t.question.knowledge.pages)
    if action is None:
        return f"Nothing is left to run: {t.cause} {t.main}."
    block = f"{write_action(action)} {t.sources.marks(action.citations, d)}".rstrip()
    if action.changes_state:
        block += " It changes state."
    if action.command:
        block += f"\n\n{write_block(action.command)}"
    if action.blanks:
        block += f"\n\nPut in: {'; '.join(action.blanks)}."
    if action.reading:
        block += "\n\n" + "\n".join(f"- {shown}: {follows}" for shown, follows in action.reading)
    if back := _before_departure(t):
        block = f"{back}\n\nBeside it: {block}"
    rest = [f for f in d.fixes[:4] if f.text not in block]
    after = "\n\nThen:\n\n" + "\n".join(f"- {f.text} {t.sources.marks(f.citations, d)}" for f in rest) if rest else ""  # fmt: skip
    return block + after


def _before_departure(t: Telling) -> str:
    """Which checkpoint to go back to where numbers went wrong, and what the replay tells; '' for other faults."""
    onset, saved = t.record.onset, t.record.resume_from
    if onset is None:
        return ""
    left = t.record.checkpoints.kept
    if saved is None and says_none_left(t.diagnosis.fixes):
        return ""
    if saved is None and left:
        named = ", ".join(map(str, left))
        return (
            f"None of the checkpoints that are kept ({named}) is older than step {onset.row.step}, where the numbers first "
            f"went wrong: start from an archived one before it, else from scratch, with what is changed below."
        )
    if saved is None:
        return f"Go back to a checkpoint older than step {onset.row.step}, where the numbers first went wrong; none is named in what was read."
    return (
        f"Go back to the checkpoint {saved.name} ({at_event(t, saved)}) and replay from it with the same data: it is the "
        f"newest one before step {onset.row.step}, where the numbers first went wrong. If it comes back at the same step, "
        f"the batches there are at fault, else the rate or the hardware."
    )


def _collect(t: Telling) -> str:
    wanted = t.diagnosis.next_artefacts
    if not wanted:
        return f"Nothing more is needed for this verdict: {t.cause} {t.main}."
    rows = [f"- {a.what}: {a.why}\n{write_block(a.command, 2)}" for a in wanted]
    return f"Collect {wanted[0].what} first. What would settle it:\n\n" + "\n".join(rows)


def _onset(t: Telling) -> str:
    return tell_onset(t) or _timeline(t)


def _restart(t: Telling) -> str:
    """Whether to start again, and what the lines say of the thing that was away."""
    told, back = tell_restart(t), find_recovery(t) if t.waited or t.host else None
    if back is None or t.diagnosis.category not in _COMES_BACK:
        return told
    said = say_recovery(t, back)
    if back.up is not None and t.waited:
        return f"What it waited for is back by its own word, so a restart can go on; check it on every node first: {said}.\n\n{told}"
    return f"{told}\n\nBy the lines read {said}."


_COMES_BACK = frozenset({Category.HARDWARE, Category.ENVIRONMENT, Category.COMMUNICATION})


def _lose_less(t: Telling) -> str:
    return tell_lose_less(t) or tell_postmortem(t)


def _only(t: Telling) -> str:
    return tell_difference(_facts(t)) or tell_only(_facts(t))


def _changes(t: Telling) -> str:
    return tell_attempts_differ(_facts(t)) or tell_changes(_facts(t))


def _stop_now(t: Telling) -> str:
    return tell_stop_now(_facts(t))


def _leave_alone(t: Telling) -> str:
    return tell_leave_alone(_facts(t))


_TELL: Mapping[str, Callable[[Telling], str]] = {
    "rank": _rank, "why_not_rank": _rank, "suspect": _suspect, "line": _line, "host": tell_host, "first_line": _first_line,
    "timeline": _timeline, "why": _why, "others": _others_failed, "health": _health, "certainty": _certainty, "disproof": _disproof,
    "other_causes": _others, "cost": tell_cost, "restart": _restart, "checkpoint": tell_checkpoint,
    "onset": _onset, "resumed": tell_resumed, "lost_steps": tell_lost_steps, "lose_less": _lose_less, "affected": _affected, "page_whom": _page_whom, "fix": _fix, "next": _next,
    "collect": _collect, "verify": tell_verify, "whys": tell_whys, "manager": tell_manager, "newcomer": tell_newcomer, "ticket": tell_ticket,
    "summary": tell_summary, "postmortem": tell_postmortem, "words": _words, "fact": _fact, "steps": _next, "trend": tell_trend, "tree": tell_tree,
    "only": _only, "changes": _changes, "stop_now": _stop_now, "leave_alone": _leave_alone,
}  # fmt: skip
