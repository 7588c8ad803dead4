"""What is the verdict's one sentence? The finding's title, and what is specific to this incident.

A title that a kind of line brings along is completed by what the deciding line itself names: the message of
the exception, the deeper cause of the same kind that stands beside it, and, where nothing is decided, what would
decide it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from firstfault.investigation.diagnosis import Diagnosis, NextArtefact
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding, Level, Verdict
from firstfault_tools.log.prefix import read_prefix

MOST_CHARS = 160
"""Of an exception's message: what a headline can hold."""

KNOWN_SHARE = 0.5
"""Share of the words of an addition from which on the title says it already."""

LEAST_WORDS = 4
"""Words below which a line is a table row or a fragment."""

MOST_DECIDING = 2
STEM = 6
"""Letters by which `allocate` and `allocated` are one word."""

REPEATED, STEP = 48, 8
"""Characters in a row that make a clause a quotation of the deciding line, and how far apart they are looked for."""

MOST_PLAIN = 120
"""Characters of the plain sentence; a longer one is cut between two clauses, or at a word."""

LEAST_CLAUSE = 34
"""Characters below which one clause alone says too little."""

STRETCH = 45
"""Characters by which the sentence may be longer where it then ends with a clause and not within one."""

LONGEST_PATH = 36
"""Characters of a path that stand in a sentence; a longer one is said by its begin and its end."""

_PATH = expression(r"(?<![\w.:/-])/(?:[\w.@+=-]+/){3,}[\w.@+=-]*[\w@+=-](?![:\w])")
_DETAIL = expression(r",? (?:raised in|called (?:by|from)) \S.*$")
_BREAK = expression(
    r"; |(?<=[a-z)]{2})\. (?=[A-Z])| \((?=(?:[^()]|\([^()]{0,20}\)){36,400}\)$)|: | (?=at `)"
)
_QUOTED = expression(r"`[^`]*`|(?<!\w)\x27[^\x27]{0,300}\x27(?!\w)")
_OPEN_QUOTE = expression(r"(?<!\w)\x27\w")
_TYPE = expression(r"\w(?:Error|Exception|Exit|Interrupt)$")
_NAMED = expression(r"\w*(?:Error|Exception|Exit|Interrupt): ")
"""The message of an exception is what the cause is called, and stays."""

_VERB = expression(
    r"(?i)\b(?:is|are|was|were|has|have|had|could|cannot|can|did|does|never|ran|went|grew|fell|lost|left|died|"
    r"took|\w{3,}ed|holds?|stands?|differs?|waits?|finds?|computes?|stays?)\b"
)
"""What makes words before a colon a sentence of their own."""

_TURN = expression(r",? (?=(?:although|while|whereas|because|instead of) )")
"""Where a subordinate clause begins, which the rest can begin with as well."""

_PRINTED = expression(r" \((`[^`]{8,120}`)\)")
"""A quotation in brackets, which proves what stands before it and is not needed to understand it."""

_EITHER = expression(r",[^,;]{0,80} or\b|, or\b|\bor (?:an?|the|its?|by) ")
"""A list of what may lie behind it; `container or namespace` names one thing."""

_ASIDE = expression(r"(?<=\w) \((?=[^()«]*\bor\b)[^()]{3,160}\)(?=$|[;:.]| and | but | while )")
"""What stands in brackets and names several things: none of them is known."""

_CONCLUDED = expression(r"(?:so|it|its|they|their|this|that|these) ")
"""How a clause begins that follows from the one before, instead of naming what may lie behind it."""

POSSIBLE = "possible: "
LEAST_KNOWN = 16
"""Characters from which on what is known is a sentence of its own."""

_ADDED = expression(r", (?=(?:which|so|or|but|whose)\b)")
_BRACKET = expression(r" \(")
_COLON = expression(r": ")
_COMMA = expression(r", (?!(?:which|so|or|and|but|as|whose|the others?)\b)")
_RANK = expression(r"(?i)\branks? \d")
_EXCEPTION = expression(
    r"(?:^|[\s|:])(?P<type>(?:[A-Za-z_]\w{0,60}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Exit|Interrupt))(?:\(\w{1,40}\))?: (?P<message>\S.*)"
)
_HEAD = expression(
    r"^(?:\s*(?:\[?[\dT:.,/ Z+-]{8,32}\]?|\[?(?:ERROR|WARN(?:ING)?|INFO|DEBUG|CRITICAL|FATAL)\]?|"
    r"[EWIF]\d{4} [\d:.]+ +\d+|\[[EWIF]\d{3,4} [^\]]{0,80}\]|[\w./-]{1,60}:\d+\]?)[ :|-]*){1,5}"
)
"""Stamps, levels and places in the source before the words of a line."""

