"""Which items does a preflight have, the project's and a team's own, and how is each answered?

The project's stand in metrics/checklists.yaml (`preflight` names the check that answers one). A team's
own stand in a YAML file of theirs: a file that must exist, room on a disk, a variable, a limit, a
version. These checks only look; nothing from such a file is executed.
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.metrics.checklist import CheckState

MOST_OWN_ITEMS = 1_000
GIB = 1 << 30
_LIMITS = {
    "nofile": resource.RLIMIT_NOFILE,
    "memlock": resource.RLIMIT_MEMLOCK,
    "stack": resource.RLIMIT_STACK,
    "core": resource.RLIMIT_CORE,
    "nproc": resource.RLIMIT_NPROC,
}


class OwnCheck(StrEnum):
    """What an item of a team's own file may ask."""

    EXISTS = "exists"
    WRITABLE = "writable"
    FREE_GIB = "free_gib"
    VARIABLE = "variable"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to one item: its state and why."""

    id: str
    text: str
    state: CheckState
    reason: str
    page: str | None = None


def load_own_items(text: str, name: str) -> tuple[Mapping[str, Any], ...]:
    """Items of a team's file. Raises UnreadableArtefact that names the entry and what it lacks."""
    import yaml

    try:
        tree = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise UnreadableArtefact(f"{name}: not valid YAML ({error})") from None
    entries = tree.get("items") if isinstance(tree, dict) else tree
    if not isinstance(entries, list) or len(entries) > MOST_OWN_ITEMS:
        raise UnreadableArtefact(f"{name}: a list `items` of up to {MOST_OWN_ITEMS} is needed")
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or not {"id", "text"} <= entry.keys():
            raise UnreadableArtefact(f"{name}: item {number} needs `id` and `text`")
        unknown = entry.keys() - {"id", "text", "page", "at_least", "value", *OwnCheck}
        if unknown:
            allowed = ", ".join(OwnCheck)
            raise UnreadableArtefact(
                f"{name}: item {entry['id']} has unknown fields {', '.join(sorted(map(str, unknown)))}; checks are {allowed}"
            )
    return tuple(entries)


def answer_own(entry: Mapping[str, Any]) -> Answer:
    """Look at what an own item asks; an item without a check is for a person."""
    for check, look in _LOOKS.items():
        if check in entry:
            state, reason = look(entry)
            return _answer(entry, state, reason)
    return _answer(entry, CheckState.MANUAL, "")


def _answer(entry: Mapping[str, Any], state: CheckState, reason: str) -> Answer:
    page = entry.get("page")
    return Answer(str(entry["id"]), str(entry["text"]), state, reason, str(page) if page else None)


State = tuple[CheckState, str]


def _exists(entry: Mapping[str, Any]) -> State:
    path = Path(str(entry[OwnCheck.EXISTS]))
    there = path.exists()
    return (CheckState.PASSED if there else CheckState.FAILED), f"{path} {'is there' if there else 'is missing'}"  # fmt: skip


def _writable(entry: Mapping[str, Any]) -> State:
    return check_writable(Path(str(entry[OwnCheck.WRITABLE])))


def check_writable(path: Path) -> State:
    """Whether a folder can be written by this user, without writing to it."""
    if not path.is_dir():
        return CheckState.FAILED, f"{path} is no folder"
    if os.access(path, os.W_OK | os.X_OK):
        return CheckState.PASSED, f"{path} can be written"
    return CheckState.FAILED, f"{path} cannot be written by this user"


def _free(entry: Mapping[str, Any]) -> State:
    return check_room(Path(str(entry[OwnCheck.FREE_GIB])), _number(entry, "at_least"))


def check_room(path: Path, least_gib: float) -> State:
    """Whether the file system of a folder has so much room."""
    try:
        free = shutil.disk_usage(path).free / GIB
    except OSError as error:
        return CheckState.UNKNOWN, f"{path}: {error.strerror or error}"
    state = CheckState.PASSED if free >= least_gib else CheckState.FAILED
    return state, f"{free:.0f} GiB free on {path}, {least_gib:.0f} GiB needed"


def _variable(entry: Mapping[str, Any]) -> State:
    name = str(entry[OwnCheck.VARIABLE])
    value, wanted = os.environ.get(name), entry.get("value")
    if value is None:
        return CheckState.FAILED, f"{name} is not set"
    if wanted is not None and value != str(wanted):
        return CheckState.FAILED, f"{name} has another value than {wanted}"
    return CheckState.PASSED, f"{name} is set"


def _limit(entry: Mapping[str, Any]) -> State:
    name = str(entry[OwnCheck.LIMIT])
    known = _LIMITS.get(name)
    if known is None:
        return CheckState.UNKNOWN, f"no limit {name}; known are {', '.join(_LIMITS)}"
    soft = resource.getrlimit(known)[0]
    least = _number(entry, "at_least")
    enough = soft == resource.RLIM_INFINITY or soft >= least
    told = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft}"
    return (CheckState.PASSED if enough else CheckState.FAILED), f"{name} is {told}, at least {least:.0f} is asked"  # fmt: skip


def _number(entry: Mapping[str, Any], field: str) -> float:
    try:
        return float(entry.get(field, 0))
    except (TypeError, ValueError):
        raise UnreadableArtefact(f"item {entry['id']}: `{field}` must be a number") from None


_LOOKS: Mapping[OwnCheck, Callable[[Mapping[str, Any]], State]] = {
    OwnCheck.EXISTS: _exists,
    OwnCheck.WRITABLE: _writable,
    OwnCheck.FREE_GIB: _free,
    OwnCheck.VARIABLE: _variable,
    OwnCheck.LIMIT: _limit,
}
