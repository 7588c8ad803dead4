"""Nothing failed: what shows it, and what of the lines that look alarming is over or harmless? Of a run that is sound."""

from __future__ import annotations

from firstfault.conversation.evidence import Line
from firstfault.conversation.named_events import TROUBLE
from firstfault.conversation.run_answers import at_event, at_line
from firstfault.conversation.telling import Telling
from firstfault_tools.checkpoint.saves import SaveState
from firstfault_tools.expressions import expression

MAX_SHOWN = 8
_HARDWARE = expression(
    r"(?i)\bxid\b|\buncorrect\w*|corrected error|fallen off|machine check|\bAER\b|\blink down\b|row remap|nvlink error"
)
_STEP = expression(r"(?i)\b(?:step|iteration|iter) ?(\d{1,9})\b")
_NO_TROUBLE = expression(r"(?i)\bos_environ|\bno (?:errors?|warnings?)\b|\b0 errors\b")
_KEY = expression(r"0x[0-9a-fA-F]+|\d+")


def tell_nothing_wrong(t: Telling) -> str:
    """That nothing failed, how far it came, and the lines that look like trouble with how often they came."""
    rows = [f"Nothing failed: {t.cause} {t.main}.{_how_far(t)}"]
    odd: dict[str, list[Line]] = {}
    for line in t.evidence.lines:
        if TROUBLE.search(line.text) and not _NO_TROUBLE.search(line.text) and line.step is None:
            odd.setdefault(_KEY.sub("#", line.text)[-60:], []).append(line)
    if odd:
        shown = [_row(t, lines) for lines in list(odd.values())[:MAX_SHOWN]]
        more = f"\n\n{len(odd) - MAX_SHOWN} more of such kinds are in the log." if len(odd) > MAX_SHOWN else ""  # fmt: skip
        rows.append("These lines look like trouble; the run went on after each of them:\n\n" + "\n".join(shown) + more)  # fmt: skip
    return "\n\n".join(rows)


def _row(t: Telling, lines: list[Line]) -> str:
    first = lines[0]
    times = f", {len(lines)} times" if len(lines) > 1 else ""
    return f"- {first.file}:{first.number} {t.sources.add(first.cited)}{times}: `{first.text.strip()[:160]}`"


def _how_far(t: Telling) -> str:
    steps = t.record.steps
    saves = {e.step: e for e in t.record.checkpoints.events if e.state is SaveState.SAVED}
    out = ""
    if steps:
        last = max(steps, key=lambda s: s.step)
        out += f" The last step is {last.step}, {at_line(t, last.file, last.line, last.text)}."
    if saves:
        newest = list(saves.values())[-1]
        out += (
            f" Whole checkpoints: {len(saves)}, the newest {newest.name} ({at_event(t, newest)})."
        )
    return out


def tell_no_bad_part(t: Telling) -> str:
    """Of a sound run in which a part is suspected: whether a line tells of it, and what was written at the step that is named."""
    hard = next((x for x in t.evidence.lines if _HARDWARE.search(x.text)), None)
    count = len(t.evidence.lines)
    if hard is not None:
        head = f"Not shown, but a line speaks of hardware: {at_line(t, hard.file, hard.number, hard.text)}."  # fmt: skip
    else:
        head = (
            f"No sign of it: none of the {count:,} lines read tells of a hardware fault (no Xid, ECC, PCIe or link error). A kernel log or "
            "GPU telemetry would have to be there to exclude it."
        )
    return f"{head}{_at_step(t)} The verdict: {t.cause} {t.main}."


def _at_step(t: Telling) -> str:
    """What was written between the step that is named and the logged ones around it."""
    named = _STEP.search(t.asked.text)
    at = next((s for s in t.record.steps if named is not None and s.step == int(named[1])), None)
    if at is None:
        return ""
    own = [s.line for s in t.record.steps if s.file == at.file]
    start = max((n for n in own if n < at.line), default=0)
    end = min((n for n in own if n > at.line), default=at.line)
    between = [x for x in t.evidence.lines if x.file == at.file and start < x.number < end and x.number != at.line and TROUBLE.search(x.text)]  # fmt: skip
    if not between:
        return (
            f" Nothing was written beside step {at.step} ({at_line(t, at.file, at.line, at.text)})."
        )
    told = "; ".join(f"`{x.text.strip()[:200]}` ({at_line(t, x.file, x.number, x.text)})" for x in between[:3])  # fmt: skip
    after = next((s for s in t.record.steps if s.file == at.file and s.line > at.line), None)
    later = f" The next logged step: {at_line(t, after.file, after.line, after.text)}, `{after.text.strip()[:140]}`." if after is not None else ""  # fmt: skip
    return f" What explains step {at.step} was written beside it: {told}.{later}"
