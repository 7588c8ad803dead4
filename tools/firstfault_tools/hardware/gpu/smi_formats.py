"""How are the printed forms of nvidia-smi read: `-q`, `-q -x`, the table, and `--query-gpu` CSV?

The XML is read with the standard library's expat; a document that declares entities is refused, so
that no expansion can happen. Nothing external is ever fetched.
"""

from __future__ import annotations

import csv
import xml.parsers.expat
from collections.abc import Sequence

from firstfault_tools.errors import HostileArtefact, UnreadableArtefact
from firstfault_tools.expressions import expression
from firstfault_tools.hardware.bus import normalise_address
from firstfault_tools.hardware.excerpt import NumberedLine
from firstfault_tools.hardware.gpu.smi_values import (
    GpuState,
    Value,
    name_column,
    name_element,
    name_text,
)

MAX_GPUS = 1024
MAX_DEPTH = 32

_GPU_HEAD = expression(
    r"^GPU (?P<address>[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*"
    r"(?:[(#][^()\d]{0,20}(?P<index>\d{1,2})?[^()]{0,40}\)?)?\s*$"
)
"""Head of a GPU's block; people note its index behind it."""
_ENTRY = expression(r"^(?P<indent>\s*)(?P<key>[^:]{1,80}?)\s*:\s(?P<value>.*)$")
_HEADING = expression(r"^(?P<indent>\s+)(?P<key>[A-Za-z][\w ./()-]{1,60})\s*$")
_ROW_ONE = expression(
    r"^\|\s+(?P<index>\d{1,3})\s+(?P<name>\S.*?)\s+(?P<persistence>On|Off|N/A|ERR!)\s*\|\s+"
    r"(?P<address>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s+\S+\s*\|\s*(?P<ecc>\S+)\s*\|"
)
_ROW_TWO = expression(
    r"^\|\s*(?P<fan>\S+)\s+(?P<temperature>ERR!|N/A|\d+C)\s+(?P<state>\S+)\s+(?P<power>\S+)\s*/\s*"
    r"(?P<limit>\S+)\s*\|\s*(?P<used>\d+|N/A|ERR!)\S*\s*/\s*(?P<total>\d+|N/A|ERR!)\S*\s*\|\s*(?P<load>\S+)"
)


_ATTACHED = expression(r"^Attached GPUs\s*:\s*(\d{1,4})\s*$")
_ASKED = expression(r"--query-gpu=\"?'?([\w.,]+)")


def _enter(path: list[tuple[int, str]], indent: int, key: str) -> str:
    """Path of a key below the headings that it is indented under; `path` leads there from now on."""
    while path and path[-1][0] >= indent:
        path.pop()
    place = "/".join([*(part for _, part in path), key])
    if len(path) < MAX_DEPTH:
        path.append((indent, key))
    return place


def read_query(lines: Sequence[NumberedLine]) -> list[GpuState]:
    """GPUs of `nvidia-smi -q`, in printed order."""
    gpus: list[GpuState] = []
    path: list[tuple[int, str]] = []
    attached = 0
    noted: list[int | None] = []
    for number, line in lines:
        if not gpus and (count := _ATTACHED.match(line)):
            attached = int(count[1])
        if head := _GPU_HEAD.match(line):
            if len(gpus) >= MAX_GPUS:
                break
            gpus.append(GpuState(len(gpus), normalise_address(head["address"])))
            noted.append(int(head["index"]) if head["index"] is not None else None)
            path = []
            continue
        if not gpus:
            continue
        entry = _ENTRY.match(line)
        found = entry or _HEADING.match(line)
        if found is None:
            continue
        place = _enter(path, len(found["indent"]), found["key"].strip())
        if entry is not None and (name := name_text(place)):
            gpus[-1].add(name, Value(entry["value"].strip(), number, line))
    _count(gpus, attached, noted)
    return gpus


def _count(gpus: Sequence[GpuState], attached: int, noted: Sequence[int | None]) -> None:
    """Indices: as noted, else the place in print, which tells nothing of a choice of GPUs (-i)."""
    for gpu, index in zip(gpus, noted, strict=True):
        if index is not None or attached > len(gpus):
            gpu.index = index


