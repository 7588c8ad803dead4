"""Who wrote it, what was set, how much was missing, how long was waited? Facts that single lines of the evidence print."""

from __future__ import annotations

from firstfault.conversation.facts import Facts
from firstfault.conversation.node_use import tell_others_ok
from firstfault.conversation.words import plain_words
from firstfault.knowledge_base.tokens import tokenize
from firstfault_tools.expressions import expression
from firstfault_tools.log.place import name_ranks

_SAW = expression(
    r"(?i)\bwhich ranks?\b[^?\n]{0,12}\b(?:saw|see|seen|report\w*|hit|got|had|have|print\w*|log\w*|found|show\w*|raised?)\b (?P<what>[^?\n]{2,80})|"
    r"\b(?:did|do|have|had|were|are) (?:the |any |all )?(?:other|more|all) ranks?\b[^?\n]{0,12}\b(?:saw|see|seen|report\w*|hit|got|get|have|print|log|"
    r"fail\w*|raise\w*)\b (?P<also>[^?\n]{2,80})"
)


_OF_FAULT = frozenset(
    tokenize("problem problems issue issues trouble fault error errors it this that thing")
)

_OF_STOPPING = frozenset(
    tokenize(
        "stuck hang hung hanging first last stopped died dead crashed failed killed slow late lost behind"
    )
) | {"first", "last"}


def tell_who_saw(f: Facts) -> str:
    """Ranks whose lines hold the words in question."""
    found = _SAW.search(f.text)
    if found is None:
        return ""
    words = set(tokenize(found["what"] or found["also"])) - plain_words() - {"too", "also", "same"}
    if words <= _OF_FAULT:
        return tell_others_ok(f)
    if words <= _OF_FAULT | _OF_STOPPING:
        return ""  # where it began is asked
    lines = [x for x in f.evidence.lines if words and words <= set(tokenize(x.text))]
    ranks = sorted({x.place.rank for x in lines if x.place.rank is not None})
    said = (found["what"] or found["also"]).strip()
    if not lines:
        return f"No line that was read holds these words: {said}. {f.cause} {f.main}."
    if not ranks:
        return f"The lines that hold these words name no rank; first {f.at(lines[0])}."
    head = f"{name_ranks(ranks)}".capitalize()
    if found["also"]:
        head = f"No, only {name_ranks(ranks)}" if len(ranks) == 1 else f"Yes: {name_ranks(ranks)}"
    return f"{head}, by {len(lines)} line{'s' if len(lines) > 1 else ''}, first {f.at(lines[0])}. The verdict: {f.cause} {f.main}."


def tell_shortage(f: Facts) -> str:
    """What an allocation that failed asked for, and what was free."""
    told = f.diagnosis.tools.get("memory_oom", {}).get("message", {})
    wanted, free = told.get("tried_gib"), told.get("free_gib")
    if wanted is None:
        return ""
    short = f"{wanted - free:.2f} GiB short: {wanted:.2f} GiB were asked for and {free:.2f} GiB free" if free is not None else f"{wanted:.2f} GiB were asked for"  # fmt: skip
    parts = (("allocated by PyTorch", "allocated_gib"), ("reserved but unallocated", "reserved_unallocated_gib"), ("of", "total_gib"))  # fmt: skip
    rest = [f"{n} {told[k]:.2f} GiB" for n, k in parts if told.get(k) is not None]
    return f"{short} {f.main}" + (f"; {', '.join(rest)}." if rest else ".")


def tell_wait(f: Facts) -> str:
    """How long ranks waited in a collective, as the watchdog says."""
    found = f.evidence.find(_RAN_FOR, 64)
    if not found:
        return ""
    line, longest = max(found, key=lambda p: int(p[1][1]))
    ranks = sorted({x.place.rank for x, _ in found if x.place.rank is not None})
    who = name_ranks(ranks).capitalize() if ranks else "They"
    return f"{who} waited {int(longest[1]) / 1000:.0f} s before the watchdog gave up, {f.at(line)}. {f.cause} {f.main}."