_LINE_SAYS = expression(r"; the line says: .*?(?=; together with it: |; the work of |$)")
_WORD = expression(r"[A-Za-z_]{4,}|\d{2,}")
_FIRST_SENTENCE = expression(r".{20,400}?[\w)\x27\"`][.;!](?=\s|$)")


def name_cause(finding: Finding, companions: Sequence[Finding], activity: str = "") -> str:
    """The title with what was done, the exception's own message and the agreeing cause, where it says none of them."""
    first, seam, rest = finding.title.rstrip(".").partition("; ")
    parts = [f"{f'{first} {activity}'.rstrip()}{seam}{rest}"]
    message = read_message(finding) or read_words(finding)
    if message and not _says(parts[0], message):
        parts.append(message)
    for other in companions:
        agrees = other.level is Level.CAUSE and other.category is finding.category
        if agrees and not _says("; ".join(parts), other.title):
            parts.append(f"together with it: {other.title.rstrip('.')}")
            break
    return "; ".join(parts)


def name_open(seen: str, next_artefacts: Sequence[NextArtefact]) -> str:
    """What was seen where nothing is decided, and what would decide it."""
    wanted = "; ".join(a.what.rstrip(".") for a in next_artefacts[:MOST_DECIDING])
    return f"{seen.rstrip('.')}; what would decide it: {wanted}" if wanted else seen


def say_plainly(diagnosis: Diagnosis, possible: bool = True) -> tuple[str, str]:
    """(place and cause in one plain sentence, the rest of what the cause says, as sentences). possible: with what may
    lie behind it."""
    plain = read_cause(diagnosis)
    beside = (
        (f"Also seen: {lower_first(plain.beside[0])}", *plain.beside[1:]) if plain.beside else ()
    )
    told = (*plain.clauses, *(plain.possible if possible else ()), *beside)
    return plain.headline, ". ".join(capitalise(c).rstrip(".") for c in told)


@dataclass(frozen=True, slots=True)
class PlainCause:
    """headline: place and cause. clauses: what else the cause says of itself. possible: what may lie behind it, which
    nothing decides. beside: what was seen with it."""

    headline: str
    clauses: tuple[str, ...]
    possible: tuple[str, ...]
    beside: tuple[str, ...]


def read_cause(diagnosis: Diagnosis) -> PlainCause:
    """The parts of a cause. What the deciding line says is not said again: the line stands with the evidence."""
    cause, _, _ = diagnosis.root_cause.strip().partition("; what would decide it: ")
    told = _LINE_SAYS.sub("", cause.removeprefix("Not decided: ")) if diagnosis.citations else cause
    told, _, beside = told.partition("; together with it: ")
    short, paths = _shorten_paths(told)
    head, rest = _part(short, MOST_PLAIN)
    place = _place(diagnosis, head)
    if place and diagnosis.host:
        head, rest, beside = (_drop_host(text, diagnosis.host) for text in (head, rest, beside))
    first = diagnosis.first_line
    line = first.text if first is not None and diagnosis.citations else ""
    for brief, path in paths:
        rest = rest.replace(brief, path)
    if unsaid := [path for _, path in paths if path not in line and path not in rest]:
        rest = "; ".join(part for part in (rest, f"in full: {', '.join(unsaid)}") if part)
    headline = place + (lower_first(head) if place else capitalise(head))
    clauses = _clauses(rest, line)
    possible = tuple(c for c in clauses if c.startswith(POSSIBLE))
    known = tuple(c for c in clauses if c not in possible)
    return PlainCause(headline, known, possible, _clauses(beside, line))


