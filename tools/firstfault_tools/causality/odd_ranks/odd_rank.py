"""On which rank is a value different from that of all others, and does it explain what followed?

An engineer lays the start of all ranks beside each other and looks for the one line that differs: a
parameter count, an address, a version, an iteration, a hash. A difference is a cause only where a
failure of a kind that it explains came after it; else it is worth a quote and no more.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.odd_ranks.minority import (
    Minority,
    begin_sentence,
    quote_few,
    say_solo,
    single_out,
    solo_words,
)
from firstfault_tools.causality.odd_ranks.speech import LEAST, Chorus, Voice, hear_speech
from firstfault_tools.causality.odd_ranks.topics import Topic, topic_of
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import (
    Category,
    Confidence,
    Finding,
    Level,
    Strength,
    Together,
)
from firstfault_tools.hardware.host_sections import looks_like_host
from firstfault_tools.log.digest import Line

MOST = 6
REPEATS = 3
"""Lines of one shape and rank that are looked at for what changes with time."""
COLUMNS = 120
_TOKEN = expression(r"[^\s=,;()\[\]{}'\"|<>]+")
_POINTER = expression(r"\s*<[-=]+")
_SOURCE = expression(r"\.[A-Za-z]\w{0,3}:\d+$")
_CUT = expression(r"[,;(){}\[\]|<>]|\s-\s|\s{3,}")
_VALUE = expression(r"\d|^(?:true|false|none|null|on|off|yes|no|inf|nan)$", re.IGNORECASE)
_STEP = expression(r"(?i)\b(?:step|iter(?:ation)?s?|epoch|after)\W{0,3}$")
_IN_STEP = expression(r"(?i)\b(?:step|iter(?:ation)?)s?\W{0,3}\d+\b")
_CLOCK = expression(r"\d\d:\d\d|\d{4}-\d\d-\d\d|^\d+\.\d{3,}$|^[EWIF]\d{4}$")
_TRAINING = expression(r"(?i)loss['\"]?\s{0,3}[:= ]\s{0,3}[-\dn]|it/s|s/it|\d%\|")
_HASHES = expression(r"(?i)hash|checksum|crc|digest|fingerprint")
_LOCAL = (Category.OOM, Category.HARDWARE, Category.DATA)


@dataclass(frozen=True, slots=True)
class Odd:
    """A value that is the same on all but one rank, or on all but those of one host.

    name: the value with the words round it, as the odd one printed it.
    """

    topic: Topic
    name: str
    value: str
    usual: str
    odd: tuple[Voice, ...]
    rest: tuple[Voice, ...]
    few: Minority
    table: bool


def find_in_incident(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """Values on which one rank, or the ranks of one host, stand against all others."""
    if not several_speak(incident):
        return []
    speech = hear_speech(incident)
    odds: list[Odd] = []
    for chorus in speech.choruses():
        odds += compare_voices(incident, chorus)
        if len(odds) >= MOST:
            break
    told = {f.page for f in findings if f.kind.startswith("ranks.")}
    return [_describe(incident, o, findings) for o in odds[:MOST] if o.topic.page not in told]


def several_speak(incident: LogIncident) -> bool:
    """Somebody else than one rank wrote, or somebody listed ranks."""
    if len(incident.digests) >= LEAST or len(incident.ranks_seen) >= LEAST:
        return True
    lists = _listing()
    return any(
        lists.search(r.data if isinstance(r.data, bytes) else "\n".join(r.data).encode())
        for d in incident.digests
        for r in (d.kept.runs[:1] + d.kept.runs[-1:])
    )


@cache
def _listing() -> Any:
    """Ranks named otherwise than by the label that a launcher puts in front of one rank's lines."""
    import re2

    return re2.compile(
        rb"(?m)[^\[][Rr](?:ank|ANK)[ \t:=_#]{0,3}\d|\bProcess \d{1,6}:|^\s*[12]: |default[12]\]|"
        rb"^\[?[A-Za-z][\w.-]*\d[\w.-]*(?::\d+)*(?:[\]:]| \[\d+\]) "
    )


