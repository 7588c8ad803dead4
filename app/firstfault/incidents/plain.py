"""How do frozen objects go into the database and come back? Plain JSON by their own annotations."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from firstfault.investigation.diagnosis import Diagnosis
from firstfault_tools.log.secrets import redact_field

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """JSON-able form of dataclasses, enums, tuples and mappings; `for_` is written as `for`."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name.rstrip("_"): to_plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(v) for v in value]
    return value


def redact_plain(value: Any, name: str = "") -> Any:
    """Plain JSON without secrets, whatever was known of them when it was written."""
    if isinstance(value, str):
        return redact_field(name, value)
    if isinstance(value, Mapping):
        return {k: redact_plain(v, str(k)) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_plain(v, name) for v in value]
    return value


def from_plain(cls: type[T], data: Mapping[str, Any]) -> T:
    """Object of dataclass `cls`. Unknown keys are passed over; missing ones take their default."""
    hints = _hints(cls)  # type: ignore[arg-type]  # a class is hashable
    values = {
        f.name: _read(hints[f.name], data[f.name.rstrip("_")])
        for f in fields(cls)  # type: ignore[arg-type]
        if f.name.rstrip("_") in data
    }
    return cls(**values)


def read_diagnosis(data: Mapping[str, Any]) -> Diagnosis:
    """Diagnosis from its JSON object (schema firstfault.diagnosis/1)."""
    return from_plain(Diagnosis, data)


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def _read(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        options = [a for a in get_args(hint) if a is not type(None)]
        return _read(options[0], value)
    if origin is tuple:
        items = get_args(hint)
        if len(items) == 2 and items[1] is ...:
            return tuple(_read(items[0], v) for v in value)
        return tuple(_read(i, v) for i, v in zip(items, value, strict=True))
    if isinstance(hint, type):
        if is_dataclass(hint):
            return from_plain(hint, value)
        if issubclass(hint, StrEnum):
            return hint(value)
        if hint is float:
            return float(value)
    return value
