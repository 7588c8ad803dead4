"""What does nvidia-smi say: `-q`, `-q -x`, the table, `dmon`, `topo -m`, `--query-gpu` CSV?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding, Json
from firstfault_tools.hardware.excerpt import TEXT_BYTES, NumberedLine, keep_marked, read_lines
from firstfault_tools.hardware.gpu.dmon import check_dmon, read_dmon
from firstfault_tools.hardware.gpu.fleet import compare_gpus
from firstfault_tools.hardware.gpu.health import check_gpus
from firstfault_tools.hardware.gpu.smi_errors import MARKERS as ERROR_MARKERS
from firstfault_tools.hardware.gpu.smi_errors import find_smi_errors
from firstfault_tools.hardware.gpu.smi_formats import read_csv, read_query, read_table, read_xml
from firstfault_tools.hardware.gpu.smi_values import GpuState
from firstfault_tools.hardware.gpu.topology import check_topology, read_topology
from firstfault_tools.hardware.host_name import attach_host, say_host
from firstfault_tools.hardware.host_sections import Section, attach_sections, split_sections
from firstfault_tools.registry import Artefact, Reader, Reading

_TABLE, _QUERY, _XML = "| NVIDIA-SMI ", "NVSMI LOG", "<nvidia_smi_log"
_CSV = (
    "--query-gpu=", "pci.bus_id", "utilization.gpu", "memory.used", "temperature.gpu", "ecc.errors.",
    "clocks.", "pcie.link.", "power.draw",
)  # fmt: skip
_DMON, _TOPOLOGY = ("# gpu ", "#gpu "), "GPU0\t"
_GPU = "GPU 0000"
GATE = (
    "Unable to determine the device handle", "GPU is lost", "Failed to initialize NVML: Driver/library version mismatch",
    "Failed to initialize NVML: Unknown Error", "couldn't communicate with the NVIDIA driver", "No devices were found",
    "| NVIDIA-SMI ", "NVSMI LOG", "GPU 0000", "<nvidia_smi_log", "--query-gpu=", "pci.bus_id", "utilization.gpu", "memory.used",
    "temperature.gpu", "ecc.errors.", "clocks.", "pcie.link.", "power.draw", "# gpu ", "#gpu ", "GPU0\t",
)  # fmt: skip
MARKERS = (*ERROR_MARKERS, _TABLE, _QUERY, _GPU, _XML, *_CSV, *_DMON, _TOPOLOGY)

_GPU_LINE = expression(r"^GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]\s*$")
_XML_DOCUMENT = expression(r"<nvidia_smi_log\b.*?</nvidia_smi_log>", re.DOTALL)
_ASKED = expression(r"nvidia-smi\b(?=.{0,80} -q\b).{0,80} (?:-i|--id)[ =](\d{1,2})(?![\d,])")
_HOST_ROW = expression(
    r"(?P<host>[A-Za-z][\w.-]{0,60}),\s{0,8}(?=(?:\d{1,2}|[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]|NVIDIA [^,]{1,60}|GPU-[\w-]{8,40}),)"
)
_HOSTS = ("host", "hostname", "node", "nodename", "server")
"""How a column of hosts is headed."""

_HOST_HEAD = expression(rf"^\s{{0,8}}(?i:{'|'.join(_HOSTS)}),\s{{0,8}}")
_QUERY_LINE = expression(
    r"^(?:\s*[A-Za-z][\w ./()-]{1,60}\s*:\s|\s+[A-Za-z][\w ./()-]{1,60}\s*$|GPU |\s*$|=)"
)


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Findings of nvidia-smi output pasted anywhere in a text; cheap where there is none."""
    marked = keep_marked(lines, MARKERS)
    if not marked:
        return ()
    findings, _ = _read(lines, marked, file)
    return findings


def _read(
    lines: Sequence[NumberedLine], marked: Sequence[NumberedLine], file: str
) -> tuple[tuple[Finding, ...], list[GpuState]]:
    text = "\n".join(line for _, line in marked)
    findings: list[Finding] = list(find_smi_errors(marked, file))
    inventory: list[GpuState] = []
    by_host: list[tuple[str | None, list[GpuState]]] = []
    for host, part in _cut_hosts(lines):
        for found in _read_states(part, text, file):
            for f in check_gpus(found, file):
                title = say_host(f, host) if host else f.title
                findings.append(replace(f, title=title, host=host))
            by_host.append((host, found))
            inventory = inventory or found
    findings.extend(compare_gpus(by_host, file))
    if any(marker in text for marker in _DMON):
        findings.extend(check_dmon(read_dmon(lines), file))
    if _TOPOLOGY in text:
        findings.extend(check_topology(read_topology(lines), file))
    return tuple(attach_sections(findings, lines)), inventory


