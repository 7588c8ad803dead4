"""Which other evidence tells the same incident? Variants of a case whose answer is known beforehand.

Every variant says what may change in the answer. Where a case has nothing that it could vary, or where the
change could not be made everywhere (a host's name within a node list that is written as a range), there is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from random import Random

import yaml
from evals.cases import Case

from firstfault_tools.log.prefix import read_prefix

TEXTS = Path(__file__).parent
RANKS_ADDED = 8
DAYS_ADDED = 7
"""A week: weekdays stay what they are, and so does the time of day, which durations look like."""

CUT_SHARE = 0.1
"""Share of the lines that is cut at the end."""

MOST_CHARS = 4_000_000


class Allowed(StrEnum):
    """What may change: nothing, or anything except that a fault turns healthy."""

    NOTHING = "nothing"
    NOT_HEALTHY = "all but healthy"


@dataclass(frozen=True, slots=True)
class Variant:
    """Other evidence of one incident. `question` and `compared` are the words of the person here and there.

    ranks_added, rename: how the place in the answer moves with the evidence.
    """

    name: str
    inputs: tuple[Path, ...]
    question: str
    compared: str
    allowed: Allowed = Allowed.NOTHING
    ranks_added: int = 0
    rename: Callable[[str], str] = str


Maker = Callable[[Case, Path, Random], Variant | None]


def make_variant(name: str, case: Case, folder: Path, seed: int) -> Variant | None:
    """The variant `name` of a case, its files written below `folder`; None where it has none."""
    return MAKERS[name](case, folder, Random(f"{seed} {name} {case.id}"))


def _add(name: str, file: str) -> Maker:
    def make(case: Case, folder: Path, random: Random) -> Variant:
        inputs = [*case.inputs]
        inputs.insert(random.randint(0, len(inputs)), TEXTS / file)
        return _same(name, case, inputs)

    return make


def _same(name: str, case: Case, inputs: Sequence[Path]) -> Variant:
    return Variant(name, tuple(inputs), case.question, case.question)


def _repeat(case: Case, folder: Path, random: Random) -> Variant:
    """One file once more, under another name."""
    file = random.choice(case.inputs)
    copy = folder / f"copy-of-{file.name}"
    copy.write_bytes(file.read_bytes())
    return _same("a file given twice", case, [*case.inputs, copy])


def _reorder(case: Case, folder: Path, random: Random) -> Variant | None:
    if len(case.inputs) < 2:
        return None
    return _same("files in another order", case, [*case.inputs[1:], case.inputs[0]][::-1])


def _cut(case: Case, folder: Path, random: Random) -> Variant | None:
    """Every log without its last tenth."""
    texts = _read_texts(case)
    if texts is None:
        return None
    kept: dict[str, str] = {}
    for name, text in texts.items():
        lines = text.splitlines(keepends=True)
        kept[name] = "".join(lines[: len(lines) - max(1, int(len(lines) * CUT_SHARE))])
    if not all(text.strip() for text in kept.values()):
        return None
    inputs = _write(folder, kept)
    name = "the last tenth cut off"
    return Variant(name, inputs, case.question, case.question, Allowed.NOT_HEALTHY)


_STEM = re.compile(r"([A-Za-z][A-Za-z.-]*?)\d")
_WORDS_NOT_NAMES = frozenset({"gpu", "rank", "cuda", "step", "task", "worker", "epoch", "pid", "mlx", "eth"})  # fmt: skip

_PART = re.compile(r"(?:^|[-.])(?:master|worker|launcher|leader|head|ps|chief)(?:[-.]|$)")
"""A pod's part in its job, which its name tells: other letters tell something else."""


def _rename_hosts(case: Case, folder: Path, random: Random) -> Variant | None:
    """Other stems of host names, wherever they stand: `node-03` and `node-[03-05]` become `quarry-03`, `quarry-[03-05]`."""
    texts = _read_texts(case)
    if texts is None:
        return None
    hosts = {
        speaker.host
        for text in texts.values()
        for line in text.splitlines()[:5000]
        if (speaker := read_prefix(line[:400])[0]).host is not None
    }
    stems = {found[1] for host in hosts if (found := _STEM.match(str(host)))}
    words = {stem.strip("-.").lower() for stem in stems}
    if not stems or words & _WORDS_NOT_NAMES or any(_PART.search(word) for word in words):
        return None
    new = {stem: f"quarry{i}{stem[-1] if stem[-1] in '-.' else 'x'}" for i, stem in enumerate(sorted(stems))}  # fmt: skip
    joined = "|".join(map(re.escape, sorted(new, key=len, reverse=True)))
    if re.search(rf"[\w-](?:{joined})\[?\d", "\n".join([*texts, *texts.values()])):
        return None  # part of a longer name somewhere, which would stay as it is
    pattern = re.compile(rf"(?<![\w-])(?:{joined})(?=\[?\d)")

    def rename(text: str) -> str:
        return pattern.sub(lambda m: new[m[0]], text)

    inputs = _write(folder, {rename(name): rename(text) for name, text in texts.items()})
    return Variant("other host names", inputs, rename(case.question), case.question, rename=rename)


