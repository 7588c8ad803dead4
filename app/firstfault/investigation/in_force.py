"""Is a setting that a fix asks for already in force? What the run prints of its settings, or the person says.

Nobody is helped by a setting that is on: such a fix comes after all others.
"""

from __future__ import annotations

import re

from firstfault_tools.expressions import expression

_SETTING = expression(
    r"(?:^|(?<=[\s,{(]))(?:--|\+{1,2})?\"?(?P<name>[A-Za-z_][\w.-]*)\"?(?:=|: ?| )\"?(?P<value>[\w.]+)\"?(?=$|[\s,})])"
)
"""`--name value`, `name=value`, `name: value`, `"name": value`."""


def is_in_force(command: str, told: str) -> bool:
    """Every setting of a block of settings is told with that very value; False for other commands, and for one with
    comments of its own, which say for whom its lines are."""
    if "\n# " in f"\n{command}":
        return False
    lines = [x.split("  #")[0].strip() for x in command.split("\n") if x.strip()]
    if not lines or not all(_is_settings(line) for line in lines):
        return False
    wanted = [(m["name"], m["value"]) for line in lines for m in _SETTING.finditer(line)]
    return bool(wanted) and all(_is_told(name, value, told) for name, value in wanted)


def _is_settings(line: str) -> bool:
    """Nothing stands on the line but settings."""
    typed = line.startswith(("-", "+", '"')) or "=" in line or ": " in line
    return (
        typed and _SETTING.search(line) is not None and not _SETTING.sub(" ", line).strip(' ,{}()"')
    )


def _is_told(name: str, value: str, told: str) -> bool:
    words = "[-_]".join(map(re.escape, re.split(r"[-_]", name.rpartition(".")[2])))
    return re.search(rf"(?i)\b{words}['\"]?\s?[:= ]\s?['\"]?{re.escape(value)}\b", told) is not None
