"""What does a memory finding mean beside what the process was doing? Phase, peers and the end of the run.

The allocator's message says how much did not fit. The stack above it tells whether the process was
saving, loading or stepping; the process list in it tells whether ranks of one job share a GPU; where a
kill came from is told by the work it interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from firstfault_tools.causality.attribution import rank_of
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Complaint, Evidence, Finding, Level
from firstfault_tools.log.place import Place
from firstfault_tools.log.scan import make_line
from firstfault_tools.memory.oom_message import OomMessage, find_messages

GROWTH, KERNEL = "metrics.host_memory_growth", "kernel.oom_kill"
STRAGGLER = "metrics.rank_straggler"
KILLED = "exit.sigkill"
CROWD = "hardware.gpu_contexts"
FRAMES = 24
GIB = 1 << 30
WRAPPED_LINES = 5
LONG_SEQUENCE = 32_768
"""Tokens from which on one sample's activations alone fill cards of 80 GiB at usual widths (Korthikanti et al. 2022)."""
_LENGTHS = ("seq_len", "sequence_length", "SEQ_LEN")
_SEQUENCE = expression(
    r"(?i)\b(?:seq_length|seq_len|sequence_length|max_seq_len(?:gth)?)['\"]?[ .:=]{1,60}(\d{4,8})\b"
)
_SPLIT = expression(r"(?i)\bcontext_parallel(?:_size|_degree)?['\"]?[ .:=]{1,60}(?:[2-9]|\d{2,})\b")

