"""Does evidence that changes nothing change the answer? Every dev case again, in variants of its evidence.

python -m evals.metamorphic [--sample 40] [--seed 1] [--variant PART] [--case PART] [--verbose] [--write]

What may change is said by each variant (evals/variants/making.py); a fault never turns healthy. `--sample`
takes so many pairs of case and variant, by seed; without it all are taken. `--write` keeps the table for
`make eval`. Ends with 1 where a fault turned healthy.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from evals.cases import Case, load_cases
from evals.variants.making import MAKERS, Allowed, Variant, make_variant

from firstfault.investigation.diagnosis import Diagnosis
from firstfault.workspace import Workspace
from firstfault_tools.findings import Verdict

RESULT = Path(__file__).parent / "results" / "metamorphic.md"


@dataclass(frozen=True, slots=True)
class Told:
    """What an answer says, as far as it must not change."""

    verdict: Verdict
    category: str | None
    root: str | None
    rank: int | None
    host: str | None

    def __str__(self) -> str:
        return f"{self.verdict}/{self.category}/{self.root}/rank {self.rank}/host {self.host}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answers to a case and to one of its variants; `before` already moved as the evidence was."""

    case: str
    variant: str
    allowed: Allowed
    before: Told
    now: Told

    @property
    def changed(self) -> bool:
        """It differs though nothing may."""
        return self.allowed is Allowed.NOTHING and self.before != self.now

    @property
    def hidden(self) -> bool:
        """What was no healthy run is called one now."""
        return self.now.verdict is Verdict.HEALTHY and self.before.verdict is not Verdict.HEALTHY


def try_variant(workspace: Workspace, case: Case, name: str, seed: int = 1) -> Outcome | None:
    """Both answers; None where the case has no such variant."""
    with tempfile.TemporaryDirectory() as folder:
        variant = make_variant(name, case, Path(folder), seed)
        if variant is None:
            return None
        now = workspace.diagnose_paths(variant.inputs, variant.question)
    before = workspace.diagnose_paths(case.inputs, variant.compared)
    return Outcome(case.id, name, variant.allowed, _move(_tell(before), variant), _tell(now))


def _tell(diagnosis: Diagnosis) -> Told:
    return Told(
        diagnosis.verdict,
        diagnosis.category,
        diagnosis.signature,
        diagnosis.first_failing_rank,
        diagnosis.host,
    )


def _move(told: Told, variant: Variant) -> Told:
    rank = told.rank + variant.ranks_added if told.rank is not None else None
    host = variant.rename(told.host) if told.host else None
    return Told(told.verdict, told.category, told.root, rank, host)


def choose_pairs(
    cases: Sequence[Case], variant: str = "", sample: int = 0, seed: int = 1
) -> list[tuple[Case, str]]:
    """Cases with the names of variants to try; a sample holds every variant alike."""
    names = [name for name in MAKERS if variant in name]
    if not sample:
        return [(case, name) for case in cases for name in names]
    random = Random(seed)
    return [(random.choice(cases), names[i % len(names)]) for i in range(sample)]


def try_pairs(
    pairs: Sequence[tuple[Case, str]], seed: int = 1, processes: int = 2
) -> Iterator[Outcome]:
    """Outcomes of all pairs that have one, in processes forked after all that they share is loaded."""
    global _workspace, _seed  # the forked processes find them here
    _workspace, _seed = Workspace(), seed
    if not pairs:
        return
    yield from filter(None, [_try(pairs[0])])
    if processes < 2 or "fork" not in multiprocessing.get_all_start_methods():
        yield from filter(None, map(_try, pairs[1:]))
        return
    gc.freeze()
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from filter(None, pool.imap_unordered(_try, pairs[1:], chunksize=8))


_workspace: Workspace
_seed: int


def _try(pair: tuple[Case, str]) -> Outcome | None:
    return try_variant(_workspace, *pair, _seed)


def write_table(outcomes: Iterable[Outcome]) -> str:
    """Markdown: pairs tried, changed and turned healthy, by variant."""
    by_name: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_name[outcome.variant].append(outcome)
    lines = [
        "# The same incident in other evidence",
        "",
        "Changed: another verdict, category, rule, rank or host, where nothing may change.",
        "",
        "| variant | cases | changed | not healthy before, healthy now |",
        "| --- | ---: | ---: | ---: |",
    ]
    lines += [_write_row(name, by_name[name]) for name in MAKERS if name in by_name]
    return "\n".join([*lines, _write_row("**all**", [o for g in by_name.values() for o in g])])


def _write_row(name: str, outcomes: Sequence[Outcome]) -> str:
    changed = sum(o.changed for o in outcomes)
    hidden = sum(o.hidden for o in outcomes)
    strict = sum(o.allowed is Allowed.NOTHING for o in outcomes)
    share = f"{changed} ({changed / strict:.1%})" if strict else "allowed"
    return f"| {name} | {len(outcomes)} | {share} | {hidden} |"


def main() -> int:
    """Parse arguments, try, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--variant", default="")
    parser.add_argument("--case", default="")
    parser.add_argument("--verbose", "-v", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    cases = [c for c in load_cases() if arguments.case in c.id]
    pairs = choose_pairs(cases, arguments.variant, arguments.sample, arguments.seed)
    outcomes = []
    for outcome in try_pairs(pairs, arguments.seed, arguments.processes):
        outcomes.append(outcome)
        if outcome.hidden or (arguments.verbose and outcome.changed):
            print(f"{outcome.variant}: {outcome.case}: {outcome.before} -> {outcome.now}", flush=True)  # fmt: skip
    table = write_table(outcomes)
    if arguments.sample:
        table += f"\n\nA sample: {arguments.sample} pairs of case and variant, drawn with seed {arguments.seed}; some have none."
    print(table)
    if arguments.write:
        RESULT.write_text(table + "\n", encoding="utf-8")
    return 1 if any(o.hidden for o in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
