"""Which words does a launch script hand to its trainer?

Variables, arrays, defaults (`${TP:-2}`), whole-number arithmetic and plain tests of a shell script are
followed; nothing is run, and what only the environment knows stays open.
"""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.expressions import expression

MAX_TEXT = 1 << 18
MAX_WORDS = 4000
"""An array that holds itself would grow without end."""

_ASSIGNED = expression(
    r"^(?:export\s+|local\s+|declare\s+(?:-\w+\s+)?)?([A-Za-z_]\w*)(\+?)=(.*)$", re.DOTALL
)
_NAMED = expression(
    r"\$\(\(((?:[^()$]|\((?:[^()$]|\([^()$]{0,80}\)){0,120}\)){1,200})\)\)|\$\{([A-Za-z_0-9]{1,80})(?:\[[@*]\])?(?::?[-=]([^{}]{0,300}))?\}|\$([A-Za-z_]\w{0,79}|\d)"
)
_OPTION = expression(r"^(?:--?[A-Za-z]|[+~]{0,2}[a-z_]+(?:\.[\w@/-]+)+=|[a-z_]+=)")
_TEST = expression(
    r"""^(?:el)?if\s+\[{1,2}\s+(?:(-[zn])\s+(\S+)|(\S+)\s+(==|=|!=|-eq|-ne)\s+(\S+))\s+\]{1,2}"""
)
OPEN = "\x00"
"""Stands for a value that the script does not hold."""

_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda a, b: a // b if b else 0,
    ast.Div: lambda a, b: a // b if b else 0,
    ast.Mod: lambda a, b: a % b if b else 0,
}


def list_words(text: str) -> list[str]:
    """Words of the command with the most options, variables filled in. Raises InvalidParameter."""
    script = _Script()
    for line in _join_lines(text[:MAX_TEXT]):
        script.read(line)
    rows = [_flatten(row) for row in (*script.commands, *script.known.values())]
    return max(rows, key=lambda row: sum(1 for word in row if _OPTION.match(word)), default=[])


def _flatten(row: Sequence[str]) -> list[str]:
    """Words of words: an unquoted array splits `"--fp8-format hybrid"` again, `bash -c` holds a command."""
    found: list[str] = []
    for word in row:
        found += word.split() if re.search(r"(?:^|\s)--?[a-z]\S*\s", word) else [word]
    return [word for word in found if word]


def read_flags(words: Sequence[str]) -> dict[str, str]:
    """Options by name, dashes as underscores; a switch without a value is `True`. Left out: open values."""
    found: dict[str, str] = {}
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not word.startswith("--"):
            continue
        name, _, value = word[2:].partition("=")
        if not value:
            values = []
            while index < len(words) and not words[index].startswith("--"):
                values.append(words[index])
                index += 1
            # The script's own name ends the launcher's options, as what is no option does after `-m`.
            stop = next(
                (n for n, v in enumerate(values) if v.endswith(".py") or v == "-m"), len(values)
            )
            value = " ".join(values[:stop]) if values[:stop] else "True"
        if (known := _close(value)) is not None:
            found[name.replace("-", "_")] = known
    return found


def list_open(words: Sequence[str]) -> list[str]:
    """Options whose value the script does not hold."""
    found = []
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if equals and _OPTION.match(word) and _close(value) is None:
            found.append(name)
        elif not equals and word.startswith("--") and _close(following) is None:
            found.append(word)
    return found


def _close(value: str) -> str | None:
    """The value as the script holds it: of a path the part that is known, None where nothing is."""
    if OPEN not in value:
        return value
    return value.replace(OPEN, "") if "/" in value else None


def nest(words: Sequence[str]) -> dict[str, Any]:
    """Hydra's overrides, `actor.optim.lr=1e-6`, as the mapping that their YAML would be."""
    tree: dict[str, Any] = {}
    for word in words:
        path, equals, written = word.lstrip("+~-").partition("=")
        value = _close(written)
        if not equals or value is None:
            continue
        place = tree
        *outer, last = path.split(".")
        for name in outer:
            inner = place.setdefault(name, {})
            place = inner if isinstance(inner, dict) else place
        place[last] = int(value) if re.fullmatch(r"-?\d{1,15}", value) else value
    return tree


