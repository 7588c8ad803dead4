"""How does a module name a pattern without paying for it? Regular expressions compiled at first use.

A short log makes a command import some hundred modules, and few of their patterns are ever tried:
compiling all of them took a fifth of a second.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split")


def expression(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """What `re.compile` gives, compiled when one of its methods is first asked for.

    A pattern that cannot be compiled is said there, as `re.error`; a test compiles every one.
    """
    return cast("re.Pattern[AnyStr]", _Expression(pattern, flags))


class _Expression:
    """Stands for a `re.Pattern`; takes over its bound methods, so that later calls cost no more."""

    def __init__(self, pattern: Any, flags: int) -> None:
        self.pattern = pattern
        self.flags = int(flags)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        compiled = re.compile(self.pattern, self.flags)
        self.__dict__.update({method: getattr(compiled, method) for method in _METHODS})
        return getattr(compiled, name)

    def __repr__(self) -> str:
        return f"expression({self.pattern!r}, {self.flags})"
