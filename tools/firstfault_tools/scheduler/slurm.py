"""What did Slurm do to the job or its nodes: `sacct`, `scontrol show job|node`, `sinfo`, `sinfo -R`?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact, known
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.hardware.excerpt import NumberedLine, keep_marked, quote_line, read_lines
from firstfault_tools.log.digest import FileDigest
from firstfault_tools.registry import Artefact, Reader, Reading
from firstfault_tools.scheduler.slurm_states import explain_job, explain_node, read_exit_code

GATE = ("JobID", "JobId=", "JobState=", "NodeName=", "PARTITION", "NODELIST", "REASON ")
MARKERS = GATE

_PAIR = expression(
    r"(?:^|\s)(?P<key>[A-Z][A-Za-z/:_]{1,40})=(?P<value>.*?)(?=\s[A-Z][A-Za-z/:_]{1,40}=|$)"
)
LAST_SIGNAL = 64
"""Slurm also writes numbers there that are no signal of Linux."""

_RULE = expression(r"^[-\s]+$")
_SINFO = expression(
    r"^(?P<partition>\S{1,60})\s+(?P<avail>up|down|drain|inact)\s+(?P<limit>\S{1,20})\s+(?P<nodes>\d{1,6})\s+"
    r"(?P<state>[a-z]{2,12}[*~#!%$@^+-]?)\s+(?P<list>\S+)"
)
_JOB_COLUMNS = frozenset({"JobID", "JobName", "State", "ExitCode", "NodeList", "MaxRSS", "ReqMem", "Elapsed", "Timelimit", "Partition", "DerivedExitCode", "Reason"})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Job:
    """One job or step as printed."""

    job_id: str
    fields: dict[str, str]
    place: NumberedLine

    def get(self, *names: str) -> str:
        """First non-empty field of these names."""
        return next((self.fields[n] for n in names if self.fields.get(n)), "")


def read_sacct(lines: Sequence[NumberedLine]) -> list[Job]:
    """Rows of `sacct`, in columns or with `-P`."""
    jobs: list[Job] = []
    names: list[str] = []
    spans: list[tuple[int, int]] = []
    for number, line in lines:
        if "|" in line:
            cells = [cell.strip() for cell in line.strip().split("|")]
            if len(set(cells) & _JOB_COLUMNS) >= 2:
                names, spans = cells, []
            elif names and not spans and len(cells) == len(names) and re.match(r"^\d", cells[0]):
                jobs.append(_make_job(names, cells, (number, line)))
            continue
        words = line.split()
        if len(set(words) & _JOB_COLUMNS) >= 2 and "JobID" in words:
            names, spans = words, []
        elif names and _RULE.match(line) and "-" in line:
            spans = [(m.start(), m.end()) for m in re.finditer(r"-+", line)]
        elif (
            names
            and len(spans) == len(names)
            and re.match(r"^\s{0,40}\d[\w.+\[\]%-]{0,80}\s", line)
        ):
            cells = [_cut_cell(line, *span) for span in spans]
            jobs.append(_make_job(names, cells, (number, line)))
        elif not line.strip():
            names, spans = [], []
    return jobs


def _cut_cell(line: str, start: int, end: int) -> str:
    """What stands below a rule, whole: a value may be longer than the rule of its column."""
    if not line[start:end].strip():
        return ""
    if line[start : start + 1].strip():
        start = line.rfind(" ", 0, start) + 1
    if line[end - 1 : end].strip():
        after = line.find(" ", end)
        end = after if after >= 0 else len(line)
    return line[start:end].strip()


def _make_job(names: Sequence[str], cells: Sequence[str], place: NumberedLine) -> Job:
    fields = dict(zip(names, cells, strict=False))
    return Job(fields.get("JobID", cells[0] if cells else "?"), fields, place)


def read_records(lines: Sequence[NumberedLine], key: str) -> list[Job]:
    """Blocks of `scontrol show`, each starting with `key` (`JobId` or `NodeName`)."""
    found: list[Job] = []
    inside = False
    for number, line in lines:
        pairs = {m["key"]: m["value"].strip() for m in _PAIR.finditer(line)}
        if key in pairs:
            found.append(Job(pairs[key], dict(pairs), (number, line)))
            inside = True
        elif not pairs and not line.strip():
            inside = False
        elif inside and pairs and found:
            state = "JobState" if key == "JobId" else "State"
            if state in pairs:
                found[-1] = Job(found[-1].job_id, found[-1].fields, (number, line))
            found[-1].fields.update(pairs)
    return found


def check_jobs(jobs: Sequence[Job], file: str) -> list[Finding]:
    """One finding for each job, told by its most telling step. Rows of a requeued job stand in the order of
    its attempts (`sacct --duplicates`): the last one tells its state, those before it, steps included, are context.
    A row that waits for its start is no attempt yet: what ended the job is told by the row before it."""
    last = {job.job_id: job.place for job in jobs if not _waits_again(job)}
    by_job: dict[str, Finding] = {}
    for job in jobs:
        finding = _describe_job(job, file)
        if finding is None:
            continue
        whole = job.job_id.split(".")[0]
        later = last.get(whole, job.place)[0] > job.place[0]
        if later or last.get(job.job_id, job.place) != job.place:
            finding = replace(finding, level=Level.CONTEXT)
        known = by_job.get(whole)
        if known is None or _weight(finding) > _weight(known):
            by_job[whole] = finding
    return list(by_job.values())


def _waits_again(job: Job) -> bool:
    """A row of a job that was put back into the queue and has not started."""
    waits = job.get("State", "JobState").split()[:1] in (["PENDING"], ["REQUEUED"])
    return waits and job.get("Start") in ("Unknown", "None", "N/A")


_WEIGHTS = {Level.CAUSE: 3, Level.FAILURE: 2, Level.SYMPTOM: 1}


def _weight(finding: Finding) -> int:
    return _WEIGHTS.get(finding.level, 0)


def _describe_job(job: Job, file: str) -> Finding | None:
    state = job.get("State", "JobState")
    reason = job.get("Reason")
    code, number = read_exit_code(job.get("ExitCode"))
    meaning = explain_job(state, reason, code, number)
    if meaning is None:
        return None
    nodes = job.get("NodeList")
    details = [state]
    if reason and reason not in ("None", "(null)"):
        details.append(f"reason {reason}")
    if code or number:
        details.append(
            f"exit {code}" + (f", signal {number}" if number and number <= LAST_SIGNAL else "")
        )
    for name, words in (("MaxRSS", "most memory"), ("ReqMem", "asked"), ("Elapsed", "ran"), ("RunTime", "ran"), ("TimeLimit", "limit"), ("Timelimit", "limit")):  # fmt: skip
        value = job.get(name)
        if value and value != "Unknown":
            details.append(f"{words} {value}")
    told = known(exit_code=code, signal=number or None, nodes=nodes or None)
    facts = {"job_id": job.job_id, "state": state, "reason": reason or None, **told}
    single = nodes if nodes and not re.search(r"[\[,]", nodes) and nodes != "(null)" else None
    return Finding(
        kind=f"slurm.{meaning.kind}",
        title=f"Slurm job {job.job_id}: {meaning.reading} ({', '.join(details)})",
        level=meaning.level,
        category=meaning.category,
        confidence=Confidence.CONFIRMED if meaning.level is Level.CAUSE else Confidence.LIKELY,
        evidence=(quote_line(file, *job.place, host=single),),
        host=single,
        facts=facts,
    )


_FAULT = expression(
    r"(?i)gres|gpu|xid|ecc|nvlink|prolog|epilog|kill task failed|health|nhc|low realmemory|low (?:socket|cpu)|"
    r"rebooted|mount|disk|memory|infiniband|\bib\b|link|power|temperature|launch failure"
)
"""Reasons for which a node was drained that tell of a fault; people write others ("maintenance")."""


def check_nodes(nodes: Sequence[Job], file: str) -> list[Finding]:
    """Nodes of `scontrol show node` that are down, failing or drained."""
    found = []
    for node in nodes:
        state = node.get("State")
        level = explain_node(state)
        if level is None:
            continue
        reason = node.get("Reason").strip()
        if level is Level.CONTEXT and _FAULT.search(reason):
            level = Level.FAILURE
        words = f": {reason}" if reason else ""
        found.append(_make_node(node.job_id, state, words, level, file, node.place))
    return found


def read_sinfo(lines: Sequence[NumberedLine], file: str) -> list[Finding]:
    """Node sets of `sinfo` and reasons of `sinfo -R`."""
    found = []
    reasons = False
    for number, line in lines:
        words = line.split()
        if words[:1] == ["REASON"] and "NODELIST" in words:
            reasons = True
        elif not words:
            reasons = False
        elif reasons and len(words) >= 3:
            reason, *told = line.rsplit(None, 3)
            # two blanks at least: a reason has single ones of its own
            if len(told) == 3 and len(line[len(reason) :][:2].strip()) == 0:
                _, time, nodes = told
                words_of = f": {reason.strip()} (since {time})"
                found.append(
                    _make_node(
                        nodes,
                        "drained or down",
                        words_of,
                        Level.FAILURE,
                        file,
                        (number, line),
                    )
                )
        elif row := _SINFO.match(line):
            level = explain_node(row["state"])
            if level is not None:
                found.append(_make_node(row["list"], row["state"], "", level, file, (number, line)))
    return found


def _make_node(
    name: str, state: str, words: str, level: Level, file: str, place: NumberedLine
) -> Finding:
    single = name if not re.search(r"[\[,]", name) else None
    return Finding(
        kind="slurm.node",
        title=f"Slurm node {name} is {state}{words}",
        level=level,
        category=None if _only_silent(state, words) else Category.HARDWARE,
        evidence=(quote_line(file, *place, host=single),),
        host=single,
        facts={"nodes": name, "state": state},
    )


_SILENT = expression(r"(?i)^: (?:not responding|node unexpectedly rebooted)\b")
"""What slurmctld itself writes of a node that it lost: nothing of why."""


def _only_silent(state: str, words: str) -> bool:
    """Nothing is said of the node but that it no longer answers."""
    return (
        _SILENT.search(words) is not None
        if words
        else (state.endswith("*") or "NOT_RESPONDING" in state.upper())
    )


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Findings of Slurm's commands pasted into any text."""
    marked = keep_marked(lines, MARKERS)
    if not marked:
        return ()
    text = "\n".join(line for _, line in marked)
    found: list[Finding] = []
    if "JobID" in text:
        found.extend(check_jobs(read_sacct(lines), file))
    if "JobId=" in text:
        found.extend(check_jobs(read_records(lines, "JobId"), file))
    if "NodeName=" in text:
        found.extend(check_nodes(read_records(lines, "NodeName"), file))
    if "PARTITION" in text or "NODELIST" in text:
        found.extend(read_sinfo(lines, file))
    return tuple(found)


