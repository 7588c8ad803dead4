"""What did every dev case answer when it was last accepted, and what does it answer now?

python -m evals.baseline [--case SUBSTR] [--kind KIND] [--only changed] [--accept] [--processes 2]

Prints the score and every difference to `evals/baseline.jsonl`; `--accept` takes the differences. Ends with 1
where there are some. `--only changed` diagnoses the cases again that differed in the last run of any kind.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from evals.answer import of_diagnosis
from evals.cases import Case, load_cases
from evals.diagnosed import Diagnosed, diagnose_case
from evals.scorers.table import HEAD, Row, write_line
from evals.scorers.triple import Score, score_triple

from firstfault.workspace import Workspace

T = TypeVar("T")
BASELINE = Path(__file__).parent / "baseline.jsonl"
LAST = Path(__file__).parent / ".changed.json"
Accepted = Mapping[str, Any]
"""One line of the file: what the verdict says of a case, and which parts of that are right."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A case as it is now: its scored answer, its line of the baseline, the kinds of its findings."""

    row: Row
    line: Accepted
    leading: str | None
    kinds: frozenset[str]


@dataclass(frozen=True, slots=True)
class Change:
    """One difference; `now` is None for a case that is gone, `before` for a new one."""

    case: str
    before: Accepted | None
    now: Accepted | None

    @property
    def judgement(self) -> str:
        """`better`, `worse` or `neither`, by what is right; `new` and `gone`."""
        if self.before is None or self.now is None:
            return "new" if self.before is None else "gone"
        before, now = _points(self.before), _points(self.now)
        return "better" if now > before else "worse" if now < before else "neither"

    def __str__(self) -> str:
        before, now = self.before or {}, self.now or {}
        names = [n for n in {**before, **now} if n != "case" and before.get(n) != now.get(n)]
        parts = [f"{n}: {_show(before.get(n))} -> {_show(now.get(n))}" for n in names]
        return f"{self.judgement}: {self.case}: {'; '.join(parts)}"


def measure(made: Diagnosed) -> Measured:
    """Scored answer and baseline line of a diagnosed case."""
    case, diagnosis = made.case, made.diagnosis
    answer = of_diagnosis(diagnosis.to_json())
    score = score_triple(case, answer)
    line = {
        "case": case.id,
        "verdict": answer.verdict,
        "category": answer.category,
        "rank": answer.rank,
        "host": diagnosis.host,
        "gpu": diagnosis.gpu,
        "root": diagnosis.signature,
        "confidence": answer.confidence,
        "right": _name_right(score),
    }
    return Measured(
        Row(case, answer, score), line, diagnosis.signature,
        frozenset(f.kind.removeprefix("signature.") for f in made.findings),
    )  # fmt: skip


def _name_right(score: Score) -> list[str]:
    named = {"category": score.category, "rank": score.rank, "cause": score.cause, "cause anywhere": score.anywhere}  # fmt: skip
    return [name for name, held in named.items() if held]


def _points(line: Accepted) -> tuple[int, bool]:
    """Category, rank and cause count one each, certainty of a wrong category takes one."""
    right = line["right"]
    wrong = line["confidence"] == "confirmed" and "category" not in right
    return sum(name in right for name in ("category", "rank", "cause")) - wrong, "cause anywhere" in right  # fmt: skip


def _show(value: object) -> str:
    return ", ".join(value) or "nothing" if isinstance(value, list) else str(value)


def load_baseline(path: Path = BASELINE) -> dict[str, Accepted]:
    """Accepted lines by case; none where the file is not there."""
    if not path.is_file():
        return {}
    rows = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    return {row["case"]: row for row in rows}


def write_baseline(lines: Iterable[Accepted], path: Path = BASELINE) -> None:
    """One line a case, by id, so that two branches meet only where both changed a case."""
    ordered = sorted(lines, key=lambda line: line["case"])
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in ordered)
    path.write_text(text, encoding="utf-8")


def compare(
    accepted: Mapping[str, Accepted], now: Iterable[Accepted], known: Iterable[str]
) -> list[Change]:
    """Differences of the lines of now; accepted cases that are not in `known` are gone."""
    here = {line["case"]: line for line in now}
    changes = [Change(c, accepted.get(c), here[c]) for c in sorted(here) if accepted.get(c) != here[c]]  # fmt: skip
    gone = sorted(accepted.keys() - set(known))
    return changes + [Change(c, accepted[c], None) for c in gone]


def measure_cases(cases: Sequence[Case], processes: int = 2) -> Iterator[Measured]:
    """Every case diagnosed once and scored."""
    return map_cases(_measure, cases, processes)


def map_cases(
    work: Callable[[Workspace, Case], T], cases: Sequence[Case], processes: int = 2
) -> Iterator[T]:
    """`work` on every case, in processes forked from this one after all that they share is loaded."""
    ordered = sorted(cases, key=lambda c: -sum(p.stat().st_size for p in c.inputs))
    workspace = Workspace()
    global _task  # the forked processes find it here, loaded
    _task = partial(work, workspace)
    if processes < 2 or len(cases) < 4 or "fork" not in multiprocessing.get_all_start_methods():
        yield from map(_task, ordered)
        return
    yield _task(ordered[-1])  # loads what nearly every log needs
    gc.freeze()
    context = multiprocessing.get_context("fork")
    with context.Pool(processes) as pool:
        yield from pool.imap_unordered(_run_task, ordered[:-1], chunksize=4)


_task: Callable[[Case], Any]


def _run_task(case: Case) -> Any:
    return _task(case)


def _measure(workspace: Workspace, case: Case) -> Measured:
    return measure(diagnose_case(workspace, case))


def choose_cases(part: str, kind: str, only: str) -> tuple[Case, ...]:
    """Dev cases whose id holds `part`, of one kind, or those that differed last time."""
    changed = json.loads(LAST.read_text()) if only and LAST.is_file() else []
    return tuple(
        case
        for case in load_cases()
        if part in case.id and kind in ("", case.expect.kind) and (not only or case.id in changed)
    )


def main() -> int:
    """Parse arguments, diagnose, print, accept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", default="", help="part of an id")
    parser.add_argument("--kind", default="", help="a category, healthy or undecided")
    parser.add_argument("--only", default="", choices=["", "changed"])
    parser.add_argument("--accept", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    begin = time.perf_counter()
    cases = choose_cases(arguments.case, arguments.kind, arguments.only)
    accepted = load_baseline()
    measured = list(measure_cases(cases, arguments.processes)) if cases else []
    whole = not (arguments.case or arguments.kind or arguments.only)
    known = [c.id for c in cases] if whole else accepted
    changes = compare(accepted, (m.line for m in measured), known)
    rows = sorted((m.row for m in measured), key=lambda r: r.case.id)
    print("\n".join([*HEAD, write_line("now", rows)]))
    for change in changes:
        print(change)
    _print_sums(changes, len(cases), time.perf_counter() - begin)
    LAST.write_text(json.dumps([c.case for c in changes]))
    if arguments.accept:
        kept = {c: line for c, line in accepted.items() if c not in {x.case for x in changes}}
        write_baseline([*kept.values(), *(c.now for c in changes if c.now is not None)])
        return 0
    return 1 if changes else 0


def _print_sums(changes: Sequence[Change], cases: int, seconds: float) -> None:
    names = [c.judgement for c in changes]
    sums = ", ".join(f"{names.count(n)} {n}" for n in ("better", "worse", "neither", "new", "gone") if n in names)  # fmt: skip
    print(f"{cases} cases in {seconds:.0f} s: {sums or 'as accepted'}")


if __name__ == "__main__":
    sys.exit(main())
