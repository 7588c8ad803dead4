"""Where is the suspect? Rank, mesh coordinate, host and GPU, put together from all artefacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from firstfault.investigation.examination import Examination
from firstfault_tools.collectives.parallel_mesh import Mesh, locate, mesh_of_text
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding
from firstfault_tools.hardware.bus import number_gpus
from firstfault_tools.log.digest import Mark
from firstfault_tools.log.speaker import read_speaker

MAX_LINES = 6_000
SAMPLED_PREFIXES = 200
_HOST_IN_LINE = expression(
    r"srun: error: ([\w.-]+): tasks?|[Nn]ode failure on ([\w.-]+)|(?:JOB|STEP) \S+ ON ([\w.-]+) (?:CANCELLED|FAILED)|"
    r"\d\d:\d\d:\d\d ([\w.-]+) kernel:|\[pod/([\w.-]+)/|, node ([\w.-]+), device"
)


@dataclass(frozen=True, slots=True)
class Place:
    """What is known of where a fault struck; `mesh` is words such as `TP 1, PP 0, DP 3`."""

    rank: int | None
    host: str | None
    gpu: str | None
    mesh: str | None


def find_place(examination: Examination, finding: Finding) -> Place:
    """Place of a finding. Hosts and GPUs of a rank come from the roster, mesh from the log."""
    finding = _numbered(examination, finding)
    rank = finding.rank
    roster = examination.logs.roster
    host = finding.host or (roster.host_of(rank) if rank is not None else None)
    host = host or _host_in_text(finding) or _host_of_rank(examination, rank)
    gpu = finding.gpu
    if gpu is not None and gpu.isdecimal():
        gpu = f"GPU {gpu}"
    if gpu is None and rank is not None and (bus := roster.bus_of(rank)) is not None:
        gpu = f"PCI {bus}"
    return Place(rank, host, gpu, _mesh_words(examination, rank))


def _host_in_text(finding: Finding) -> str | None:
    """Host that the quoted lines themselves name: Slurm, syslog and Kubernetes wordings."""
    for evidence in finding.evidence[:2]:
        match = _HOST_IN_LINE.search(evidence.text)
        if match is not None:
            return next(g for g in match.groups() if g is not None)
    return None


def _host_of_rank(examination: Examination, rank: int | None) -> str | None:
    """Host that stands in front of lines the rank wrote."""
    if rank is None:
        return None
    found: set[str] = set()
    for digest in examination.logs.digests:
        for hit in digest.hits:
            if hit.line.speaker.rank == rank and hit.line.speaker.host:
                found.add(hit.line.speaker.host)
        if rank not in digest.ranks and digest.name_rank != rank:
            continue
        own = [
            text
            for _, text in islice(digest.kept, MAX_LINES)
            if f"rank{rank}]" in text or f"rank {rank}" in text.lower()
        ]
        # A prefix is the same on every line, but a restart can move the rank: look all along.
        for text in own[:: len(own) // SAMPLED_PREFIXES + 1]:
            speaker, _ = read_speaker(text)
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