def read_table(lines: Sequence[NumberedLine]) -> list[GpuState]:
    """GPUs of the plain `nvidia-smi` table."""
    gpus: list[GpuState] = []
    for number, line in lines:
        if first := _ROW_ONE.match(line):
            if len(gpus) >= MAX_GPUS:
                break
            gpu = GpuState(int(first["index"]), normalise_address(first["address"]))
            gpu.add("name", Value(first["name"], number, line))
            ecc = first["ecc"]
            # The column shows `Off` where ECC is switched off.
            key = "ecc_mode" if ecc == "Off" else "ecc_volatile_uncorrectable"
            gpu.add(key, Value("Disabled" if ecc == "Off" else ecc, number, line))
            if "ERR!" in line:
                gpu.add("unreadable", Value("ERR!", number, line))
            gpus.append(gpu)
        elif gpus and (second := _ROW_TWO.match(line)):
            gpu = gpus[-1]
            pairs = (
                ("temperature", "temperature"),
                ("power", "power"),
                ("power_limit", "limit"),
                ("memory_used", "used"),
                ("memory_total", "total"),
                ("utilisation", "load"),
            )
            for key, group in pairs:
                gpu.add(key, Value(second[group], number, line))
            if "ERR!" in line:
                gpu.add("unreadable", Value("ERR!", number, line))
    return gpus


def _read_row(
    columns: Sequence[str | None], cells: Sequence[str], number: int, line: str
) -> GpuState:
    gpu = GpuState()
    for name, cell in zip(columns, cells, strict=True):
        if name == "minor" and cell.strip().isdecimal() and len(cell) < 6:
            gpu.index = int(cell)
        elif name == "address":
            gpu.address = normalise_address(cell)
        if name:
            gpu.add(name, Value(cell.strip(), number, line))
        if "Unknown Error" in cell or "GPU is lost" in cell or "requires reset" in cell:
            gpu.add("unreadable", Value(cell.strip(), number, line))
    return gpu


def read_csv(lines: Sequence[NumberedLine]) -> list[GpuState]:
    """GPUs of `--query-gpu=... --format=csv`; the last row of each GPU counts (for `-l`)."""
    columns: list[str | None] = []
    by_key: dict[str, GpuState] = {}
    for number, line in lines:
        if asked := _ASKED.search(line):
            # `noheader` leaves the columns to the command
            columns = [name_column(cell.strip()) for cell in asked[1].split(",")]
            continue
        try:
            cells = next(csv.reader([line], skipinitialspace=True), [])
        except csv.Error:
            continue
        names = [name_column(cell.split(" [")[0].strip()) for cell in cells]
        if sum(name is not None for name in names) >= 2:
            columns = names
            continue
        if not columns or len(cells) != len(columns) or not _is_row(columns, cells):
            continue
        gpu = _read_row(columns, cells, number, line)
        if gpu.index is None and gpu.address is None:
            gpu.index = len(by_key)
        if len(by_key) < MAX_GPUS:
            by_key[str(gpu.address or gpu.index)] = gpu
    return list(by_key.values())


def _is_row(columns: Sequence[str | None], cells: Sequence[str]) -> bool:
    """An index is a number and an address is one; a log line with as many commas has neither."""
    for name, cell in zip(columns, cells, strict=True):
        if name == "minor" and not (cell.strip().isdecimal() and len(cell) < 6):
            return False
        if name == "address" and normalise_address(cell) is None:
            return False
    return True


def read_xml(text: str, file: str) -> list[GpuState]:
    """GPUs of `nvidia-smi -q -x`.

    Raises HostileArtefact for entity declarations, UnreadableArtefact for XML that does not parse.
    """
    lines = text.split("\n")
    gpus: list[GpuState] = []
    path: list[str] = []
    pieces: list[str] = []
    parser = xml.parsers.expat.ParserCreate()

    def start(name: str, attributes: dict[str, str]) -> None:
        path.append(name)
        pieces.clear()
        if len(path) > MAX_DEPTH:
            raise HostileArtefact(
                f"{file}: XML nested deeper than {MAX_DEPTH} elements was refused"
            )
        if len(path) == 2 and name == "gpu" and len(gpus) < MAX_GPUS:
            gpus.append(GpuState(len(gpus), normalise_address(attributes.get("id", ""))))

    def end(_name: str) -> None:
        if gpus and len(path) > 2 and path[1] == "gpu":
            key = name_element("/".join(path[2:]))
            if key:
                number = parser.CurrentLineNumber
                quote = lines[number - 1] if number <= len(lines) else ""
                gpus[-1].add(key, Value("".join(pieces).strip(), number, quote))
        path.pop()
        pieces.clear()

    def refuse(*_arguments: object) -> None:
        raise HostileArtefact(
            f"{file}: the XML declares entities, which nvidia-smi never does; it was refused"
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = pieces.append
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(text.lstrip("\ufeff \n\r\t"), True)
    except xml.parsers.expat.ExpatError as error:
        if not gpus:
            raise UnreadableArtefact(
                f"{file}: not readable as nvidia-smi XML ({error}); save it with nvidia-smi -q -x > FILE"
            ) from error
    return gpus
