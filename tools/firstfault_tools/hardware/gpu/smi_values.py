"""Which value of nvidia-smi is which? One name for what `-q`, `-q -x` and `--query-gpu` spell three ways."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.hardware.bus import name_gpu

TABLE = Path(__file__).with_name("smi_fields.json")

_NUMBER = expression(r"-?\d+(?:\.\d+)?")
_ABSENT = frozenset({"", "n/a", "[n/a]", "[not supported]", "not supported", "none", "unknown"})


@dataclass(frozen=True, slots=True)
class Value:
    """One printed value with its place."""

    text: str
    line: int
    quote: str

    @property
    def number(self) -> float | None:
        """First number in it, None for `N/A`."""
        if self.absent:
            return None
        found = _NUMBER.search(self.text)
        return float(found.group()) if found and len(found.group()) < 20 else None

    @property
    def absent(self) -> bool:
        """Whether the board does not report it."""
        return self.text.strip().lower() in _ABSENT


@dataclass(slots=True)
class GpuState:
    """What one nvidia-smi output says of one GPU. Values that sum up (ECC kinds) come as several."""

    index: int | None = None
    address: str | None = None
    values: dict[str, list[Value]] = field(default_factory=dict)

    def add(self, key: str, value: Value) -> None:
        """Keep a value under its one name."""
        self.values.setdefault(key, []).append(value)

    def first(self, key: str) -> Value | None:
        """First value under a name that the board reports."""
        return next((value for value in self.values.get(key, ()) if not value.absent), None)

    def number(self, key: str) -> float | None:
        """Number under a name, None where it is not reported."""
        value = self.first(key)
        return value.number if value else None

    def total(self, key: str) -> tuple[float, Value | None]:
        """Sum of all values under a name, and the first that is above zero."""
        amount, witness = 0.0, None
        for value in self.values.get(key, ()):
            number = value.number
            if number:
                amount += number
                witness = witness or value
        return amount, witness

    @property
    def label(self) -> str:
        """`GPU 1 (PCI 0000:00:07.0)`."""
        return name_gpu(self.address, self.index) or "a GPU"


@cache
def _load(column: str) -> Mapping[str, str]:
    rows = json.loads(TABLE.read_text(encoding="utf-8"))
    return {spelling: key for key, row in rows.items() for spelling in row[column]}


def name_text(path: str) -> str | None:
    """Our name for a path of headings in `nvidia-smi -q`, such as `Remapped Rows/Pending`."""
    return _load("text").get(path)


def name_element(path: str) -> str | None:
    """Our name for a path of elements in `nvidia-smi -q -x`."""
    return _load("xml").get(path)


def name_column(column: str) -> str | None:
    """Our name for a column of `nvidia-smi --query-gpu`."""
    return _load("csv").get(column)