def compare_voices(incident: LogIncident, chorus: Chorus) -> list[Odd]:
    """Values of one shape of line that differ on one rank only."""
    first_text = chorus.voices[0].text
    # a warning of NCCL or its watchdog reports an error, with numbers of its own; it is no setting
    if (
        "NCCL WARN" in first_text
        or "ProcessGroup" in first_text
        or (not chorus.table and _TRAINING.search(first_text))
    ):
        return []
    first: dict[tuple[int, str], tuple[Voice, list[str]]] = {}
    moved: set[int] = set()
    heard: Counter[tuple[int, str]] = Counter()
    for voice in chorus.voices:
        heard[voice.who] += 1
        if heard[voice.who] > REPEATS:
            continue
        cells = [token[0] for token in _tokens(voice.text)]
        known = first.setdefault(voice.who, (voice, cells))[1]
        if known is not cells:
            moved.update(i for i, (a, b) in enumerate(zip(known, cells, strict=False)) if a != b)
    rows = list(first.values())
    if len(rows) < LEAST:
        return []
    if len({len(cells) for _, cells in rows}) != 1:
        if not chorus.table:
            return []
        rows, moved = [(voice, [_rest(voice.text)]) for voice, _ in rows], set()
    found = _compare_rows(incident, rows, moved, chorus.table)
    return found or _compare_by_step(incident, chorus, moved)


def _compare_by_step(incident: LogIncident, chorus: Chorus, moved: set[int]) -> list[Odd]:
    """Hashes that ranks print again and again: the first step at which one differs."""
    if not moved or len(moved) > 4 or not _HASHES.search(chorus.voices[0].text):
        return []
    groups: dict[str, dict[tuple[int, str], tuple[Voice, list[str]]]] = defaultdict(dict)
    for voice in chorus.voices:
        tokens = _tokens(voice.text)
        step = next((t for i, t in enumerate(tokens) if i in moved and _STEP.search(voice.text[: t.start()]) and t[0].isdecimal()), None)  # fmt: skip
        if step is None:
            return []
        groups[step[0]].setdefault(voice.who, (voice, [t[0] for t in tokens]))
    for rows in groups.values():
        if len(rows) >= LEAST and len({len(cells) for _, cells in rows.values()}) == 1:
            found = _compare_rows(incident, list(rows.values()), set(), chorus.table)
            hashes = [odd for odd in found if odd.topic.name == "hash"]
            if hashes:
                return hashes
    return []


def _compare_rows(
    incident: LogIncident, rows: list[tuple[Voice, list[str]]], moved: set[int], table: bool
) -> list[Odd]:
    heading = _heading(rows[0][0]) if table else ""
    for column in range(len(rows[0][1])):
        if column not in moved:
            odd = _compare_column(incident, rows, column, table, heading)
            if odd is not None:
                return [odd]
    return []


def _compare_column(
    incident: LogIncident,
    rows: list[tuple[Voice, list[str]]],
    column: int,
    table: bool,
    heading: str,
) -> Odd | None:
    """The value of one column that few have, where it is a value and all others agree on another."""
    counts = Counter(cells[column] for _, cells in rows)
    if len(counts) != 2:
        return None
    (usual, most), (value, few) = counts.most_common(2)
    odd = [voice for voice, cells in rows if cells[column] == value]
    rest = [voice for voice, cells in rows if cells[column] == usual]
    if few >= most or _CLOCK.search(value) or _SOURCE.search(value):
        return None
    if not (table or _VALUE.search(value) or _is_set(odd[0].text, column)):
        return None
    few_ones = single_out(_places(incident, odd), _places(incident, rest))
    if few_ones is None:
        return None
    name, words = (value, "") if len(rows[0][1]) == 1 else _name(odd[0].text, column)
    topic = topic_of(words or heading, f"{heading} {odd[0].text}")
    if topic is None or _differs_anyway(incident, topic, value):
        return None
    if topic.name == "version" and not table:
        few_ones = _speak_for_host(few_ones, odd, rest)
    return Odd(topic, name, value, usual, tuple(odd), tuple(rest), few_ones, table)


def _places(incident: LogIncident, voices: Sequence[Voice]) -> list[tuple[int | None, str | None]]:
    return [(voice.rank, host_of(incident, voice)) for voice in voices]


def _differs_anyway(incident: LogIncident, topic: Topic, value: str) -> bool:
    """The name of a host, or a pointer in memory: each rank has its own."""
    pointer = value.startswith("0x") and topic.name != "hash"
    return pointer or (value in incident.hosts_seen and topic.name != "address")


def _speak_for_host(few: Minority, odd: Sequence[Voice], rest: Sequence[Voice]) -> Minority:
    """The host instead of its rank where one rank of each log tells the version for all of them."""
    files = {v.digest.file for v in (*odd, *rest)}
    own = odd[0].digest
    if few.rank is None or len(files) != len(odd) + len(rest) or len(own.ranks) < 2:
        return few
    stem = own.file.rsplit("/", 1)[-1].split(".")[0]
    host = few.host or (stem if looks_like_host(stem) else None)
    return Minority(tuple(sorted({few.rank, *own.ranks})), None, host) if host else few


