"""How does a module name a pattern that no line can hang? Regular expressions compiled at first use.

A short log makes a command import some hundred modules, and few of their patterns are ever tried:
compiling all of them took a fifth of a second.

`re` backtracks: on a line made for it, a search takes the square or the cube of the line's length. So
it is asked about short texts only; longer ones go to google-re2, whose time grows with the length
alone, whatever the text. What google-re2 cannot take (lookaround) is looked for window by window. One class
of characters with nothing behind it has nothing to go back to: `re` is asked whatever the length, and
is many times quicker where it has to cut a text at thousands of places.
tests/tools/test_growth.py asks every pattern who executes it, and pumps those that `re` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial
from typing import Any, AnyStr, cast

from firstfault_tools.kept_forms import compile_kept

_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split")
_TEXT_SECOND = frozenset({"sub", "subn"})

SHORT = 128
"""Characters up to which `re` is asked; beyond it google-re2 is no slower on ordinary lines."""

WINDOW, OVERLAP = 1_024, 512
"""Characters of a long text that `re` sees at once, and how many of them the next window sees again."""

BORDER = 64
"""Characters before the end of a window in which a lookahead may have seen an end that is none."""

_MEMORY = 8 << 20
"""Bytes one pattern may take; google-re2's own default."""

_FLAT = re.compile(r"(?:\\[sSdDwW]|\[\^?\]?(?:[^\]\\]|\\.){0,200}\])[+*]?")
"""One class of characters, once or repeated."""

_LETTERS = ((re.IGNORECASE, "i"), (re.MULTILINE, "m"), (re.DOTALL, "s"))
_FOREIGN = re.compile(r"\\Z|\{,(?=\d)|\[\^\\W\\d_?\]")
_TRANSLATED = {
    r"\Z": r"\z",
    "{,": "{0,",
    r"[^\W\d]": r"[\pL_]",
    r"[^\W\d_]": r"\pL",
}
"""What google-re2 writes otherwise; letters of any script are asked for as such."""


def expression(pattern: AnyStr, flags: int = 0, short: int = SHORT) -> re.Pattern[AnyStr]:
    """What `re.compile` gives, compiled when one of its methods is first asked for.

    short: characters up to which `re` is asked; 0 for patterns of data, and for those that take the
    cube of a text's length. On longer texts the classes \\w, \\d, \\s and the border \\b are those of ASCII. A
    pattern that cannot be compiled is said at its first use, as `re.error`; a test compiles every one.
    """
    return cast("re.Pattern[AnyStr]", _Expression(pattern, flags, short))


def compile_linear(pattern: str | bytes, flags: int = 0) -> Any | None:
    """google-re2's form of a pattern; None where it needs what google-re2 has not."""
    import re2

    if flags & ~(re.IGNORECASE | re.MULTILINE | re.DOTALL | re.UNICODE):
        return None
    letters = "".join(letter for flag, letter in _LETTERS if flags & flag)
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    text = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    text = _FOREIGN.sub(lambda m: _TRANSLATED[m[0]], text)
    text = f"(?{letters}){text}" if letters else text
    try:
        if isinstance(pattern, str):
            return re2.compile(text, options)
        options.encoding = re2.Options.Encoding.LATIN1
        return re2.compile(text.encode("latin-1"), options)
    except re2.error:
        return None


