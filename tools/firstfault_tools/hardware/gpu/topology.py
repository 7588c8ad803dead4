"""How are the GPUs linked (`nvidia-smi topo -m`), is one cut off from NVLink, and do copies arrive?

Copies between GPUs that somebody compared (a script of their own, the simpleP2P sample) show whether the
link delivers what was sent: an IOMMU between the GPUs makes them arrive as zeros, without any error.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.hardware.excerpt import NumberedLine, keep_marked, keep_near, quote_line

BESIDE = ("kind:hardware.peer_copy_wrong",)

WRONG_COPY = "hardware.peer_copy_wrong"
MOST_COPIES = 512
MOST_LINES = 4_000
TINY = 1e-3
"""Difference of a copy from its original that rounding explains."""

_ANSI = expression(r"\x1b\[[0-9;]{0,8}m")
_LINK = expression(r"^(?:X|NV\d{1,2}|SYS|NODE|PHB|PXB|PIX)$")
_NAME = expression(r"^(?:GPU|NIC|mlx5_)\d{1,3}$")


@dataclass(frozen=True, slots=True)
class TopologyRow:
    """Links of one GPU to the devices of the header, by name."""

    name: str
    links: dict[str, str]
    line: NumberedLine


def read_topology(lines: Sequence[NumberedLine]) -> list[TopologyRow]:
    """Rows of the matrix that belong to GPUs."""
    columns: list[str] = []
    rows: list[TopologyRow] = []
    for number, line in lines:
        parts = _ANSI.sub("", line).split()
        if not parts:
            continue
        if len(parts) >= 2 and parts[0] == "GPU0" and not _LINK.match(parts[1]):
            columns = [part for part in parts if _NAME.match(part)]
            rows = []
        elif columns and parts[0].startswith("GPU") and _NAME.match(parts[0]):
            cells = parts[1 : 1 + len(columns)]
            if len(cells) == len(columns) and all(_LINK.match(cell) for cell in cells):
                links = dict(zip(columns, cells, strict=True))
                rows.append(TopologyRow(parts[0], links, (number, line)))
    return rows


def check_topology(rows: Sequence[TopologyRow], file: str) -> tuple[Finding, ...]:
    """A GPU without NVLink among linked ones, links of fewer lanes than the rest, and a summary."""
    if not rows:
        return ()
    names = [row.name for row in rows]
    kinds = sorted(
        {link for row in rows for peer, link in row.links.items() if peer in names} - {"X"}
    )
    summary = Finding(
        kind="hardware.topology",
        title=f"{len(rows)} GPUs, linked by {', '.join(kinds) or 'nothing (one GPU)'}",
        level=Level.CONTEXT,
        confidence=Confidence.CONFIRMED,
        evidence=(quote_line(file, *rows[0].line),),
        facts={"gpus": len(rows), "links": kinds},
    )
    return (*_find_odd_links(rows, file), summary)


def _find_odd_links(rows: Sequence[TopologyRow], file: str) -> Iterator[Finding]:
    """Boards with a partial mesh give every GPU a mix; only a GPU that differs from all others is odd."""
    lanes = _count_lanes(rows)
    linked = [own for own in lanes.values() if own]
    alone = len(lanes) - len(linked)
    best = max(map(max, linked), default=0)
    full = len(lanes) == len(rows) and all(len(own) == len(rows) - 1 for own in lanes.values())
    whole = all(len(own) >= len(rows) - 1 - alone for own in linked)
    for row in rows:
        own = lanes[row.name]
        if not own and whole and alone * 2 < len(rows):
            yield _describe(row, "has no NVLink while its peers do", Level.CAUSE, file)
        elif own and max(own) < best and full:
            words = f"is linked by NV{max(own)} while its peers have NV{best}"
            yield _describe(row, words, Level.FAILURE, file)


def _count_lanes(rows: Sequence[TopologyRow]) -> dict[str, list[int]]:
    """By GPU: how many NVLinks it has to each peer that it is linked with."""
    names = [row.name for row in rows]
    return {
        row.name: [
            int(link[2:])
            for peer, link in row.links.items()
            if peer in names and link.startswith("NV")
        ]
        for row in rows
    }


def _describe(row: TopologyRow, words: str, level: Level, file: str) -> Finding:
    index = int(row.name[3:])
    return Finding(
        kind="hardware.nvlink_missing",
        title=f"GPU {index} {words}",
        level=level,
        category=Category.HARDWARE,
        evidence=(quote_line(file, *row.line),),
        gpu=f"GPU {index}",
        facts={"gpu_index": index, "links": dict(row.links)},
    )


_PAIR = expression(
    r"(?i)\b(?:cuda:?|gpu:? ?|dev(?:ice)? ?)(?P<a>\d{1,2})\b\s*(?:->|=>|-->|to|and)\s*(?P<cpu>(?:cpu|host)\b\s*(?:->|=>|-->|to)\s*)?"
    r"(?:cuda:?|gpu:? ?|dev(?:ice)? ?)(?P<b>\d{1,2})\b(?P<rest>.*)"
)
_BAD_WORD = expression(
    r"(?i)\b(?:false|mismatch\w*|not equal|differ\w*|wrong|corrupt\w*|garbage|all zeros?|nan)\b|\bfail(?:ed)?\W*$"
)
_GOOD_WORD = expression(
    r"(?i)\b(?:true|ok|okay|match(?:es|ed)?|equal|pass(?:ed)?|identical|correct|same)\b"
)
_DIFFERENCE = expression(
    r"(?i)\b(?:diff(?:erence)?|err(?:or)?|delta)\w*\b[^\d\n-]{0,12}(?P<value>\d[\d.]*(?:e[+-]?\d+)?)"
)
_SAMPLE = expression(r"Verification error @ element \d+: val = (?P<value>\S+), ref = (?P<ref>\S+)")
_SPEED = expression(r"(?i)\b[GM]i?B/s|bandwidth|latency|\bms\b|\bus\b|gbps|via P2P|channel \d")
_OF_DEVICE = expression(
    r"^\s*(?:cuda:|gpu:? ?|device:? ?)(?P<gpu>\d{1,2})\b[ :=|,-]*(?P<label>[A-Za-z][\w ./()-]{0,40}?)[ :=]+(?P<values>[-+\w.]*\d[-+\w., ]*)$",
    re.IGNORECASE,
)
_RESULT = expression(
    r"(?i)sum|hash|crc|norm\b|result|mean|matmul|gemm|\bloss|output|digest|md5|logits|checks"
)
_NOT_RESULT = expression(
    r"(?i)mem|time|temp|util|power|clock|gib|gb|ms\b|batch|rank|throughput|tflops|samples"
)
RESULT_WORDS = ("cuda:1 ", "cuda:1:", "GPU 1:", "GPU1:", "gpu1 ", "gpu1:", "gpu 1", "device 1")
LEAST_DEVICES = 3
COPY_WORDS = (
    "-> cuda:",
    "=> cuda:",
    "to cuda:",
    "Verification error @",
    "-> GPU",
    "to GPU",
    "-> gpu",
    "> dev",
)


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Copies that somebody compared, and GPUs of two CPU sockets without NVLink."""
    return (*_find_copies(lines, file), *_find_sockets(lines, file))


