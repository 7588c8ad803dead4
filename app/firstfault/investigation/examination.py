"""Which facts do the tools find in the artefacts? Runs readers and the log scan, gathers findings.

The tool runner is one of the three places that may catch anything: a reader that breaks costs its
own result, is logged, and is named in the receipt; it never takes the diagnosis down.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import islice

from firstfault.investigation.copies import SAME_AS, find_copies
from firstfault.investigation.diagnosis import SkippedInput
from firstfault.investigation.finders import choose_finders
from firstfault_tools.causality.assignment import assign_ranks
from firstfault_tools.causality.chain import Chain, order_findings
from firstfault_tools.causality.cut_files import join_cut_files
from firstfault_tools.causality.dead_processes import join_dead_processes
from firstfault_tools.causality.file_fates import join_file_fates
from firstfault_tools.causality.full_mounts import join_full_mounts
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.memory.weighing import weigh_memory
from firstfault_tools.causality.odd_ranks.alignment import align_ranks
from firstfault_tools.causality.other_jobs import find_other_jobs
from firstfault_tools.causality.passing_tests import weigh_passing_tests
from firstfault_tools.causality.slow_saves import join_slow_saves
from firstfault_tools.causality.state_keys import name_prefixes
from firstfault_tools.causality.weighing import weigh_findings
from firstfault_tools.causality.witnesses import read_witnesses
from firstfault_tools.checkpoint.full_target import join_full_target
from firstfault_tools.collectives.nccl_join import join_communicators
from firstfault_tools.correlation.decisions import Decision, Relation, Rule, Trail
from firstfault_tools.correlation.relations import relate
from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import ToolError
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding, Level
from firstfault_tools.hardware.gpu.placement import join_storage, join_stragglers
from firstfault_tools.hardware.host_name import name_machines
from firstfault_tools.hardware.host_sections import read_sign
from firstfault_tools.log.clock import find_year
from firstfault_tools.log.digest import STOPPED, FileDigest
from firstfault_tools.log.executors import Workers, scan_logs
from firstfault_tools.log.kept import NumberedLines
from firstfault_tools.log.plan import LogFile, describe_log, plan_logs
from firstfault_tools.log.signature import SignatureSet
from firstfault_tools.memory.load_growth import join_growth
from firstfault_tools.registry import Artefact, Reading, incident_finders, readers_for
from firstfault_tools.scheduler.slurm import weigh_nodes
from firstfault_tools.whereabouts import note_place

log = logging.getLogger(__name__)

OF_ANOTHER_JOB = "the log of another job, which ended well and shares nothing with the others: it says nothing of this run"
MAX_SAMPLED_NOTES = 8
MAX_STEP_LOGS = 48
SAMPLED_LINES, SAMPLED_CHARS = 20_000, 3_000
ALIKE_ON_ALL_RANKS = frozenset({"metrics.log_lines"})
"""Line finders whose question has the same answer in every rank's log of one run."""


@dataclass(frozen=True)
class Examination:
    """Everything the tools found in one incident."""

    logs: LogIncident
    findings: tuple[Finding, ...]
    chain: Chain
    readings: dict[str, Reading] = field(default_factory=dict)
    skipped: tuple[SkippedInput, ...] = ()
    files: tuple[str, ...] = ()
    claimed: frozenset[str] = frozenset()
    """Artefacts that a reader knew and read."""
    decisions: tuple[Decision, ...] = ()
    """Every change that a rule made to a finding, in order."""


def examine(
    artefacts: Sequence[Artefact], signatures: SignatureSet, workers: Workers | None = None
) -> Examination:
    """Read every artefact with the reader that knows it, everything else as a log."""
    copies = find_copies(artefacts)
    artefacts = [a for a in artefacts if a.name not in copies]
    owned, plain, skipped = _sort_artefacts(artefacts)
    skipped += [SkippedInput(name, f"{SAME_AS}{of}") for name, of in copies.items()]
    readings: dict[str, Reading] = {}
    findings: list[Finding] = []
    claimed: set[str] = set()
    for name, group in owned.items():
        reading = _run_reader(name, tuple(group), skipped)
        if reading is not None:
            readings[name] = reading
            claimed |= {artefact.name for artefact in group}
            findings += reading.findings
    logs = LogIncident(_scan(plain, signatures, workers or Workers(), skipped), signatures)
    read = {d.file for d in logs.digests}
    left = {s.what for s in skipped if s.why.startswith(STOPPED)} - read
    others = find_other_jobs(logs)
    if others:
        logs = logs.without(others)
        skipped += [SkippedInput(name, OF_ANOTHER_JOB) for name in sorted(others)]
    note_place("causality.witnesses", "all logs together")
    findings += read_witnesses(logs)
    findings += align_ranks(logs)
    findings += _find_in_lines(logs, skipped)
    findings = name_machines(findings, lambda file: logs.placement.host_told(file))
    trail = Trail()
    findings = _correlate(_BEFORE_COMPARISON, logs, findings, trail)
    # what a comparison of all ranks found goes first: it was judged knowing the rest
    findings = [*_find_in_incident(logs, findings, skipped), *findings]
    findings = _correlate(_AFTER_COMPARISON, logs, findings, trail)
    chain = order_findings(findings, trail)
    return Examination(
        logs=logs,
        findings=tuple(findings),
        chain=chain,
        decisions=tuple(trail.decisions),
        readings=readings,
        skipped=tuple(skipped),
        files=tuple(a.name for a in artefacts if a.name not in others and a.name not in left),
        claimed=frozenset(claimed),
    )


