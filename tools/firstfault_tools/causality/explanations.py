"""Why did an exception come about? From its message and values, the code that ran and printed settings.

The kinds are data (explanations.json): the type and message of an exception, the line of code under
its innermost frames, and one sentence that puts the captured values into words. What a program
printed of the settings that this sentence or that line of code names is quoted with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path

from firstfault_tools.causality.exceptions import read_code_line
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.progress import read_progress
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category
from firstfault_tools.log.digest import FileDigest, Line
from firstfault_tools.log.scan import make_line
from firstfault_tools.log.signature import fill_template
from firstfault_tools.log.traceback import Frame, Traceback

MAX_LINES, MAX_SETTINGS, MAX_CAPTURE, MAX_CODE_FRAMES = 4_000, 2, 80, 3
NEARLY = 32
"""Sizes that differ by no more than this are the same size after a rounding, not another setting."""

_OPTION = expression(
    r"\b(?:args?|opts?|cfg|config|conf|hparams|hps|hyp|params|FLAGS|flags|options|settings)(?:\.\w+)*?"
    r"(?:\.|\[['\"])(?P<name>[A-Za-z_]\w+)"
)
"""An option that a line of code reads from the object which holds the options."""

_PACKAGE = expression(r"(?:site|dist)-packages/(?P<package>\w+)[/.]")
_VALUE = (
    r"(?P<value>'[^']{0,80}'|\"[^\"]{0,80}\"|\[[^\]]{0,200}\]|\([^)]{0,200}\)|[^\s,;)}\]]{1,80})"
)
_NUMBER = expression(r"\d{1,9}")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of exception. Patterns are searched; `says` holds {captures} and [optional parts].

    code: None where the line of code does not matter. signatures: those whose hits it explains as
    well. instead: it corrects the sentence of such a signature and does not only follow it.
    """

    type: re.Pattern[str]
    message: re.Pattern[str]
    code: str | None
    says: str
    page: str | None
    category: Category | None
    settings: tuple[str, ...]
    signatures: frozenset[str]
    instead: bool
    frames: re.Pattern[str] | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Words that tell the reason, the page that mends it and the lines that show a setting."""

    words: str
    page: str | None
    category: Category | None
    instead: bool
    lines: tuple[Line, ...]

    def complete(self, title: str, known: bool) -> str:
        """The sentence of a finding with its reason. known: a signature wrote the title."""
        if self.instead:
            return self.words
        return f"{title}; {self.words}" if known else f"{self.words}; {title}"


@cache
def _load() -> tuple[tuple[Kind, ...], Mapping[str, str], Mapping[str, str]]:
    raw = json.loads((Path(__file__).parent / "explanations.json").read_text(encoding="utf-8"))
    kinds = tuple(
        Kind(
            type=expression(f"^(?:{row['type']})$"),
            message=expression(row["message"]),
            code=row.get("code"),
            says=row["says"],
            page=row.get("page"),
            category=Category(row["category"]) if "category" in row else None,
            settings=tuple(row.get("settings", ())),
            signatures=frozenset(row.get("signatures", ())),
            instead=row.get("instead", False),
            frames=expression(row["frames"]) if "frames" in row else None,
        )
        for row in raw["kinds"]
    )
    return kinds, raw["packages"], raw["renamed"]


def explain_traceback(
    incident: LogIncident, traceback: Traceback, signature: str | None = None
) -> Explanation | None:
    """Reason of an exception. signature: the one that knows it already; None where none does."""
    message = traceback.message
    for kind in _load()[0]:
        if signature is not None and signature not in kind.signatures:
            continue
        told = kind.message.search(message) if kind.type.search(traceback.short_type) else None
        if told is None or (kind.frames is not None and not _passes(kind.frames, traceback)):
            continue
        values = {k: _trim(v) for k, v in told.groupdict().items() if v is not None}
        code = [c for f in _frames(traceback) if (c := read_code_line(incident, traceback, f))]
        if kind.code is not None:
            seen = _match_code(kind.code, values, code)
            if seen is None:
                continue
            values |= {k: _trim(v) for k, v in seen.groupdict().items() if v is not None}
        values |= _compare(values) | _name_package(traceback, values)
        found = _finish(incident, traceback.line, kind, values, code)
        if found.words:
            return found
    return None


def explain_line(incident: LogIncident, line: Line, signature: str) -> Explanation | None:
    """Reason of a fault that is told in one line without a stack, where settings show it."""
    for kind in _load()[0]:
        if signature in kind.signatures and kind.settings and kind.message.search(line.text):
            found = _finish(incident, line, kind, {}, [])
            return found if found.lines else None
    return None


def _frames(traceback: Traceback) -> Iterator[Frame]:
    """The innermost frame, the user's own innermost and its callers: each may show the object."""
    seen = set()
    own = [f for f in reversed(traceback.frames) if not f.in_library]
    for frame in (*traceback.frames[-1:], *own[:MAX_CODE_FRAMES]):
        if frame.number not in seen:
            seen.add(frame.number)
            yield frame


def _passes(pattern: re.Pattern[str], traceback: Traceback) -> bool:
    return any(pattern.search(f"{f.path} {f.name}") for f in traceback.frames)


