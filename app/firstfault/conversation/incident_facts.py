"""Which single fact of an incident is asked for, and what is it? When, at which step, how many, which file, which value.

The wording is data (facts.yaml); every answer begins with the fact and cites the line it stands on.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache

from firstfault.conversation.answerer import Question
from firstfault.conversation.asked import Asked
from firstfault.conversation.attempts import tell_attempts
from firstfault.conversation.blocks import write_block, write_quote
from firstfault.conversation.differences import tell_attempts_differ, tell_difference
from firstfault.conversation.evidence import Line
from firstfault.conversation.facts import Facts
from firstfault.conversation.figures import asks_figure, tell_figure
from firstfault.conversation.going_on import (
    tell_back,
    tell_leave_alone,
    tell_notice,
    tell_stop_now,
    tell_well_again,
)
from firstfault.conversation.growth import tell_last_long
from firstfault.conversation.holders import tell_holder
from firstfault.conversation.last_words import FAILED, tell_doing
from firstfault.conversation.line_facts import (
    tell_allocator_books,
    tell_only,
    tell_setting,
    tell_shortage,
    tell_wait,
    tell_who_saw,
)
from firstfault.conversation.moments import tell_by_itself, tell_duration, tell_started, tell_when
from firstfault.conversation.node_use import (
    tell_keep_using,
    tell_others_ok,
    tell_ranks_on,
    tell_recovered,
)
from firstfault.conversation.odd_steps import asks_odd_steps, tell_odd_steps
from firstfault.conversation.records import tell_at_step, tell_record
from firstfault.conversation.repeats import tell_count, tell_repeats
from firstfault.conversation.run_answers import at_event, tell_last_save
from firstfault.conversation.searches import (
    asks_of_people,
    tell_absent,
    tell_changes,
    tell_either,
    tell_lines,
    tell_log_says,
)
from firstfault.conversation.shares import tell_save_more, tell_save_pace, tell_share
from firstfault.conversation.sources import Sources
from firstfault.conversation.suspects import tell_suspect
from firstfault.conversation.things import tell_thing
from firstfault.conversation.topics import team_of
from firstfault.conversation.words import TABLE, is_covered, plain_words
from firstfault.investigation.diagnosis import Citation, CitationKind, Diagnosis
from firstfault.knowledge_base.tokens import tokenize
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Verdict
from firstfault_tools.knowledge.pack import read_yaml

MAX_ROWS = 3
_TIMED_OUT = expression(r"(?i)watchdog caught|timed out|timeout")
_ASKSFAILED = expression(r"(?i)\b(?:fail\w*|die[ds]?|crash\w*|error\w*|affected|hit|broken|bad|involved)\b")  # fmt: skip
_ASKS_TIMED_OUT = expression(r"(?i)\btime ?outs?\b|\btimed out\b|\bhang|\bhung|\bstuck|\bwait")
_WHY = expression(r"(?i)^\W*(?:so |but |and |ok,? |then )?(?:why|how come)\b")
_VERSION_OF = expression(
    r"(?i)\b(?!which|what|the\b)([a-z][\w.-]{1,20}) versions?\b|\bversions? (?:of |is |has )?(?:the )?([a-z][\w.-]{1,20})"
)


@dataclass(frozen=True, slots=True)
class _Value:
    id: str
    name: str
    say: re.Pattern[str]
    unless: re.Pattern[str] | None
    values: tuple[re.Pattern[str], ...]
    unit: str
    ask: str
    """Command that tells it, where no line does."""
    kept: str
    """What holds a value of the past, where the command only tells the one of now."""


@dataclass(frozen=True, slots=True)
class _Kind:
    id: str
    say: tuple[re.Pattern[str], ...]
    unless: re.Pattern[str] | None


@cache
def _table() -> tuple[tuple[_Value, ...], tuple[_Kind, ...]]:
    content = read_yaml(TABLE.read_text(encoding="utf-8"))

    def unless(row: Mapping[str, str]) -> re.Pattern[str] | None:
        return re.compile(row["not"], re.IGNORECASE) if "not" in row else None

    values = tuple(
        _Value(r["id"], r["name"], re.compile(r["say"], re.I), unless(r), tuple(map(re.compile, r["values"])), r.get("unit", ""), r.get("ask", ""), r.get("kept", ""))
        for r in content["values"]
    )  # fmt: skip
    kinds = tuple(
        _Kind(r["id"], tuple(re.compile(p, re.I) for p in r["say"]), unless(r))
        for r in content["kinds"]
    )
    return values, kinds


def answer_fact(question: Question, diagnosis: Diagnosis, asked: Asked, sources: Sources) -> tuple[str, str] | None:  # fmt: skip
    """(id of the fact, answer) where the question asks for one of the table; None where it does not."""
    values, kinds = _table()
    facts, text = Facts(question, diagnosis, sources, asked), asked.text
    if asks_of_people(text):
        return "absent", tell_absent(facts)
    for name, tell in _BY_CURVES:
        if said := tell(facts):
            return name, said
    for kind in kinds:
        if any(p.search(text) for p in kind.say) and not (kind.unless and kind.unless.search(text)):
            said = _TELL[kind.id](facts)
            if said:
                return kind.id, said
    if _WHY.match(text):
        return None
    for value in values:
        if value.say.search(text) and not (value.unless and value.unless.search(text)):
            said = _value(facts, value)
            if said:
                return "value", said
    if _VERSION_OF.search(text) and asked.is_question and (said := _no_version(facts)):
        return "version", said
    said = tell_record(facts) if asked.intent not in _OF_ADVICE and "should" not in text else ""
    return ("value", said) if said else None


_BY_CURVES = (("odd_steps", tell_odd_steps), ("figure", tell_figure), ("value", tell_at_step))
"""What the step series tell comes before any wording that a single fact shares."""
_FIRST = frozenset(
    ["holder", "stop_now", "started", "by_itself", "attempts", "last_long", "save_more", "share", "leave_alone",
     "back", "only", "repeats", "count", "well_again", "guilty", "keep_using"]
)  # fmt: skip
"""Facts whose wording is plain enough to come before what the rest of the sentence could mean."""


_WORDED = frozenset(["stop_now", "save_pace", "duration"])
"""Facts that their own words ask for, whatever other way of asking is near to the sentence."""


def asks_first(text: str) -> bool:
    """The question is one for such a fact."""
    return asks_figure(text) or asks_odd_steps(text) or _asks_one_of(_FIRST, text)


def asks_worded(text: str) -> bool:
    """The question is one for a fact that its words tell from all else."""
    return _asks_one_of(_WORDED, text)


def _asks_one_of(ids: Container[str], text: str) -> bool:
    return any(
        kind.id in ids and any(p.search(text) for p in kind.say) and not (kind.unless and kind.unless.search(text))
        for kind in _table()[1]
    )  # fmt: skip


_OF_ADVICE = frozenset(["restart", "verify", "disproof", "why", "should", "how_to", "what_do", "why_general", "normal", "fix", "next"])  # fmt: skip
"""Ways of asking for what to do rather than for what was."""


def _value(f: Facts, value: _Value) -> str:
    """What the lines print of one quantity: the last, and how it ran."""
    found: list[tuple[Line, str]] = []
    for line in f.evidence.lines:
        match = next((m for p in value.values if (m := p.search(line.text)) is not None), None)
        if match is not None:
            found.append((line, match[1].strip()))
    if not found and value.ask and _ASKS_VALUE.search(f.text):
        where = f" on {f.host}" if f.host and f.host in f.text else ""
        past = f" What it was then only {value.kept} can tell; this tells the value of now{where}:" if value.kept else f" This tells it{where}:"  # fmt: skip
        return f"The evidence does not say: no line that was read gives the {value.name}.{past}\n\n{write_block(value.ask)}"
    if not found:
        return ""
    if not is_covered(f.text, value.say):
        return ""
    unit = f" {value.unit}" if value.unit else ""
    name = f"The {value.name}"
    if (one := _at_moment(f, found)) is not None:
        line, text = one
        step = f" at step {line.step}" if line.step is not None else ""
        return f"{name}{step} is {text}{unit}, {f.at(line)}."
    numbers = [x for _, text in found if (x := _number(text)) is not None]
    last_line, last = found[-1]
    if not numbers or len({text for _, text in found}) == 1:
        told = Counter(text for _, text in found).most_common(3)
        rest = "".join(f", then {t}{unit} ({n} lines)" for t, n in told[1:])
        return f"{name} is {told[0][0]}{unit} in {told[0][1]} line{'s' if told[0][1] > 1 else ''}{rest}: {f.at(found[0][0])}."
    if value.id in ("collective", "seqnum", "exit_code", "pid"):
        told = Counter(text for _, text in found).most_common(3)
        return f"{name}: " + ", ".join(f"{t} ({n} lines)" for t, n in told) + f"; first at {f.at(found[0][0])}."  # fmt: skip
    (first_line, first), low, high = found[0], min(numbers), max(numbers)
    body = f"{first}{unit} at {f.at(first_line)} to {last}{unit} at {f.at(last_line)}, between {low:g} and {high:g} in {len(found)} lines"
    return f"{name} goes from {body}."


_AT_STEP = expression(r"(?i)\b(?:at|on|in|of|around|for) (?:step |iteration |iter )?(\d{2,9})\b")
_AT_FAULT = expression(
    r"(?i)\b(?:when|before|as|until) (?:it|the (?:job|run|loss)|we)\b|\bbefore (?:that|the|this)\b|\blast\b|"
    r"\bat the (?:end|crash|fault)|\bat th(?:at|is) (?:point|moment|time)|\bat the time\b"
)  # fmt: skip


def _at_moment(f: Facts, found: Sequence[tuple[Line, str]]) -> tuple[Line, str] | None:
    """The value at the step that is asked for, or the last one before the fault; None where no moment is asked for."""
    step = _AT_STEP.search(f.text)
    if step is not None:
        return next((p for p in found if p[0].step == int(step[1])), None)
    first = f.first_line
    if _AT_FAULT.search(f.text) and first is not None:
        before = [p for p in found if p[0].file == first.file and p[0].number <= first.number]
        return before[-1] if before else None
    return None


def _number(text: str) -> float | None:
    found = re.match(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?", text, re.I)
    return float(found[0].replace(",", "")) if found is not None else None


def _version(f: Facts) -> str:
    """The version of the thing that is named, file by file where files differ."""
    names = [g.lower() for m in _VERSION_OF.finditer(f.text) for g in m.groups() if g]
    names = [n for n in names if n not in ("which", "what", "the", "has", "is", "of", "with")]
    for name in names:
        stem = re.escape({"pytorch": "torch"}.get(name, name))
        pattern = re.compile(
            rf"(?i)\b(?:py)?{stem}(?:[ _-]?version)?[ :=/v-]{{1,3}}(\d+\.\d+(?:\.\d+)?\S{{0,12}})"
        )
        found = f.evidence.find(pattern, 400)
        by_file = {line.file: (line, m[1].rstrip(",;)")) for line, m in reversed(found)}
        if not by_file:
            continue
        kinds = {v for _, v in by_file.values()}
        if len(kinds) == 1:
            line, value = next(iter(by_file.values()))
            return f"{name} {value}, by {f.at(line)}."
        told = ", ".join(
            f"{v} in {f.at(line)}" for line, v in sorted(by_file.values(), key=lambda p: p[0].file)
        )
        return f"{name}: {told}; so the files differ. The verdict: {f.cause} {f.main}."
    return ""


def _no_version(f: Facts) -> str:
    """That no line tells the version of the thing that is named, and what would; '' where none is named."""
    names = [g.lower() for m in _VERSION_OF.finditer(f.text) for g in m.groups() if g]
    named = next((n for n in names if n not in _NO_PACKAGE), "")
    if not named:
        return ""
    return f"The evidence does not say: no line that was read gives the version of {named}. This tells it: `pip show {named}` in the environment of the job."


_NO_PACKAGE = ("which", "what", "the", "has", "is", "of", "with", "this", "that", "it", "we", "our")


def _redo(f: Facts) -> str:
    d = f.diagnosis
    if d.verdict is Verdict.HEALTHY:
        return f"No: nothing is wrong in what was read. {f.cause} {f.main}."
    harmed = d.category in (Category.NUMERICAL, Category.DATA)
    fix = f" {d.fixes[0].text} {f.sources.marks(d.fixes[0].citations, d)}" if d.fixes else ""
    best = f.record.resume_from
    if best is not None:
        older = ", which is older than the damage" if harmed else ""
        return f"No, not from scratch: resume from {best.name}{older}, {at_event(f, best)}. {f.cause} {f.main}.{fix}"
    if harmed:
        return f"Only from where the fault began to act, if it changed the updates: {f.cause} {f.main}.{fix}"
    return f"No, resume from the newest complete checkpoint: the fault stopped the run and did not spoil what was learned before. {f.cause} {f.main}.{fix}"


def _how_many(f: Facts) -> str:
    d, text = f.diagnosis, f.text
    files = d.input.files
    if re.search(r"(?i)\b(?:files|logs|lines)\b", text):
        return f"{len(files)} file{'s' if len(files) != 1 else ''} with {d.input.lines_total:,} lines were read: {', '.join(files[:8])}."
    wanted = _TIMED_OUT if _ASKS_TIMED_OUT.search(text) else FAILED if _ASKSFAILED.search(text) else None  # fmt: skip
    world = f" of {d.input.world_size}" if d.input.world_size else ""
    if re.search(r"(?i)\b(?:nodes?|hosts?|machines|servers)\b", text) and wanted is None:
        hosts = f.evidence.hosts
        size = f" The job has {d.input.world_size} ranks." if d.input.world_size else ""
        if not hosts:
            return f"The evidence does not say how many.{size} {len(files)} file(s) were read: {', '.join(files[:6])}."
        return f"{len(hosts)} host{'s' if len(hosts) != 1 else ''} wrote lines that were read: {', '.join(hosts[:12])}.{size}"
    if wanted is None:
        seen = d.input.ranks_seen
        if d.input.world_size:
            return f"{d.input.world_size} ranks in all; {len(seen)} of them wrote lines that were read."
        return (
            f"{len(seen)} ranks wrote lines that were read; the size of the job is not in them."
            if seen
            else ""
        )
    lines = [line for line in f.evidence.lines if wanted.search(line.text)]
    words = set(tokenize(text)) - plain_words() - _OF_COUNTING
    own = [x for x in lines if words & set(tokenize(x.text))]
    lines = own or lines
    ranks = sorted({line.place.rank for line in lines if line.place.rank is not None})
    if not ranks:
        return ""
    one = "s" if len(ranks) == 1 else ""
    what = f"report{one} a timeout" if wanted is _TIMED_OUT else f"report{one} an error"
    shown = ", ".join(map(str, ranks[:16])) + (" ..." if len(ranks) > 16 else "")
    noun = "rank" if one and not world else "ranks"
    return f"{len(ranks)}{world} {noun} {what} in what was read: {shown}; first at {f.at(lines[0])}. That they report it does not make them the cause: {f.cause} {f.main}."


_OF_COUNTING = frozenset(
    tokenize(
        "how many rank ranks node nodes host hosts gpu gpus fail failed failure error errors die died crash crashed they affected hit"
    )
)


def _last_step(f: Facts) -> str:
    stepped = f.evidence.stepped
    first = f.first_line
    if not stepped:
        return ""
    before = [
        x for x in stepped if first is None or x.file != first.file or x.number < first.number
    ]
    line = max(before or stepped, key=lambda x: x.step or 0)
    rest = f" The fault follows{f.where}: {f.cause} {f.main}." if f.diagnosis.verdict is Verdict.FAULT else ""  # fmt: skip
    return f"Step {line.step} is the last one reported before the fault, {f.at(line)}.{rest}"


def _files(f: Facts) -> str:
    wanted = f.diagnosis.hypotheses[0].for_ if f.diagnosis.hypotheses else ()
    quotes = [c for c in f.diagnosis.citations if c.n in wanted and c.kind is CitationKind.LOG and c.file]  # fmt: skip
    if not quotes and f.first_line is not None:
        quotes = [f.first_line.cited]
    if not quotes:
        return ""
    rows = [_quoted(f, c) for c in quotes[:MAX_ROWS]]
    places = ", ".join(dict.fromkeys(f"{c.file} (line {c.line})" for c in quotes[:MAX_ROWS]))
    return f"In {places}: {f.cause}.\n\n" + "\n".join(rows)


def _quoted(f: Facts, citation: Citation) -> str:
    place = f"{citation.file}:{citation.line} {f.sources.add(citation)}"
    return f"- {place}\n{write_quote(citation.quote, 2)}"


def _told(f: Facts) -> str:
    d = f.diagnosis
    team = team_of(d.category, d.root_cause)
    lead = f"Tell them this: {f.cause}{f.where if f.place not in f.cause else ''} {f.main}."
    ask = f" Ask for: {d.fixes[0].text}" if d.fixes else ""
    sure = f" It is {d.confidence.value}."
    whose = f" The team for it: {team}." if team else ""
    return f"{lead}{sure}{ask}{whose}"


_DIRECTIONS = (
    expression(r"(?i)\b(?:lower|smaller|reduc\w+|decreas\w+|less|fewer|shrink|shorter|halve)\b"),
    expression(r"(?i)\b(?:rais\w+|increas\w+|bigger|larger|more|higher|longer|double)\b"),
    expression(r"(?i)\b(?:disabl\w+|turn\w* off|without|remov\w+|drop\w*)\b"),
)


def _same_direction(asked: str, fix: str) -> bool:
    """A measure of one direction (less, more, off) is only the same as a fix of that direction."""
    wanted = [d for d in _DIRECTIONS if d.search(asked)]
    return not wanted or any(d.search(fix) for d in wanted)


def _would_help(f: Facts) -> str:
    """Whether a measure is among the fixes, or leaves the cause where it is."""
    d = f.diagnosis
    if d.verdict in (Verdict.UNKNOWN, Verdict.HEALTHY):
        return ""
    if (books := tell_allocator_books(f)) and _FRAGMENTS.search(f.text):
        others = [x for x in d.fixes if not _FRAGMENTS.search(f"{x.text} {x.command or ''}") and not x.text.lower().startswith("let segments")]  # fmt: skip
        more = "; ".join(
            f"{x.text.rstrip('.')} {f.sources.marks(x.citations, d)}" for x in others[-2:]
        )
        return books + (f" It lowers no peak: the live tensors stay as large, and a longer sample needs more again. What lowers it: {more}." if more else "")  # fmt: skip
    said = set(tokenize(f.text)) - plain_words("would_help")
    best, share = None, 0.0
    for fix in d.fixes:
        if not _same_direction(f.text, f"{fix.text} {fix.command or ''}"):
            continue
        own = set(tokenize(f"{fix.text} {fix.command or ''}"))
        overlap = len(said & own) / max(len(said), 1)
        if overlap > share:
            best, share = fix, overlap
    if best is not None and share >= MOST_ALIKE and len(said) >= LEAST_WORDS:
        label = "Only if" if best.condition else "Yes, that is among the fixes"
        condition = f" {best.condition}:" if best.condition else ":"
        return f"{label}{condition} {best.text} {f.sources.marks(best.citations, d)} The cause: {f.cause} {f.main}."
    instead = f" What helps: {d.fixes[0].text} {f.sources.marks(d.fixes[0].citations, d)}" if d.fixes else ""  # fmt: skip
    return f"No, it would not remove the cause: {f.cause} {f.main}.{instead}"


MOST_ALIKE, LEAST_WORDS = 0.75, 1
"""Share of the words of a measure that a fix must hold to be the same one."""


def _says_else(f: Facts) -> str:
    """Why something else in the evidence complains: it follows from the first fault."""
    d = f.diagnosis
    if d.verdict is not Verdict.FAULT:
        return ""
    names = [w for w in re.findall(r"[\w.-]{2,40}", f.text) if re.search(r"\d", w)]
    lines = [x for x in f.evidence.lines if FAILED.search(x.text) and (not names or any(n in f"{x.file} {x.text}" for n in names))]  # fmt: skip
    first = f.first_line
    others = [x for x in lines if first is None or (x.file, x.number) != (first.file, first.number)]
    words = set(tokenize(f.text)) - plain_words()
    others.sort(key=lambda x: -len(words & set(tokenize(x.text))))
    if not others:
        return ""
    rows = "\n".join(_quoted(f, x.cited) for x in others[:MAX_ROWS])
    return (
        f"It follows from the first fault{f.where}: {f.cause} {f.main}. Every rank waits for all others, so once one "
        f"is gone the rest lose their peer, time out or are ended:\n\n{rows}"
    )


_ASKS_VALUE = expression(r"(?i)\b(?:what|which|how|who)\b")
_FRAGMENTS = expression(r"(?i)expandable|fragment|max_split|empty_cache|alloc_conf")


_TELL: Mapping[str, Callable[[Facts], str]] = {
    "holder": tell_holder,
    "stop_now": tell_stop_now,
    "started": tell_started,
    "by_itself": tell_by_itself,
    "attempts": tell_attempts,
    "last_long": tell_last_long,
    "save_more": tell_save_more,
    "share": tell_share,
    "leave_alone": tell_leave_alone,
    "back": tell_back,
    "only": lambda f: tell_difference(f) or tell_only(f),
    "repeats": tell_repeats,
    "count": tell_count,
    "well_again": tell_well_again,
    "notice": tell_notice,
    "guilty": tell_suspect,
    "changes": lambda f: tell_attempts_differ(f) or tell_changes(f),
    "either": tell_either,
    "log_says": tell_log_says,
    "others_ok": tell_others_ok,
    "ranks_on": tell_ranks_on,
    "recovered": tell_recovered,
    "save_pace": tell_save_pace,
    "last_save": tell_last_save,
    "thing": tell_thing,
    "who_saw": tell_who_saw,
    "short": tell_shortage,
    "waited": tell_wait,
    "setting": tell_setting,
    "lines": tell_lines,
    "version": _version,
    "keep_using": tell_keep_using,
    "redo": _redo,
    "doing": tell_doing,
    "told": _told,
    "would_help": _would_help,
    "says_else": _says_else,
    "last_step": _last_step,
    "duration": tell_duration,
    "when": tell_when,
    "how_many": _how_many,
    "files": _files,
}
