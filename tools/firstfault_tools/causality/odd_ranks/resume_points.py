"""Do all nodes resume at the same step? Compares where each host or rank says that it goes on.

A checkpoint on a disk of one node is found there only. The other nodes start at step 0 without a word of
error, and the collectives pair different steps: a hang, or a loss that makes no sense.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.odd_ranks.idle_resume import NOT_TRAINING, find_nothing_done
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import quote_line
from firstfault_tools.log.digest import FileDigest
from firstfault_tools.log.scan import make_line

MOST_LINES = 20_000
WORDS = (
    "esum",
    "ontinuing training",
    "oaded checkpoint",
    "it/s]",
    "s/it]",
    "epoch",
    "tep",
    "scratch",
)
_TOLD = expression(
    r"(?i)(?:continuing training from global step|resum(?:ed|ing)(?: training)? (?:from|at)(?: global)?[ _]?(?:step|iteration|iter)|"
    r"successfully loaded checkpoint from \S{1,200} (?:\[ ?t [^\]]*\] )?at iteration|restored (?:from|at) step|"
    r"start(?:ing)? from (?:global )?step|start_iteration|starting at step)[ :=]{1,3}(?P<step>\d{1,9})"
)
_BAR = expression(r"\d{1,3}%\|[^|]{0,200}\|\s*(?P<step>\d{1,9})/\d{1,9} \[")
_HOST = expression(r"\s*(\d{1,3}(?:\.\d{1,3}){3}|[A-Za-z][\w.-]*\d[\w.-]*): ")
LEAST_STEP = 2
"""A resumed step below this may as well be a count from 0 beside one from 1."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where one host or rank began: the step, whether it said so, and the line."""

    step: int
    told: bool
    evidence: Evidence