def _trim(text: str) -> str:
    return " ".join(text.split()).strip("`,")[:MAX_CAPTURE]


def _match_code(
    pattern: str, values: Mapping[str, str], code: Iterable[str]
) -> re.Match[str] | None:
    """First line of code that fits; `%name%` in the pattern stands for a value of the message."""
    filled = re.sub(
        r"%(\w+)%", lambda m: re.escape(values.get(m[1], "").strip("'\"")) or r"\w+", pattern
    )
    return next((m for line in code if (m := re.search(filled, line)) is not None), None)


def _compare(values: Mapping[str, str]) -> dict[str, str]:
    """What two sizes `a` and `b`, or an index and a length, have to do with each other."""
    out: dict[str, str] = {}
    if all(_NUMBER.fullmatch(values.get(k, "")) for k in ("a", "b")):
        small, large = sorted((int(values["a"]), int(values["b"])))
        if small and large % small == 0 and large > small:
            out["ratio"] = f"{large} is {large // small} times {small}"
        elif 0 < large - small <= NEARLY and small > NEARLY:
            out["gap"] = f"they differ by {large - small} only"
    if values.get("index") and values.get("index") == values.get("length"):
        out["past"] = "exactly one more than the last valid one, as when counting starts at 1"
    if "," in values.get("value", ""):
        out["several"] = "it holds several values"
    return out


def _name_package(traceback: Traceback, values: Mapping[str, str]) -> dict[str, str]:
    """The package that refused, from the stack or by the name of its class, and what replaced the argument."""
    packages, renamed = _load()[1:]
    out = {}
    call = values.get("call", "").split(".")[0]
    stack = [m["package"] for f in traceback.frames if (m := _PACKAGE.search(f.path))]
    package = packages.get(call) or (stack[-1] if stack else "")
    if package:
        out["package"] = package
    new = renamed.get(f"{call}.{values.get('argument', '')}")
    if new:
        out["new"] = new
    return out


def _finish(
    incident: LogIncident, line: Line, kind: Kind, values: dict[str, str], code: list[str]
) -> Explanation:
    words = fill_template(kind.says, values)
    names = [fill_template(n, values) for n in kind.settings]
    names += [m["name"] for c in code for m in _OPTION.finditer(c)]
    names += [values["name"].split(".")[-1].strip("'\"]")] if values.get("name") else []
    found = find_settings(incident, line, [n for n in names if len(n) > 1 and n != "?"])
    if found and words:
        shown = " and ".join(f"`{text}`" for _, text, _ in found)
        words += f"; the log shows {shown}"
    words += _count_classes(found)
    return Explanation(
        words, kind.page, kind.category, kind.instead, tuple(place for place, _, _ in found)
    )


def find_settings(
    incident: LogIncident, line: Line, names: Iterable[str]
) -> list[tuple[Line, str, str]]:
    """(line, `name: value` as printed, value) of settings called `names` in the log of `line`."""
    wanted = {n.lower().replace("-", "_"): n for n in names}
    if not wanted:
        return []
    either = "|".join(re.escape(n).replace("_", "[_-]") for n in wanted)
    pattern = expression(
        rf"(?i)(?<![\w./])(?P<shown>['\"]?(?:--)?(?:\w+\.)*(?P<name>{either})['\"]?"
        rf"(?:\s*[:=]\s*|\s*\.{{3,}}\s*|(?<=version)\s+|(?<=\w)\s+(?=\d)){_VALUE})"
    )
    digest = incident.digest_of(line.file)
    out: dict[str, tuple[Line, str, str]] = {}
    for number, text in _quiet_lines(incident, digest):
        for match in pattern.finditer(text):
            name = match["name"].lower().replace("-", "_")
            if name in out or "args." in match["value"] or "cfg." in match["value"]:
                continue
            place = make_line(digest.file, number, text, digest.year)
            out[name] = (place, " ".join(match["shown"].split()), match["value"])
    ordered = [out[n] for n in wanted if n in out]
    return ordered[:MAX_SETTINGS]


def _quiet_lines(incident: LogIncident, digest: FileDigest) -> Iterator[tuple[int, str]]:
    """Lines of a log outside tracebacks and steps: the values of steps are measured, not set."""
    stacks = [(t.start, t.line.number) for t in incident.tracebacks if t.line.file == digest.file]
    for number, text in islice(digest.kept, MAX_LINES):
        if any(first <= number <= last for first, last in stacks) or 'File "' in text:
            continue
        step = read_progress(number, text)
        if step is None or not step.training:
            yield number, text


def _count_classes(found: list[tuple[Line, str, str]]) -> str:
    """Says so where a printed list of classes and a printed number of classes do not agree."""
    lists = [(t, v) for _, t, v in found if v[:1] in "[(" and "," in v]
    counts = [(t, v) for _, t, v in found if _NUMBER.fullmatch(v)]
    if not lists or not counts:
        return ""
    entries = [e.strip(" '\"") for e in lists[0][1].strip("[]()").split(",") if e.strip(" '\"")]
    if len(entries) == int(counts[0][1]):
        return ""
    background = " (the background is one of them)" if "background" in entries[0].lower() else ""
    return f": the list has {len(entries)} entries{background}, the number set is {counts[0][1]}"