def _tokens(text: str) -> list[re.Match[str]]:
    """Words and values of a line, without what somebody wrote behind it to point at it."""
    end = _POINTER.search(text)
    return list(_TOKEN.finditer(text, 0, end.start() if end else len(text)))[:COLUMNS]


def _rest(text: str) -> str:
    """What a row of a table says about its rank, as one value."""
    told = re.search(r"(?:[Rr]ank|RANK|Process)[ \t:=_#]{0,3}\d{1,6}\W{0,3}", text)
    return " ".join(text[told.end() if told else 0 :].split()).strip("[]() ")[:160]


def _heading(voice: Voice) -> str:
    """The line above a table."""
    position = voice.digest.position(voice.number - 1)
    return voice.digest.kept[position][1][:400] if position >= 0 else ""


def _is_set(text: str, column: int) -> bool:
    """The token is a value behind an equals sign."""
    start = _tokens(text)[column].start()
    return start > 0 and text[start - 1] == "="


def _name(text: str, column: int) -> tuple[str, str]:
    """(value with its words, words alone) of one token: what stands before it and the word behind."""
    tokens = _tokens(text)
    token = tokens[column]
    first = max(0, column - 4)
    start = tokens[first].start()
    for before in tokens[first:column]:
        if re.search(r"\d", before[0]):
            start = before.end()
    ahead = text[start : token.start()].lstrip(" :,;()[]{}'\"|-=")
    close = next((p.strip() for p in reversed(_CUT.split(ahead)) if p.strip(" =:'\"")), "")
    glued = ahead[-1:] in ("=", ":")
    behind = tokens[column + 1] if column + 1 < len(tokens) else None
    after = ""
    if not glued and behind is not None and behind.start() - token.end() == 1:
        after = behind[0] if behind[0].isalpha() else ""
    own = re.match(r"[A-Za-z_]\w{0,80}(?=[:=])", token[0])
    shown = re.sub(r"^(?:has|have|is|are|got|with|env)(?:\s+|$)", "", ahead)
    said = " ".join(f"{shown}{token[0]} {after}".split())
    return said, f"{close} {after} {own[0] if own else ''} | {ahead}"


def host_of(incident: LogIncident, voice: Voice) -> str | None:
    """Host of a voice: as printed on the line, else as the placement table knows it."""
    printed = re.search(
        r"(?i)\b(?:host(?:name)?|node)[=: ]{1,2}([a-z][\w.-]*\d[\w.-]*)", voice.text
    )
    if printed is not None:
        return printed[1].rstrip(".")
    near = re.search(
        r"[Rr]ank[ :=]{0,3}\d+[ ,(@]+(?:on |of )?([A-Za-z][\w-]*\d[\w.-]*)", voice.text
    )
    if near is not None and not re.match(r"(?i)gpu|cuda|rank|step|iter|local", near[1]):
        return near[1]
    told = voice.line().place.host
    if told is not None:
        return told
    return incident.placement.host_of(voice.rank) if voice.rank is not None else voice.place


def _describe(incident: LogIncident, odd: Odd, findings: Sequence[Finding]) -> Finding:
    line, few = odd.odd[0].line(), odd.few
    start = _first_said(odd)
    level = judge_level(odd, replace(line, number=start), findings)
    explained: list[int] = []
    reason: list[Line] = []
    parted = None
    if level is Level.CAUSE:
        explained = _starts(findings, odd.topic, line.file)
        parted = _find_parted(odd, findings)
        if few.rank is not None and not odd.table:
            reason = solo_words(incident, few.rank, line)
    opening = _open(odd)
    if parted is None:
        title = f"{opening}: {odd.topic.tell(odd.value, odd.usual)}{say_solo(reason)}"
    else:
        title = f"{opening}{_tell_parted(parted)}"
    return Finding(
        kind=f"ranks.odd_{odd.topic.name}",
        title=begin_sentence(title),
        opening=begin_sentence(opening),
        level=level,
        category=odd.topic.category if parted is None else parted.category,
        confidence=Confidence.CONFIRMED if len(odd.rest) >= 3 else Confidence.LIKELY,
        evidence=quote_few(
            few, [line, *(v.line() for v in (*odd.odd[1:2], *odd.rest[:2])), *reason]
        ),
        rank=few.rank,
        host=few.host,
        gpu=_gpu_of(odd),
        time=line.time,
        page=odd.topic.page if parted is None else parted.page,
        facts={
            **odd.topic.facts,
            "value": odd.value,
            "usual": odd.usual,
            "ranks": [v.rank for v in odd.odd if v.rank is not None],
            "others": len(odd.rest),
            "starts_at": min([start, *(r.number for r in reason), *explained]),
            "survived": False,
        },
        strength=Strength(Together.RANKS),
    )