def _cut_hosts(
    lines: Sequence[NumberedLine],
) -> list[tuple[str | None, Sequence[NumberedLine]]]:
    """Lines by host, so that GPU 0 of one node is not taken for that of the next."""
    if columns := _cut_column(lines):
        return columns
    sections = split_sections(lines)
    named = {s.host for s in sections if s.host}
    if len(named) < 2:
        return [(next(iter(named), None) if len(sections) == 1 else None, lines)]
    return [(s.host, [*_header(lines, s), *s.lines]) for s in sections]


def _cut_column(
    lines: Sequence[NumberedLine],
) -> list[tuple[str | None, Sequence[NumberedLine]]]:
    """Rows of CSV by the host in their first column, which a loop over nodes put there, or in the one that is headed so;
    none without one."""
    rows: dict[str | None, list[NumberedLine]] = {}
    head: list[NumberedLine] = []
    for place, (number, line) in enumerate(lines[:HEADING_LINES]):
        cells = [cell.strip().lower() for cell in line.split(",")]
        column = next((i for i, cell in enumerate(cells) if cell in _HOSTS), 0)
        if column and any(cell.startswith(_GPU_COLUMNS) for cell in cells):
            return _cut_headed(lines[place + 1 :], (number, line), column)
    for number, line in lines:
        if (row := _HOST_ROW.match(line)) is not None:
            rows.setdefault(row["host"], []).append((number, line[row.end() :]))
        elif not rows:
            head.append((number, _HOST_HEAD.sub("", line)))
    return [(host, [*head, *own]) for host, own in rows.items()]


def _cut_headed(
    lines: Sequence[NumberedLine], heading: NumberedLine, column: int
) -> list[tuple[str | None, Sequence[NumberedLine]]]:
    """Rows below a heading by the host in one of its columns; a host is no value of a GPU and is passed over there."""
    rows: dict[str | None, list[NumberedLine]] = {}
    width = heading[1].count(",")
    for number, line in lines:
        if line.count(",") == width:
            host = line.split(",")[column].strip()
            rows.setdefault(host or None, []).append((number, line))
    return [(host, [heading, *own]) for host, own in rows.items()]


def _header(lines: Sequence[NumberedLine], section: Section) -> list[NumberedLine]:
    """The last command that asked for CSV ahead of a section: pdsh and clush start it once for all hosts."""
    first = section.lines[0][0]
    if any("--query-gpu=" in line for _, line in section.lines):
        return []
    asked = [place for place in lines if "--query-gpu=" in place[1] and place[0] < first]
    return asked[-1:]


def _read_states(lines: Sequence[NumberedLine], text: str, file: str) -> list[list[GpuState]]:
    states: list[list[GpuState]] = []
    if _XML in text:
        whole = "\n".join(line for _, line in lines)
        start = whole.find(_XML)
        document = _XML_DOCUMENT.search(whole, start)
        shift = whole.count("\n", 0, start)
        if document:
            gpus = read_xml("\n" * shift + document[0], file)
            states.append(gpus)
    if _QUERY in text or _GPU in text:
        gpus = read_query(_cut_query(lines))
        asked = _find_asked(lines) if len(gpus) == 1 else None
        states.append([replace(gpus[0], index=asked)] if asked is not None else gpus)
    if _TABLE in text:
        states.append(read_table(lines))
    if any(marker in text for marker in _CSV):
        states.append(read_csv(lines))
    return [gpus for gpus in states if gpus]


def _find_asked(lines: Sequence[NumberedLine]) -> int | None:
    """Index of the one GPU that the command asked for: nvidia-smi -q -i 4."""
    asked = {m[1] for _, text in lines if "nvidia-smi" in text and (m := _ASKED.search(text))}
    return int(asked.pop()) if len(asked) == 1 else None


