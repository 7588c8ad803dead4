"""Is the rank, host, GPU or part that a question names the guilty one? Yes, no or not shown, with what it wrote itself."""

from __future__ import annotations

import re

from firstfault.conversation.evidence import Line
from firstfault.conversation.facts import Facts
from firstfault.conversation.named_events import TROUBLE, relate, say_relation
from firstfault.conversation.run_answers import clock
from firstfault.conversation.soundness import tell_no_bad_part
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Verdict

_RANK = expression(r"(?i)\branks? ?(\d{1,6})\b")
_HARDWARE = expression(
    r"(?i)\bxid\b|\becc\b|uncorrect|corrected error|fallen off|machine check|\bAER\b|\blink down\b|row remap|nvlink error"
)
_IS_HARDWARE = expression(
    r"(?i)\bgpus?\b|\bcards?\b|\bhardware\b|\bnode\b|\bhost\b|\bmachine\b|\bserver\b|\bnic\b"
)
_SUFFERS = expression(r"(?i)\bpeer\b|\bremote\b|closed by|timed? ?out|watchdog|connection")


def named_hosts(f: Facts) -> list[str]:
    """Hosts of the evidence, by prefix or by name in a line, that the question names."""
    text = f.text.lower()
    known = dict.fromkeys((*f.evidence.hosts, *((f.diagnosis.host,) if f.diagnosis.host else ())))
    found = [
        h for h in known if h and re.search(rf"(?<![\w-]){re.escape(h.lower())}(?![\w-])", text)
    ]
    if not found:
        words = [
            w for w in re.findall(r"\b[a-z][\w-]{0,40}\d[\w-]{0,20}", text) if not _RANK.search(w)
        ]
        lines = f.evidence.lines
        found = [
            w for w in words if _LIKE_HOST.match(w) and any(w in x.text.lower() for x in lines)
        ]
    return found


_LIKE_HOST = expression(
    r"(?i)^(?!step|iter|rank|gpu\d|mlx|ens|eth|ib\d|cuda|bf16|fp\d|h\d00|a\d00|fsdp|zero|xid|global|checkpoint|ckpt|nccl)"
    r"[a-z][a-z-]*-?\d{1,5}[\w-]*$"
)


def tell_guilty(f: Facts) -> str:
    """The verdict on what is named; '' where nothing is named that the evidence knows."""
    d = f.diagnosis
    if d.verdict in (Verdict.HEALTHY, Verdict.WARNING) and _IS_HARDWARE.search(f.text):
        return tell_no_bad_part(f)
    if d.verdict is not Verdict.FAULT:
        return ""
    hosts = named_hosts(f)
    ranks = [int(n) for n in _RANK.findall(f.text)]
    if hosts:
        return _of_host(f, hosts[0])
    if ranks and _IS_HARDWARE.search(f.text):
        return _of_ranks_hardware(f, ranks[0])
    if _IS_HARDWARE.search(f.text) and d.category is not Category.HARDWARE:
        return _no_hardware(f, "")
    return ""


def _first_place(f: Facts) -> str:
    at = f", at {clock(f.record.fault_time)} UTC" if f.record.fault_time is not None else ""
    return f"{f.place}{at}" if f.place else f"no single rank or host that the log singles out{at}"


def _lines_of(f: Facts, host: str) -> list[Line]:
    ranks = {r for r, h in f.rank_hosts.items() if h == host}
    own = [x for x in f.evidence.lines if x.place.rank in ranks or x.place.host == host or (x.place.host is None and f" {host}:" in f" {x.text}")]  # fmt: skip
    return [x for x in own if TROUBLE.search(x.text)]


def _of_host(f: Facts, host: str) -> str:
    d = f.diagnosis
    if d.host == host or (not d.host and host in d.root_cause):
        return f"Yes, by this evidence: {f.cause}, at {_first_place(f)} {f.main}."
    own = _lines_of(f, host)
    hard = [x for x in own if _HARDWARE.search(x.text)]
    said = ""
    if hard:
        said = f" Of its own hardware {host} wrote: {say_relation(f, relate(f, f.evidence, hard[0]))}; test it before you trust it."
    elif own:
        word = "a consequence" if _SUFFERS.search(own[0].text) else "what it wrote itself"
        said = f" The first trouble of {host} is {word}: {say_relation(f, relate(f, f.evidence, own[0]))}. No line tells of a fault in its own hardware."
    else:
        said = f" {host} itself wrote no line of trouble; others name it as the other end of a connection." if any(host in x.text for x in f.evidence.lines) else ""  # fmt: skip
    head = "No" if d.host or d.first_failing_rank is not None else "Not shown"
    return f"{head}, by this evidence it is not {host}: the first fault lies at {_first_place(f)}: {f.cause} {f.main}.{said}"


def _of_ranks_hardware(f: Facts, rank: int) -> str:
    d = f.diagnosis
    if d.first_failing_rank == rank and d.category is Category.HARDWARE:
        return f"Yes, by this evidence: {f.cause}, at {_first_place(f)} {f.main}."
    if d.category is Category.HARDWARE:
        return f"No: the first fault lies at {_first_place(f)}, not at rank {rank}: {f.cause} {f.main}."
    return _no_hardware(f, f" of rank {rank}")


def _no_hardware(f: Facts, whose: str) -> str:
    """That no line tells of hardware, with what the cause is instead."""
    hard = next((x for x in f.evidence.lines if _HARDWARE.search(x.text)), None)
    count = len(f.evidence.lines)
    if hard is not None:
        return f"Not shown: one line speaks of hardware, {say_relation(f, relate(f, f.evidence, hard))}, but the first fault is this: {f.cause}, at {_first_place(f)} {f.main}."
    return f"No: none of the {count:,} lines read tells of a hardware fault{whose} (no Xid, ECC, PCIe or link error). It is this: {f.cause}, at {_first_place(f)} {f.main}."


_RANK0_ONLY = expression(r"(?i)\brank ?0\b")


def tell_only(f: Facts) -> str:
    """Why only that rank: the value that it had and the others had not, near the fault; '' where no line tells one."""
    rank, first = f.diagnosis.first_failing_rank, f.first_line
    if rank is None or first is None:
        return ""
    near = [x for x in f.evidence.lines if x.file == first.file and first.number - NEAR <= x.number <= first.number]  # fmt: skip
    for line in reversed(near):
        found = _LIST.search(line.text)
        if found is None:
            continue
        values = [float(v) for v in found["values"].split(",")]
        if rank >= len(values) or len(values) < 2:
            continue
        others = [v for r, v in enumerate(values) if r != rank]
        if values[rank] > RATIO * max(others) or values[rank] * RATIO < min(others):
            name = (found["name"] or "the value of each rank").strip(" :=")
            word = "at most" if values[rank] > max(others) else "at least"
            edge = max(others) if values[rank] > max(others) else min(others)
            return (
                f"Because rank {rank} had {values[rank]:,.0f} in {name!r} just before, the others {word} {edge:,.0f}, {f.at(line)}. "
                f"{f.cause}, at {_first_place(f)} {f.main}."
            )
    return f"No line that was read tells what rank {rank} had that the others had not; only its own line carries the fault, {f.at(first)}: {f.cause} {f.main}."


NEAR, RATIO = 60, 1.5
_LIST = expression(
    r"(?P<name>[A-Za-z_][\w ()./-]{0,40}[:= ]{1,3})?\[(?P<values>\d+(?:\.\d+)?(?:, ?\d+(?:\.\d+)?){1,4096})\]"
)