def find_in_incident(incident: LogIncident, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Hosts or ranks that go on at another step than those that resumed; data that begins again."""
    return (
        _find_apart(incident)
        or _find_replay(incident)
        or _find_nothing_left(incident)
        or _find_narrowed(incident)
        or find_nothing_done(incident)
        or _find_rate_apart(incident)
    )


_LIMIT = expression(
    r"(?i)\b(?P<what>max_?steps|max_?train_?steps|total_?steps|num_?train_?steps|train_?iters|max_?iters)['\"]?\s*[:=]\s*(?P<most>\d{1,9})\b"
)


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of a log, and what is told there."""

    number: int
    text: str
    told: re.Match[str]


def _last_resume(lines: Sequence[tuple[int, str]], words: Sequence[str]) -> _Row | None:
    """The last line that tells the step of a resume."""
    for number, text in reversed(lines):
        if any(word in text for word in words):
            place = _POSITION.search(text[:2_000])
            if place is not None:
                return _Row(number, text, place)
    return None


def _first_step(incident: LogIncident, digest: FileDigest, after: int) -> int | None:
    """Where the first step is counted behind a line."""
    steps = incident.progress[digest.file].after(after)
    return next((p.number for p in steps if p.training), None)


def _tell_nothing_left(
    title: str, digest: FileDigest, rows: Sequence[_Row], confidence: Confidence
) -> Finding:
    return Finding(
        kind="checkpoint.nothing_left",
        title=title,
        level=Level.CAUSE,
        category=Category.CHECKPOINT,
        confidence=confidence,
        evidence=tuple(quote_line(digest.file, r.number, r.text) for r in rows),
        facts={"survived": False, "severity": "warning", "explains": {"unlearned": 0.4}},
    )


def _find_waiting(incident: LogIncident, digest: FileDigest) -> Finding | None:
    """A resume at the last planned step without a word of an end: the loop waits for a step that never comes."""
    if not any(run.holds(("esum", "estor")) for run in digest.kept.runs):
        return None
    lines = digest.kept[:MOST_LINES]
    limits = [_Row(n, t, m) for n, t in lines if ("steps" in t or "iters" in t) and (m := _LIMIT.search(t[:2_000]))]  # fmt: skip
    resumed = _last_resume(lines, ("esum", "estor")) if limits else None
    if resumed is None:
        return None
    step, limit = resumed.told["step"], limits[-1].told
    if int(step) < max(int(limit["most"]), LEAST_STEP):
        return None
    if _first_step(incident, digest, resumed.number) is not None:
        return None
    return _tell_nothing_left(
        f"nothing is left to train: the run resumed at step {step}, and {limit['what']}={limit['most']} is already reached, so no "
        "further step comes (a loop that waits for one idles without an error)",
        digest,
        (resumed, limits[-1]),
        Confidence.LIKELY,
    )


_DTYPE = expression(
    r"(?i)\b(?P<what>[A-Za-z][\w./-]{1,60}) dtype\W{1,3}(?:torch\.)?(?P<dtype>float(?:64|32|16|8\w*)|bfloat16|half|int8|uint8)\b"
)
_BITS = {
    "float64": 64,
    "float32": 32,
    "bfloat16": 16,
    "float16": 16,
    "half": 16,
    "int8": 8,
    "uint8": 8,
}


def _find_narrowed(incident: LogIncident) -> tuple[Finding, ...]:
    """Weights that are reported in a narrower number format after a resume than before it."""
    before: dict[str, tuple[str, int, str, str]] = {}
    resumed = 0
    for digest, number, text in incident.lines_with((" dtype", "esum", "estored")):
        if len(text) > 2_000:
            continue
        if _RESUMED.search(text):
            resumed = number
        for told in _DTYPE.finditer(text):
            what, dtype = told["what"].lower(), told["dtype"].lower()
            if not resumed:
                before[what] = (dtype, number, text, digest.file)
            elif what in before and _width(dtype) < _width(before[what][0]):
                then, n, t, file = before[what]
                return (
                    Finding(
                        kind="checkpoint.narrowed",
                        title=f"the resume loads {told['what']} in {dtype}, before it was {then}: the precision of the trained weights was not restored "
                        "(they were cast to the dtype of the frozen model), so the run goes on worse than it stopped",
                        level=Level.CAUSE,
                        category=Category.CHECKPOINT,
                        evidence=(quote_line(digest.file, number, text), quote_line(file, n, t)),
                        facts={"survived": False, "starts_at": 1, "explains": {"setback": 0.4}},
                    ),
                )  # fmt: skip
    return ()


def _width(dtype: str) -> int:
    return _BITS.get(dtype, 8)


_STOPPED = expression(
    r"`Trainer\.fit` stopped: `(?P<what>max_(?:steps|epochs))=(?P<most>\d+)` reached|['\"]train_runtime['\"]: (?P<seconds>\d+\.\d+)"
)
_POSITION = expression(
    r"(?i)(?:restor|resum|continuing|loaded|loading)\w*\b.{0,200}?(?:global[_ ]step|checkpoint-|step)[ =:_-]{0,2}(?P<step>\d{1,9})"
)
AT_ONCE_S = 30.0
"""A training that a trainer times shorter than this, after a resume and without a step, did none."""


def _find_nothing_left(incident: LogIncident) -> tuple[Finding, ...]:
    """A resume after which the trainer ends without one step: it stood at its last step already."""
    stopped: dict[str, _Row] = {}
    for digest, number, text in incident.lines_with(("`Trainer.fit` stopped", "train_runtime")):
        if (told := _STOPPED.search(text)) is not None:
            stopped[digest.file] = _Row(number, text, told)
    for digest in incident.digests:
        stop = stopped.get(digest.file)
        found = (
            _find_waiting(incident, digest) if stop is None else _judge_stop(incident, digest, stop)
        )
        if found is not None:
            return (found,)
    return ()


def _judge_stop(incident: LogIncident, digest: FileDigest, stop: _Row) -> Finding | None:
    """An end of the trainer at once after a resume, without a step between."""
    seconds = stop.told["seconds"]
    if seconds and float(seconds) > AT_ONCE_S:
        return None
    lines = [line for line in digest.kept[:MOST_LINES] if line[0] < stop.number]
    resumed = _last_resume(lines, ("esum", "estor", "ontinuing"))
    if resumed is None:
        return None
    step = _first_step(incident, digest, resumed.number)
    if step is not None and step < stop.number:
        return None
    what = stop.told["what"]
    limit = f"{what}={stop.told['most']}" if what else "the planned number of steps"
    return _tell_nothing_left(
        f"nothing was trained: the resumed checkpoint stands at step {resumed.told['step']} already, and the run is planned to "
        f"end there ({limit} is reached), so the trainer stops at once without an error",
        digest,
        (stop, resumed),
        Confidence.CONFIRMED,
    )


_LOAD = expression(
    r"(?i)\b(?:load(?:ed|ing)?|resum(?:ed?|ing)|restor(?:ed|ing))\b.{0,60}(?:checkpoint|ckpt|\.pth?\b|state_?dict|epoch|step)"
)
_RATE = expression(
    r"(?i)\b(?:lr|learning[_ ]?rate)['\"]?\s*[:=]?\s*\[?(?P<rate>\d*\.?\d+(?:e[-+]?\d+)?)\b"
)
_AT_EPOCH = expression(r"(?i)\bepoch['\"]?\W{0,4}(?P<epoch>\d{1,6})\b")
_NO_SCHEDULE = expression(
    r"(?i)\b(?:no|not|without|skip\w*|ignor\w*|missing)\b.{0,40}\bsched\w*|\bsched\w*.{0,40}\b(?:not|missing|skipp\w*|none|false)\b"
)
HIGHER, RUNS = 2.0, 8
"""How many times the rate before the rate after a resume is that no schedule asks for; logs of runs beside each other at most."""


@dataclass(frozen=True, slots=True)
class _Rate:
    """A learning rate that a line tells for an epoch."""

    number: int
    text: str
    rate: float
    epoch: int


def _find_rate_apart(incident: LogIncident) -> tuple[Finding, ...]:
    """A run that another log resumes with a much higher learning rate than it stopped with."""
    if not 2 <= len(incident.digests) <= RUNS:
        return ()
    rates, loads = _read_rates(incident)
    for file, start in loads.items():
        past = [(f, told[-1]) for f, told in rates.items() if f != file and f not in loads]
        if len(past) != 1:
            continue
        (old, last), after = past[0], rates.get(file, [])
        if not _is_higher(last, after):
            continue
        first = after[0]
        rows = [(old, last.number, last.text), (file, first.number, first.text)]
        rows += [(file, n, t) for d, n, t in incident.lines_with(("ched",)) if d.file == file and n <= first.number and _NO_SCHEDULE.search(t[:2_000])][:1]  # fmt: skip
        return (
            Finding(
                kind="checkpoint.rate_apart",
                title=f"the learning rate was {last.rate:g} where the earlier run stopped ({old}, epoch {last.epoch}) and is {first.rate:g} from the resume "
                f"on ({file}, epoch {first.epoch}): the state of the learning-rate scheduler was not restored from the checkpoint, so its schedule begins "
                f"anew and the rate, {first.rate / last.rate:.0f} times as high, spoils the weights that were loaded well",
                level=Level.CAUSE,
                category=Category.CHECKPOINT,
                confidence=Confidence.CONFIRMED,
                evidence=tuple(quote_line(f, n, t) for f, n, t in rows),
                facts={
                    "before": last.rate,
                    "after": first.rate,
                    "loaded_at": start,
                    "survived": False,
                },
            ),
        )
    return ()


def _read_rates(incident: LogIncident) -> tuple[dict[str, list[_Rate]], dict[str, int]]:
    """The learning rates of each log, and where logs load a checkpoint before they tell the first."""
    rates: dict[str, list[_Rate]] = defaultdict(list)
    loads: dict[str, int] = {}
    for digest, number, text in incident.lines_with(
        ("lr", "LR", "earning", "oad", "esum", "estor")
    ):
        told = _RATE.search(text) if len(text) <= 2_000 else None
        epoch = _AT_EPOCH.search(text) if told is not None else None
        if told is not None and epoch is not None:
            rate = _Rate(number, text, float(told["rate"]), int(epoch["epoch"]))
            rates[digest.file].append(rate)
        elif digest.file not in rates and _LOAD.search(text[:2_000]):
            loads[digest.file] = number
    return rates, loads


def _is_higher(last: _Rate, after: Sequence[_Rate]) -> bool:
    """The first rates after the resume are far above the last before it, which was told for that epoch or the one before."""
    if len(after) < 2 or last.rate <= 0 or after[0].epoch - last.epoch not in (0, 1):
        return False
    return min(after[0].rate, after[1].rate) >= HIGHER * last.rate


_RESUMED = expression(
    r"(?i)\bresum(?:ed|ing)\b|\bcontinuing training from\b|\brestored\b.{0,60}\b(?:step|checkpoint)"
)
_ORDER = expression(
    r"(?i)\b(?:\w*sampler\w*|data_?seed|shuffl\w*|permutation|data ?order|data ?loader)\b[^\n]{0,60}?\bepoch['\"]?\W{1,3}0\b(?!\.\d*[1-9])"
)
_EPOCH = expression(r"(?i)\bepoch['\"]?\W{1,3}(?P<epoch>[1-9]\d{0,4})(?:\.\d+)?\b")
_IDS = expression(r"\[(\d+(?:, ?\d+){2,31})[^\]]{0,8}\].{0,200}\[\1[^\]]{0,8}\]")
AFTER_RESUME = 40


def _find_replay(incident: LogIncident) -> tuple[Finding, ...]:
    """A resume in a later epoch whose sampler says that it begins with epoch 0 again."""
    for digest in incident.digests:
        if not any(run.holds(("ampler", "data_seed", "huffl", "ermutation", "order", "sample ids")) for run in digest.kept.runs):  # fmt: skip
            continue
        lines = digest.kept[:MOST_LINES]
        reached, order = _read_order(lines)
        if order is None or not reached:
            continue
        again = next((p for p in lines if p[0] >= order[0] and _repeats_samples(p[1])), None)
        quoted = dict.fromkeys((order, again) if again is not None else (order,))
        return (
            Finding(
                kind="checkpoint.order_replayed",
                title=f"the resume in epoch {reached} replays the data order of epoch 0: the sampler's epoch (its shuffle seed) was not "
                "restored, so samples that were already seen in this epoch come again and others never do; the training loss is "
                "lower for it, and not because of better learning",
                level=Level.CAUSE,
                category=Category.CHECKPOINT,
                evidence=tuple(quote_line(digest.file, n, t) for n, t in quoted),
                facts={"survived": False, "starts_at": 1, "explains": {"setback": 0.4}},
            ),
        )
    return ()


def _read_order(lines: Sequence[tuple[int, str]]) -> tuple[str, tuple[int, str] | None]:
    """The epoch that a resume reached, and the first line near it by which the data begin anew."""
    resumed, reached = 0, ""
    order: tuple[int, str] | None = None
    for number, text in lines:
        if len(text) > 2_000:
            continue
        if _tells_resume(text):
            resumed = number
        if order is None and "poch" in text and (told := _EPOCH.search(text)) is not None:
            reached = told["epoch"]
        if not resumed or number - resumed > AFTER_RESUME:
            continue
        if _repeats_samples(text):
            return reached, order or (number, text)
        if order is None and reached and _begins_order(text):
            order = (number, text)
    return reached, order


def _tells_resume(text: str) -> bool:
    hinted = "esum" in text or "ontinuing" in text or "estored" in text
    return hinted and _RESUMED.search(text) is not None


def _repeats_samples(text: str) -> bool:
    """One line lists the same numbers of samples twice: before and after."""
    return "id" in text and _IDS.search(text) is not None


def _begins_order(text: str) -> bool:
    """The training's sampler is at epoch 0."""
    return "poch" in text and "val" not in text and _ORDER.search(text) is not None


def _find_apart(incident: LogIncident) -> tuple[Finding, ...]:
    starts = _read_starts(incident)
    at = max((s.step for s in starts.values()), default=0)
    others = {w: s for w, s in starts.items() if s.step != at}
    if at < LEAST_STEP or not others:
        return ()
    lead = next(w for w, s in starts.items() if s.step == at)
    late = {w: s for w, s in others.items() if s.step < LEAST_STEP} or others
    odd, start = next(iter(late.items()))
    if not starts[lead].told and not start.told:
        return ()
    rank, host = _read_place(odd) if len(late) == 1 else (None, None)
    names = ", ".join(list(late)[:6])
    began = f"start{'s' if len(late) == 1 else ''} at step {start.step}"
    return (
        Finding(
            kind="checkpoint.resume_differs",
            title=f"{lead} resumes from step {at}, but {names} {began}: the checkpoint was not found there, as when it lies "
            "on a local disk of one node and not on storage that all nodes share, so the ranks train different "
            "steps with different weights",
            level=Level.CAUSE,
            category=Category.CHECKPOINT,
            confidence=Confidence.CONFIRMED,
            evidence=(starts[lead].evidence, start.evidence),
            rank=rank,
            host=host,
            facts={"steps": {w: s.step for w, s in list(starts.items())[:64]}, "survived": False},
        ),
    )


def _read_place(who: str) -> tuple[int | None, str | None]:
    """(rank, host) of one that began: either of them."""
    if who.startswith("rank "):
        return int(who.removeprefix("rank ")), None
    return None, who


def _read_starts(incident: LogIncident) -> dict[str, Start]:
    """First step of every host or rank: what it says, else the first count of its training bar."""
    starts: dict[str, Start] = {}
    for digest in incident.digests:
        if not digest.kept.holds(WORDS):
            continue
        for number, text in digest.kept[:MOST_LINES]:
            start = _read_start(digest, number, text)
            who = _who_began(digest, number, text) if start is not None else None
            if start is None or who is None:
                continue
            if who not in starts or (start.told and not starts[who].told):
                starts[who] = start
    return starts


def _read_start(digest: FileDigest, number: int, text: str) -> Start | None:
    """Where a line says that training goes on, or the count of a bar of training."""
    if len(text) > 2_000 or not any(word in text for word in WORDS):
        return None
    told = _TOLD.search(text)
    match = told or _BAR.search(text)
    if match is None or (told is None and NOT_TRAINING.search(text[: match.start() + 1])):
        return None
    evidence = Evidence(digest.file, number, text[:400])
    return Start(int(match["step"]), told is not None, evidence)


def _who_began(digest: FileDigest, number: int, text: str) -> str | None:
    """Host or rank of such a line."""
    place = make_line(digest.file, number, text, digest.year).place
    if place.host:
        return place.host
    if place.rank is not None:
        return f"rank {place.rank}"
    prefix = _HOST.match(text)  # a bar's own name and a launcher's label look alike
    return prefix[1] if prefix is not None else None


_DELETED = expression(
    r"(?i)\b(?:delet(?:ed|ing)|remov(?:ed|ing)|rotat(?:ed|ing)|pruning|rm -rf?)\b"
)


def name_deleted(incident: LogIncident, finding: Finding) -> Finding:
    """A checkpoint that is not there, where the log itself tells that it was deleted before."""
    place = finding.evidence[0] if finding.evidence else None
    path = finding.text(Fact.PATH).rstrip("/")
    name = path.rpartition("/")[2]
    if place is None or len(name) < MIN_NAME:
        return finding
    for digest, number, text in incident.lines_with((name,)):
        if (digest.file == place.file and number >= place.line) or not _DELETED.search(text[:600]):
            continue
        best = any(
            "best model" in t for _, t in digest.kept[max(0, digest.position(number)) :][:400]
        )
        what = "the best model, which the trainer wanted back at the end, " if best else "it "
        return replace(
            finding,
            title=f"{finding.title}; {what}was deleted earlier in this run, as quoted (save_total_limit and the like keep the newest only)",
            evidence=(*finding.evidence[:2], quote_line(digest.file, number, text)),
        )
    return finding


MIN_NAME = 6
"""Characters of a folder name below which it may stand anywhere."""
