"""Can every knowledge page be loaded, cited and trusted?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from firstfault_tools.findings import Category

KNOWLEDGE = Path(__file__).resolve().parents[2] / "knowledge"
FILES = sorted((KNOWLEDGE / "pages").rglob("*.md"))

REQUIRED = {
    "id",
    "title",
    "category",
    "frameworks",
    "tags",
    "checked",
    "versions",
    "sources",
    "covers",
    "corrects",
}
OPTIONAL = {"settled", "benign"}
HEADINGS = [
    "Symptoms",
    "Why it happens",
    "How to confirm",
    "Fix now",
    "Fix for good",
    "What it is not",
    "Prevent",
]
BENIGN_HEADINGS = ["Symptoms", "Why it is harmless"]
NO_KNOWLEDGE = {
    "000: Objective",
    "000: References",
    "000: What Comes Next",
    "004: Try With AI",
}
"""Seed sections that state no fact: goals, link lists, outlook, exercises."""
INVENTED = re.compile(r"\b(?:NCCL_TIMEOUT|TORCH_DISTRIBUTED_TIMEOUT|nccl-ras-query)\b")
"""Names that do not exist; a page may only name them to say so."""


Front = dict[str, Any]
Problems = Iterator[str]


def _read(file: Path) -> tuple[Front, str]:
    text = file.read_text(encoding="utf-8")
    match = re.match(r"---\n(.*?)\n---\n(.*)", text, re.DOTALL)
    assert match, f"{file.name}: front matter between two --- lines"
    front = yaml.load(match[1], Loader=yaml.CSafeLoader)
    assert isinstance(front, dict), file.name
    return front, match[2]


PAGES = {file: _read(file) for file in FILES}


def hold(check: Callable[[Front, str], Problems]) -> None:
    """Run a check over the front matter and text of every page; all its problems in one message."""
    assert PAGES
    wrong = [
        f"{file.stem}: {problem}" for file, page in PAGES.items() for problem in check(*page)
    ]
    assert not wrong, "\n".join(wrong)


def _without_code(body: str) -> str:
    return re.sub(r"^[ ]*```.*?^[ ]*```[ ]*$", "", body, flags=re.DOTALL | re.MULTILINE)


def _section(body: str, heading: str) -> str:
    match = re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", body, re.DOTALL | re.MULTILINE
    )
    return match[1] if match else ""


def _seed_sections() -> set[str]:
    content = yaml.load(
        (KNOWLEDGE / "seeds.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader
    )
    return {
        f"{number}: {section}"
        for number, seed in content["seeds"].items()
        for section in seed["sections"]
    }


def test_ids_are_unique() -> None:
    doubled = [name for name, count in Counter(f.stem for f in FILES).items() if count > 1]
    assert not doubled, f"page ids used twice: {doubled}"


def test_titles_are_unique() -> None:
    titles = Counter(str(front["title"]) for front, _ in PAGES.values())
    assert not [title for title, count in titles.items() if count > 1]


def test_front_matter() -> None:
    misnamed = [file.stem for file, (front, _) in PAGES.items() if front.get("id") != file.stem]
    assert not misnamed, f"the id is the name of the file: {misnamed}"
    hold(_break_front)


def _break_front(front: Front, _: str) -> Problems:
    if missing := REQUIRED - front.keys():
        yield f"fields missing: {sorted(missing)}"
        return
    if unread := front.keys() - REQUIRED - OPTIONAL:
        yield f"fields that nothing reads: {sorted(unread)}"
    if front["category"] not in set(Category):
        yield f"category {front['category']}"
    for key, kind in (("title", str), ("checked", date), ("versions", str)):
        if not isinstance(front[key], kind):
            yield f"{key} is no {kind.__name__}"
    for key in ("frameworks", "tags", "sources", "covers", "corrects"):
        entries = front[key]
        if not isinstance(entries, list) or not all(isinstance(e, str) and e for e in entries):
            yield f"{key} is a list of texts"
    if not front["frameworks"] or not front["tags"]:
        yield "frameworks and tags are named"


def test_sources_are_named() -> None:
    hold(_lack_sources)


def _lack_sources(front: Front, _: str) -> Problems:
    if not front["sources"]:
        yield "no source"
    for source in front["sources"]:
        if not re.match(r"https://\S+$|seed \d{3}\b|arXiv ", source):
            yield f"no source: {source}"


def test_covered_sections_exist() -> None:
    known = _seed_sections()

    def check(front: Front, _: str) -> Problems:
        if unknown := set(front["covers"]) - known:
            yield f"not a section of knowledge/seeds.yaml: {sorted(unknown)}"

    hold(check)


def test_every_seed_section_is_carried_over() -> None:
    covered = {section for front, _ in PAGES.values() for section in front["covers"]}
    assert _seed_sections() - covered == NO_KNOWLEDGE


def test_headings() -> None:
    hold(_break_headings)


def _break_headings(front: Front, body: str) -> Problems:
    found = re.findall(r"^## (.+)$", _without_code(body), re.MULTILINE)
    wanted = BENIGN_HEADINGS if front.get("benign") else HEADINGS
    if found[: len(wanted)] != wanted:
        yield f"headings {found}"
    if len(found) != len(set(found)):
        yield "a heading twice"
    if front.get("benign") and {"Fix now", "Fix for good"} & set(found):
        yield "a benign page offers no fixes"
    for heading in found:
        if not _section(body, heading).strip():
            yield f"section {heading} is empty"


def test_summary_comes_first() -> None:
    hold(_break_summary)


def _break_summary(_: Front, body: str) -> Problems:
    summary = body.split("\n## ", 1)[0].strip()
    if not summary or "\n\n" in summary:
        yield "the summary is one paragraph"


def test_fixes_are_full_sentences() -> None:
    hold(_break_fixes)


def _break_fixes(front: Front, body: str) -> Problems:
    for heading in ("Fix now", "Fix for good") if not front.get("benign") else ():
        text = _without_code(_section(body, heading))
        fixes = re.findall(r"^- (.+(?:\n  .+)*)", text, re.MULTILINE)
        if not fixes:
            yield f"{heading}: one fix a bullet"
        for fix in fixes:
            ending = re.sub(r"\s*\[changes state\]$", "", fix.strip())
            if not re.search(r"[.!)`:]$", ending):
                yield f"a full sentence: {fix}"


_KILL = re.compile(r"^\s*kill (?:-[A-Z0-9]+ )?(\S+)", re.MULTILINE)


def test_a_process_is_shown_before_it_is_ended() -> None:
    hold(_break_kills)


def _break_kills(_: Front, body: str) -> Problems:
    for block in re.findall(r"^ *```bash\n(.*?)^ *```$", body, re.MULTILINE | re.DOTALL):
        for killed in _KILL.finditer(block):
            shown = f"ps -o user,pid,lstart,cmd -p {killed[1].rstrip(';')}\n"
            if shown not in block[: killed.start() + 1]:
                yield f"`{shown.strip()}` before `{killed[0].strip()}`"


def test_invented_names_are_called_so() -> None:
    hold(_advise_invented)


def _advise_invented(front: Front, body: str) -> Problems:
    if INVENTED.search(body) and not front["corrects"]:
        yield "an invented name appears: the page must correct it"
    for heading in ("Fix now", "Fix for good") if not front.get("benign") else ():
        code = "\n".join(re.findall(r"```.*?```", _section(body, heading), re.DOTALL))
        if INVENTED.search(code):
            yield f"{heading} advises a name that does not exist"
