"""What did one rank alone say, and nobody else, before everything stopped? Rare lines by who said them.

Where ranks wait for one of them, that one often says why in ordinary words: it stopped early, retries a read,
has an empty batch. No signature knows the words; that nobody else says them marks them. They are told with a
verdict that names the rank by other means, and may lead where nothing else is known.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace

from firstfault.investigation.examination import Examination, choose_few
from firstfault.investigation.knowledge import Knowledge
from firstfault.investigation.place import find_place
from firstfault.investigation.standouts import ALARM, MAX_LINES, SHAPE, TELLS, is_step
from firstfault.investigation.verdict import Judgement
from firstfault_tools.causality.odd_ranks.last_words import NOISE, read_doing_in
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Confidence, Finding, Level, Verdict
from firstfault_tools.log.digest import FileDigest, Line
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.log.scan import make_line
from firstfault_tools.roles import Role

NO_VOICES = (Role.EXPERIMENT, Role.COUNTER, Role.CONFIGURATION, Role.DESCRIPTION)
"""What is no output of a rank, whatever its lines begin with."""

LEAST_SPEAKERS = 3
"""Ranks without whom nobody is alone with its words."""

MOST_TIMES = 3
"""Times a rank may repeat a line that is still rare; a retry is told a few times."""

MOST_ALONE = 6
"""Telling lines of one rank alone beyond which it is only the one that prints for all."""

TALKATIVE = 1.5
MOST_CHARS = 160

_COMPARED = expression(
    r"^(?:ranks\.|collective\.(?:mismatch|never_entered|missing|not_started|behind)|metrics\.rank_|stacks\.(?:odd_one_out|different_collectives))"
)
"""Findings that name a rank by comparing, and not what it did."""

_WAITS = expression(r"^(?:collective\.(?:timeout|behind)|run\.|peers\.lost)")
"""Symptoms of waiting that tell of nobody."""

_CASCADE = expression(
    r"(?i)watchdog|collective (?:operation|communicator)|broken pipe|connection (?:reset|closed|refused) by (?:peer|remote)|peer closed|remote process|"
    r"synchroni[sz]e|device to finish|async\w* (?:error|exception)|runtime result|signal|core dumped|destroy_process_group|"
    r"barrier|waiting|heartbeat|checkfd|Root Cause|exit ?code|cancel"
)
"""What ranks say when another one is gone; nobody's own trouble."""


@dataclass(frozen=True, slots=True)
class Alone:
    """Telling lines that one rank alone wrote before the first alarm, in their order."""

    rank: int
    lines: tuple[Line, ...]


def _waits(finding: Finding) -> bool:
    told = finding.has(FindingRole.WAITING) or finding.has(FindingRole.CONSEQUENCE)
    return told or _WAITS.search(finding.kind) is not None


def name_own_words(examination: Examination, judgement: Judgement) -> Judgement:
    """The verdict with what the rank that it singles out said by itself, where it does not say so yet."""
    finding = judgement.finding
    if judgement.verdict not in (Verdict.FAULT, Verdict.WARNING) or finding is None:
        return judgement
    if not _COMPARED.search(finding.kind):
        return judgement
    rank = find_place(examination, finding).rank
    if rank is None:
        return judgement
    shown = {(e.file, e.line) for e in finding.evidence}
    alone = next((a for a in hear_alone(examination) if a.rank == rank), None)
    lines = [x for x in alone.lines if (x.file, x.number) not in shown] if alone is not None else []
    line, how = (lines[-1], f"rank {rank} alone had said") if lines else (None, "")
    if line is None:
        line, how = _find_empty_row(examination, rank), f"rank {rank} alone has 0 in its row"
    if line is None or finding.says(_words(line)[:30]):
        return judgement
    return judgement.tell_beside(finding, f"{how}: {_words(line)}", [line.evidence()])


def believe_alone(
    examination: Examination, judgement: Judgement, knowledge: Knowledge
) -> Judgement:
    """The one rank that tells of trouble of its own as a likely cause, where nothing else is known."""
    finding = judgement.finding
    if judgement.verdict is not Verdict.UNKNOWN:
        return judgement
    if finding is not None and not _waits(finding):
        return judgement
    heard = hear_alone(examination)
    if len(heard) != 1:
        return judgement
    alone = heard[0]
    raised = {t.rank for t in examination.logs.tracebacks} - {None, alone.rank}
    if raised:
        return judgement  # others have trouble of their own as well
    last = alone.lines[-1]
    category, page = _classify(examination, alone, knowledge)
    if category is None:
        return judgement
    waits = () if finding is None else finding.evidence[:2]
    told = Finding(
        kind="ranks.own_words",
        title=f"Rank {alone.rank} alone tells of trouble of its own before the others stand still: {_words(last)}",
        level=Level.FAILURE,
        category=category,
        evidence=(*(x.evidence() for x in reversed(alone.lines[-3:])), *waits),
        rank=alone.rank,
        time=last.time,
        page=page,
    )
    return replace(judgement, verdict=Verdict.FAULT, finding=told, confidence=Confidence.LIKELY)