def _sort_artefacts(
    artefacts: Iterable[Artefact],
) -> tuple[dict[str, list[Artefact]], list[LogFile], list[SkippedInput]]:
    owned: dict[str, list[Artefact]] = defaultdict(list)
    plain: list[LogFile] = []
    years: dict[str, int | None] = {}
    skipped: list[SkippedInput] = []
    for artefact in artefacts:
        head = artefact.head()
        claimed = False
        for reader in readers_for(artefact.name, head):
            if _recognises(reader.name, reader.recognise, artefact.name, head):
                owned[reader.name].append(artefact)
                claimed = claimed or (reader.owns and not _is_transcript(reader.name, head))
        if claimed:
            continue
        if _is_binary(head):
            skipped.append(
                SkippedInput(
                    artefact.name,
                    "binary content that no reader knows; if it is a dump, name it like the tool that wrote it",
                )
            )
            continue
        plain.append(describe_log(artefact.name, artefact.path, head))
        years[artefact.name] = find_year(head.decode("utf-8", errors="replace"))
    return owned, _share_year(plain, years), skipped


PROMPTS = 2
"""Shell prompts from which on a saved dump is a session with more in it than its reader knows."""


def _is_transcript(reader: str, head: bytes) -> bool:
    """A stack dump that was copied from a terminal together with other commands: a log as well."""
    if reader != "stacks":
        return False
    lines = head[:65536].decode("utf-8", errors="replace").splitlines()
    signs = (read_sign(line[:400]) for line in lines if "$ " in line or "# " in line)
    return sum(1 for sign in signs if sign is not None and sign[0] is not None) >= PROMPTS


def _share_year(logs: list[LogFile], years: Mapping[str, int | None]) -> list[LogFile]:
    """Logs whose stamps print no year get that of the other logs of the incident."""
    known = [y for y in years.values() if y is not None]
    if not known:
        return logs
    usual = Counter(known).most_common(1)[0][0]
    return [log if years[log.name] is not None else replace(log, year=usual) for log in logs]


def _recognises(reader: str, recognise: object, name: str, head: bytes) -> bool:
    try:
        return bool(recognise(name, head))  # type: ignore[operator]
    except MemoryError:
        raise
    except Exception:  # tool runner border: a broken recogniser must not hide the artefact
        log.exception("reader %s failed to look at %s", reader, name)
        return False


def _run_reader(
    name: str, group: tuple[Artefact, ...], skipped: list[SkippedInput]
) -> Reading | None:
    first = group[0]
    reader = next(r for r in readers_for(first.name, first.head()) if r.name == name)
    note_place(f"reader {name}", group[0].name if len(group) == 1 else f"{len(group)} files")
    try:
        return reader.read(group)
    except ToolError as error:
        skipped += [SkippedInput(a.name, str(error)) for a in group]
    except MemoryError:
        raise
    except Exception as error:  # tool runner border
        log.exception("reader %s failed", name)
        skipped += [SkippedInput(a.name, f"reader {name} failed: {error!r}") for a in group]
    return None


def _scan(
    logs: Sequence[LogFile],
    signatures: SignatureSet,
    workers: Workers,
    skipped: list[SkippedInput],
) -> tuple[FileDigest, ...]:
    scanned = scan_logs(plan_logs(logs), signatures, workers)
    skipped += [SkippedInput(file, why) for file, why in scanned.failed.items()]
    sampled = [d for d in scanned.digests.values() if d.sampled]
    for digest in sampled[:MAX_SAMPLED_NOTES]:
        kinds = sorted(signatures.signatures[i].id for i in digest.sampled)
        skipped.append(
            SkippedInput(
                digest.file,
                f"so many lines match {', '.join(kinds)} that the later ones were counted by samples",
            )
        )
    if len(sampled) > MAX_SAMPLED_NOTES:
        more = len(sampled) - MAX_SAMPLED_NOTES
        skipped.append(SkippedInput(f"{more} more logs", "lines counted by samples, as above"))
    return tuple(scanned.digests.values())