class _Expression:
    """Stands for a `re.Pattern`; its methods are made at first use."""

    def __init__(self, pattern: Any, flags: int, limit: int) -> None:
        self.pattern = pattern
        self.flags = int(flags)
        self.limit = limit

    @property
    def is_flat(self) -> bool:
        """`re` takes the length of the text and no more, so that it is asked about all of them."""
        return isinstance(self.pattern, str) and _FLAT.fullmatch(self.pattern) is not None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        ask = partial(getattr, self._plain()) if self.is_flat else self._method
        self.__dict__.update({method: ask(method) for method in _METHODS})
        return self.__dict__.get(name) or getattr(self._plain(), name)

    def _plain(self) -> re.Pattern[Any]:
        """The pattern of `re`, compiled when a text is short enough for it or google-re2 refuses the pattern."""
        known: re.Pattern[Any] | None = self.__dict__.get("_compiled")
        if known is None:
            known = self.__dict__["_compiled"] = compile_kept(self.pattern, self.flags)
        return known

    def __reduce__(self) -> tuple[Any, ...]:
        return expression, (self.pattern, self.flags, self.limit)

    def __repr__(self) -> str:
        return f"expression({self.pattern!r}, {self.flags})"

    def _method(self, name: str) -> Callable[..., Any]:
        limit = self.limit
        short: Callable[..., Any] | None = None
        long: Callable[..., Any] | None = None

        def find_short() -> Callable[..., Any]:
            nonlocal short
            short = cast("Callable[..., Any]", getattr(self._plain(), name))
            return short

        def find_long() -> Callable[..., Any]:
            nonlocal long
            linear = self.__dict__.get("_linear", False)
            if linear is False:
                linear = self.__dict__["_linear"] = compile_linear(self.pattern, self.flags)
            if linear is not None:
                long = _as_re(getattr(linear, name), name)
            else:
                long = cast("Callable[..., Any]", getattr(Windows(self._plain()), name))
            return long

        if name in _TEXT_SECOND:

            def change(new: Any, text: Any, *more: Any, **named: Any) -> Any:
                if len(text) <= limit:
                    return (short or find_short())(new, text, *more, **named)
                return (long or find_long())(new, text, *more, **named)

            return change

        def find(text: Any, *more: Any) -> Any:
            if len(text) <= limit:
                return (short or find_short())(text, *more)
            return (long or find_long())(text, *more)

        return find


@lru_cache(maxsize=4_096)
def _numbers(compiled: Any) -> dict[str, int]:
    """Groups of a pattern by name; google-re2 asks its library anew for every group of every match."""
    return cast("dict[str, int]", compiled.groupindex)


@cache
def _match_class() -> Any:
    """google-re2's match, asked like that of `re`: places by a group's name as well."""
    import re2

    class LinearMatch(re2._Match):  # type: ignore[misc]
        """One match in a long text."""

        __slots__ = ()

        def span(self, group: int | str = 0) -> tuple[int, int]:
            number = _numbers(self._regexp)[group] if isinstance(group, str) else group
            found: tuple[int, int] = super().span(number)
            return found

        def start(self, group: int | str = 0) -> int:
            return self.span(group)[0]

        def end(self, group: int | str = 0) -> int:
            return self.span(group)[1]

        def __getitem__(self, group: int | str) -> Any:
            number = _numbers(self._regexp).get(group, -1) if isinstance(group, str) else group
            return super().__getitem__(number)

        def groupdict(self, default: Any = None) -> dict[str, Any]:
            told = (
                (name, super(LinearMatch, self).__getitem__(n))
                for name, n in _numbers(self._regexp).items()
            )
            return {name: default if text is None else text for name, text in told}

    return LinearMatch


def _alike(match: Any) -> Any:
    match.__class__ = _match_class()
    return match