def hear_alone(examination: Examination) -> list[Alone]:
    """Ranks with rare telling lines that nobody else wrote; none where too few ranks are heard."""
    said: dict[str, dict[int | None, list[Line]]] = defaultdict(lambda: defaultdict(list))
    speakers: Counter[int] = Counter()
    for digest in choose_few(examination.logs.digests):
        if examination.logs.role_of(digest.file) in NO_VOICES:
            continue
        for rank, number, text in _speak(digest):
            if rank is not None:
                speakers[rank] += 1
            shape = SHAPE.sub(" ", text[read_prefix(text)[1] :])[:120]
            own = said[shape][rank]
            if len(own) <= MOST_TIMES:
                own.append(make_line(digest.file, number, text, digest.year))
    if len(speakers) < LEAST_SPEAKERS:
        return []
    found: dict[int, list[Line]] = defaultdict(list)
    for voices in said.values():
        rank, lines = next(iter(voices.items()))
        rare = len(voices) == 1 and rank is not None and len(lines) <= MOST_TIMES
        if rare and TELLS.search(lines[0].message) and not _CASCADE.search(lines[0].message):
            found[int(str(rank))] += lines
    return [
        Alone(rank, tuple(sorted(lines, key=lambda x: (x.file, x.number))))
        for rank, lines in found.items()
        if len(lines) <= MOST_ALONE and not _prints_for_all(rank, speakers)
    ]


def _prints_for_all(rank: int, speakers: Counter[int]) -> bool:
    """It says far more than any other: what only it says is said for the job."""
    return speakers[rank] > TALKATIVE * max(n for r, n in speakers.items() if r != rank)


def _speak(digest: FileDigest) -> Iterator[tuple[int | None, int, str]]:
    """(rank, number, text) of the lines up to the first alarm, steps and noise left out."""
    beside = digest.name_place
    for number, text in digest.kept[:MAX_LINES]:
        if ALARM.search(text):
            return
        if not text.strip() or len(text) > 2_000 or NOISE.search(text) or is_step(number, text):
            continue
        place = read_prefix(text)[0]
        rank = place.rank if place.rank is not None else place.task
        rank = digest.name_rank if rank is None else rank
        yield beside.task if rank is None else rank, number, text


def _words(line: Line) -> str:
    body = " ".join(line.message.split())
    return body if len(body) <= MOST_CHARS else body[:MOST_CHARS].rsplit(" ", 1)[0] + " …"


def _classify(
    examination: Examination, alone: Alone, knowledge: Knowledge
) -> tuple[Category | None, str | None]:
    """Category and page of the trouble: by the work it befell, else by the page that fits its words best."""
    first = alone.lines[0]
    before = next(examination.logs.lines_before(first, 1), None)
    work = before.message if before is not None else ""
    texts = [x.message for x in reversed(alone.lines)]
    doing = read_doing_in([*(f"{work} | {text}" for text in texts), *texts])
    if doing is not None:
        return doing.category, doing.page
    if knowledge.search is None:
        return None, None
    for page_id, _ in knowledge.search(" ".join(text[:300] for text in texts), 3):
        page = knowledge.pages.get(page_id)
        if page is not None and not page.benign:
            return page.category, page.id
    return None, None


_ROW = expression(
    r"^\W{0,3}(?:global[ _])?(?:rank|process|task|r)[ _]?(?P<rank>\d{1,5})\W{0,3}[:=|]\s*(?P<row>\S.*)"
)
_NUMBER = expression(r"-?\d+(?:\.\d+)?")


def _find_empty_row(examination: Examination, rank: int) -> Line | None:
    """The row of a table in which this rank alone has nothing where all others have something."""
    for digest in choose_few(examination.logs.digests):
        rows = {
            int(m["rank"]): (number, text, [float(n) for n in _NUMBER.findall(m["row"])])
            for number, text in digest.kept[:MAX_LINES]
            if len(text) < 400 and (m := _ROW.match(text)) is not None
        }
        if rank not in rows or len(rows) < LEAST_SPEAKERS:
            continue
        number, text, own = rows[rank]
        others = [values for r, (_, _, values) in rows.items() if r != rank]
        for column, value in enumerate(own):
            if value == 0 and all(len(o) > column and o[column] > 0 for o in others):
                return make_line(digest.file, number, text, digest.year)
    return None