def _find_in_lines(logs: LogIncident, skipped: list[SkippedInput]) -> list[Finding]:
    out: list[Finding] = []
    few = choose_few(logs.digests)
    chosen = {d.file for d in few}
    for digest, finders in choose_finders(logs.digests):
        lines = NumberedLines(digest.kept)
        for name, find in finders.items():
            if name in ALIKE_ON_ALL_RANKS and digest.file not in chosen:
                continue
            note_place(name, digest.file)
            try:
                out += find(lines, digest.file)
            except ToolError as error:
                skipped.append(SkippedInput(digest.file, f"{name}: {error}"))
            except MemoryError:
                raise
            except Exception as error:  # tool runner border
                log.exception("line finder %s failed on %s", name, digest.file)
                skipped.append(SkippedInput(digest.file, f"{name} failed: {error!r}"))
    if len(few) < len(logs.digests):
        rest = len(logs.digests) - len(few)
        skipped.append(
            SkippedInput(f"{rest} logs", f"step lines judged on {len(few)} logs, spread over all")
        )
    return out


def _drop_repeats(_logs: LogIncident, findings: Sequence[Finding], trail: Trail) -> list[Finding]:
    return drop_repeats(findings)


def _relate_memory(_logs: LogIncident, findings: Sequence[Finding], trail: Trail) -> list[Finding]:
    return relate("memory", findings, trail)


def _weigh_trials(_logs: LogIncident, findings: Sequence[Finding], trail: Trail) -> list[Finding]:
    if not any("experiment" in f.facts for f in findings):
        return list(findings)
    # experiments are rare: what weighs them is not loaded for other incidents
    from firstfault_tools.experiments.weighing import weigh_experiments

    return weigh_experiments(findings, trail)


_Pass = Callable[[LogIncident, Sequence[Finding], Trail], Iterable[Finding]]
_BEFORE_COMPARISON: tuple[tuple[Rule, _Pass], ...] = (
    (Rule("node-of-another-job", Relation.CONTRADICTS, "nothing else in the incident names that node"), lambda logs, f, _: weigh_nodes(f, logs.digests)),
    (Rule("set-up-told-by-several-logs", Relation.SAME_AS, "ranks that one log misses began the set-up in another"), lambda _, f, __: join_communicators(f)),
    (Rule("line-that-a-reader-explained", Relation.REPEATS, "a reader of that format tells of the same lines"), _drop_repeats),
)  # fmt: skip
_AFTER_COMPARISON: tuple[tuple[Rule, _Pass], ...] = (
    (Rule("rank-of-a-place", Relation.REFINES, "pid, GPU, pod, host or the one process that failed say whose it is"), assign_ranks),
    (Rule("weighed-beside-the-others", Relation.ECHOES, "what else stands in the incident"), weigh_findings),
    (Rule("death-that-the-kernel-saw", Relation.EXPLAINS, "the kernel names the pid of the process that died"), join_dead_processes),
    (Rule("straggler-on-a-slow-gpu", Relation.EXPLAINS, "the GPU that was slowed down is that of the rank for which all wait"), lambda _, f, __: join_stragglers(f)),
    (Rule("read-error-of-a-disk", Relation.EXPLAINS, "the disk of that host failed, the rank met it"), lambda _, f, __: join_storage(f)),
    (Rule("write-refused-by-a-full-target", Relation.EXPLAINS, "the write met the one storage target that has no room"), lambda _, f, __: join_full_target(f)),
    (Rule("write-beside-a-full-file-system", Relation.EXPLAINS, "a listing shows which file systems are full"), join_full_mounts),
    (Rule("read-met-a-file-that-is-cut-off", Relation.EXPLAINS, "a listing shows its size beside its copies"), join_cut_files),
    (Rule("read-met-a-file-that-was-lost", Relation.EXPLAINS, "another program tells what became of it"), join_file_fates),
    (Rule("missing-beside-a-slow-save", Relation.EXPLAINS, "sizes and seconds of what the missing rank wrote"), join_slow_saves),
    (Rule("growth-before-out-of-memory", Relation.EXPLAINS, "a size that grew until memory ran out"), lambda _, f, __: join_growth(f)),
    (Rule("handle-refused", Relation.EXPLAINS, "the GPU's context was gone"), _relate_memory),
    (Rule("memory-beside-its-surroundings", Relation.REFINES, "phase, holders of the memory and peers stand around the error"), lambda logs, f, _: weigh_memory(logs, f)),
    (Rule("prefix-of-keys-named", Relation.REFINES, "the names of weights differ by a prefix only"), lambda logs, f, _: name_prefixes(logs, f)),
    (Rule("passing-test-beside-a-run", Relation.REFINES, "a test of the machines does not speak for the run"), lambda logs, f, _: weigh_passing_tests(logs, f)),
    (Rule("tested-by-experiment", Relation.REFINES, "trials with stated error rates speak for or against it"), _weigh_trials),
)  # fmt: skip
"""Passes over all findings, in order. Each is recorded: what it changes without a rule of its own, under this one."""