_RANK = re.compile(r"(?i)(?<![A-Za-z_])((?:global[_ ])?rank(?:\s?[=:#]\s?|\s{1,8}:\s|[ _]?))(\d{1,4})\b(?!\.\d)")  # fmt: skip
_BOUND_WORLD = re.compile(
    r"(?i)world|ranks\b|nranks|num_processes|nproc|\btask\b|\bdefault\d|local[_ ]?rank|RankID|^\s*\[?\d+\]?: |/\d+ \(rank|"
    r"<\d+>|\bof \d+\b|exitcode|\bgroup\b|\(\d+/\d+\)|data_parallel|tensor_parallel|pipeline|\bdp\b|\btp\b|\bpp\b|peer|\[[\w.-]{1,40}:\d\]",
    re.M,
)


def _shift_ranks(case: Case, folder: Path, random: Random) -> Variant | None:
    """All ranks eight higher, where nothing that is printed ties them to a world, a group or a local rank."""
    texts = _read_texts(case)
    if texts is None or case.expect.first_failing_rank is None:
        return None
    whole = "\n".join([case.question, *texts.values()])
    if _BOUND_WORLD.search(whole) or not any(map(_RANK.search, texts.values())):
        return None
    if any(re.search(r"\d", name) and not _RANK.search(name) for name in texts):
        return None
    if not any(
        int(m[2]) == case.expect.first_failing_rank
        for t in texts.values()
        for m in _RANK.finditer(t)
    ):
        return None  # inferred, not printed: it would not move with what is printed

    def shift(text: str) -> str:
        return _RANK.sub(lambda m: f"{m[1]}{int(m[2]) + RANKS_ADDED}", text)

    inputs = _write(folder, {shift(name): shift(text) for name, text in texts.items()})
    return Variant(
        "ranks eight higher", inputs, shift(case.question), case.question, ranks_added=RANKS_ADDED
    )


_EPOCH_SECONDS = re.compile(r"\b1[67]\d{8}\b")
_DATE = re.compile(r"\b(20[12]\d)([-/])(0\d|1[0-2])([-/])([0-2]\d|3[01])(?=[T ,_]\d\d:\d\d)")
_GLOG = re.compile(r"(?<=[IWEF])(0\d|1[0-2])([0-2]\d|3[01])(?= \d\d:\d\d:\d\d)")
_SYSLOG = re.compile(r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)( +)(\d{1,2})(?= \d\d:\d\d:\d\d)")  # fmt: skip


def _shift_clocks(case: Case, folder: Path, random: Random) -> Variant | None:
    """All dates a week later."""
    texts = _read_texts(case)
    if texts is None:
        return None
    whole = "\n".join(texts.values())
    dated = any(p.search(whole) for p in (_DATE, _GLOG, _SYSLOG))
    if not dated or _EPOCH_SECONDS.search(whole) or "29" in {m[5] for m in _DATE.finditer(whole)}:
        return None
    year = next((int(m[1]) for m in _DATE.finditer(whole)), 2026)
    try:
        moved = {name: _move_dates(text, year) for name, text in texts.items()}
    except ValueError:  # what looks like a date and is none
        return None
    return _same("dates a week later", case, _write(folder, moved))


def _move_dates(text: str, year: int) -> str:
    def move(moment: datetime) -> datetime:
        return moment + timedelta(days=DAYS_ADDED)

    def date(m: re.Match[str]) -> str:
        return move(datetime(int(m[1]), int(m[3]), int(m[5]))).strftime(f"%Y{m[2]}%m{m[4]}%d")

    def glog(m: re.Match[str]) -> str:
        return move(datetime(year, int(m[1]), int(m[2]))).strftime("%m%d")

    def syslog(m: re.Match[str]) -> str:
        moved = move(datetime.strptime(f"{year} {m[1]} {m[3]}", "%Y %b %d"))
        return f"{moved:%b}{m[2]}{moved.day:>{len(m[3])}}"

    return _SYSLOG.sub(syslog, _GLOG.sub(glog, _DATE.sub(date, text)))


def _translate(case: Case, folder: Path, random: Random) -> Variant | None:
    """The person complains in another language; compared with the same complaint in English."""
    if case.expect.kind == "healthy":
        return None
    rows: list[dict[str, str]] = yaml.safe_load((TEXTS / "complaints.yaml").read_text("utf-8"))
    row = random.choice(rows)
    language = random.choice(sorted(row.keys() - {"en"}))
    return Variant("the complaint in another language", case.inputs, row[language], row["en"])


def _read_texts(case: Case) -> dict[str, str] | None:
    """Inputs by name; None where one is no text, or is read from a folder."""
    texts: dict[str, str] = {}
    for path in case.inputs:
        if not path.is_file() or path.stat().st_size > MOST_CHARS:
            return None
        try:
            texts[path.name] = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            return None
    return texts if len(texts) == len(case.inputs) else None


def _write(folder: Path, texts: Mapping[str, str]) -> tuple[Path, ...]:
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode())
    return tuple(folder / name for name in texts)


MAKERS: Mapping[str, Maker] = {
    "a list of packages added": _add("a list of packages added", "benign.txt"),
    "a passing nccl-tests table added": _add("a passing nccl-tests table added", "nccl-tests.txt"),
    "a healthy log of another job added": _add(
        "a healthy log of another job added", "other-job.log"
    ),
    "a file given twice": _repeat,
    "files in another order": _reorder,
    "the last tenth cut off": _cut,
    "other host names": _rename_hosts,
    "ranks eight higher": _shift_ranks,
    "dates a week later": _shift_clocks,
    "the complaint in another language": _translate,
}
