"""Where did it begin? Rank, host, GPU and time of the first fault, else the ranks and things that its lines name."""

from __future__ import annotations

import re

from firstfault.conversation.beside import say_last_sign
from firstfault.conversation.particulars import cited_ranks
from firstfault.conversation.rank_lines import find_failed_ranks
from firstfault.conversation.run_answers import at_line, at_time
from firstfault.conversation.telling import Telling
from firstfault_tools.findings import Category
from firstfault_tools.log.place import name_ranks
from firstfault_tools.log.window import read_window


def tell_host(t: Telling) -> str:
    """Where the first fault lies: rank, host, GPU, when, and what shows it."""
    d = t.diagnosis
    known = {"rank": d.first_failing_rank is not None, "host": bool(t.host), "GPU": bool(d.gpu)}
    if t.place:
        known["rank"] |= t.straggler is not None
        known["GPU"] |= d.category is Category.HARDWARE and "local" in t.place
        unknown = " or ".join(
            w for w, k in known.items() if not k and w.lower() in t.asked.text.lower()
        )
        rest = f" The evidence singles out no {unknown}." if unknown else ""
        ids = _identifiers(t)
        card = _local_card(t)
        return f"The first fault lies at {t.place}{at_time(t)} {t.main}.{say_straggler(t)}{say_last_sign(t)}{card}{rest} {t.cause}.{ids}"
    told = _say_failed_ranks(t) or _say_cited_ranks(t)
    if told:
        return told
    pods = _named_things(t)
    if pods:
        return f"{pods}: {t.cause} {t.main}."
    return "The evidence singles out no rank, host or GPU." + (f" What it does show: {t.cause} {t.main}." if t.main else "")  # fmt: skip


def say_straggler(t: Telling) -> str:
    """Why it is that rank: what it had enqueued and the others had."""
    late = t.straggler
    if late is None:
        return ""
    mark = at_line(t, late.line.file, late.line.line, late.line.text)
    return (
        f" Rank {late.rank} never entered the collective: its last enqueued work is {late.enqueued}, that of the other {late.count} is "
        f"{late.others} or more ({mark}), so they timed out waiting for it."
    )


_IDENTIFIER = re.compile(
    r"(?i)\bserial(?: number)?\W{1,4}(?:is )?(?P<serial>\d{8,16})|(?P<uuid>GPU-[0-9a-f]{8}-[0-9a-f-]{12,40})|(?P<slot>Slot\(\d+\))"
)


def _identifiers(t: Telling) -> str:
    """Serial number, UUID and slot of the GPU or node at fault, as lines of its host near the first fault print them."""
    d, first = t.diagnosis, t.diagnosis.first_line
    if d.category is not Category.HARDWARE or first is None:
        return ""
    near = [
        x
        for x in t.evidence.lines
        if x.file == first.file and abs(x.number - first.line) <= NEAR_LINES
    ]
    found = [f"{m[0].strip()} ({x.file}:{x.number} {t.sources.add(x.cited)})" for x in near if (m := _IDENTIFIER.search(x.text)) and (not t.host or t.host in x.text)]  # fmt: skip
    return " For a ticket: " + ", ".join(found[:4]) + "." if found else ""


_LOCAL = re.compile(r"\(local (\d{1,3})")


def _local_card(t: Telling) -> str:
    """The GPU that a local rank stands for, where a card is asked for and no line names it."""
    found = _LOCAL.search(t.place)
    if (
        t.diagnosis.gpu
        or found is None
        or not re.search(r"(?i)\bgpu|\bcard|\bdevice", t.asked.text)
    ):
        return ""
    return f" Its local rank is {found[1]}, so GPU {found[1]} of that host unless CUDA_VISIBLE_DEVICES orders them otherwise."


NEAR_LINES = 12
_THING = re.compile(r"(?im)^\s*(?:name|pod|container|node|nodename)\s*[:=]\s*([\w.-]{3,60})")


def _named_things(t: Telling) -> str:
    """The pod, container or node that the file of the first line names, where the question asks for one."""
    found = re.search(r"(?i)\b(pod|container|node|host|machine)s?\b", t.asked.text)
    first = t.diagnosis.first_line
    path = t.question.artefacts.get(first.file) if first is not None and first.file else None
    if found is None or path is None:
        return ""
    kind = {"host": "node", "machine": "node"}.get(found[1].lower(), found[1].lower())
    keys = {"pod": ("name", "pod"), "container": ("container",), "node": ("node", "nodename")}[kind]
    text = "\n".join(line for _, line in read_window(path, 1, 60))
    for name in _THING.finditer(text):
        if name[0].strip().lower().startswith(keys):
            return name[1]
    return ""


def _say_failed_ranks(t: Telling) -> str:
    """The ranks that the explanation or the exception itself names, with their hosts; '' where they name none."""
    if not re.search(r"(?i)\branks?\b|\bwh(?:o|ich)\b", t.asked.text):
        return ""
    ranks = find_failed_ranks([x.text for x in t.evidence.lines] + [t.diagnosis.explanation])
    if not ranks:
        return ""
    hosts: dict[str, list[int]] = {}
    for rank in ranks:
        hosts.setdefault(t.rank_hosts.get(rank, ""), []).append(rank)
    told = "; ".join(f"{name_ranks(r)}{f' on {h}' if h else ''}" for h, r in hosts.items())
    return f"It failed on {told}{at_time(t)}; the other ranks only stopped with them. {t.cause} {t.main}."


def _say_cited_ranks(t: Telling) -> str:
    """Which ranks wrote the cited lines, of those that the question names where it names some."""
    ranks = cited_ranks(t.diagnosis)
    named = [int(t.asked.named[n]) for n in ("one", "other") if n in t.asked.named]
    told = [r for r in named if r in ranks] or ranks
    if not told:
        return ""
    return f"The lines that carry the verdict were written by rank {', '.join(map(str, told[:8]))} {t.main}; that does not prove where it began. {t.cause}."
