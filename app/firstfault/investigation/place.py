"""Where is the suspect? Rank, mesh coordinate, host and GPU, put together from all artefacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

from firstfault.investigation.examination import Examination
from firstfault_tools.causality.attribution import process_of, rank_of
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.collectives.parallel_mesh import Mesh, locate, mesh_of_text
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.bus import call_gpu, number_gpus
from firstfault_tools.hardware.host_sections import read_sign
from firstfault_tools.log.digest import Mark
from firstfault_tools.log.place import NOWHERE, Place
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.log.scan import make_line
from firstfault_tools.placement.table import Ranks

MAX_LINES = 6_000
SAMPLED_PREFIXES = 200
LOOKED_BACK = 120
"""Lines before the deciding one in which the command is looked for that printed it: `nvidia-smi -q` of one GPU."""

LONGEST_PROMPT = 400
_OF_MACHINES = (
    Category.HARDWARE,
    Category.ENVIRONMENT,
    Category.COMMUNICATION,
    Category.PERFORMANCE,
)
_ASKS_HOST = expression(
    r"(?:^|[|;&'\"\s])(?:sudo )?(?:/\S{1,60}/)?(?:dmesg|journalctl|nvidia-smi|rocm-smi|amd-smi|npu-smi|hccn_tool|lspci|ipmitool|ibstat|"
    r"ibstatus|show_gids|sensors|mcelog|ras-mc-ctl)\b"
)
"""Commands whose output tells of the machine that they run on."""

_NAMED = expression(r"(?i)\branks?[ :=#_\[]{0,2}(\d{1,6})\b")
_DEVICE = expression(r"\bdevice=['\"]?cuda:([1-9]\d?)\b")
_HOST_IN_LINE = expression(
    r"srun: error: ([\w.-]+): tasks?|[Nn]ode failure on ([\w.-]+)|(?:JOB|STEP) \S+ ON ([\w.-]+) (?:CANCELLED|FAILED)|"
    r"\d\d:\d\d:\d\d ([\w.-]+) kernel:|^[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d ([a-zA-Z][\w.-]{0,80}) [\w./@-]{1,60}(?:\[\d{1,8}\])?: |\[pod/([\w.-]+)/|, node ([\w.-]+), device"
)


@dataclass(frozen=True, slots=True)
class FaultPlace:
    """What is known of where a fault struck; `mesh` is words such as `TP 1, PP 0, DP 3`.

    ranks: what the placement table makes of a cited line that prints no rank: candidates and the reason.
    """

    process: Place
    gpu: str | None
    mesh: str | None
    ranks: Ranks

    @property
    def rank(self) -> int | None:
        """Rank of the job, where one is named."""
        return self.process.rank

    @property
    def host(self) -> str | None:
        """Host, where one is named."""
        return self.process.host


def find_place(examination: Examination, finding: Finding) -> FaultPlace:
    """Place of a finding, never at odds with the line it cites. Host and GPU of a rank come from the table."""
    finding = _numbered(examination, _told_beside(examination, finding))
    logs = examination.logs
    cited = cited_place(logs, finding)
    rank = choose_rank(finding, cited)
    known = logs.placement.place_of(rank) if rank is not None else NOWHERE
    if rank is None and cited.local_rank is not None and _is_one_process(finding):
        known = replace(cited, rank=None)
    own = finding.host if _is_own_host(logs, finding, rank) else None
    host = own or known.host or _host_in_text(finding) or _host_of_rank(examination, rank)
    host = host or _host_asked(logs, finding)
    gpu = call_gpu(finding.gpu) or None
    if gpu is None and known.pci is not None:
        gpu = f"PCI {known.pci}"
    if gpu is None and rank is not None:
        gpu = _gpu_in_text(finding)
    process = Place(rank=rank, local_rank=known.local_rank, node_rank=known.node_rank, host=host)
    writer = process_of(replace(cited, rank=None))
    told = logs.placement.ranks_of(writer) if writer != NOWHERE else Ranks()
    return FaultPlace(process, gpu, _mesh_words(examination, rank), told)


def _told_beside(examination: Examination, finding: Finding) -> Finding:
    """A fault of a machine, with the GPU and rank that its companions on that host agree on.

    The bridge above a GPU, the bus and the driver report one loss; only the driver names the GPU.
    """
    if (
        finding.category is not Category.HARDWARE
        or finding.gpu
        or finding.rank is not None
        or not finding.host
    ):
        return finding
    beside = [
        f
        for f in examination.chain.rivals
        if f.category is Category.HARDWARE
        and f.level is Level.CAUSE
        and f.gpu
        and f.host in (None, finding.host)
    ]
    slots = {f.gpu for f in beside}
    ranks = {f.rank for f in beside if f.rank is not None}
    if len(slots) != 1 or not any(f.host for f in beside):
        return finding
    return replace(finding, gpu=slots.pop(), rank=ranks.pop() if len(ranks) == 1 else None)


def _is_own_host(logs: LogIncident, finding: Finding, rank: int | None) -> bool:
    """The host is that of the rank, and not of another rank that printed what befell it."""
    printed = finding.wholes(Fact.RANKS)
    if rank is None or not printed or rank in printed:
        return True
    return all(logs.placement.host_of(r) != finding.host for r in printed)


def _is_one_process(finding: Finding) -> bool:
    """All lines it cites stand for one process of a host, so far as their prefixes tell."""
    places = [read_prefix(e.text)[0] for e in finding.evidence if e.line]
    return len({(p.host, p.local_rank) for p in places}) == 1


def cited_place(logs: LogIncident, finding: Finding) -> Place:
    """Who wrote the first line that a finding cites, with the rank that its other facts stand for."""
    if not finding.evidence or finding.evidence[0].line == 0:
        return NOWHERE
    first = finding.evidence[0]
    digest = next((d for d in logs.digests if d.file == first.file), None)
    if digest is None:
        return read_prefix(first.text)[0]
    line = make_line(digest.file, first.line, first.text, digest.year)
    return replace(line.place, rank=rank_of(logs, line))


def choose_rank(finding: Finding, cited: Place) -> int | None:
    """Rank of a finding. A line that a rank wrote about itself is that rank's, whatever else was concluded.

    A line reports on another rank where the finding compares ranks or took the rank out of its words.
    """
    if finding.rank is None or cited.rank in (None, finding.rank):
        return finding.rank
    quoted = finding.kind.startswith(("signature.", "traceback.", "exit."))
    named = finding.whole(Fact.RANK) == finding.rank
    named = named or any(
        int(m[1]) == finding.rank for m in _NAMED.finditer(finding.evidence[0].text[:2000])
    )
    return finding.rank if named or not quoted else cited.rank


def _host_in_text(finding: Finding) -> str | None:
    """Host that the quoted lines themselves name: Slurm, syslog and Kubernetes wordings."""
    for evidence in finding.evidence[:2]:
        match = _HOST_IN_LINE.search(evidence.text)
        if match is not None:
            return next(g for g in match.groups() if g is not None)
    return None


def _host_asked(logs: LogIncident, finding: Finding) -> str | None:
    """The host whose prompt, or whose name behind ssh, stands before the command that printed the deciding line."""
    first = next((e for e in finding.evidence if e.line), None)
    digest = next((d for d in logs.digests if first and d.file == first.file), None)
    if first is None or digest is None or finding.category not in _OF_MACHINES:
        return None
    at = digest.position(first.line)
    for _, text in reversed(digest.kept[max(0, at - LOOKED_BACK) : at]):
        sign = read_sign(text) if len(text) < LONGEST_PROMPT else None
        if sign is not None:
            return sign[0] if _ASKS_HOST.search(sign[1]) else None
    return None


def _gpu_in_text(finding: Finding) -> str | None:
    """GPU that the deciding line prints as PyTorch's device. cuda:0 is also what a process sees that has one GPU."""
    found = _DEVICE.search(finding.evidence[0].text[:2000]) if finding.evidence else None
    return f"GPU {found[1]}" if found is not None else None