def _first_said(odd: Odd) -> int:
    """Number of the first line of the shape in the log of the odd one."""
    digest = odd.odd[0].digest
    return min(v.number for v in (*odd.odd, *odd.rest) if v.digest is digest)


def _open(odd: Odd) -> str:
    """Who has what, and what the others have."""
    have = "have" if odd.few.rank is None and odd.few.host is None else "has"
    kind = "ranks" if odd.rest[0].rank is not None else "hosts or logs"
    return f"{odd.few.called()} {have} {odd.name!r}, the other {len(odd.rest)} {kind} {odd.usual!r}"


def _tell_parted(parted: Finding) -> str:
    """What a value of one step means where the collectives of that rank do not match."""
    words = (
        ", in one and the same step: the program takes "
        f"another path through the model there (data-dependent control flow), so it calls other collectives; {parted.title}"
    )
    if parted.says("ALLGATHER") or parted.says("ALL_GATHER"):
        words += (
            "; under ZeRO-3 or FSDP every call of a sub-module gathers its parameters, so all ranks must run it the same "
            "number of times"
        )
    return words


def _gpu_of(odd: Odd) -> str | None:
    """The GPU that a row of a table names."""
    gpu = re.search(r"(?i)\bgpu[ :=]{0,2}(\d{1,2})\b", odd.odd[0].text) if odd.table else None
    return f"GPU {gpu[1]}" if gpu is not None else None


def _find_parted(odd: Odd, findings: Sequence[Finding]) -> Finding | None:
    """The mismatch of collectives of the same rank, where the value is an amount told for one step."""
    if odd.topic.category is not Category.DATA or not _IN_STEP.search(odd.odd[0].text):
        return None
    return next(
        (
            f
            for f in findings
            if f.kind == "collective.mismatch"
            and f.category is Category.CODE_BUG
            and (f.rank is None or f.rank == odd.few.rank)
        ),
        None,
    )


def _starts(findings: Sequence[Finding], topic: Topic, file: str) -> list[int]:
    """Where the failures begin that a difference explains; it counts as earlier than they."""
    return [
        f.starts_at or f.evidence[0].line
        for f in findings
        if f.level is Level.CAUSE and f.category in topic.explains and f.evidence
        if f.evidence[0].file == file
    ]


def judge_level(odd: Odd, line: Line, findings: Sequence[Finding]) -> Level:
    """A cause where a failure that it explains came later and nothing else explains that better."""
    ranks = {v.rank for v in odd.odd if v.rank is not None}
    level = judge_topic(odd.topic, ranks, findings, len(odd.rest))
    if level is Level.CAUSE and not odd.table and not _stands_before(line, _trouble(findings)):
        return Level.CONTEXT
    return level


def _trouble(findings: Sequence[Finding]) -> list[Finding]:
    """What went wrong and was not got over; slowness aside."""
    return [
        f
        for f in findings
        if f.level in (Level.CAUSE, Level.FAILURE, Level.SYMPTOM)
        and not f.survived
        and f.category is not Category.PERFORMANCE
    ]


def judge_topic(
    topic: Topic, ranks: set[int], findings: Sequence[Finding], others: int = 0
) -> Level:
    """What a difference on `ranks` is beside all other findings, wherever it was said."""
    trouble = _trouble(findings)
    if not any(f.category is None or f.category in topic.explains for f in trouble):
        # replicas that are no longer equal are a fault before anybody falls over it
        unequal = topic.name == "hash" and not trouble and others >= LEAST
        return Level.FAILURE if unequal else Level.CONTEXT
    for finding in trouble:
        if finding.level is not Level.CAUSE:
            continue
        if finding.category is not None and finding.category not in topic.explains:
            return Level.CONTEXT
        # who prints a NaN loss says nothing about who caused it
        local = finding.category in _LOCAL or finding.kind.startswith("metrics.rank_")
        if local and finding.rank is not None and finding.rank not in ranks:
            return Level.CONTEXT
    return Level.CAUSE


def _stands_before(line: Line, trouble: Iterable[Finding]) -> bool:
    """Some failure came after the line, or is the line, as far as order can be told."""
    for finding in trouble:
        for place in finding.evidence:
            if place.file == line.file:
                if place.line >= line.number:
                    return True
            elif place.time is None or line.time is None or place.time >= line.time:
                return True
    return False
