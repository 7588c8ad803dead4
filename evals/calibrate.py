"""How often is each kind of explanation right, and what may therefore be called confirmed?

python -m evals.calibrate [--write] [--processes 2]

Every dev case is diagnosed with the confidence that the tools give; those that are called confirmed are counted by
kind and family, one source once. Printed is what would be confirmed of each case by the counts of all other sources;
`--write` stores the counts of all sources in knowledge/tables/precision.yaml, and the table for `make eval`.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

from evals.answer import of_diagnosis
from evals.baseline import map_cases
from evals.cases import Case, load_cases
from evals.diagnosed import diagnose_case
from evals.rules import name_source
from evals.scorers.triple import score_triple

from firstfault.investigation.precision import (
    CONFIRMED_FROM,
    LEAST_SOURCES,
    PrecisionTable,
    Tried,
    name_family,
)
from firstfault.paths import knowledge_folder
from firstfault.workspace import Workspace
from firstfault_tools.findings import Confidence, Verdict

TABLE = Path("tables") / "precision.yaml"
RESULT = Path(__file__).parent / "results" / "confirmed.md"
_HEAD = """\
# How often each kind of explanation was right on the dev cases: [independent sources, sentence right, answer right];
# a source with several cases counts by their mean, the category without rank and cause as half. Written by `make calibrate`.
kind: precision
"""


@dataclass(frozen=True, slots=True)
class Trial:
    """One case whose cause the tools call confirmed. 1 right, 0.5 the category only, 0 wrong.

    said: in the verdict's own sentence; named: in the whole answer.
    """

    case: str
    source: str
    kind: str
    family: str
    said: float
    named: float


def try_case(workspace: Workspace, case: Case) -> Trial | None:
    """The trial of a case; None where the tools are not sure themselves."""
    plain = Workspace(workspace.knowledge_path, workspace.cache, workspace.spool)
    plain.__dict__["knowledge"] = replace(workspace.knowledge, precision=None)
    made = diagnose_case(plain, case)
    diagnosis, finding = made.diagnosis, made.lead
    if diagnosis.confidence is not Confidence.CONFIRMED or diagnosis.verdict is Verdict.HEALTHY:
        return None
    if finding is None:
        return None
    score = score_triple(case, of_diagnosis(diagnosis.to_json()))
    half = 0.5 if score.category else 0.0
    said = 1.0 if score.right else half
    named = 1.0 if score.category and score.rank and score.anywhere else half
    return Trial(case.id, name_source(case.source), finding.kind, name_family(finding), said, named)


def count_trials(trials: Iterable[Trial]) -> PrecisionTable:
    """Counts by kind and by family, one source once in each."""
    kinds: dict[str, dict[str, list[Trial]]] = defaultdict(lambda: defaultdict(list))
    families: dict[str, dict[str, list[Trial]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        kinds[trial.kind][trial.source].append(trial)
        families[trial.family][trial.source].append(trial)
    return PrecisionTable(
        {name: _sum_sources(of) for name, of in sorted(kinds.items())},
        {name: _sum_sources(of) for name, of in sorted(families.items())},
    )


def _sum_sources(trials: Mapping[str, Sequence[Trial]]) -> Tried:
    said, named = (
        sum(sum(points(t) for t in own) / len(own) for own in trials.values())
        for points in (_SAID, _NAMED)
    )
    return Tried(len(trials), round(said, 3), round(named, 3))


_SAID, _NAMED = attrgetter("said"), attrgetter("named")


def confirm_without_own(trials: Sequence[Trial]) -> list[Trial]:
    """Trials that the counts of all other sources would let be called confirmed."""
    by_source: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        by_source[trial.source].append(trial)
    out = []
    for source, own in by_source.items():
        table = count_trials(t for t in trials if t.source != source)
        out += [t for t in own if table.precision(t.kind, t.family) >= CONFIRMED_FROM]
    return out


def write_table(trials: Sequence[Trial]) -> str:
    """Markdown: families with their counts, and what is confirmed by the other sources' counts."""
    table = count_trials(trials)
    sure = confirm_without_own(trials)
    lines = [
        "# What may be called confirmed",
        "",
        f"Precision of the causes that a tool is sure of, on independent sources (half right counts half). Confirmed is "
        f"said from {CONFIRMED_FROM} in families of {LEAST_SOURCES} sources and more; each case by the counts of all "
        "sources but its own.",
        "",
        "| family | sources | sentence right | answer right | confirmed | sentence half right | answer half right | wrong |",
        "| --- |" + " ---: |" * 7,
    ]
    for name, tried in table.families.items():
        lines.append(_write_row(name, tried, [t for t in sure if t.family == name]))
    whole = _sum_sources({t.case: [t] for t in trials})
    return "\n".join([*lines, _write_row("**all** (cases)", whole, sure)])


def _write_row(name: str, tried: Tried, sure: Sequence[Trial]) -> str:
    said, named = (sum(points(t) == 0.5 for t in sure) for points in (_SAID, _NAMED))
    wrong = sum(t.said == 0 for t in sure)
    return (
        f"| {name} | {tried.sources} | {tried.share_said:.3f} | {tried.share_named:.3f} | {len(sure)} | {said} "
        f"| {named} | {wrong} |"
    )


def write_counts(table: PrecisionTable) -> str:
    """The stored file."""
    parts = [_HEAD]
    for part, counts in (("families", table.families), ("kinds", table.kinds)):
        parts.append(f"{part}:\n")
        parts += [
            f"  {name!r}: [{t.sources}, {t.said:g}, {t.named:g}]\n" for name, t in counts.items()
        ]
    return "".join(parts)


def main() -> None:
    """Diagnose every dev case, print, store."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    found = map_cases(try_case, load_cases(), arguments.processes)
    trials = sorted((t for t in found if t is not None), key=lambda t: t.case)
    print(table := write_table(trials))
    if arguments.write:
        RESULT.write_text(table + "\n", encoding="utf-8")
        (knowledge_folder() / TABLE).write_text(write_counts(count_trials(trials)), "utf-8")


if __name__ == "__main__":
    main()
