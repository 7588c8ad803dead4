"""Who holds the GPU memory that was missing: a hidden process, a neighbour, a second copy of the weights?

The allocator's message closes its books only half: what no process in its sight claims belongs to a
leftover or to another container. A library that could not
create its handle says nothing of memory at all; a listing of the cards beside it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.memory.engines import (
    begin_title,
    name_engine,
    name_library,
)
from firstfault_tools.causality.memory.strangers import name_stranger
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Evidence, Finding
from firstfault_tools.hardware.excerpt import quote_line
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.memory.oom_books import Books, Bucket, close_books
from firstfault_tools.memory.oom_message import OomMessage
from firstfault_tools.memory.sizes import GIB

POOLS, NEIGHBOUR = 0.1, 0.15
"""Share of the card that private pools, or a neighbour, must hold to be named."""
FAR_MORE = 4
"""Times of what PyTorch keeps unused from which what others hold is the reason."""
FULL = 0.95
"""Share of a card in use from which a library finds no room for its handle."""

_CSV = expression(
    r"^\s*(?P<index>\d{1,2})\s*,(?:[^,\n]{1,60},){0,4}?\s*(?P<used>\d{1,6}) ?(?:MiB)?\s*,\s*(?P<total>\d{4,6}) ?MiB"
)
_EXCLUSIVE = expression(
    r"^\s*(?P<index>\d{1,2})\s*,(?:[^,\n]{1,60},){0,3}?\s*Exclusive_Process\s*,(?:[^,\n]{1,60},){0,3}?\s*(?P<used>\d{1,6}) ?MiB"
)
HELD_MIB = 200
_HEAD = expression(r"^\|\s+(?P<index>\d{1,2})\s+\S.{5,60}\|")
_BOX = expression(r"\|\s*(?P<used>\d{1,6})MiB\s*/\s*(?P<total>\d{1,6})MiB\s*\|")
_AUTO = expression(r"device_map['\"]?\s*[=:]\s*['\"](?:auto|balanced|sequential)['\"]")
_EMA = expression(r"(?i)(?<![a-z])ema(?![a-z])|shadow|averaged_?model|swa_model|ref_?model|teacher")
_CLONE = expression(r"clone\(|deepcopy|copy\(|\.float\(\)|EMA\(|AveragedModel\(")
COPY_FRAMES = 4
CROWDED, OUTSIDE = 0.4, 2 * GIB
"""Share of the card beyond PyTorch from which others must hold it; what context and libraries take at most."""
_FUSER = expression(
    r"^\s*/dev/nvidia\d{1,2}:\s+(?:\S+\s+)?(?P<pid>\d{2,8})\b(?:\s+\S+)?(?P<command>\s+\S.{0,60})?$"
)
OLD_REST, HIDDEN = 2, 0.3
"""GiB and share of the card beyond PyTorch's that a context and libraries do not explain."""
_NO_PROCESS = "No running processes found"

ALIKE, GUEST = 1.1, 0.6
"""Spread of the guests of a GPU, and share of its own process's memory below which they are guests."""
HEAD_LINES = 1600
_RESTORING = expression(
    r"(?i)\b(?:load(?:ed|ing)?|resum\w+|restor\w+)\b.{0,40}\b(?:checkpoint|ckpt|state|weights|optimizer)|torch\.load\(|--resume|\.(?:pth|pt|ckpt|tar)\b"
)


@dataclass(frozen=True, slots=True)
class Card:
    """Memory in use of one GPU as a listing shows it, in MiB."""

    index: int
    used: int
    total: int
    place: Evidence