_PHASES = (
    (
        expression(
            r"^(?:gather_object|all_gather_object|broadcast_object_list|scatter_object_list)$"
        ),
        "while objects were exchanged between the ranks (as for the plan of a checkpoint): over NCCL they travel as GPU "
        "tensors, so even a sharded save needs GPU memory; give it a gloo group",
        "oom-at-checkpoint",
    ),
    (
        expression(r"^load_\w*|^_load\w*|from_pretrained|restore_location"),
        "while a checkpoint was loaded",
        "oom-at-checkpoint",
    ),
    (
        expression(
            r"state_dict|save_checkpoint|save_model|save_pretrained|save_ckpt|_save\b|\bsave_|_unshard_fsdp_state_params|"
            r"summon_full_params"
        ),
        "while weights were gathered for a checkpoint: they are put together unsharded on the GPU; save "
        "sharded, or gather with CPU offload and rank0_only",
        "oom-at-checkpoint",
    ),
    (
        expression(
            r"^sync_target_model$|^sync_ref\w*|^summon_full_params$|^gather_(?:all_)?param\w*|^unwrap_model_for_generation$"
        ),
        "while the full weights were gathered from all ranks (a sync of the reference model, or weights taken together for generation): "
        "they are unsharded on this GPU for that moment; gather layer by layer, or less often",
        "oom-at-checkpoint",
    ),
    (
        expression(r"\bgenerate\b|_sample\b|rollout"),
        "while text was generated: the key-value cache grows with batch and length",
        "oom-evaluation",
    ),
    (
        expression(r"evaluat|validat|prediction_step|^eval_|^test(?:_\w+)?$|^val(?:_\w+)?$|^infer"),
        "in evaluation: outputs are kept on the GPU, its batch is larger, or it runs without torch.no_grad() and keeps every graph",
        "oom-evaluation",
    ),
    (
        expression(r"^gather_map$"),
        "while nn.DataParallel gathered the outputs of all replicas on the first GPU, which therefore holds more than the others: use "
        "DistributedDataParallel, or compute the loss inside the replicas",
        "memory-reduction",
    ),
    (
        expression(r"(?:^|_)adam\w*$|optimizer_step|_init_group|_multi_tensor_"),
        "in the optimizer step: Adam's two states for each weight are created at the first step",
        "memory-estimation",
    ),
)
_TEMPORARY = expression(
    r"(?:preallocated temp allocation|[Tt]emp(?:orary)? (?:allocation|buffers?|size)): +(\S+)"
)
_OPERATOR = expression(r'Operator: op_name="(?P<op>[^"]{1,200})"')
_SHAPE = expression(r"Shape: (\w+\[[\d,]+\])")
_ENDED_PID = expression(r"launch\.py:\d+:\w+\] Killing subprocess (\d{2,8})")
_LOCAL_RANK = expression(r"--local_rank[='\", ]+(\d{1,3})")
LAUNCHER_LINES = 400
_RANK_WORDS = expression(r" of rank (\d+) (?:grew|fell)")


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What stands beside the findings about memory."""

    incident: LogIncident
    straggler: Finding | None
    crowd: Finding | None
    levels: Sequence[Finding]
    alone: bool
    """No cause names memory."""


def weigh_memory(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """The findings with those about memory and checkpoints weighed by what surrounds them."""
    around = _Surroundings(
        incident,
        straggler=next((f for f in findings if f.kind == STRAGGLER and f.rank is not None), None),
        crowd=next((f for f in findings if f.kind == CROWD), None),
        levels=[f for f in findings if f.explains(Complaint.MEMORY)],
        alone=not any(f.category is Category.OOM and f.level is Level.CAUSE for f in findings),
    )
    return [_weigh(around, finding) for finding in findings]


def _weigh(around: _Surroundings, finding: Finding) -> Finding:
    finding = _name_circumstances(around, _revive_after_end(around.incident, finding))
    if finding.kind.startswith("signature.") and finding.category is Category.OOM:
        finding = _name_users(around, finding)
    elif finding.has(FindingRole.CHECKPOINT_ABSENT):
        from firstfault_tools.causality.odd_ranks.resume_points import name_deleted

        finding = name_deleted(around.incident, finding)
    elif finding.has(FindingRole.GPU_BUSY):
        finding = _name_holder(around.incident, finding)
    if finding.category is Category.CHECKPOINT and finding.rank == 0:
        finding = _unname_loader(around.incident, finding)
    return finding


def _name_circumstances(around: _Surroundings, finding: Finding) -> Finding:
    """What the process was doing, who grew, who was killed."""
    incident = around.incident
    for role, name in _BY_ROLE:
        if finding.has(role):
            return name(incident, finding)
    if finding.kind == KERNEL:
        return _name_consumer(incident, _place_kill(incident, finding))
    if finding.kind == GROWTH or finding.has(FindingRole.HOST_MEMORY_KILL):
        return _name_growth(around, finding)
    if finding.kind == KILLED and finding.category is None and around.alone:
        from firstfault_tools.causality.memory.killed_work import explain_kill

        told = _name_consumer(incident, finding)
        return told if told is not finding else explain_kill(incident, finding)
    if finding.has(FindingRole.MEMORY_KILL):
        return _name_consumer(incident, finding)
    return finding


def _name_consumer(incident: LogIncident, finding: Finding) -> Finding:
    from firstfault_tools.causality.memory.consumers import name_consumer

    return name_consumer(incident, finding)


def _name_growth(around: _Surroundings, finding: Finding) -> Finding:
    straggler = around.straggler
    if finding.kind == GROWTH and straggler is not None and _same_rank(finding, straggler.rank):
        # one rank is slow and grows: both follow from what only this rank does
        return replace(finding, level=Level.CONTEXT)
    from firstfault_tools.causality.memory.users import name_growing_work, name_users

    name = name_growing_work if finding.kind == GROWTH else name_users
    return name(around.incident, finding)


def _name_users(around: _Surroundings, finding: Finding) -> Finding:
    """Who holds the memory that ran out: others on the card, an engine, buckets; else how it grew."""
    placed = _place_by_device(around.incident, finding)
    told = _name_crowd(around.incident, placed, around.crowd)
    if told is placed:
        told = _name_holder(around.incident, placed)
    if around.levels and told is placed:
        from firstfault_tools.memory.leak import join_levels

        told = join_levels(told, around.levels)
    return told


def _name_crowd(incident: LogIncident, finding: Finding, crowd: Finding | None) -> Finding:
    """Other ranks on the GPU that ran out; the module is read only where memory ran out."""
    message = _message(finding.evidence[0]) if finding.evidence else None
    if message is None:
        return finding
    from firstfault_tools.causality.memory.holders import name_crowd, name_peers

    if finding.has(FindingRole.OOM_SHARED):
        from firstfault_tools.causality.memory.strangers import name_stranger

        finding = name_stranger(incident, name_peers(finding, message), message)
    return name_crowd(incident, finding, message, crowd)


def _name_holder(incident: LogIncident, finding: Finding) -> Finding:
    """Who holds the memory that was missing; the module is read only where memory ran out."""
    from firstfault_tools.causality.memory.holders import name_holder

    return name_holder(
        incident, finding, _message(finding.evidence[0]) if finding.evidence else None
    )


def _unname_loader(incident: LogIncident, finding: Finding) -> Finding:
    """No rank for a fault of the file that rank 0 only printed for all, where no label names it."""
    place = finding.evidence[0] if finding.evidence else None
    if place is None or place.rank is not None or not finding.has(FindingRole.SHARED_FAULT):
        return finding
    if any(e.rank == 0 or e.local_rank == 0 for e in incident.exits):
        return finding
    return replace(finding, rank=None)


def _place_by_device(incident: LogIncident, finding: Finding) -> Finding:
    """An unlabelled message names the device: the rank of a job that has one host, elsewhere none is known."""
    message = _message(finding.evidence[0]) if finding.evidence else None
    if (
        message is None
        or not message.gpu
        or finding.rank not in (0, None)
        or finding.evidence[0].rank is not None
        or len({m.gpu for e in finding.evidence if (m := _message(e)) is not None}) > 1
    ):
        return finding
    if incident.ranks_seen - {0} or "rank" in finding.facts:
        return finding
    rank = incident.placement.ranks_of(Place(local_rank=message.gpu)).only
    title = finding.title.replace("on rank 0", f"on rank {rank}" if rank is not None else "")
    return replace(finding, rank=rank, title=title.replace("  ", " ").replace(" :", ":"))


def _name_first_device(incident: LogIncident, finding: Finding) -> Finding:
    """Ranks other than 0 that run out of memory of GPU 0 while loading restore to the device saved from."""
    messages = [(e.rank, m) for e in finding.evidence if (m := _message(e)) is not None]
    on_first = {rank for rank, m in messages if m.gpu == 0}
    if not on_first - {0, None} or any(m.gpu for _, m in messages):
        return finding
    return replace(
        finding,
        title=f"{finding.title}; every rank restores to GPU 0 (cuda:0), the device it was saved from, because torch.load was "
        "called without map_location: load to the CPU or to the rank's own device",
    )


def _revive_after_end(incident: LogIncident, finding: Finding) -> Finding:
    """What fails after the last step (the final save, the next command) is not got over by the end."""
    if finding.category not in (Category.OOM, Category.CHECKPOINT) or not finding.survived:
        return finding
    if finding.level not in (Level.CAUSE, Level.FAILURE) or not finding.evidence:
        return finding
    place = finding.evidence[0]
    reader = incident.progress.get(place.file)
    if reader is None or place.line == 0:
        return finding
    finish, last = reader.finished_at(), reader.last_training()
    if finish is None or place.line < (last.number if last is not None else 0):
        return finding
    if any(p.training and not p.full for p in reader.after(place.line)) or not _is_error(finding):
        return finding
    return replace(finding, facts={**finding.facts, "survived": False})


def _is_error(finding: Finding) -> bool:
    return finding.kind.startswith(("signature.", "traceback."))


def _message(evidence: Evidence) -> OomMessage | None:
    found = find_messages(evidence.text, 1)
    return found[0] if found else None


def _unwrap(incident: LogIncident, evidence: Evidence) -> OomMessage | None:
    """The message with the lines below it, where a terminal or a chat has wrapped it and they hold its sizes."""
    digest = next((d for d in incident.digests if d.file == evidence.file), None)
    if digest is None:
        return None
    below = (digest.text_of(evidence.line + k) for k in range(1, WRAPPED_LINES + 1))
    found = find_messages(" ".join([evidence.text, *(text or "" for text in below)]), 1)
    known = found and found[0].total is not None and found[0].free is not None
    return found[0] if known else None


def _sizes(message: OomMessage) -> str:
    """What the sizes of a message say, in the words of its signature."""
    free = message.free or 0
    left = f"{free / GIB:.2f} GiB" if free >= GIB else f"{free * 1024 / GIB:.2f} MiB"
    told = f" on GPU {message.gpu} ({left} free of {(message.total or 0) / GIB:.2f} GiB)"
    if message.allocated is None:
        return told
    return f"{told}, {message.allocated / GIB:.2f} GiB already held by tensors"


def _doubt_fragmentation(incident: LogIncident, finding: Finding) -> Finding:
    """Free and unused memory together would not have been enough: then it is not fragmentation."""
    message = _message(finding.evidence[0]) if finding.evidence else None
    if message is None or message.free is None or message.reserved_unallocated is None:
        return finding
    room = message.free + message.reserved_unallocated
    if message.tried <= room:
        return finding
    where = f" on rank {finding.rank}" if finding.rank is not None else ""
    words, page = _phase(incident, finding) or ("", "cuda-out-of-memory")
    return replace(
        finding,
        title=f"GPU out of memory{where}: {message.tried / GIB:.2f} GiB could not be allocated on GPU "
        f"{message.gpu} ({message.free / GIB:.2f} GiB free, and the {message.reserved_unallocated / GIB:.2f} "
        f"GiB that PyTorch keeps unused would not make up for it)"
        + (f" {words}" if words else "")
        + finding.parted[1],
        page=page,
    )


def _name_phase(incident: LogIncident, finding: Finding) -> Finding:
    """A cap set on the process, or what the process was doing, where the message alone says neither."""
    message = _message(finding.evidence[0]) if finding.evidence else None
    if message is None:
        return finding
    if message.total is None and (whole := _unwrap(incident, finding.evidence[0])) is not None:
        message = whole
        finding = replace(finding, title=f"{finding.title}{_sizes(whole)}")
    if message.limit is not None and message.free is not None and message.free > message.tried:
        return replace(
            finding,
            title=f"{finding.title}; the card is not full: a cap lets this process hold {message.limit / GIB:.2f} GiB only "
            "(set_per_process_memory_fraction)",
        )
    finding = _name_long_sequence(incident, finding)
    told = _phase(incident, finding)
    if told is None and message.total is not None and message.tried > message.total:
        size = f"one tensor of {message.tried / GIB:.0f} GiB is larger than the whole card of {message.total / GIB:.0f} GiB"
        return replace(
            finding,
            title=f"{finding.title}; {size}: look for a wrong shape, length or index before the memory",
        )
    if told is None or told[1] == "memory-estimation":
        return finding
    return replace(finding, title=f"{finding.title} {told[0]}", page=told[1])


def _name_long_sequence(incident: LogIncident, finding: Finding) -> Finding:
    """A sequence so long that its activations are what does not fit, where no context parallelism splits it."""
    lengths = [int(m[1]) for _, _, text in islice(incident.lines_with(_LENGTHS), 8) if (m := _SEQUENCE.search(text))]  # fmt: skip
    split = any(
        _SPLIT.search(text) for _, _, text in islice(incident.lines_with(("context_parallel",)), 8)
    )
    if not lengths or max(lengths) < LONG_SEQUENCE or split:
        return finding
    said = (
        f"; the sequence is {max(lengths)} tokens long, and activations grow with it: context parallelism "
        "(Megatron: --context-parallel-size 2 or more) splits it over ranks"
    )
    return replace(finding, title=f"{finding.title}{said}")


def _name_raw_phase(incident: LogIncident, finding: Finding) -> Finding:
    """CUDA's own error in the middle of loading: this rank's card is too small for what is put on it."""
    told = _phase(incident, finding) if finding.evidence else None
    if told is None or told[1] not in ("oom-at-checkpoint", "oom-evaluation"):
        return finding
    where = f" on rank {finding.rank}" if finding.rank is not None else ""
    rest = ": what was put on this card did not fit" if told[1] == "oom-at-checkpoint" else ""
    return replace(
        finding,
        title=f"GPU out of memory{where} {told[0]}{rest}{finding.parted[1]}",
        page=told[1],
    )


def _place_kill(incident: LogIncident, finding: Finding) -> Finding:
    """The rank that the kernel killed, and what the job was doing."""
    from firstfault_tools.causality.memory.killed_work import name_killed_work

    seated = _seat_killed(incident, finding)
    return name_killed_work(incident, seated)


def _seat_killed(incident: LogIncident, finding: Finding) -> Finding:
    """Local rank of a killed pid that a launcher of one node does not list: its pids follow each other."""
    pid = finding.pid
    if pid is None:
        return finding
    if (owner := _find_owner(incident, str(pid))) is not None:
        rank, place = owner
        title = f"{finding.title}; that was a DataLoader worker of rank {rank}"
        return replace(finding, rank=rank, title=title, evidence=(*finding.evidence[:3], place))
    if finding.rank is not None:
        return finding
    pids = {pid}
    last = 0
    for digest in incident.digests:
        for _, text in digest.kept[-LAUNCHER_LINES:]:
            if (ended := _ENDED_PID.search(text)) is not None:
                pids.add(int(ended[1]))
            elif "launch.py" in text and (local := _LOCAL_RANK.search(text)) is not None:
                last = max(last, int(local[1]))
    ordered = sorted(pids)
    if len(ordered) < 3 or ordered[-1] - ordered[0] + 1 != len(ordered) or last + 1 != len(ordered):
        return finding
    rank = ordered.index(pid)
    return replace(
        finding,
        rank=rank,
        title=f"{finding.title}; by the order of the launcher's pids it was rank {rank}",
    )


_WORKER = expression(r"(?i)dataloader \w+ \(pid[ =:(s]*(?P<pid>\d{2,8})\b")


def _find_owner(incident: LogIncident, pid: str) -> tuple[int, Evidence] | None:
    """The one rank that reports the death of this process as that of its DataLoader worker."""
    found = {
        rank: line.evidence()
        for d, n, t in incident.lines_with((pid,))
        if (told := _WORKER.search(t[:1000])) is not None and told["pid"] == pid
        if (rank := rank_of(incident, line := make_line(d.file, n, t, d.year))) is not None
    }
    return next(iter(found.items())) if len(found) == 1 else None


def _phase(incident: LogIncident, finding: Finding) -> tuple[str, str] | None:
    """What the stack above an out-of-memory message was doing, and the page about that."""
    place = finding.evidence[0]
    stack = next(
        (
            t
            for t in incident.tracebacks
            if t.line.file == place.file and t.line.number == place.line
        ),
        None,
    )
    if stack is None:
        return None
    for words, told, page in _PHASES:
        if any(words.search(f.name) for f in stack.frames[-FRAMES:]):
            return told, page
    return None


def _same_rank(growth: Finding, rank: int | None) -> bool:
    named = _RANK_WORDS.search(growth.title)
    return growth.rank == rank or (named is not None and int(named[1]) == rank)


def _read_assignment(incident: LogIncident, finding: Finding) -> Finding:
    """What XLA's list of buffers says: how much is temporary, and which buffer is the largest."""
    told: list[str] = []
    quotes: list[Evidence] = []
    for digest in incident.digests:
        for at, (number, text) in enumerate(digest.kept):
            temporary = _TEMPORARY.search(text)
            if temporary is not None and not told:
                told.append(f"{temporary[1]} of it are temporary buffers of the compiled step")
                quotes.append(Evidence(digest.file, number, text))
            operator = _OPERATOR.search(text)
            if operator is not None:
                near = [t for _, t in digest.kept[at + 1 : at + 5]]
                shape = next((m[1] for t in near if (m := _SHAPE.search(t)) is not None), "")
                name = "/".join(operator["op"].split("/")[-2:])
                told.append(
                    f"the largest is {shape} of {name}" if shape else f"the largest is of {name}"
                )
                quotes.append(Evidence(digest.file, number, text))
                break
        if told:
            break
    if not told:
        return finding
    return replace(
        finding,
        title=f"{finding.title}; {', '.join(told)}: the program does not fit at this batch and sequence length without "
        "recomputation (rematerialisation) or more sharding",
        evidence=(*finding.evidence[:2], *quotes[:2]),
        page="memory-reduction",
    )


_BY_ROLE: tuple[tuple[FindingRole, Callable[[LogIncident, Finding], Finding]], ...] = (
    (FindingRole.OOM_FRAGMENTED, _doubt_fragmentation),
    (FindingRole.OOM_RAW, _name_raw_phase),
    (FindingRole.OOM_PLAIN, _name_phase),
    (FindingRole.OOM_RESTORING, _name_first_device),
    (FindingRole.OOM_COMPILED, _read_assignment),
)
"""What is said more of each kind of message."""