def _join_lines(text: str) -> Iterator[str]:
    """Logical lines: continued ones, arrays in brackets and open quotes put together."""
    held = ""
    for line in text.replace("\\\r\n", " ").replace("\\\n", " ").splitlines():
        plain = line.strip()
        if not held and (not plain or plain.startswith("#")):
            continue
        held = f"{held}\n{line}" if held else plain
        if _is_whole(held):
            yield held
            held = ""
    if held:
        yield held


def _is_whole(line: str) -> bool:
    match = _ASSIGNED.match(line)
    body = re.sub(r"(?m)(?:^|\s)#.*$", "", line)
    if match and match[3].lstrip().startswith("("):
        return body.rstrip().endswith(")")
    return not (match and match[3][:1] in "'\"" and match[3] and body.count(match[3][0]) % 2)


class _Script:
    """Variables as rows of words, commands in order, and whether each open `if` holds."""

    __slots__ = ("commands", "known", "taken")

    def __init__(self) -> None:
        self.known: dict[str, list[str]] = {}
        self.commands: list[list[str]] = []
        self.taken: list[bool] = []

    def read(self, line: str) -> None:
        """Follow one logical line."""
        if self._branch(line) or not all(self.taken):
            return
        match = _ASSIGNED.match(line)
        if match is None or (" --" in match[3].split("\n")[0] and match[3][:1] not in "'\"($"):
            self.commands.append(self._split(line))
            return
        value = match[3].strip()
        row = self._split(value[1:-1] if value.startswith("(") else value)
        if match[2]:
            row = [*self.known.get(match[1], []), *row]
        elif not value.startswith("(") and len(row) == 1 and row[0].startswith("-"):
            row = row[0].split()
        self.known[match[1]] = row[:MAX_WORDS]

    def _branch(self, line: str) -> bool:
        word = line.split(None, 1)[0].rstrip(";")
        if word == "if":
            self.taken.append(self._holds(line))
        elif word in ("else", "elif") and self.taken:
            self.taken[-1] = not self.taken[-1] and (word == "else" or self._holds(line))
        elif word == "fi" and self.taken:
            self.taken.pop()
        return word in ("if", "else", "elif", "fi", "then")

    def _holds(self, line: str) -> bool:
        """A test of two words; any other is taken to hold."""
        match = _TEST.match(line)
        if match is None:
            return True
        empty, one, left, sign, right = (
            self.fill(part or "").strip("\"'") for part in match.groups()
        )
        if empty:
            return (one in ("", OPEN)) == (empty == "-z")
        return (left == right) == (sign in ("==", "=", "-eq"))

    def _split(self, line: str) -> list[str]:
        try:
            return shlex.split(self.fill(line), comments=True)[:MAX_WORDS]
        except ValueError as error:
            if "--" not in line:
                return []
            raise InvalidParameter(
                "arguments", f"cannot be split like a shell does: {error}"
            ) from None

    def fill(self, text: str) -> str:
        """Variables replaced by what they hold, inside out."""
        for _ in range(6):
            filled = _NAMED.sub(self._value, text)
            if filled == text or len(filled) > MAX_TEXT:
                break
            text = filled
        return text[:MAX_TEXT]

    def _value(self, match: re.Match[str]) -> str:
        if match[1]:
            return _calculate(match[1], self.known)
        name = match[2] or match[4]
        if name in self.known:
            return " ".join(self.known[name])
        return match[3].strip("\"'") if match[3] is not None else OPEN


def _calculate(formula: str, known: Mapping[str, Sequence[str]]) -> str:
    """Whole-number arithmetic over variables; open where a part of it is."""
    try:
        return str(_reckon(ast.parse(formula.strip(), mode="eval").body, known))
    except (SyntaxError, ValueError):
        return OPEN


def _reckon(node: ast.expr, known: Mapping[str, Sequence[str]]) -> int:
    match node:
        case ast.Constant(value=int() as value):
            return int(value)
        case ast.Name(id=name) if name in known and len(known[name]) == 1:
            return int(known[name][0])
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _ARITHMETIC:
            return _ARITHMETIC[type(sign)](_reckon(left, known), _reckon(right, known))
    raise ValueError("not whole-number arithmetic")