_RAN_FOR = expression(r"ran for (\d{3,9}) milliseconds")
_KEY = expression(
    r"(?<![\w.-])-{0,2}([A-Za-z][\w.-]{2,60}) ?(?:=|:|\.{3,80}) ?([\w.+/-]{1,60})|--([\w-]{3,60}) ([\w.+/-]{1,60})"
)


def tell_setting(f: Facts) -> str:
    """The value of a setting that the lines print under a name of the same words."""
    words = set(tokenize(f.text)) - plain_words() - {"used", "set", "setting", "value", "configured", "use", "job", "run"}  # fmt: skip
    if len(words) < 2:
        return ""
    for line in f.evidence.lines:
        for match in _KEY.finditer(line.text[:2_000]):
            key, value = match[1] or match[3], match[2] or match[4]
            if words <= set(tokenize(key.replace("_", " ").replace("-", " "))):
                return f"{key} is {value}, {f.at(line)}."
    return ""


def tell_allocator_books(f: Facts) -> str:
    """Whether memory that is reserved and unused would have held the allocation that failed."""
    told = f.diagnosis.tools.get("memory_oom", {}).get("message", {})
    wanted, unused, free = (told.get(k) for k in ("tried_gib", "reserved_unallocated_gib", "free_gib"))  # fmt: skip
    if wanted is None or unused is None:
        return ""
    room = unused + (free or 0.0)
    sums = f"{unused:.2f} GiB are reserved but unallocated" + (f" and {free:.2f} GiB free" if free is not None else "")  # fmt: skip
    fix = f" What helps: {f.diagnosis.fixes[0].text} {f.sources.marks(f.diagnosis.fixes[0].citations, f.diagnosis)}" if f.diagnosis.fixes else ""  # fmt: skip
    if room < wanted:
        return f"No: {sums}, together {room:.2f} GiB, less than the {wanted:.2f} GiB asked for {f.main}, so no way of packing them would have been enough.{fix}"
    return f"Possibly: {sums}, together {room:.2f} GiB, more than the {wanted:.2f} GiB asked for {f.main}; it helps only as far as they are fragments. The cause: {f.cause}.{fix}"


def tell_only(f: Facts) -> str:
    """Why only that rank: the value that it had and the others had not, near the fault; '' where no line tells one."""
    rank, first = f.diagnosis.first_failing_rank, f.first_line
    if rank is None or first is None:
        return ""
    near = [x for x in f.evidence.lines if x.file == first.file and first.number - NEAR <= x.number <= first.number]  # fmt: skip
    for line in reversed(near):
        found = _LIST.search(line.text)
        if found is None:
            continue
        values = [float(v) for v in found["values"].split(",")]
        if rank >= len(values) or len(values) < 2:
            continue
        others = [v for r, v in enumerate(values) if r != rank]
        if values[rank] > RATIO * max(others) or values[rank] * RATIO < min(others):
            name = (found["name"] or "the value of each rank").strip(" :=")
            word = "at most" if values[rank] > max(others) else "at least"
            edge = max(others) if values[rank] > max(others) else min(others)
            return (
                f"Because rank {rank} had {values[rank]:,.0f} in {name!r} just before, the others {word} {edge:,.0f}, {f.at(line)}. "
                f"{f.cause}, at {f.place} {f.main}."
            )
    return f"No line that was read tells what rank {rank} had that the others had not; only its own line carries the fault, {f.at(first)}: {f.cause} {f.main}."


NEAR, RATIO = 60, 1.5
_LIST = expression(
    r"(?P<name>[A-Za-z_][\w ()./-]{0,40}[:= ]{1,3})?\[(?P<values>\d+(?:\.\d+)?(?:, ?\d+(?:\.\d+)?){1,4096})\]"
)
