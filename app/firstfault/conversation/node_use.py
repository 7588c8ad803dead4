"""May a node or GPU stay in use, or has it to go? By where the first fault lies and what was written of the node itself."""

from __future__ import annotations

import re

from firstfault.conversation.blocks import write_quote
from firstfault.conversation.evidence import Line
from firstfault.conversation.facts import Facts
from firstfault.conversation.recovery import Recovery, find_recovery, say_recovery
from firstfault.conversation.run_answers import at_event
from firstfault.conversation.suspects import named_hosts
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Verdict
from firstfault_tools.log.place import name_ranks

_TAKE_OUT = expression(
    r"(?i)\b(?:replace|swap|drain|reboot|pull|exclude|cordon|remove|rma|take out)\b"
)


def tell_keep_using(f: Facts) -> str:
    """Whether a node or GPU stays in use, or has to go: what is asked decides which of the two is Yes."""
    d = f.diagnosis
    out = _TAKE_OUT.search(f.text) is not None
    if d.verdict is Verdict.HEALTHY:
        return f"{'No' if out else 'Yes'}: nothing in what was read speaks against it. {f.cause} {f.main}."
    other = _other_than_guilty(f)
    if other and f.place:
        said = f"{'No' if out else 'Yes'}, by this evidence: the first fault lies at {f.place}, not at {other}: {f.cause} {f.main}."
        trouble = next((x for x in f.evidence.lines if x.place.host == other or f" {other} " in x.text if _TROUBLE_OF_HOST.search(x.text)), None)  # fmt: skip
        said += f" Of {other} itself this was written: {f.at(trouble)}; look at it before it goes back." if trouble is not None else ""  # fmt: skip
        guilty = f" The one to take out is {f.host}." if out and d.category is Category.HARDWARE else ""  # fmt: skip
        return said + guilty
    place = f.host or (f"the host of {d.place}" if d.place else "")
    broken = d.category is Category.HARDWARE and not f.waited
    if broken and not place:
        asked = "take it out only where a line or a test shows it" if out else "test it first"
        return f"Not shown: no line that was read ties the fault to one node, so {asked}. The fault: {f.cause} {f.main}."
    if broken:
        first = f" {d.fixes[0].text} {f.sources.marks(d.fixes[0].citations, d)}" if d.fixes else ""
        if _PART.search(f.text):
            return f"No, not as a first step: take {place} out, reboot and test it; a part is replaced when the fault comes back after that. The fault: {f.cause} {f.main}.{first}"
        return f"{'Yes' if out else 'No'}: take {place} out until it is repaired and has passed a test, since the fault is in the hardware: {f.cause} {f.main}.{first}"
    return f"{'No' if out else 'Yes'}, by this evidence: the fault is not in the hardware of {place or 'a node'}. It is this: {f.cause} {f.main}."


def _other_than_guilty(f: Facts) -> str:
    """A host that the question names and that is not the one of the fault; '' where it names none or the guilty one."""
    text = f.text.lower()
    names = dict.fromkeys((*f.evidence.hosts, *f.rank_hosts.values(), *named_hosts(f)))
    named = [h for h in names if re.search(rf"(?<![\w-]){re.escape(h.lower())}(?![\w-])", text)]
    guilty = {n.lower() for n in (f.host, *f.known_names, f.place.removeprefix("host ")) if n}
    return "" if any(h.lower() in guilty for h in named) else next(iter(named), "")


_PART = expression(
    r"(?i)\brma\b|\b(?:replace|swap)\b[^?\n]{0,20}\b(?:gpu|card|part|cable|nic|it)\b"
)
_TROUBLE_OF_HOST = expression(
    r"(?i)\bxid\b|\becc\b|\bdown\b|uncorrect|corrected error|fallen off|machine check|\bAER\b"
)


_BROKEN = expression(
    r"(?i)\bxid\b|\becc\b|\blink\b[^\n]{0,14}\bdown\b|uncorrect|corrected error|fallen off|machine check|\bAER\b"
)
_BACK = expression(
    r"(?i)\bno ?disk ?pressure\b|\bNodeHasNo|\bNodeReady\b|\bready\b|\bactive\b|\brecover(?:ed|y)\b|\brestored\b|\bresum(?:ed|ing)\b|\bback (?:up|online)\b|\blink up\b|\bidle\b"
)