def name_holder(incident: LogIncident, finding: Finding, message: OomMessage | None) -> Finding:
    """The finding with the holder of the missing memory, where the numbers tell one."""
    if finding.has(FindingRole.NO_HANDLE):
        return _name_full_card(incident, finding)
    if finding.has(FindingRole.GPU_BUSY):
        return _name_exclusive(incident, finding)
    if message is None or not finding.has(FindingRole.OOM_TRAINING):
        return finding
    if not message.others and (engine := name_engine(incident, finding, message)) is not None:
        return engine
    if not finding.has(FindingRole.OOM_UNPLACED):
        return finding
    told = _name_spread(incident, finding) or _name_copy(incident, finding)
    return told or _name_by_books(incident, finding, _name_own(finding, message))


def _name_by_books(incident: LogIncident, finding: Finding, message: OomMessage) -> Finding:
    """The holder as the numbers of the message show it."""
    books = close_books(message)
    listed, others = message.process is not None, message.others
    elsewhere = books.bucket is Bucket.OTHER_PROCESSES or _outweighs(books)
    if not listed and not others and _is_crowded(books):
        return _name_hidden(incident, finding, message, books)
    if elsewhere and listed and others:
        return _name_neighbour(incident, finding, message)
    if (message.private_pools or 0) >= max(message.tried, POOLS * (message.total or 0)):
        return _name_pools(finding, message)
    if elsewhere and not others:
        return _name_hidden(incident, finding, message, books)
    if not listed and (seen := _name_seen(incident, finding, message, books)):
        return seen
    if books.bucket is Bucket.NON_PYTORCH and listed:
        return name_library(incident, finding, message, books)
    return finding


def read_cards(incident: LogIncident) -> list[Card]:
    """Cards of pasted listings: rows of a query, or the two-line rows of nvidia-smi's table."""
    return list(_read_cards(incident))


def _read_cards(incident: LogIncident) -> Iterator[Card]:
    head: int | None = None
    for digest, number, text in incident.lines_with(("MiB", "| N/A", "Off |", "On  |", " On |")):
        if len(text) > 200:
            continue
        place = quote_line(digest.file, number, text)
        if (row := _CSV.match(text)) is not None:
            yield Card(int(row["index"]), int(row["used"]), int(row["total"]), place)
        elif (box := _BOX.search(text)) is not None:
            if head is not None:
                yield Card(head, int(box["used"]), int(box["total"]), place)
            head = None
        elif (start := _HEAD.match(text)) is not None:
            head = int(start["index"])


def _name_full_card(incident: LogIncident, finding: Finding) -> Finding:
    """A handle that could not be created on a card that a listing shows to be full."""
    cards = [c for c in read_cards(incident) if c.total and c.used <= c.total]
    full = [c for c in cards if c.used >= FULL * c.total]
    own = [c for c in full if finding.rank is None or c.index == finding.rank % max(1, len(cards))]
    if len({c.index for c in own}) != 1 or len(full) * 2 > len({c.index for c in cards}) + 1:
        return finding
    card = own[-1]
    others = sorted(c.used for c in cards if c.index != card.index)
    beside = f", the other GPUs {others[len(others) // 2]} MiB" if others else ""
    return replace(
        finding,
        title=f"GPU {card.index} was full: {card.used} of {card.total} MiB in use{beside}; {finding.title}",
        evidence=(*finding.evidence[:2], card.place),
    )


def _name_hidden(
    incident: LogIncident, finding: Finding, message: OomMessage, books: Books
) -> Finding:
    """Memory that neither this process nor any other in its sight holds."""
    hidden = books.others or books.non_pytorch or 0
    own = message.process or message.reserved or message.allocated or 0
    holders, listed = _read_device(incident)
    who = (
        f"fuser shows PID {holders[0][0]['pid']} on the device: a leftover of an earlier run that nvidia-smi may not list; end it"
        if holders
        else "nvidia-smi lists no process for it: a leftover of an earlier run, or a process of another container or user "
        "(look with fuser -v /dev/nvidia*)"
        if listed is not None
        else "a leftover of an earlier run, or a process of another container or user"
    )
    return replace(
        finding,
        title=f"{begin_title(finding, message)} although this "
        f"process uses only {own / GIB:.2f} GiB: {hidden / GIB:.2f} of {(message.total or 0) / GIB:.2f} GiB are held by another "
        f"process that it does not see; {who}" + finding.parted[1],
        evidence=(
            *finding.evidence[:3],
            *((listed,) if listed is not None else ()),
            *(e for _, e in holders[:1]),
        ),
        page="gpu-memory-held-by-another-process",
    )