def _cut_query(lines: Sequence[NumberedLine]) -> list[NumberedLine]:
    """From `NVSMI LOG` on, as long as the lines look like it; a log may go on behind a paste."""
    kept: list[NumberedLine] = []
    inside, strange = False, 0
    for number, line in lines:
        if _QUERY in line or (not inside and _GPU_LINE.match(line)):
            inside, strange = True, 0
            if _QUERY not in line:
                kept.append((number, line))
        elif inside:
            if _QUERY_LINE.match(line):
                strange = 0
                kept.append((number, line))
            else:
                strange += 1
                inside = strange < 5
    return kept


def recognise_nvidia_smi(name: str, head: bytes) -> bool:
    """Saved nvidia-smi output, told by its headings near the top."""
    text = head[:4096].decode("utf-8", errors="replace")
    if _XML in text or "nvsmi_device" in text or _QUERY in text:
        return True
    if _TABLE in text and text.lstrip().find("NVIDIA-SMI") < 400:
        return True
    first = next((line for line in text.split("\n") if line.strip()), "")
    return (
        _heads_dmon(first)
        or _heads_topology(first)
        or _heads_csv(first)
        or first.strip().startswith(ERROR_MARKERS)
    )


def _heads_dmon(first: str) -> bool:
    return first.startswith(("# gpu", "#gpu")) and ("pwr" in first or " sm" in first)


def _heads_topology(first: str) -> bool:
    clean = re.sub(r"\x1b\[[0-9;]*m", "", first).lstrip()
    return clean.startswith("GPU0\t") or (clean.startswith("GPU0 ") and "Affinity" in clean)


HEADING_LINES = 5
"""Lines at the top among which a heading stands."""

_PLAIN_COLUMNS = ("name", "index", "uuid", "timestamp", *_HOSTS)
_GPU_COLUMNS = ("pci.", "memory.", "utilization.", "temperature.", "ecc.", "clocks")


def _heads_csv(first: str) -> bool:
    """A heading of --query-gpu: three columns at least, all of them of its names."""
    columns = [cell.split(" [")[0].strip() for cell in first.split(",")]
    named = all(cell in _PLAIN_COLUMNS or "." in cell for cell in columns)
    return len(columns) >= 3 and named and any(cell.startswith(_GPU_COLUMNS) for cell in columns)


def describe_gpus(gpus: Sequence[GpuState]) -> list[Json]:
    """Index, PCI address, name and identifiers of each GPU, to join other tools' findings with."""
    rows: list[Json] = []
    for gpu in gpus:
        row: dict[str, Json] = {"index": gpu.index, "pci_address": gpu.address}
        for key in ("name", "uuid", "serial"):
            value = gpu.first(key)
            if value:
                row[key] = value.text
        rows.append(row)
    return rows


def read_nvidia_smi(artefacts: tuple[Artefact, ...]) -> Reading:
    """Findings of every saved output; `data["gpus"]` lists the GPUs of each file."""
    findings: list[Finding] = []
    gpus: dict[str, Json] = {}
    for artefact in artefacts:
        if _XML.encode() in artefact.head():
            states = read_xml(artefact.data(TEXT_BYTES).decode("utf-8", "replace"), artefact.name)
            health = tuple(check_gpus(states, artefact.name))
            findings.extend(attach_host(health, artefact.name))
            gpus[artefact.name] = describe_gpus(states)
            continue
        lines = read_lines(artefact)
        found, states = _read(lines, keep_marked(lines, MARKERS), artefact.name)
        findings.extend(attach_host(found, artefact.name))
        gpus[artefact.name] = describe_gpus(states)
    return Reading(tuple(findings), {"gpus": gpus})


SIGNS = (
    "nvidia_smi_log", "nvsmi_device", "NVSMI LOG", "NVIDIA-SMI", "# gpu", "#gpu", "GPU0", "pci.", "memory.used", "memory.total",
    "memory.free", "memory.reserved", "utilization.", "temperature.", "ecc.", "clocks", "Unable to determine the device handle",
    "GPU is lost", "Failed to initialize NVML", "communicate with the NVIDIA driver", "No devices were found",
)  # fmt: skip

READER = Reader(
    name="nvidia_smi",
    summary="nvidia-smi -q, -q -x, table, dmon, topo -m, --query-gpu: health, throttling, links, waits",
    recognise=recognise_nvidia_smi,
    read=read_nvidia_smi,
    # saved output often goes on with a log or another command
    owns=False,
)
