"""Which share of questions gets a useful answer, and how fast?

python -m evals.questions [FILE] [--vectors] [--misses]
python -m evals.questions FOLDER [--out ANSWERS.json]    a set of questions.jsonl and logs, for a reader to judge
python -m evals.questions FOLDER --desk DESK [--reader NAME]    the same with a model, which a reader plays (evals.relay)
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from evals.cases import find_case
from evals.questions.sets import answer_by_reader, answer_set, write_answers
from evals.relay.desk import open_desk

from firstfault.conversation.answerer import Question
from firstfault.conversation.pages import PassageSearch
from firstfault.conversation.rules import RuleAnswerer, search_lexically
from firstfault.incidents.events import AnswerPart
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.knowledge_base.warm import WarmSearch
from firstfault.workspace import Workspace
from firstfault_tools.expressions import expression
from firstfault_tools.knowledge.pack import read_yaml

DEV = Path(__file__).with_name("dev.yaml")
OPENED = Path(__file__).with_name("opened")
"""Logs of questions that were sealed once."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer and what it lacks; empty where it is useful."""

    group: str
    row: Mapping[str, Any]
    part: AnswerPart
    lacks: tuple[str, ...]
    seconds: float


@cache
def _workspace() -> Workspace:
    return Workspace()


@cache
def _incident(case: str) -> tuple[Diagnosis, dict[str, Path]]:
    folder = find_case(case)
    given = read_yaml((folder / "case.yaml").read_text(encoding="utf-8"))
    files = {name: folder / name for name in given["inputs"]}
    return _workspace().diagnose_paths(list(files.values())), files


@cache
def _opened(name: str) -> tuple[Diagnosis, dict[str, Path]]:
    path = OPENED / name
    return _workspace().diagnose_paths([path]), {path.name: path}


def ask(row: Mapping[str, Any], search: PassageSearch = search_lexically) -> AnswerPart:
    """The answer to one row."""
    diagnosis: Diagnosis | None = None
    files: dict[str, Path] = {}
    if "case" in row:
        diagnosis, files = _incident(row["case"])
    elif "log" in row:
        diagnosis, files = _opened(row["log"])
    question = Question("q", 2, row["ask"], diagnosis, files, (), _workspace().knowledge)
    return next(RuleAnswerer(search).answer(question))


def find_lacks(row: Mapping[str, Any], part: AnswerPart) -> tuple[str, ...]:
    """What a useful answer would hold and this one does not."""
    first = re.split(r"(?<=[.!?])\s|\n", part.text, maxsplit=1)[0]
    lacks = []
    if "page" in row and not {c.page for c in part.citations} & set(row["page"]):
        lacks.append(
            f"page {row['page']}, has {sorted({c.page for c in part.citations if c.page})}"
        )
    if not part.kind.startswith(row.get("kind", "")):
        lacks.append(f"kind {row['kind']}, is {part.kind}")
    if "first" in row and re.search(row["first"], first) is None:
        lacks.append(f"first sentence {row['first']!r}: {first[:100]!r}")
    lacks += [f"words {w!r}" for w in row.get("say", ()) if re.search(w, part.text) is None]
    lacks += [
        f"words {w!r} must not stand" for w in row.get("never", ()) if re.search(w, part.text)
    ]
    given = _read_numbers(part.text.split("\n\n")[0])
    lacks += [f"number {n}" for n in row.get("numbers", ()) if not _holds(given, n)]
    return tuple(lacks)


NEAR = 0.02
"""Share by which a number of an answer may be off: it is rounded for people."""
_NUMBER = expression(r"(?<![\w.])\d[\d,]{0,18}(?:\.\d{1,12})?(?:e[+-]?\d{1,3})?")


def _read_numbers(text: str) -> list[float]:
    return [float(m[0].rstrip(",").replace(",", "")) for m in _NUMBER.finditer(text)]


def _holds(given: Sequence[float], wanted: float | Sequence[float]) -> bool:
    """One of the given numbers is the wanted one, in one of the units in which it may be told."""
    units = [wanted] if isinstance(wanted, int | float) else wanted
    return any(abs(g - w) <= NEAR * abs(w) for g in given for w in units)


def run(file: Path = DEV, search: PassageSearch = search_lexically) -> list[Outcome]:
    """Every question of a file, answered and judged."""
    outcomes = []
    for group, rows in read_yaml(file.read_text(encoding="utf-8")).items():
        for row in rows:
            started = time.perf_counter()
            part = ask(row, search)
            took = time.perf_counter() - started
            outcomes.append(Outcome(group, row, part, find_lacks(row, part), took))
    return outcomes


def main() -> None:
    """Print the rate by group, and the misses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=DEV)
    parser.add_argument("--vectors", action="store_true", help="search as a warm service does")
    parser.add_argument("--misses", action="store_true")
    parser.add_argument(
        "--out", type=Path, default=Path("answers.json"), help="of a folder's answers"
    )
    parser.add_argument("--desk", type=Path, help="folder of requests and replies")
    parser.add_argument("--reader", default="strong")
    given = parser.parse_args()
    if given.file.is_dir():
        if given.desk is None:
            answers = answer_set(given.file)
        else:
            desk = open_desk(given.desk, given.reader)
            answers = answer_by_reader(given.file, desk)
            print(f"{len(desk.open)} request(s) wait for a reply in {desk.requests}")
        if not answers:
            return
        write_answers(answers, given.out)
        slowest = sorted(a.seconds for a in answers)[int(0.95 * len(answers))]
        print(f"{len(answers)} answers in {given.out}, 95 % of them within {slowest:.2f} s")
        return
    search: PassageSearch = search_lexically
    if given.vectors:
        search = warm = WarmSearch()
        warm.load()
    outcomes = run(given.file, search)
    for group in dict.fromkeys(o.group for o in outcomes):
        mine = [o for o in outcomes if o.group == group]
        print(f"{group:12} {sum(not o.lacks for o in mine):3} of {len(mine)}")
    good = sum(not o.lacks for o in outcomes)
    times = sorted(o.seconds for o in outcomes)
    print(f"all          {good:3} of {len(outcomes)} = {good / len(outcomes):.3f}")
    print(f"seconds: median {times[len(times) // 2]:.3f}, p95 {times[int(0.95 * len(times))]:.3f}")
    for o in outcomes if given.misses else ():
        if o.lacks:
            print(f"- {o.row['ask']}\n    {'; '.join(o.lacks)}")


if __name__ == "__main__":
    main()
