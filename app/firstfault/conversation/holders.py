"""Who holds the memory, and what grew? Sizes that lines print beside a name: the largest process, and the series that only rise."""

from __future__ import annotations

from itertools import pairwise

from firstfault.conversation.evidence import Line
from firstfault.conversation.facts import Facts
from firstfault.conversation.growth import say_growth
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

_PROCESS = expression(
    r"(?i)(?P<name>[a-z][\w:.@/-]{2,40})(?: rank ?\d{1,6})?,? (?:anon-?)?rss[:= ]{1,2}~?(?P<size>\d{1,9}(?:\.\d+)?) ?(?P<unit>[KMGT])i?B\b"
)
_KILLED = expression(
    r"(?i)killed process (?P<pid>\d+) \((?P<name>[^)]{1,40})\).{0,120}?anon-rss:(?P<size>\d{1,12})kB"
)
_AMOUNT = expression(
    r"(?i)(?P<name>[a-z][\w./-]{1,40}?)[:= ]{1,2}(?P<size>\d{1,6}(?:\.\d+)?) ?(?P<unit>[MGT])i?B\b"
)
_NUMBER = expression(r"\d+(?:\.\d+)?")
_OF_KERNEL = expression(r"(?i)^total-vm")
_NO_NAME = frozenset(
    {"limit", "of", "total", "avg", "capacity", "max", "is", "was", "has", "and", "or"}
)
_GIB = {"K": 2.0**-20, "M": 2.0**-10, "G": 1.0, "T": 2.0**10}
LEAST_POINTS, LEAST_RISE, MOST_SAID = 4, 0.2, 3
HEAD = 24
"""Characters of a line, without its numbers, that tell which writer's series it is."""


@dataclass(frozen=True, slots=True)
class Series:
    """One size over the lines that print it. rows: (GiB, line), in order."""

    name: str
    rows: tuple[tuple[float, Line], ...]

    @property
    def rise(self) -> float:
        return self.rows[-1][0] - self.rows[0][0]

    @property
    def grows(self) -> bool:
        """It never falls and rises far."""
        sizes = [size for size, _ in self.rows]
        return (
            len(sizes) >= LEAST_POINTS
            and all(b >= a for a, b in pairwise(sizes))
            and self.rise >= LEAST_RISE * max(sizes[0], 1.0)
        )


def read_series(f: Facts) -> list[Series]:
    """Sizes that only rise, the one that rises most first."""
    rows: dict[tuple[str, str], list[tuple[float, Line]]] = {}
    for line in f.evidence.lines:
        kind = _NUMBER.sub("", line.text)[-60:] if len(line.text) > HEAD else ""
        for found in _AMOUNT.finditer(line.text[:1_000]):
            name = found["name"]
            if name.lower() in _NO_NAME:
                continue
            key = (name, _NUMBER.sub("", kind.split(name)[0])[-HEAD:])
            rows.setdefault(key, []).append((float(found["size"]) * _GIB[found["unit"].upper()], line))  # fmt: skip
    series = [Series(name, tuple(found)) for (name, _), found in rows.items()]
    return sorted((s for s in series if s.grows), key=lambda s: -s.rise)


def tell_holder(f: Facts) -> str:
    """The largest process in the lines, and what grew; '' where no line gives sizes by name."""
    held = [
        (float(m["size"]) * _GIB[m["unit"].upper()], m["name"], x)
        for x in f.evidence.lines
        for m in _PROCESS.finditer(x.text[:2_000])
    ]
    largest = max(
        (h for h in held if not _OF_KERNEL.search(h[1])), key=lambda h: h[0], default=None
    )
    told = say_growth(f)
    grown = [] if told else read_series(f)[:MOST_SAID]
    if largest is None and not grown and not told:
        return ""
    parts = [told] if told else []
    if largest is not None:
        size, name, line = largest
        parts.append(f"{name} held the most, {size:.0f} GiB, {f.at(line)}.")
        killed = next(((m, x) for x, m in f.evidence.find(_KILLED, 1)), None)
        if killed is not None and killed[0]["name"] not in name:
            own = float(killed[0]["size"]) * _GIB["K"]
            parts.append(
                f"The process that was killed, {killed[0]['name']} (pid {killed[0]['pid']}), had {own:.1f} GiB and is only the victim, {f.at(killed[1])}."
            )
    for one in grown:
        (begin, first), (end, last) = one.rows[0], one.rows[-1]
        parts.append(f"What grew: {one.name} from {begin:.0f} to {end:.0f} GiB, {f.at(first)} to {f.at(last)}, `{last.text.strip()[:160]}`.")  # fmt: skip
    return " ".join(parts) + f" The verdict: {f.cause} {f.main}."