def _correlate(
    passes: Sequence[tuple[Rule, _Pass]], logs: LogIncident, findings: Sequence[Finding], trail: Trail
) -> list[Finding]:  # fmt: skip
    for rule, work in passes:
        findings = trail.run(rule, lambda f, work=work: work(logs, f, trail), findings)  # type: ignore[misc]
    return list(findings)


_TABLES = ("kubernetes.", "slurm.")
_READ = ("hardware.", "kernel.", "network.", "kubernetes.", "slurm.")
"""Kinds of readers that know the format of a line: host, device and count come from them."""


def drop_repeats(findings: Iterable[Finding]) -> list[Finding]:
    """Each finding once: a file that a reader read may be looked through as a log as well.

    A signature that quotes the line a reader explained in the same sense adds nothing to it.
    """
    seen: dict[tuple[str, tuple[tuple[str, int], ...]], Finding] = {}
    for finding in findings:
        places = tuple((e.file, e.line) for e in finding.evidence)
        seen.setdefault((finding.kind, places), finding)
    read: dict[tuple[str, int], list[Finding]] = defaultdict(list)
    for finding in seen.values():
        if finding.kind.startswith(_READ):
            for e in finding.evidence:
                read[e.file, e.line].append(finding)
    return [f for f in seen.values() if not _is_told(f, read)]


def _is_told(finding: Finding, read: Mapping[tuple[str, int], Sequence[Finding]]) -> bool:
    """Readers explained its lines, all those that name a rank among them."""
    if not finding.kind.startswith("signature."):
        return False
    told = [
        e
        for e in finding.evidence
        if any(_says(o, finding) for o in read.get((e.file, e.line), ()))
    ]
    return bool(told) and all(e in told or e.rank is None for e in finding.evidence)


def _says(reader: Finding, finding: Finding) -> bool:
    alike = reader.category is finding.category and reader.level is finding.level
    # a scheduler's table names the pod or node, and whose it is
    return alike or (reader.kind.startswith(_TABLES) and reader.level is Level.CONTEXT)


def _find_in_incident(
    logs: LogIncident, known: Sequence[Finding], skipped: list[SkippedInput]
) -> list[Finding]:
    out: list[Finding] = []
    for name, find in incident_finders().items():
        note_place(name, "all logs together")
        try:
            out += find(logs, (*known, *out))
        except MemoryError:
            raise
        except Exception as error:  # tool runner border
            log.exception("incident finder %s failed", name)
            skipped.append(SkippedInput("all logs", f"{name} failed: {error!r}"))
    return out


def sample_lines(examination: Examination) -> Iterator[tuple[str, int, str]]:
    """(file, number, text) of the first lines of few logs, for questions about what the run prints."""
    for digest in choose_few(examination.logs.digests):
        for number, text in islice(digest.kept, SAMPLED_LINES):
            yield digest.file, number, text[:SAMPLED_CHARS]


def choose_few(digests: Sequence[FileDigest]) -> Sequence[FileDigest]:
    """Logs on which what is alike on all ranks is looked for: first, last and evenly between."""
    if len(digests) <= MAX_STEP_LOGS:
        return digests
    last = len(digests) - 1
    places = {round(i * last / (MAX_STEP_LOGS - 1)) for i in range(MAX_STEP_LOGS)}
    return [digests[i] for i in sorted(places)]


_WIDE = expression(rb"\x00{64,}|(?:[\t\n\r\x20-\x7e]\x00){8,}|(?:\x00[\t\n\r\x20-\x7e]){8,}")
"""A run of NULs, and text of which another program wrote a stretch as UTF-16."""

_CONTROL = expression(rb"[\x00-\x07\x0e-\x1a\x1c-\x1f]")


def _is_binary(head: bytes) -> bool:
    """Control characters all over mean binary; one run of NULs is what a cut log leaves in a text.

    Packed or encrypted bytes hold one control character in ten, text next to none, whatever its encoding.
    """
    sample = head[:65536]
    if b"\0" not in sample:
        return False
    scattered = _WIDE.sub(b"", sample)
    return len(_CONTROL.findall(scattered)) > max(len(scattered), 1) // 20