def weigh_nodes(findings: Iterable[Finding], digests: Sequence[FileDigest]) -> list[Finding]:
    """Rows of `sinfo` about nodes that nothing else in the incident names: nodes of other jobs."""
    items = list(findings)
    rows = {(e.file, e.line) for f in items if f.kind == "slurm.node" for e in f.evidence}
    out = []
    for finding in items:
        place = finding.evidence[0] if finding.evidence else None
        if finding.kind != "slurm.node" or place is None or "NodeName=" in place.text:
            out.append(finding)
            continue
        names = _expand(finding.text(Fact.NODES))
        known = any(_names_node(d, names, rows) for d in digests)
        out.append(finding if known else replace(finding, level=Level.CONTEXT))
    return out


def _names_node(digest: FileDigest, names: Sequence[str], rows: set[tuple[str, int]]) -> bool:
    if not digest.kept.holds(names):
        return False
    word = expression("|".join(rf"(?<![\w-]){re.escape(n)}(?![\w-])" for n in names))
    return any(
        word.search(line) and (digest.file, number) not in rows and not _SINFO.match(line)
        for number, line in digest.kept
    )


def _expand(names: str) -> list[str]:
    """`n7` and `n8` of `n[7-8]`; 64 names at most."""
    out: list[str] = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", names):
        base, _, inner = part.partition("[")
        if not inner:
            out.append(base)
        for piece in inner.rstrip("]").split(",") if inner else ():
            low, _, high = piece.partition("-")
            if low.isdecimal() and (high or low).isdecimal():
                last = min(int(high or low), int(low) + 63)
                out += [f"{base}{n:0{len(low)}d}" for n in range(int(low), last + 1)]
    return out[:64]


def recognise_slurm(_name: str, head: bytes) -> bool:
    """Saved output of sacct, scontrol or sinfo."""
    text = head[:4096].decode("utf-8", errors="replace").lstrip()
    first = text.split("\n", 1)[0]
    if first.startswith(("JobId=", "NodeName=")):
        return True
    words = set(re.split(r"[\s|]+", first))
    table = "JobID" in words and len(words & _JOB_COLUMNS) >= 2
    return table or (first.startswith(("PARTITION", "REASON")) and "NODELIST" in words)


def read_slurm(artefacts: tuple[Artefact, ...]) -> Reading:
    """Findings of every saved output."""
    found: list[Finding] = []
    for artefact in artefacts:
        found.extend(find_in_lines(read_lines(artefact), artefact.name))
    return Reading(tuple(found))


SIGNS = ("JobId=", "NodeName=", "JobID", "NODELIST")

READER = Reader(
    name="slurm",
    summary="sacct, scontrol show job and node, sinfo: memory kills, time limits, node failures",
    recognise=recognise_slurm,
    read=read_slurm,
    # saved output often goes on with a log or another command
    owns=False,
)
