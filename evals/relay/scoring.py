"""Which arm is right how often? One table over the numbered cases, with the key that says what each was."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from evals.answer import Answer, of_diagnosis
from evals.cases import Case, load_case
from evals.scorers.triple import Score, macro_f1, score_triple

HEAD = (
    "| arm | cases | category | macro-F1 | rank | cause, own sentence | cause anywhere | healthy called healthy "
    "| broken called healthy | undecided left open | confirmed and wrong | tokens a case, median |"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One case under one arm."""

    number: str
    score: Score
    answer: Answer
    tokens: int


def write_scores(
    folder: Path, key: Path, reader: str, verbose: bool, only: Collection[str] = ()
) -> None:
    """Print the table and what the check threw away; write every row beside it."""
    known = json.loads(key.read_text("utf-8"))
    cases = {n: read_case(Path(f)) for n, f in known.items() if not only or n in only}
    arms: dict[str, list[Row]] = {"rules": [], "model alone": [], "product with model": []}
    kept = proposed = lost = right = 0
    led: dict[str, int] = {}
    for number, case in sorted(cases.items()):
        alone, product = (_read(folder, reader, number, arm) for arm in ("alone", "product"))
        if alone is not None:
            answer = of_alone(alone["answer"])
            arms["model alone"].append(Row(number, score_triple(case, answer), answer, alone["bytes"] // 4))  # fmt: skip
        if product is None:
            continue
        for arm, name in (("rules", "rules"), ("product with model", "product")):
            answer = of_diagnosis(product[name])
            tokens = product["bytes"] // 4 if name == "product" else 0
            arms[arm].append(Row(number, score_triple(case, answer), answer, tokens))
        kept, proposed = kept + product["kept"], proposed + product["proposed"]
        shown = f"{product['led_by']}{', disputed' if product['disputed'] else ''}"
        led[shown] = led.get(shown, 0) + 1
        said = of_reply(product["said"])
        if said is not None and score_triple(case, said).cause:
            right += 1
            lost += product["explanations_kept"] == 0
    print(HEAD + "\n|" + " --- |" * HEAD.count(" | ") + " --- |")
    for name, rows in arms.items():
        if rows:
            print(_line(name, rows))
    print(f"\nled by: {led}; parts of replies kept: {kept} of {proposed}; right leading explanations thrown away: {lost} of {right}")  # fmt: skip
    table = [
        {"number": r.number, "arm": arm, "category": r.score.category, "rank": r.score.rank, "cause": r.score.cause,
         "verdict": r.answer.verdict, "said": r.answer.said, "why": r.score.why}
        for arm, rows in arms.items() for r in rows
    ]  # fmt: skip
    (folder / f"scores-{reader}.json").write_text(json.dumps(table, indent=1, ensure_ascii=False), "utf-8")  # fmt: skip
    if verbose:
        for row in table:
            if not (row["category"] and row["rank"] and row["cause"]):
                print(f"{row['number']} {row['arm']}: {row['why']} | {row['verdict']} | {row['said'][:300]}")  # fmt: skip


def _line(name: str, rows: Sequence[Row]) -> str:
    scores = [r.score for r in rows]
    count = len(rows)
    healthy = [s.healthy for s in scores if s.healthy is not None]
    open_ = [s.left_open for s in scores if s.left_open is not None]
    wrong = sum(s.confirmed and not s.right for s in scores)
    pairs = [(s.expected, s.predicted) for s in scores]
    return (
        f"| {name} | {count} | {sum(s.category for s in scores) / count:.3f} | {macro_f1(pairs):.3f} | {sum(s.rank for s in scores) / count:.3f} "
        f"| {sum(s.cause for s in scores) / count:.3f} | {sum(s.anywhere for s in scores) / count:.3f} | {sum(healthy)}/{len(healthy)} "
        f"| {sum(s.missed for s in scores)} | {sum(open_)}/{len(open_)} | {wrong}/{sum(s.confirmed for s in scores)} | {median(r.tokens for r in rows):.0f} |"
    )


def of_alone(row: dict[str, Any]) -> Answer:
    """Answer of the arm `alone`."""
    cause = str(row.get("root_cause") or "")
    rank = row.get("first_failing_rank")
    category = row.get("category")
    return Answer(
        str(row.get("verdict") or "unknown"),
        str(category) if category not in (None, "null") else None,
        rank if isinstance(rank, int) else None,
        cause, cause, cause,
    )  # fmt: skip


def of_reply(said: dict[str, Any] | None) -> Answer | None:
    """Answer by the first explanation of a reply, before any check."""
    accounts = (said or {}).get("explanations") or []
    if not accounts:
        return None
    first = accounts[0]
    cause = str(first.get("cause") or "")
    text = f"{cause} {first.get('mechanism') or ''}"
    return Answer(first.get("verdict", "unknown"), first.get("category"), first.get("rank"), text, text, cause)  # fmt: skip


def read_case(file: Path) -> Case:
    """Case behind a key: a case folder's file, or one file with question and log."""
    row = yaml.safe_load(file.read_text("utf-8"))
    if "inputs" in row:
        return load_case(file.parent)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "case.yaml").write_text(yaml.safe_dump({**row, "inputs": []}), "utf-8")
        return load_case(Path(folder))


def _read(folder: Path, reader: str, number: str, arm: str) -> dict[str, Any] | None:
    file = folder / "results" / reader / f"{number}.{arm}.json"
    if not file.exists():
        return None
    row: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return row
