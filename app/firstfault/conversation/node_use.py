"""May a node or GPU stay in use, or has it to go? By where the first fault lies and what was written of the node itself."""

from __future__ import annotations

from firstfault.conversation.facts import Facts
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Verdict

_TAKE_OUT = expression(
    r"(?i)\b(?:replace|swap|drain|reboot|pull|exclude|cordon|remove|rma|take out)\b"
)


def tell_keep_using(f: Facts) -> str:
    """Whether a node or GPU stays in use, or has to go: what is asked decides which of the two is Yes."""
    d = f.diagnosis
    out = _TAKE_OUT.search(f.text) is not None
    text = f.text.lower()
    other = next((h for h in f.evidence.hosts if h.lower() in text and h != d.host), None)
    if d.verdict is Verdict.HEALTHY:
        return f"{'No' if out else 'Yes'}: nothing in what was read speaks against it. {f.cause} {f.main}."
    if other is not None and d.host:
        said = f"{'No' if out else 'Yes'}, by this evidence: the first fault lies at {d.place or d.host}, not at {other}: {f.cause} {f.main}."
        trouble = next((x for x in f.evidence.lines if x.place.host == other or f" {other} " in x.text if _TROUBLE_OF_HOST.search(x.text)), None)  # fmt: skip
        return said + (f" Of {other} itself this was written: {f.at(trouble)}; look at it before it goes back." if trouble is not None else "")  # fmt: skip
    place = d.host or (f"the host of {d.place}" if d.place else "that node")
    if d.category is Category.HARDWARE:
        first = f" {d.fixes[0].text} {f.sources.marks(d.fixes[0].citations, d)}" if d.fixes else ""
        if _PART.search(f.text):
            return f"No, not as a first step: take {place} out, reboot and test it; a part is replaced when the fault comes back after that. The fault: {f.cause} {f.main}.{first}"
        return f"{'Yes' if out else 'No'}: take {place} out until it is repaired and has passed a test, since the fault is in the hardware: {f.cause} {f.main}.{first}"
    return f"{'No' if out else 'Yes'}, by this evidence: the fault is not in the hardware of {place}. It is this: {f.cause} {f.main}."


_PART = expression(
    r"(?i)\brma\b|\b(?:replace|swap)\b[^?\n]{0,20}\b(?:gpu|card|part|cable|nic|it)\b"
)
_TROUBLE_OF_HOST = expression(
    r"(?i)\bxid\b|\becc\b|\bdown\b|uncorrect|corrected error|fallen off|machine check|\bAER\b"
)
