"""On how many independent incidents does each rule rest?

python -m evals.rules

A rule is a signature or a kind of finding that leads the verdict of a dev case or stands beside it. Cases that
name the same source count once.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from evals.baseline import Measured, measure_cases
from evals.cases import load_cases

THIN = 2
"""Sources; a rule with no more may be made for its cases."""


@dataclass
class Support:
    """Sources of the cases in which a rule leads, and in which it appears at all."""

    leads: set[str] = field(default_factory=set)
    appears: set[str] = field(default_factory=set)


def count_support(measured: Iterable[Measured]) -> dict[str, Support]:
    """Support by rule."""
    support: dict[str, Support] = defaultdict(Support)
    for one in measured:
        source = name_source(one.row.case.source)
        for kind in one.kinds:
            support[kind].appears.add(source)
        if one.leading is not None:
            support[one.leading].leads.add(source)
            support[one.leading].appears.add(source)
    return dict(support)


def name_source(source: str) -> str:
    """Where an incident comes from: the address without its fragment, else the words as they are."""
    address = re.search(r"https?://[^\s;,#?)]{1,500}", source)
    return address[0].rstrip("/.").lower() if address else source.strip()


def write_table(support: dict[str, Support]) -> str:
    """Markdown: rules by sources that they lead, with the share that rests on few."""
    rows = sorted(support.items(), key=lambda r: (-len(r[1].leads), -len(r[1].appears), r[0]))
    lines = ["| rule | sources it leads | sources it appears in |", "| --- | ---: | ---: |"]
    lines += [f"| {name} | {len(s.leads)} | {len(s.appears)} |" for name, s in rows]
    leading = [len(s.leads) for s in support.values() if s.leads]
    lines += ["", _share("rules that lead a verdict", leading)]
    lines += [_share("rules that appear", [len(s.appears) for s in support.values()])]
    return "\n".join(lines)


def _share(name: str, counts: list[int]) -> str:
    few = sum(n <= THIN for n in counts)
    return f"{name}: {len(counts)}, {few} of them ({few / max(1, len(counts)):.0%}) on {THIN} sources or fewer"  # fmt: skip


def main() -> None:
    """Diagnose every dev case and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    print(write_table(count_support(measure_cases(load_cases(), arguments.processes))))


if __name__ == "__main__":
    main()
