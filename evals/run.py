"""How good is the diagnosis? Runs every case without a model and writes one table.

python -m evals.run [--case ID] [--split dev|held] [--verbose] [--no-write] [--alarms]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from evals.answer import Answer, of_diagnosis
from evals.baselines import crash_analyzer, grep
from evals.cases import Case, Split, load_cases
from evals.retrieval import run as retrieval
from evals.scorers.grounding import count_grounded
from evals.scorers.table import HEAD, LEGEND, Row, write_line
from evals.scorers.triple import score_triple

from evals import gpualert, metrics_alarms
from firstfault.workspace import Workspace

RESULTS = Path(__file__).parent / "results"
STORED = (RESULTS / "confirmed.md", RESULTS / "metamorphic.md")
"""Tables that take longer than all others together; `make calibrate` and `make metamorphic` count them again."""


def main() -> None:
    """Parse arguments, run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", default="")
    parser.add_argument("--split", default="", choices=["", *Split])
    parser.add_argument("--verbose", "-v", action="store_true")
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--alarms", action="store_true", help="measure the metric verdicts again")
    arguments = parser.parse_args()
    cases = [
        c
        for split in Split
        if arguments.split in ("", split)
        for c in load_cases(split)
        if arguments.case in c.id
    ]
    workspace = Workspace()
    arms: dict[str, Callable[[Case], Answer]] = {
        "firstfault, no model": lambda case: diagnose_case(workspace, case),
        "grep of a few words": lambda case: grep.answer(read_inputs(case)),
        "five-pattern crash analyzer": lambda case: crash_analyzer.answer(read_inputs(case)),
    }
    results = {
        name: [Row(c, a, score_triple(c, a)) for c in cases for a in (answer(c),)]
        for name, answer in arms.items()
    }
    text = write_table(results)
    if not arguments.case and not arguments.split:
        text += "\n" + gpualert.write_table(workspace)
        text += "\n" + retrieval.write_table()
        text += "\n" + metrics_alarms.write_table(arguments.alarms)
        text += "".join("\n" + stored.read_text("utf-8") for stored in STORED if stored.is_file())
    print(text)
    if arguments.verbose:
        rows = results["firstfault, no model"]
        shown = [
            r for r in rows if r.case.split == arguments.split or r.case.split is not Split.HELD
        ]
        print_failures(shown)
        if len(shown) < len(rows):
            print(f"{len(rows) - len(shown)} held cases are counted and not shown")
    if not arguments.no_write and not arguments.case and not arguments.split:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "summary.md").write_text(text, encoding="utf-8")


def read_inputs(case: Case) -> str:
    """All text inputs of a case as one string, for the baselines."""
    return "\n".join(p.read_bytes().decode("utf-8", errors="replace") for p in case.inputs)


def diagnose_case(workspace: Workspace, case: Case) -> Answer:
    """Answer of the deterministic diagnosis, with its fixes checked afresh."""
    begin = time.perf_counter()
    row = workspace.diagnose_paths(case.inputs, case.question).to_json()
    seconds = time.perf_counter() - begin
    grounded = count_grounded(row, case.inputs, dict(workspace.knowledge.pages))
    return of_diagnosis(row, grounded, seconds)


def write_table(results: dict[str, list[Row]]) -> str:
    """Markdown table of every arm, over all cases and per split."""
    lines = [
        f"# First fault on multi-rank incidents ({datetime.now(UTC).date()})",
        "",
        LEGEND,
        "",
        *HEAD,
    ]
    for name, rows in results.items():
        lines.append(write_line(name, rows))
        if "no model" in name:
            for split in sorted({r.case.split for r in rows}):
                lines.append(
                    write_line(f"- {split} split", [r for r in rows if r.case.split == split])
                )
            for tag in ("public", "lab"):
                lines.append(
                    write_line(f"- {tag} incidents", [r for r in rows if tag in r.case.tags])
                )
    return "\n".join(lines) + "\n"


def print_failures(rows: list[Row]) -> None:
    """One block per case that is not wholly right."""
    for row in rows:
        if row.score.right:
            continue
        print(
            f"\n{row.case.id}: category {row.score.predicted} (want {row.score.expected}), "
            f"rank {row.answer.rank} (want {row.case.expect.first_failing_rank}), {row.score.why}"
            f"\n  want: {row.case.expect.root_cause}\n  said: {row.answer.said[:400]}\n  in all: {row.answer.claim[:400]}"
        )


if __name__ == "__main__":
    main()
