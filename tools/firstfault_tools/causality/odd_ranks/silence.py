"""Which rank fell silent: what did all others say before they waited that this one never said?"""

from __future__ import annotations

from collections.abc import Sequence

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.odd_ranks.minority import Minority, begin_sentence
from firstfault_tools.causality.odd_ranks.odd_rank import several_speak
from firstfault_tools.causality.odd_ranks.speech import LEAST, Chorus, Voice, hear_speech
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.log.place import name_ranks
from firstfault_tools.log.work import WorkReport

MOST_SPEAKERS = 4_096
FEW = 4
"""Part of the ranks, as one over this, up to which those who never timed out are few."""
_DONE = expression(
    r"(?i)\b(?:loaded|ready|complete[d]?|done|finished|entered|entering|passed|joined|initiali[sz]ed|built|"
    r"connected|restored|resumed|compiled|synchroni[sz]ed|reached|barrier|start(?:ed|ing|s)?|begin(?:s|ning)?|began)\b"
)
_SUBJECTS = (
    (expression(r"(?i)dataset|data ?loader|\bdata\b|shard|index|tokeni"), Category.DATA, "uneven-data-across-ranks"),
    (expression(r"(?i)checkpoint|ckpt|state_dict|weights|restored"), Category.CHECKPOINT, "checkpoint-resume"),
    (expression(r"(?i)process group|rendezvous|nccl|joined|connected|init_process"), Category.COMMUNICATION, "rendezvous-failed"),
)  # fmt: skip
_BY_FEW = expression(
    r"(?i)rank ?0 only|main process|master|epoch|step|iter|ProcessGroup\w+\.cpp|watchdog|NCCL WARN|\berror\b"
)
"""What rank 0 or a training step says, and alarms: a rank that raises none did not miss anything."""


def find_silent(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """The rank that is missing from a line which all others print before they wait."""
    if not (_only_waits(findings) or _stopped_late(findings)) or not several_speak(incident):
        return []
    speech = hear_speech(incident)
    choruses = [c for c in speech.choruses() if not c.table]
    known = {v.rank for c in choruses for v in c.voices if v.rank is not None}
    known |= set(incident.ranks_seen)
    if not 3 <= len(known) <= MOST_SPEAKERS:
        return []
    for chorus in choruses:
        text = chorus.voices[0].text
        if _DONE.search(text) is None or _BY_FEW.search(text):
            continue
        said = {v.rank for v in chorus.voices}
        missing = known - said
        if len(missing) == 1 and 0 not in missing and None not in said:
            (rank,) = missing
            if rank is not None and _all_once(chorus):
                return [_describe_silent(incident, rank, chorus, choruses)]
    return []


@dataclass(frozen=True, slots=True)
class Silence:
    """Ranks that never reported the timeout which all others did."""

    reports: tuple[WorkReport, ...]
    world: int
    ranks: tuple[int, ...]

    def describe(self) -> str:
        """`15 of 16 ranks timed out; rank 11 never did`."""
        told = len({r.rank for r in self.reports})
        return f"{told} of {self.world} ranks timed out; {name_ranks(self.ranks)} never did"


def read_silence(incident: LogIncident) -> Silence | None:
    """Who is missing among the ranks that timed out, where they are nearly all of the job."""
    reports = tuple(w for w in incident.work if w.timed_out)
    told = {w.rank for w in reports}
    world = max(incident.world_size or 0, max(incident.ranks_seen, default=-1) + 1)
    missing = sorted(set(range(world)) - told) if world <= MOST_SPEAKERS else []
    if len(told) < LEAST or not missing or FEW * len(missing) > world:
        return None
    return Silence(reports, world, tuple(missing))


def _only_waits(findings: Sequence[Finding]) -> bool:
    """Something is waited for, and no finding names a cause or a failure."""
    live = [f for f in findings if not f.survived]
    if any(f.level in (Level.CAUSE, Level.FAILURE) for f in live):
        return False
    return any(f.level is Level.SYMPTOM for f in live)


def _stopped_late(findings: Sequence[Finding]) -> bool:
    """The run was stopped from outside although it had ended as planned: something kept it from leaving."""
    deep = [f for f in findings if f.level in (Level.CAUSE, Level.FAILURE)]
    stops = [f for f in deep if f.has(FindingRole.STOPPED)]
    return bool(stops) and all(f.has(FindingRole.STOPPED) or f.survived for f in deep)


def _all_once(chorus: Chorus) -> bool:
    """Every rank says it as often as every other."""
    counts: dict[int | None, int] = {}
    for voice in chorus.voices:
        counts[voice.rank] = counts.get(voice.rank, 0) + 1
    return len(set(counts.values())) == 1


def _describe_silent(
    incident: LogIncident, rank: int, chorus: Chorus, choruses: Sequence[Chorus]
) -> Finding:
    line = chorus.voices[0].line()
    last = _last_of(rank, choruses)
    said = " ".join(line.message.split())[:120]
    category, page = Category.CODE_BUG, "collective-divergence"
    for words, about, its_page in _SUBJECTS:
        if words.search(said) or (last is not None and words.search(last.text)):
            category, page = about, its_page
            break
    title = (
        f"{Minority((rank,), rank, None).called()} never said {said!r}, which the other "
        f"{len({v.rank for v in chorus.voices})} ranks did before they waited"
    )
    evidence = [line.evidence()]
    if last is not None:
        own = last.line()
        title += f"; the last thing it said: {' '.join(own.message.split())[:120]!r}"
        evidence.insert(0, own.evidence())
    return Finding(
        kind="ranks.silent",
        title=begin_sentence(title),
        level=Level.FAILURE,
        category=category,
        evidence=tuple(evidence),
        rank=rank,
        time=line.time,
        page=page,
        facts={"ranks": [rank], "survived": False},
    )


def _last_of(rank: int, choruses: Sequence[Chorus]) -> Voice | None:
    """The last line of a shape that others say too, by this rank."""
    own = [v for c in choruses for v in c.voices if v.rank == rank]
    return max(own, key=lambda v: v.number) if own else None