def _find_sockets(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    rows = read_topology(keep_near(lines, ("CPU Affinity",), before=0, after=20)[:200])
    names = [row.name for row in rows]
    kinds = {link for row in rows for peer, link in row.links.items() if peer in names}
    if len(rows) < 4 or "SYS" not in kinds or any(kind.startswith("NV") for kind in kinds):
        return ()
    near = [row.name for row in rows if rows[0].links.get(row.name) != "SYS"]
    title = (
        f"the {len(rows)} GPUs have no NVLink and sit on two CPU sockets ({', '.join(near)} beside each other, SYS to the rest): what they exchange "
        "goes over PCIe and the link between the sockets, which bounds the gradient reduction of all of them"
    )
    quoted = (quote_line(file, *rows[0].line),)
    return (Finding.of_slowness("hardware.topology_split", title, quoted, weight=0.5),)  # fmt: skip


def _find_copies(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Copies between GPUs that were compared and arrive wrong."""
    bad: list[tuple[NumberedLine, str]] = []
    control: NumberedLine | None = None
    good = 0
    for number, text in keep_marked(lines, COPY_WORDS)[:MOST_COPIES]:
        if _SAMPLE.search(text) is not None:
            bad.append(((number, text), "the values read back are not those written"))
            continue
        pair = _PAIR.search(text[:400])
        if pair is None or pair["a"] == pair["b"] or _SPEED.search(pair["rest"]):
            continue
        state = _judge_copy(pair["rest"])
        if state is None:
            continue
        if pair["cpu"]:
            control = (number, text) if state else control
        elif state:
            good += 1
        else:
            bad.append(((number, text), f"cuda:{pair['a']} -> cuda:{pair['b']}"))
    if not bad:
        return tuple(_find_odd_device(lines, file))
    pairs = list(dict.fromkeys(words for _, words in bad))
    title = (
        "Direct GPU-to-GPU (peer-to-peer) copies arrive corrupted, without an error: "
        f"{', '.join(pairs[:4])}{f'; {good} other pairs are right' if good else ''}"
        f"{'; the same copy through the CPU is right' if control is not None else ''}"
    )
    places = [place for place, _ in bad[:3]] + ([control] if control is not None else [])
    wrong = Finding(
        kind=WRONG_COPY,
        title=f"{title}; possible: an IOMMU or PCIe ACS in the path of peer-to-peer traffic",
        level=Level.CAUSE,
        category=Category.ENVIRONMENT,
        confidence=Confidence.CONFIRMED,
        evidence=tuple(quote_line(file, *place) for place in places),
        opening=title,
        facts={"pairs": len(bad), "survived": False},
    )
    return (wrong,)


def find_in_incident(incident: object, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Wrong copies with what the kernel says of the IOMMU in their path."""
    wrong = next((f for f in findings if f.kind == WRONG_COPY), None)
    iommu = next((f for f in findings if f.kind.startswith("kernel.iommu") and f.evidence), None)
    if wrong is None or iommu is None:
        return ()
    said = iommu.evidence[0].text.partition("AMD-Vi: ")[2] or iommu.evidence[0].text
    return (
        replace(
            wrong,
            title=wrong.reworded(
                f"; the IOMMU stands in their path, the kernel log shows its faults: {said[:90]}"
            ),
            evidence=(*wrong.evidence[:4], *iommu.evidence[:2]),
            host=iommu.host,
        ),
    )


def _judge_copy(rest: str) -> bool | None:
    """Whether a copy arrived right, by what stands behind the pair; None where nothing is said."""
    if (difference := _DIFFERENCE.search(rest)) is not None:
        return float(difference["value"].rstrip(".") or 0) < TINY
    if _BAD_WORD.search(rest):
        return False
    return True if _GOOD_WORD.search(rest) else None


def _find_odd_device(lines: Sequence[NumberedLine], file: str) -> Iterator[Finding]:
    """One GPU that computes something else than all others from the same input."""
    groups: dict[tuple[str, int], dict[int, tuple[tuple[str, ...], NumberedLine]]] = {}
    for number, text in keep_marked(lines, RESULT_WORDS)[:1] and lines[:MOST_LINES]:
        found = _OF_DEVICE.match(text) if len(text) < 200 else None
        if found is None or not _RESULT.search(found["label"]) or _NOT_RESULT.search(text):
            continue
        values = tuple(found["values"].replace(",", " ").split())
        rows = groups.setdefault((found["label"].strip().lower(), len(values)), {})
        rows.setdefault(int(found["gpu"]), (values, (number, text)))
    for (label, _), rows in groups.items():
        if len(rows) < LEAST_DEVICES:
            continue
        usual, count = Counter(values for values, _ in rows.values()).most_common(1)[0]
        odd = [gpu for gpu, (values, _) in rows.items() if values != usual]
        if count != len(rows) - 1 or len(odd) != 1:
            continue
        gpu = odd[0]
        values, place = rows[gpu]
        repeats = len(set(values)) > 1 and len(set(usual)) == 1
        yield from (
            Finding(
                kind="hardware.odd_result",
                title=f"GPU {gpu} computes another result ({label} {', '.join(values[:3])}) than the other {count} GPUs "
                f"({', '.join(usual[:1] if len(set(usual)) == 1 else usual[:3])}) from the same input"
                f"{', and another one each time it repeats' if repeats else ''}: silent data corruption, that GPU is faulty",
                level=Level.CAUSE,
                category=Category.HARDWARE,
                evidence=tuple(
                    quote_line(file, *p)
                    for p in (place, *(r[1] for g, r in rows.items() if g != gpu))
                )[:4],
                gpu=f"GPU {gpu}",
                facts={"gpu_index": gpu, "survived": False},
            ),
        )
