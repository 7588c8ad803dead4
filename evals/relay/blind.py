"""Which cases, under which numbers? Copies of question and files alone, in an order that tells nothing."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml


@dataclass(frozen=True, slots=True)
class Blind:
    """One numbered case as the product and the readers see it."""

    number: str
    question: str
    files: tuple[Path, ...]


def prepare(sources: Sequence[Path], out: Path, key: Path, seed: int, limit: int) -> None:
    """Copy the cases below `sources` into `out`/cases under numbers; the key says which is which."""
    found = sorted({f.resolve() for source in sources for f in _find(source)})
    random.Random(seed).shuffle(found)
    found = found[: limit or None]
    width = max(2, len(str(len(found))))
    known = {}
    for place, file in enumerate(found, 1):
        number = f"{place:0{width}d}"
        row = yaml.safe_load(file.read_text("utf-8"))
        folder = out / "cases" / number
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "question.txt").write_text(str(row.get("question") or ""), "utf-8")
        if row.get("log") is not None:
            (folder / "log.txt").write_text(str(row["log"]), "utf-8")
        for name in row.get("inputs") or ():
            target = folder / str(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.parent / str(name), target)
        known[number] = str(file)
    key.write_text(json.dumps(known, indent=1), "utf-8")
    print(f"{len(known)} cases below {out / 'cases'}; the key is {key}")


def _find(source: Path) -> Iterator[Path]:
    if source.is_file():
        yield source
        return
    for file in source.rglob("*.yaml"):
        if file.name == "case.yaml" or "\nlog:" in f"\n{file.read_text('utf-8', 'replace')}":
            yield file


def load_blind(folder: Path, only: set[str] | frozenset[str] = frozenset()) -> list[Blind]:
    """The numbered cases of a folder."""
    out = []
    for one in sorted(p for p in (folder / "cases").iterdir() if p.is_dir()):
        if only and one.name not in only:
            continue
        said = one / "question.txt"
        files = sorted(p for p in one.rglob("*") if p.is_file() and p != said)
        question = said.read_text("utf-8") if said.exists() else ""
        out.append(Blind(one.name, question, tuple(files)))
    return out