def _outweighs(books: Books) -> bool:
    """What lies unused in pieces would have been enough, yet others hold far more of the card than that."""
    held, unused = books.others or 0, books.fragmentation or 0
    large = held >= NEIGHBOUR * (books.capacity or 0) and held >= FAR_MORE * unused
    return books.bucket is Bucket.FRAGMENTATION and large


def _is_crowded(books: Books) -> bool:
    """The older wording names no process: a rest this large is more than contexts and NCCL take."""
    rest, capacity = books.non_pytorch or 0, books.capacity or 0
    short = books.missing or 0
    return bool(capacity) and rest >= CROWDED * capacity and rest - OUTSIDE >= short


def _read_device(
    incident: LogIncident,
) -> tuple[list[tuple[re.Match[str], Evidence]], Evidence | None]:
    """Processes that fuser shows on the device, and the line with which nvidia-smi denies any."""
    held = [
        (m, quote_line(d.file, n, t))
        for d, n, t in incident.lines_with(("/dev/nvidia",))
        if (m := _FUSER.match(t)) is not None
    ]
    denied = (quote_line(d.file, n, t) for d, n, t in incident.lines_with((_NO_PROCESS,)))
    return held, next(denied, None)


def _name_seen(
    incident: LogIncident, finding: Finding, message: OomMessage, books: Books
) -> Finding | None:
    """The old wording knows no processes: what PyTorch did not take is another's where a listing shows one."""
    rest = books.non_pytorch or 0
    if rest < OLD_REST * GIB or rest < HIDDEN * (message.total or 0):
        return None
    held, empty = _read_device(incident)
    if not held and empty is None:
        return None
    pids = ", ".join(dict.fromkeys(m["pid"] for m, _ in held[:4]))
    who = (
        f"process {pids}" + (f" ({command.strip()})" if (command := held[0][0]["command"]) else "")
        if held
        else "a leftover of an earlier run"
    )
    unlisted = ", which nvidia-smi does not list" if empty is not None else ""
    return replace(
        finding,
        title=f"{begin_title(finding, message)} although PyTorch "
        f"reserved only {(message.reserved or 0) / GIB:.2f} of {(message.total or 0) / GIB:.2f} GiB: {rest / GIB:.1f} GiB are held by "
        f"{who}{unlisted}, left over from an earlier run; end it and start again"
        + finding.parted[1],
        evidence=(
            *finding.evidence[:2],
            *(e for _, e in held[:2]),
            *((empty,) if empty is not None else ()),
        ),
        page="gpu-memory-held-by-another-process",
    )


def _name_own(finding: Finding, message: OomMessage) -> OomMessage:
    """The message with its own process told apart where its wording only lists processes.

    By the pid that the launcher put in front of the line, else by what PyTorch holds: one process alone is as large.
    """
    if message.process is not None:
        return message
    pid = read_prefix(finding.evidence[0].text)[0].pid
    held = (message.allocated or 0) + (message.reserved_unallocated or 0)
    large = [o for o in message.others if o.pid == pid or o.bytes >= held > 0]
    own = next((o for o in large if o.pid == pid), large[0] if len(large) == 1 else None)
    if own is None:
        return message
    others = tuple(o for o in message.others if o is not own)
    return replace(message, process=own.bytes, others=others)