def tell_recovered(f: Facts) -> str:
    """Whether a line after the fault says that the place, or the run, is well again."""
    first = f.first_line
    names = [n for n in (f.host, *f.known_names) if n]
    named = [h for h in f.evidence.hosts if h.lower() in f.text.lower()]
    wanted = named or names
    back = find_recovery(f)
    if back is not None and not named:
        return _say_back(f, back)
    found = [
        x
        for x in f.evidence.lines
        if _BACK.search(x.text) and any(n in x.text for n in wanted) and not _TROUBLE_OF_HOST.search(x.text)
    ]  # fmt: skip
    if found:
        return f"By its own word, yes: {f.at(found[-1])} says so.\n\n{write_quote(found[-1].text.strip()[:300])}\n\nThat does not show that the cause is gone: {f.cause} {f.main}."
    where = f" of {wanted[0]}" if wanted else ""
    at = f", and the last line read is {f.at(f.evidence.lines[-1])}" if first is not None and f.evidence.lines else ""  # fmt: skip
    return f"Not shown: no line that was read says that the state{where} is well again{at}. {f.cause} {f.main}."


def _say_back(f: Facts, back: Recovery) -> str:
    """That it is up by its own word, what that is worth, and from where to start."""
    told, best = say_recovery(f, back), f.record.resume_from
    start = f" Resume from {best.name} ({at_event(f, best)})." if best is not None else ""
    if back.up is None:
        return f"Not shown: {told}. {f.cause} {f.main}.{start}"
    if f.diagnosis.category is Category.HARDWARE and not f.waited:
        where = f" without {f.host}" if f.host else " without that node"
        return (
            f"It is up by its own word, which is no reason to start there again: {told}. What went down once goes down again until the part "
            f"is repaired: start{where}, and let it back after a test under load.{start} {f.cause} {f.main}."
        )
    return f"By its own word, yes: {told}. Check it before you start again; the cause is not shown to be gone: {f.cause} {f.main}.{start}"


def tell_others_ok(f: Facts) -> str:
    """What hosts and ranks other than the one at fault wrote, and whether it is more than a consequence."""
    d, fault = f.diagnosis, f.record.fault_time
    if d.verdict is not Verdict.FAULT or not f.place:
        return ""
    troubled: dict[str, Line] = {}
    for line in f.evidence.lines:
        place = line.place
        name = place.host or (f"rank {place.rank}" if place.rank is not None else "")
        mine = (f.host and f.host in line.text) or (place.rank is not None and place.rank == d.first_failing_rank)  # fmt: skip
        if not name or mine or not _BROKEN.search(line.text):
            continue
        troubled.setdefault(name, line)
    head = f"By what was read only {f.place} is at fault {f.main}"
    if not troubled:
        rest = "" if fault is None else "; what others report comes after it and follows from it"
        return f"{head}{rest}. No line tells of trouble in the hardware of another one, which a test (`dcgmi diag -r 2`) would have to confirm. {f.cause}."
    told = "; ".join(f"{n}: {f.at(line)}" for n, line in list(troubled.items())[:4])
    return f"{head}, but look at these before you trust them: {told}. {f.cause}."


_TASKS = expression(r"srun: error: (?P<host>[\w.-]+): tasks? (?P<tasks>\d[\d,-]{0,400}):")


def tell_ranks_on(f: Facts) -> str:
    """Ranks that the lines tie to the host in question: by their prefix, by the host they name, or by srun's end of its tasks."""
    text = f.text.lower()
    names = (*f.evidence.hosts, *(m["host"] for _, m in f.evidence.find(_TASKS, 64)))
    host = next((h for h in names if re.search(rf"(?<![\w-]){re.escape(h.lower())}(?![\w-])", text)), None)  # fmt: skip
    if host is None:
        return ""
    ranks: set[int] = set()
    for line in f.evidence.lines:
        ended, place = _TASKS.search(line.text), line.place
        if ended is not None and ended["host"] == host:
            for part in ended["tasks"].split(","):
                first, _, last = part.partition("-")
                ranks |= set(range(int(first), int(last or first) + 1)) if first else set()
        elif place.rank is not None and (place.host == host or re.search(rf"host[ =:]{{1,2}}{re.escape(host)}\b", line.text)):  # fmt: skip
            ranks.add(place.rank)
    if not ranks:
        return f"The lines do not say: none that was read ties a rank to {host}."
    return f"On {host} the lines place {name_ranks(sorted(ranks))}. The fault: {f.cause}{f.where} {f.main}."
