"""Does a question find its page? Recall at 1 and 5 and mean reciprocal rank, per way of ranking.

python -m evals.retrieval.run [--split dev|held|public] [--misses] [--no-vectors]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firstfault.knowledge_base.search import Method, SearchIndex, open_index
from firstfault_tools.knowledge.pack import read_yaml

QUESTIONS = Path(__file__).parent / "questions.yaml"
DEPTH = 50
Ranker = Callable[[str], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Question:
    """One question; any of `pages` answers it."""

    id: str
    text: str
    pages: frozenset[str]
    kind: str
    split: str
    language: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rank of the first page that answers, from 1; None where it is not among DEPTH."""

    question: Question
    rank: int | None
    first: str | None
    seconds: float


def load_questions(file: Path = QUESTIONS) -> tuple[Question, ...]:
    """All questions, in file order."""
    rows: list[Mapping[str, Any]] = read_yaml(file.read_text(encoding="utf-8"))
    return tuple(
        Question(
            id=row["id"],
            text=row["question"],
            pages=frozenset(row["pages"]),
            kind=row["kind"],
            split=row["split"],
            language=row.get("language", "en"),
        )
        for row in rows
    )


def make_rankers(index: SearchIndex) -> dict[str, Ranker]:
    """Name -> ranking of page ids, best first."""

    def by(method: Method, signatures: bool) -> Ranker:
        return lambda text: [
            f.page for f in index.search(text, DEPTH, method, signatures=signatures)
        ]

    rankers = {"BM25": by(Method.LEXICAL, False)}
    if index.vectors is not None:
        rankers["vectors"] = by(Method.VECTOR, False)
        rankers["BM25 and vectors"] = by(Method.FUSED, False)
    rankers["all, with signatures"] = by(Method.FUSED, True)
    return rankers


def ask(ranker: Ranker, questions: Iterable[Question]) -> list[Outcome]:
    """Outcome of every question."""
    outcomes = []
    for question in questions:
        begin = time.perf_counter()
        pages = list(ranker(question.text))
        seconds = time.perf_counter() - begin
        rank = next((n for n, p in enumerate(pages, 1) if p in question.pages), None)
        outcomes.append(Outcome(question, rank, pages[0] if pages else None, seconds))
    return outcomes


def recall(outcomes: Sequence[Outcome], depth: int) -> float:
    """Share of questions with an answering page among the first `depth`."""
    hits = sum(o.rank is not None and o.rank <= depth for o in outcomes)
    return hits / len(outcomes) if outcomes else 0.0


def mean_reciprocal_rank(outcomes: Sequence[Outcome]) -> float:
    """Mean of 1/rank; a question without an answer counts 0."""
    return sum(1 / o.rank for o in outcomes if o.rank) / len(outcomes) if outcomes else 0.0


def write_table(vectors: bool = True, index: SearchIndex | None = None) -> str:
    """Markdown section: every way of ranking, by split and kind."""
    index = index or open_index(vectors=vectors)
    questions = load_questions()
    lines = [
        "# Retrieval",
        "",
        f"{len(questions)} questions. dev: tuned on. held: not tuned on, but written by the writer of the search phrases. "
        "public: questions of strangers, reworded; first measured before anything was changed for them.",
        "",
        "| ranking | split | kind | questions | recall@1 | recall@5 | MRR | median ms |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, ranker in make_rankers(index).items():
        outcomes = ask(ranker, questions)
        for split in sorted({q.split for q in questions}):
            of_split = [o for o in outcomes if o.question.split == split]
            kinds = sorted({o.question.kind for o in of_split})
            for kind in [*kinds, "all"] if len(kinds) > 1 else kinds:
                chosen = [o for o in of_split if kind in ("all", o.question.kind)]
                lines.append(_line(name, split, kind, chosen))
    return "\n".join(lines) + "\n"


def _line(name: str, split: str, kind: str, outcomes: Sequence[Outcome]) -> str:
    median = sorted(o.seconds for o in outcomes)[len(outcomes) // 2] * 1000
    return (
        f"| {name} | {split} | {kind} | {len(outcomes)} | {recall(outcomes, 1):.3f} "
        f"| {recall(outcomes, 5):.3f} | {mean_reciprocal_rank(outcomes):.3f} | {median:.1f} |"
    )


def main() -> None:
    """Print the table, or what one split misses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", default="dev")
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--no-vectors", action="store_true")
    chosen = parser.parse_args()
    index = open_index(vectors=not chosen.no_vectors)
    if not chosen.misses:
        print(write_table(index=index))
        return
    questions = [q for q in load_questions() if q.split == chosen.split]
    ranker = list(make_rankers(index).values())[-1]
    for outcome in ask(ranker, questions):
        if outcome.rank != 1:
            q = outcome.question
            print(f"{outcome.rank} {q.id} {q.text[:110]!r}: {outcome.first}, not {sorted(q.pages)}")


if __name__ == "__main__":
    main()