def _name_exclusive(incident: LogIncident, finding: Finding) -> Finding:
    """A card in exclusive mode that a process holds already."""
    if not any("busy or unavailable" in e.text for e in finding.evidence[:3]):
        return finding
    rows = [
        (int(m["index"]), int(m["used"]), quote_line(d.file, n, t))
        for d, n, t in incident.lines_with(("Exclusive_Process", "E. Process"))
        if (m := _EXCLUSIVE.match(t)) is not None
    ]
    if not rows:
        return finding
    held = [r for r in rows if r[1] >= HELD_MIB]
    if len(held) != 1:
        return finding
    index, used, place = held[0]
    return replace(
        finding,
        title=f"GPU {index} is in compute mode Exclusive_Process and another process already holds it ({used} MiB in use, a leftover or "
        f"another job): the second process{f' (rank {finding.rank})' if finding.rank is not None else ''} is refused; end that process, or "
        "set the compute mode to Default",
        evidence=(*finding.evidence[:3], place),
    )


def _name_neighbour(incident: LogIncident, finding: Finding, message: OomMessage) -> Finding:
    """A process of the job's own beside this one: an inference engine on the trainer's card."""
    other = max(message.others, key=lambda o: o.bytes)
    engine = next(
        (
            quote_line(d.file, n, t)
            for d, n, t in incident.lines_with(("gpu_memory_utilization", "mem_fraction_static"))
        ),
        None,
    )
    if other.bytes < NEIGHBOUR * (message.total or 0):
        return finding
    reason = (
        "the inference engine of the same job keeps its share of the card while the trainer needs it: let it sleep (free its "
        "weights and cache) before the update, or lower gpu_memory_utilization"
        if engine is not None
        else "a process of another job, or a leftover"
    )
    told = replace(
        finding,
        title=f"{begin_title(finding, message)}: another process "
        f"({other.pid}) holds {other.bytes / GIB:.2f} of its {(message.total or 0) / GIB:.2f} GiB, this one "
        f"{(message.process or 0) / GIB:.2f} GiB ({reason})" + finding.parted[1],
        evidence=(*finding.evidence[:3], *((engine,) if engine is not None else ())),
        page="inference-engine-memory"
        if engine is not None
        else "gpu-memory-held-by-another-process",
    )
    return name_stranger(incident, told, message)


def _name_pools(finding: Finding, message: OomMessage) -> Finding:
    """Memory pools of CUDA graphs, which eager work cannot use."""
    pools = (message.private_pools or 0) / GIB
    head, tail = finding.parted
    return replace(
        finding,
        title=f"{head}; {pools:.2f} GiB of that lie in private pools of CUDA graphs, which only the captured graphs can use "
        "(torch.compile mode reduce-overhead or max-autotune, or graphs captured for many shapes): compile without CUDA graphs "
        f"(max-autotune-no-cudagraphs) or for fewer shapes{tail}",
    )


def _name_copy(incident: LogIncident, finding: Finding) -> Finding | None:
    """A copy of all weights (EMA, a shadow, a reference) that was just being made."""
    place = finding.evidence[0]
    stack = next(
        (
            t
            for t in incident.tracebacks
            if (t.line.file, t.line.number) == (place.file, place.line)
        ),
        None,
    )
    if stack is None:
        return None
    digest = incident.digest_of(place.file)
    for frame in stack.frames[-COPY_FRAMES:]:
        code = digest.text_of(frame.number + 1) or ""
        if _EMA.search(f"{frame.path.rpartition('/')[2]} {frame.name} {code}") and (
            _CLONE.search(code) or _EMA.search(frame.path.rpartition("/")[2])
        ):
            head, tail = finding.parted
            return replace(
                finding,
                title=f"{head} while a second copy of all weights (EMA, shadow weights) was made on the GPU: it costs as much as the "
                f"model, in fp32 twice a 16-bit model; keep the copy on the CPU, shard it, or leave room for it{tail}",
                page="memory-reduction",
            )
    return None


