"""Which thing was it: sample, file, worker, process, function, batch, port? What the lines of the fault name.

The lines that carry the verdict are read first, then the lines around the first one, then all that tell of trouble.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from firstfault.conversation.evidence import Line
from firstfault.conversation.facts import Facts
from firstfault.conversation.named_events import TROUBLE
from firstfault.conversation.words import TABLE
from firstfault.investigation.diagnosis import CitationKind
from firstfault_tools.expressions import expression
from firstfault_tools.knowledge.pack import read_yaml

NEAR = 40
"""Lines before and after the first one that are still of the fault."""
_FRAME = expression(
    r'File "(?P<file>[^"]{1,200})", line (?P<line>\d{1,6}), in (?P<name>[\w<>.]{1,80})'
)
_ASKS_MOST = expression(r"(?i)\b(?:most|largest|biggest|highest)\b")
_OF_TROUBLE = frozenset({"pid", "worker", "pod"})
"""Things that nearly every line names: only lines of trouble tell which of them it was."""
_LIBRARY = expression(r"site-packages|dist-packages|/lib/python|<frozen")
_ASKS_CODE = expression(
    r"(?i)\b(?:which|what|where)\b[^?\n]{0,24}\b(?:function|line of (?:the )?code|code line|call|source line|in the code)\b"
)


@cache
def _things() -> Mapping[str, tuple[re.Pattern[str], tuple[re.Pattern[str], ...]]]:
    rows = read_yaml(TABLE.read_text(encoding="utf-8"))["things"]
    return {
        r["id"]: (re.compile(r["say"], re.I), tuple(re.compile(p) for p in r["values"]))
        for r in rows
    }


def tell_thing(f: Facts) -> str:
    """What the fault's lines name of the kind that is asked for; several kinds one after the other."""
    if _ASKS_CODE.search(f.text) and (told := _say_frame(f)):
        return told
    if _ASKS_MOST.search(f.text):
        return f"{f.whole_cause} {f.main}." if _ASKS_MOST.search(f.whole_cause) else ""
    out = []
    for kind, (say, values) in _things().items():
        if say.search(f.text) is None:
            continue
        for line in _of_fault(f):
            if kind in _OF_TROUBLE and TROUBLE.search(line.text) is None:
                continue
            found = next((m for p in values if (m := p.search(line.text)) is not None), None)
            if found is not None:
                name = " ".join(g for g in found.groups() if g).strip("'\" ,;:")
                out.append(f"{name[:1].upper() + name[1:] if name[:1].isalpha() and ' ' in name else name}, {f.at(line)}")  # fmt: skip
                break
    if not out:
        return ""
    where = f", at {f.place}" if f.place else ""
    told = "; ".join(dict.fromkeys(out))
    return f"{told}{where}. The fault: {f.cause} {f.main}.{_named_beside(f, told)}"


_NAMES_OF_PART = re.compile(
    r"\b(?:(?:mlx5|bnxt_re|efa|irdma|hfi1|en[ops]|eth|ib)\w*\d\w*|[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d)\b"
)
MOST_BESIDE = 3


def _named_beside(f: Facts, told: str) -> str:
    """Lines of trouble that name the same part together with something else: its other names, the other end of its cable."""
    first = f.first_line
    names = set(_NAMES_OF_PART.findall(f"{told} {first.text if first is not None else ''}"))
    if not names:
        return ""
    found = [
        x
        for x in f.evidence.lines
        if (first is None or (x.file, x.number) != (first.file, first.number))
        and any(n in x.text for n in names)
        and TROUBLE.search(x.text)
    ]  # fmt: skip
    once: dict[str, Line] = {}
    for x in found:
        once.setdefault(re.sub(r"\d+", "#", x.text)[:400], x)
    rows = "\n".join(f"- {f.at(x)}: `{x.text.strip()[:220]}`" for x in list(once.values())[:MOST_BESIDE])  # fmt: skip
    return f"\n\nWhat else names it:\n\n{rows}" if rows else ""


def _of_fault(f: Facts) -> Iterator[Line]:
    """Lines of the verdict, then those around the first one, then those that tell of trouble."""
    d, first = f.diagnosis, f.first_line
    if first is not None:
        yield first
    wanted = d.hypotheses[0].for_ if d.hypotheses else ()
    for c in d.citations:
        if c.n in wanted and c.kind is CitationKind.LOG and c.file and c.line:
            yield Line(c.file, c.line, c.quote)
    near = [x for x in f.evidence.lines if first is not None and x.file == first.file and abs(x.number - first.number) <= NEAR]  # fmt: skip
    yield from sorted(
        near, key=lambda x: abs(x.number - (first.number if first is not None else 0))
    )
    yield from (x for x in f.evidence.lines if TROUBLE.search(x.text))


def _say_frame(f: Facts) -> str:
    """The innermost frame of the program's own code in the traceback next to the first line."""
    first = f.first_line
    if first is None:
        return ""
    frames = [
        (x, m)
        for x in f.evidence.lines
        if x.file == first.file and abs(x.number - first.number) <= NEAR and (m := _FRAME.search(x.text)) is not None
    ]  # fmt: skip
    own = [p for p in frames if p[0].place.rank in (None, f.diagnosis.first_failing_rank)] or frames
    mine = [p for p in own if not _LIBRARY.search(p[1]["file"])] or own
    if not mine:
        return f"No traceback stands beside the first line, so the code is not told. {f.cause} {f.main}."
    line, frame = mine[-1]
    deep = own[-1]
    inner = f" (from there into {deep[1]['file']}:{deep[1]['line']}, {deep[1]['name']})" if deep[0] is not line else ""  # fmt: skip
    return f"{frame['file']}, line {frame['line']}, in {frame['name']}, {f.at(line)}{inner}. {f.cause} {f.main}."