def _as_re(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A method of google-re2 that gives what that of `re` gives.

    Half of a surrogate pair, for which UTF-8 has no bytes, is read as a question mark.
    """
    if name in _TEXT_SECOND:

        def change(new: Any, text: Any, *more: Any, **named: Any) -> Any:
            return _replace(method, _encodable(new), _encodable(text), *more, **named)

        return change
    if name == "finditer":
        return lambda text, *more: map(_alike, method(_encodable(text), *more))
    if name not in ("search", "match", "fullmatch"):
        return lambda text, *more: method(_encodable(text), *more)

    def find(text: Any, *more: Any) -> Any:
        found = method(_encodable(text), *more)
        return None if found is None else _alike(found)

    return find


def _encodable(given: Any) -> Any:
    return make_encodable(given) if isinstance(given, str) else given


def _replace(method: Callable[..., Any], new: Any, *given: Any, **named: Any) -> Any:
    if callable(new):
        return method(lambda match: new(_alike(match)), *given, **named)
    return method(_expand(new), *given, **named)


def make_encodable(text: str) -> str:
    """`text` with a question mark for each half of a surrogate pair: UTF-8, which google-re2 reads, has none."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _expand(new: Any) -> Callable[[Any], Any]:
    """What a match is replaced by; texts without groups are not read anew for every match."""
    escape = "\\" if isinstance(new, str) else b"\\"
    if escape in new:
        return lambda found: found.expand(new)
    return lambda _found: new


class Windows:
    """A `re.Pattern` whose work grows with the length alone: it never sees more than `WINDOW` at once.

    A match is found where `OVERLAP` holds it. What begins at a given place (`match`, `fullmatch`) is
    looked for in `WINDOW` characters from there.
    """

    def __init__(self, compiled: re.Pattern[Any]) -> None:
        self._compiled = compiled

    def search(self, text: Any, pos: int = 0, endpos: int | None = None) -> Any:
        """The first match."""
        last = len(text) if endpos is None else min(endpos, len(text))
        while True:
            end = min(pos + WINDOW, last)
            found = self._compiled.search(text, pos, end)
            again = end - OVERLAP
            if end == last or (
                found is not None and (found.end() < end - BORDER or found.start() < again)
            ):
                return found
            pos = again

    def match(self, text: Any, pos: int = 0, endpos: int | None = None) -> Any:
        """The match at `pos`; one that goes on for more than `WINDOW` is cut there."""
        last = len(text) if endpos is None else endpos
        return self._compiled.match(text, pos, min(pos + WINDOW, last))

    def fullmatch(self, text: Any, pos: int = 0, endpos: int | None = None) -> Any:
        """The match of the whole; None for what is longer than `WINDOW`."""
        last = len(text) if endpos is None else min(endpos, len(text))
        return self._compiled.fullmatch(text, pos, last) if last - pos <= WINDOW else None

    def finditer(self, text: Any, pos: int = 0, endpos: int | None = None) -> Iterator[Any]:
        """Matches from left to right, none over another."""
        last = len(text) if endpos is None else min(endpos, len(text))
        while pos <= last and (found := self.search(text, pos, last)) is not None:
            yield found
            pos = found.end() + (found.end() == found.start())

    def findall(self, text: Any, pos: int = 0, endpos: int | None = None) -> list[Any]:
        """What `re` gives: the match, its group, or a tuple of its groups."""
        groups = self._compiled.groups
        empty = text[:0]
        found = self.finditer(text, pos, endpos)
        if groups < 2:
            return [m[groups] or empty for m in found]
        return [m.groups(empty) for m in found]

    def split(self, text: Any, maxsplit: int = 0) -> list[Any]:
        """Pieces between the matches, with the groups of these."""
        out, begin = [], 0
        for number, found in enumerate(self.finditer(text), 1):
            out += [text[begin : found.start()], *found.groups()]
            begin = found.end()
            if number == maxsplit:
                break
        return [*out, text[begin:]]

    def sub(self, new: Any, text: Any, count: int = 0) -> Any:
        """The text with its matches replaced."""
        return self.subn(new, text, count)[0]

    def subn(self, new: Any, text: Any, count: int = 0) -> tuple[Any, int]:
        """The text with its matches replaced, and how many they were."""
        out, begin, number = [], 0, 0
        make = new if callable(new) else _expand(new)
        for number, found in enumerate(self.finditer(text), 1):
            out += [text[begin : found.start()], make(found)]
            begin = found.end()
            if number == count:
                break
        return text[:0].join([*out, text[begin:]]), number