def _host_of_rank(examination: Examination, rank: int | None) -> str | None:
    """Host that stands in front of lines the rank wrote."""
    if rank is None:
        return None
    found: set[str] = set()
    for digest in examination.logs.digests:
        for hit in digest.hits:
            if hit.line.place.rank == rank and hit.line.place.host:
                found.add(hit.line.place.host)
        if rank not in digest.ranks and digest.name_rank != rank:
            continue
        own = [
            text
            for _, text in islice(digest.kept, MAX_LINES)
            if f"rank{rank}]" in text or f"rank {rank}" in text.lower()
        ]
        # A prefix is the same on every line, but a restart can move the rank: look all along.
        for text in own[:: len(own) // SAMPLED_PREFIXES + 1]:
            speaker, _ = read_prefix(text)
            if speaker.rank == rank and speaker.host:
                found.add(speaker.host)
    return found.pop() if len(found) == 1 else None


def _numbered(examination: Examination, finding: Finding) -> Finding:
    """The finding with its GPU's index where one nvidia-smi listing in the incident gives it."""
    reading = examination.readings.get("nvidia_smi")
    listings = reading.data.get("gpus") if reading is not None else None
    if not isinstance(listings, Mapping) or len(listings) != 1:
        return finding
    rows = next(iter(listings.values()))
    indices = {
        str(row["pci_address"]): int(str(row["index"]))
        for row in (rows if isinstance(rows, Sequence) and not isinstance(rows, str) else ())
        if isinstance(row, Mapping) and row.get("pci_address") and str(row.get("index")).isdecimal()
    }
    return number_gpus([finding], indices)[0]


def _mesh_words(examination: Examination, rank: int | None) -> str | None:
    if rank is None:
        return None
    mesh = read_mesh(examination)
    if mesh is None or rank >= mesh.world:
        return None
    position = locate(rank, mesh)
    parts = [
        f"{name.upper()} {index}" for name, index in {**position.dense, **position.expert}.items()
    ]
    return ", ".join(parts) or None


def read_mesh(examination: Examination) -> Mesh | None:
    """Parallel mesh that the logs state (Megatron's argument dump or summary), or None."""
    heads = (text for d in examination.logs.digests[:4] for _, text in d.kept[:MAX_LINES])
    marked = (text for d in examination.logs.digests[:64] for _, text in d.marked_lines(Mark.WORLD))
    return mesh_of_text(islice(chain(marked, heads), 4 * MAX_LINES), examination.logs.world_size)