def _shorten_paths(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The text with `/lustre/fs4/…/__11_0.distcp` for a long path, and what each stands for: where it begins and what
    the file is called tell a reader which it is."""
    paths = []
    for path in dict.fromkeys(_PATH.findall(text)):
        begin, *between, end = path[1:].split("/")
        brief = f"/{begin}/{between[0]}/…/{end}" if len(between) > 1 else path
        if len(path) > LONGEST_PATH and len(brief) < len(path):
            paths.append((brief, path))
            text = text.replace(path, brief)
    return text, paths


def _drop_host(text: str, host: str) -> str:
    """The text without a host that the place before it has named."""
    spelled = re.escape(host)
    text = re.sub(rf"^\(host {spelled}\)(?:; )?", "", text)
    return re.sub(rf" (?:\(host {spelled}\)|on {spelled}(?=$|[;:., ]))", "", text)


def _clauses(text: str, line: str) -> tuple[str, ...]:
    """Whole clauses, without one that repeats the deciding line; an exception's own message stays."""
    out, begun = [], ""
    for clause in text.split("; "):
        begun = f"{begun}; {clause}" if begun else clause
        if _is_whole(begun):
            windows = range(0, len(begun) - REPEATED, STEP)
            said = any(begun[at : at + REPEATED] in line for at in windows)
            out += [] if said and not _NAMED.match(begun) else [begun]
            begun = ""
    return tuple(part for part in (*out, begun) if part)


def shorten_clause(title: str, most: int = MOST_PLAIN) -> str:
    """The first clauses of a title, as far as one plain sentence holds them."""
    return _part(title.strip(), most)[0]


def _part(text: str, most: int) -> tuple[str, str]:
    """A text cut between two clauses so that the first part stands alone, or at a word. What it quotes in brackets goes
    first."""
    text = text.rstrip(". ")
    if (known := _set_alternatives_aside(text)) is not None:
        head, rest = _part(known[0], most)
        return head, "; ".join(part for part in (rest, *known[1:]) if part)
    if len(text) <= most:
        return text, ""
    if printed := _PRINTED.findall(text):
        head, rest = _part(_PRINTED.sub("", text), most)
        return head, "; ".join(part for part in (rest, f"as printed: {', '.join(printed)}") if part)
    found = _choose_cut(text, most)
    if found is not None:
        at, end = found
        rest = text[end:]
        return text[:at], rest.removesuffix(")") if text[at:end] == " (" else rest
    if len(text) <= most + STRETCH:
        return text, ""
    if (aside := _set_aside(text, most)) is not None:
        return aside
    at = text.rfind(" ", LEAST_CLAUSE, most)
    at = at if at > 0 else most
    return text[:at].rstrip(",;: ") + " …", "… " + text[at:].strip()


def _set_alternatives_aside(text: str) -> tuple[str, ...] | None:
    """(what is known, what may lie behind it, what else is said) where a sentence goes on with a choice that nothing
    decides."""
    first, seam, later = text.partition("; ")
    if not _is_whole(first):
        return None
    for found in reversed(list(_COLON.finditer(first))):
        known, behind = first[: found.start()], first[found.end() :]
        unquoted = _QUOTED.sub("", re.sub(r"\([^()]*\)|«[^»]*»", "", behind))
        least = LEAST_KNOWN if _VERB.search(known) else LEAST_CLAUSE
        is_sentence = len(known) >= least and not _TYPE.search(known)
        if is_sentence and _is_whole(known) and _EITHER.search(unquoted):
            mark = "" if _CONCLUDED.match(behind) else POSSIBLE
            return known, f"{mark}{behind}", *((later,) if seam else ())
    aside = _ASIDE.search(first)
    if aside is None or not _VERB.search(first[: aside.start()]):
        return None
    kept = f"{first[: aside.start()]}{first[aside.end() :]}"
    return (kept, *((later,) if seam else ()), aside[0][2:-1]) if _is_whole(kept) else None


def _set_aside(text: str, most: int) -> tuple[str, str] | None:
    """A sentence that is whole without what is added to it: in brackets, or behind `, which`."""
    added = [m.span() for m in _ADDED.finditer(text[:most])]
    ends = [span for span in _behind_whole(text, added) if span[0] >= LEAST_CLAUSE]
    brackets = [
        (m.start(), close)
        for m in _BRACKET.finditer(text[:most])
        if m.start() >= LEAST_CLAUSE
        and _is_whole(text[: m.start()])
        and (close := _find_close(text, m.end())) is not None
    ]
    at, end = max((*ends[-1:], *brackets[-1:]), default=(0, 0))
    if not at:
        return None
    if (at, end) in ends:
        return text[:at], text[end:]
    inside, behind = text[at + 2 : end], text[end + 1 :].lstrip(" ,;:.")
    return text[:at], "; ".join(part for part in (behind, inside) if part)


def _find_close(text: str, start: int) -> int | None:
    """Where the bracket closes that was opened before start."""
    depth = 1
    for at in range(start, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if not depth:
            return at
    return None


def _choose_cut(text: str, most: int) -> tuple[int, int] | None:
    """(end of the first part, begin of the rest), the best that there is: where a sentence or a clause ends, where
    one that has a verb goes on after a colon, a little later than wished, before a comma, at any colon."""
    cuts = _find_breaks(text, most + STRETCH)
    strong = [c for c in cuts if text[slice(*c)] != ": "]
    colons = [c for c in cuts if text[slice(*c)] == ": "]
    detail = _find_detail(text, most + STRETCH)
    commas = [m.span() for m in _COMMA.finditer(text[:most]) if m.start() >= most // 2]
    turns = [m.span() for m in _TURN.finditer(text[:most]) if m.start() >= LEAST_CLAUSE]
    order = (
        _within(reversed(strong), most),
        _within(detail, most),
        [c for c in _within(colons, most) if _VERB.search(text[: c[0]])],
        strong,
        detail,
        _behind_whole(text, reversed(turns)),
        _behind_whole(text, reversed(commas)),
        list(reversed(colons)),
    )
    return next((cuts[0] for cuts in order if cuts), None)


def _find_breaks(text: str, most: int) -> list[tuple[int, int]]:
    """Ends of sentences and clauses; the colon behind the type of an exception is none."""
    typed = _TYPE.search(text.split(": ")[0]) is not None
    return [
        m.span()
        for m in _BREAK.finditer(text)
        if LEAST_CLAUSE <= m.start() <= most
        and not (typed and m[0] == ": ")
        and _is_whole(text[: m.start()])
    ]


def _find_detail(text: str, most: int) -> list[tuple[int, int]]:
    """Before the words that tell where an exception was raised."""
    detail = _DETAIL.search(text)
    if detail is None or not LEAST_CLAUSE <= detail.start() <= most:
        return []
    at = detail.start()
    return [(at, at + (2 if text[at] == "," else 1))]


def _within(cuts: Iterable[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    return [cut for cut in cuts if cut[0] <= most]


def _behind_whole(text: str, cuts: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those in front of which something whole is said."""
    return [cut for cut in cuts if _is_whole(text[: cut[0]])]


def _is_whole(text: str) -> bool:
    """Nothing that was opened is still open: a bracket, a quotation, code. What is quoted may hold anything."""
    text = _QUOTED.sub("", text)
    pairs = all(text.count(a) == text.count(b) for a, b in ("()", "[]", "{}", "«»"))
    return pairs and "`" not in text and not _OPEN_QUOTE.search(text)


def _place(diagnosis: Diagnosis, said: str) -> str:
    """`Rank 11 on gpu-a17: `, unless the sentence says where."""
    host = diagnosis.host if diagnosis.host not in (None, "localhost") else ""
    if diagnosis.verdict is Verdict.HEALTHY:
        return ""
    if diagnosis.first_failing_rank is not None and not _RANK.search(said):
        place = f"Rank {diagnosis.first_failing_rank}" + (f" on {host}" if host else "")
        return f"{place}: "
    if (
        diagnosis.first_failing_rank is None
        and host
        and host not in said.replace(f"(host {host})", "")
    ):
        return f"On {host}: "
    return ""


def capitalise(text: str) -> str:
    """Text that begins with a capital unless it begins with a name such as `mlx5_0` or `n103`."""
    word = text.split(" ", 1)[0].rstrip(":,")
    plain = word.replace("-", "").replace("'", "").isalpha()
    return text[:1].upper() + text[1:] if plain else text


def lower_first(text: str) -> str:
    """A sentence that goes on within another: without its capital, unless it is a name, as `Xid 79` is."""
    word, _, rest = text.partition(" ")
    if rest[:1].isdigit():
        return text
    return text[:1].lower() + text[1:] if word[1:].islower() or len(word) == 1 else text


def read_message(finding: Finding) -> str:
    """`Type: message` of the exception that the deciding line prints; empty where it prints none."""
    if not finding.evidence or finding.evidence[0].line == 0:
        return ""
    text = finding.evidence[0].text[:2000]
    found = _EXCEPTION.search(text[read_prefix(text)[1] :])
    if found is None:
        return ""
    message = " ".join(found["message"].split())
    sentence = _FIRST_SENTENCE.match(message)
    message = sentence[0][:-1] if sentence is not None else message
    if len(message) > MOST_CHARS:
        message = message[:MOST_CHARS].rsplit(" ", 1)[0] + " …"
    return f"{found['type'].split('.')[-1]}: {message}"


def read_words(finding: Finding) -> str:
    """What the line that a signature knew says, without its prefixes; empty where it is no sentence."""
    if (
        not finding.kind.startswith("signature.")
        or not finding.evidence
        or not finding.evidence[0].line
    ):
        return ""
    text = finding.evidence[0].text[:2000]
    body = " ".join(_HEAD.sub("", text[read_prefix(text)[1] :]).split())
    if len(_WORD.findall(body)) < LEAST_WORDS:
        return ""
    if len(body) > MOST_CHARS:
        body = body[:MOST_CHARS].rsplit(" ", 1)[0] + " …"
    return f"the line says: {body}"


def _says(title: str, addition: str) -> bool:
    told, words = _stems(title), _stems(addition)
    return not words or len(words & told) >= KNOWN_SHARE * len(words)


def _stems(text: str) -> set[str]:
    """Words without their endings, and numbers."""
    return {word.lower()[:STEM] for word in _WORD.findall(text)}


RULED_OUT = "Ruled out: "
"""Begins the title of an incident whose verdict a person's check has dropped."""
MOST_RULED, MOST_NOW = 60, 32


def name_ruled_out(cause: str, now: str) -> str:
    """Title of an incident whose verdict a person's check has dropped. now: the cause that is first since, '' where it
    is open."""
    state = f"now {lower_first(shorten_clause(now, MOST_NOW))}" if now else "open"
    return f"{RULED_OUT}{shorten_clause(cause, MOST_RULED)}; {state}"