def _name_spread(incident: LogIncident, finding: Finding) -> Finding | None:
    """device_map="auto" under several processes: each spreads its own copy over all cards."""
    ranks = incident.ranks_seen
    if max(ranks, default=0) < 1 and (incident.world_size or 1) < 2:
        return None
    setting = next(
        (
            quote_line(d.file, n, t)
            for d, n, t in incident.lines_with(("device_map",))
            if _AUTO.search(t[:1000])
        ),
        None,
    )
    if setting is None:
        return None
    head, tail = finding.parted
    return replace(
        finding,
        title=f"{head}: device_map='auto' makes every process spread its own copy of the model over all GPUs, so several ranks fill "
        f"each card; give each process its own GPU (device_map={{'': local_rank}}) or run one process{tail}",
        evidence=tuple(dict.fromkeys((*finding.evidence[:3], setting))),
    )


def name_crowd(
    incident: LogIncident, finding: Finding, message: OomMessage, crowd: Finding | None
) -> Finding:
    """Processes of other ranks that hold memory of the GPU that ran out: what each put there first."""
    if crowd is not None and str(message.gpu) != crowd.gpu:
        return finding
    guests = crowd.title if crowd is not None else _describe_guests(message)
    siblings = incident.has_peers or finding.evidence[0].rank is not None or len(message.others) > 2
    if not guests or (crowd is None and not siblings):
        return finding
    if finding.rank is None and len(incident.hosts_seen) < 2 and (incident.world_size or 1) <= 8:
        finding = replace(finding, rank=message.gpu)  # who owns the crowded GPU is its victim
    loading = _find_loading(incident)
    reason = (
        f"every rank loads the checkpoint onto GPU {message.gpu} (cuda:{message.gpu}), the device it was saved from, because it is "
        "loaded without map_location: load with map_location='cpu' or the rank's own device"
        if loading is not None
        else "they touched CUDA before torch.cuda.set_device (or called torch.load without map_location), so each opened a "
        "context on the first GPU"
    )
    return replace(
        finding,
        title=f"{finding.parted[0]}; {guests}: {reason}",
        evidence=(
            *finding.evidence[:2],
            *(crowd.evidence[:3] if crowd is not None else ()),
            *((loading,) if loading else ()),
        ),
        page="oom-at-checkpoint" if loading is not None else "gpu-memory-held-by-another-process",
    )


def _find_loading(incident: LogIncident) -> Evidence | None:
    """The line at the head of a log by which a checkpoint is loaded."""
    for digest in incident.digests:
        for number, text in digest.kept[:HEAD_LINES]:
            if _RESTORING.search(text[:400]) and 'File "' not in text:
                return quote_line(digest.file, number, text)
    return None


def _describe_guests(message: OomMessage) -> str:
    """Two or more other processes of one size in the message, each well below the process that failed."""
    sizes = sorted(o.bytes for o in message.others)
    if len(sizes) < 2 or message.process is None or message.gpu != 0:
        return ""
    if sizes[-1] > ALIKE * sizes[0] or sizes[-1] >= GUEST * message.process:
        return ""
    return (
        f"{len(sizes)} processes of other ranks hold {sizes[0] / GIB:.1f} GiB each on GPU {message.gpu} too, "
        f"{sum(sizes) / GIB:.1f} GiB together"
    )


def name_peers(finding: Finding, message: OomMessage) -> Finding:
    """Several processes of like size on one GPU are ranks of the job that all took the same device."""
    if message.process is None:
        return finding
    alike = [o for o in message.others if 0.6 <= o.bytes / max(1, message.process) <= 1.6]
    if len(alike) < 2 or len(alike) * 2 <= len(message.others):
        return finding
    return replace(
        finding,
        title=f"{len(alike) + 1} processes of like size ({message.process / GIB:.1f} GiB each) sit on GPU "
        f"{message.gpu}: the local ranks all use the same device, because each must set its own from "
        "LOCAL_RANK before it touches CUDA (out of memory)" + finding.parted[1],
        rank=None,
        page="gpu-memory-held-by-another-process",
    )
