"""How are the GPUs linked (`nvidia-smi topo -m`), and is one of them cut off from NVLink?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.hardware.excerpt import NumberedLine, quote_line

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
    names = [row.name for row in rows]
    found: list[Finding] = []
    linked: dict[str, list[int]] = {}
    for row in rows:
        lanes = [
            int(link[2:])
            for peer, link in row.links.items()
            if peer in names and link.startswith("NV")
        ]
        linked[row.name] = lanes
    best = max((max(lanes) for lanes in linked.values() if lanes), default=0)
    # Boards with a partial mesh give every GPU a mix; only a GPU that differs from all others is odd.
    full = [name for name, lanes in linked.items() if len(lanes) == len(rows) - 1]
    alone = [name for name, lanes in linked.items() if not lanes]
    whole = all(len(lanes) >= len(rows) - 1 - len(alone) for name, lanes in linked.items() if lanes)
    for row in rows:
        lanes = linked[row.name]
        if not lanes and whole and best and len(alone) * 2 < len(rows):
            found.append(_describe(row, "has no NVLink while its peers do", Level.CAUSE, file))
        elif lanes and max(lanes) < best and len(full) == len(rows):
            words = f"is linked by NV{max(lanes)} while its peers have NV{best}"
            found.append(_describe(row, words, Level.FAILURE, file))
    if rows:
        kinds = sorted(
            {link for row in rows for peer, link in row.links.items() if peer in names} - {"X"}
        )
        found.append(
            Finding(
                kind="hardware.topology",
                title=f"{len(rows)} GPUs, linked by {', '.join(kinds) or 'nothing (one GPU)'}",
                level=Level.CONTEXT,
                confidence=Confidence.CONFIRMED,
                evidence=(quote_line(file, *rows[0].line),),
                facts={"gpus": len(rows), "links": kinds},
            )
        )
    return tuple(found)


def _describe(row: TopologyRow, words: str, level: Level, file: str) -> Finding:
    index = int(row.name[3:])
    return Finding(
        kind="hardware.nvlink_missing",
        title=f"GPU {index} {words}",
        level=level,
        category=Category.HARDWARE,
        confidence=Confidence.LIKELY,
        evidence=(quote_line(file, *row.line),),
        gpu=f"GPU {index}",
        facts={"gpu_index": index, "links": dict(row.links)},
    )
