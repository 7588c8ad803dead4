"""Which checks were handed in with the logs? What was looked at already is not asked for again.

The output of a command is known by the prompt in front of it or by the name of its file; a search of a log that was
read whole tells nothing new.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

MOST_READ = 400
MOST_KNOWN = 64
_PROMPT = expression(
    r"(?m)^\s{0,4}(?:\[?[\w.-]{1,60}@[\w.-]{1,60}[^$#\n]{0,60}[$#]|[\w.-]{1,40}[ :]?[$#]|\$|#)\s+(?P<command>[a-z][\w./-]*(?:[^\S\n][^\n]{0,300})?)$"
)
_SEGMENT = expression(r"\n|;|&&|\|\|")
_QUOTED = expression(r"'[^'\n]*'|\"[^\"\n]*\"")
_OPTION = expression(r"^-|^\d|[=$]")
_TAKES_ONE = expression(r"^-[a-zA-Z]$")
"""An option with a value behind it: `-n ml`."""

SHARE = 0.5
"""Share of the commands of a check from which on it is one that was made."""


@dataclass(frozen=True, slots=True)
class _Table:
    """with_object: tools that show another thing for each object. silent: what shows nothing by itself."""

    with_object: frozenset[str]
    silent: frozenset[str]
    log_readers: frozenset[str]
    files: tuple[tuple[re.Pattern[str], str], ...]


@cache
def _table() -> _Table:
    told = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return _Table(
        frozenset(told["with_object"]),
        frozenset(told["silent"]),
        frozenset(told["log_readers"]),
        tuple((expression(p), key) for p, key in told["files"].items()),
    )


def find_handed_in(lines: str, files: Sequence[str]) -> tuple[str, ...]:
    """Commands whose output lines of logs show after a prompt, or files hold by their names."""
    found = dict.fromkeys(
        key for pattern, key in _table().files for name in files if pattern.search(Path(name).stem)
    )
    for prompt in _PROMPT.finditer(lines):
        # what runs on another host stands in quotes: ssh a7 'ss -s'
        found |= dict.fromkeys(_keys(prompt["command"].replace("'", ";").replace('"', ";")))
    return tuple(found)[:MOST_KNOWN]


def was_handed_in(command: str, handed_in: Collection[str], files: Collection[str]) -> bool:
    """Most of what the command would show is among it, or it only searches a file that was read."""
    keys = list(_keys(command, files))
    seen = [key for key in keys if key in handed_in or key in files]
    return bool(keys) and len(seen) >= SHARE * len(keys)


def _keys(command: str, files: Collection[str] = ()) -> Iterator[str]:
    """`df`, `nvidia-smi topo`, `ip route`: what each of its parts shows; a search of a file is that file."""
    table = _table()
    for segment in _SEGMENT.split(_QUOTED.sub("Q", command[:MOST_READ])):
        words = segment.partition("|")[0].split()
        while words and words[0] in ("sudo", "$"):
            words = words[1:]
        if not words or words[0].startswith(("#", "-")):
            continue
        tool = words[0].rpartition("/")[2]
        if tool in table.log_readers:
            yield from (word for word in words[1:] if word in files)
            continue
        if tool in table.silent:
            continue
        yield _key(tool, words[1:]) if tool in table.with_object else tool


def _key(tool: str, words: Sequence[str]) -> str:
    """The tool with what it is asked for: a query's fields, a kind of display, its first object."""
    query = next((w for w in words if w.startswith("--query-")), "")
    if query:
        return f"{tool} {query}"
    shown = [
        word
        for at, word in enumerate(words)
        if not _OPTION.search(word) and (at == 0 or not _TAKES_ONE.search(words[at - 1]))
    ]
    kinds = [words[at + 1] for at, w in enumerate(words[:-1]) if w == "-d"]
    return " ".join([tool, *shown[:1], *kinds])
