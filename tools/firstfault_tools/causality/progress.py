"""Which lines show work going on? Steps, progress bars and counters, with rank and place.

An error after which the steps go on did not stop the run; a rank that still counts up while the
others wait is busy, not dead.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.digest import FileDigest, Line, Mark
from firstfault_tools.log.line import counts_preparation
from firstfault_tools.log.scan import make_line

_HINT = expression(r"(?i)iter|step|epoch|%\s?\||loss|\d/\d|batch|tick \d|^\[ *\d+, +\d")
_STEP = expression(
    r"(?i)(?:^|[\s\[{'\"(|:,=])"
    r"(?:global[_ ]?step|iteration|iter|it|steps?|train_step|update|batch(?:_idx| idx)?)"
    r"['\"]?\s{0,9}[:=#]?\s{0,9}\[?\s{0,9}(?P<step>\d{1,3}(?:,\d{3}){1,3}(?!\d|,\d)|\d{1,9})(?![\d.]*\s?(?:s|ms|%|GiB|MiB|GB|MB)\b)"
)
_BAR = expression(
    r"(?P<percent>\d{1,3})%\s?\|[^|]{0,200}\|\s*(?P<done>[\d.]+[kMG]?)[A-Za-z]{0,9}/(?P<total>[\d.]+[kMG]?)[A-Za-z]{0,9}"
    r"\s*\[(?P<elapsed>[\d:]+)<(?P<left>[\d:?]+(?: days?, [\d:]+)?)"
)
_COUNT = expression(r"(?<![\w/.:])(?P<done>\d{1,12})\s?/\s?(?P<total>\d{1,12})(?![\w/:.])")
_COUNT_OF_UNITS = expression(r"(?<![\w/.:])(?P<done>\d{1,12})it\s?/\s?(?P<total>\d{1,12})it\b")
"""`183it/20000it` is step 183 of 20000."""
_DICT = expression(r"\{['\"](?:loss|train_loss|train/loss|epoch|step|eval_loss)['\"]\s*:")
_EPOCH = expression(r"(?i)(?:^|[\s\[{'\"(|,])epoch['\"]?\s{0,3}[:=#]?\s{0,3}\[?\s?\d{1,6}\b")
_TICK = expression(
    r"^(?:tick (?P<tick>\d+) {1,12}kimg \d|\[ *(?P<row>\d{1,9}), +\d+\.\d+(?:e-\d+)?\] +-?\d+\.\d)|={3,}> Epoch: (?P<epoch>\d{1,6})\b"
)
"""Step line of StyleGAN and its kin, that of RAFT: `[  100, 0.0000140] 0.35, ...`, an epoch's end of VITS and its kin."""
_KERAS = expression(r"\d+/\d+ (?:\[[=>.]{10,}\]|\u2501{5,}).{0,80}(?:/(?:step|epoch)\b|- loss: \d)")
"""The bar of Keras, old and new."""
_METRIC = expression(
    r"(?i)\b(?:lm |(?:reduced_)?train[_/ ]?|total_?|[dg]_)?loss(?:_[a-z]{1,12}){0,3}(?: total)?['\"]?\s*[:= ]\s*['\"]?[-\d.]+"
)


_FINISHED = expression(
    r"\b(?:training|train|run|job|fit|finetuning|fine-tuning)\b.{0,20}\b(?<!to )(?<!not )(?<!be )(?:done|completed?|finished|ended successfully)\b(?! with)|"
    r"exiting program (?:at iteration|after )|['\"]train_runtime['\"]|`trainer\.fit` stopped: `max_(?:steps|epochs|time)|"
    r"\bsaved? final (?:checkpoint|model)|\bfinal (?:checkpoint|model) (?:saved|written)|\bdone training\b|successfully completed|"
    r"\ball (?:\d{1,9} )?(?:epochs|steps|iterations) (?:are )?(?:done|finished|completed?)\b|"
    r"\bmax[_ ](?:steps|epochs|iters|iterations)(?: \d{1,9})? reached|^(?:\[?(?:rank ?)?\d{1,5}\]?:? ?)?(?:[\d:.,t -]{8,30} )?done[.!]?$|"
    r"\bbreached max[_ ](?:steps|epochs|iters|iterations)|\bmax(?:imum)? number of (?:steps|epochs|iterations) (?:has been |was )?reached|"
    r"\bexits? successfully\b|(?<![\w-])exit(?:ed|ing|s)?(?: with)?(?: exit| return)?(?: code| status)?[ :=']{1,3}0(?:\s*$|[\s.,;)'](?!\d))|"
    r"\bcompleted\s+0:0\b|\b(\d+)/\1 (?:ranks|workers|processes) (?:finished|done|exited)|all (?:\d+ )?(?:ranks|workers) (?:finished|done)\b|"
    r"\"key\": \"run_stop\".{0,300}\"status\": \"success\"|\bworker group successfully finished\b|\bsignaling trainer to stop\b|\bjob (?:\S+ )?succeeded\b"
)
"""Tried on lower-case text: several times faster than ignoring case."""

_WRAPPED = expression(
    r"\bexits? successfully\b|(?<![\w-])exit(?:ed|ing|s)?(?: with)?(?: exit| return)?(?: code| status)?[ :=']{1,3}0\b|\bcompleted\s+0:0\b|"
    r"\bsuccessfully completed|\bjob (?:\S+ )?(?:succeeded|completed|done|finished)\b|\brun\b.{0,20}\b(?:done|completed?|finished)\b"
)
"""Words of whoever started the trainer."""

_UNDONE = expression(
    r"\b(?:fail(?:ed|ure)|abort(?:ed|ing)|preempt(?:ed|ion)|cancell?ed|killed|crash(?:ed)?|interrupted|terminated by|timed? ?out|incomplete)\b|"
    r"\b(?:exit|return)[_ ]?(?:code|status)?['\"]?[ :=]{1,3}-?[1-9]|\b(?:status|state|result|reason)['\"]?[=:] ?['\"]?(?!succe|complete|ok\b|done|finish|max_|0\b|none)[a-z]{3}"
)
"""Also on lower-case text: words that make an end none that was planned, on the very line that tells of it."""

_ACCOUNT = expression(
    r"^\s{0,9}(?P<job>\d{1,12})(?:[._+]\S{1,40})?\s.{1,300}\s(?:completed|failed|cancelled|preempted|timeout|node_fail|out_of_me\S*|running|pending)\b"
)
"""A row of Slurm's accounting."""

_NO_FAILURE = expression(
    r"\b(?:0|no|without) (?:\w+ )?(?:fail(?:ed|ures?)|errors?|aborted|timeouts?)\b|max_time"
)

_FINISH_WORDS = (
    "complete", "done", "finished", "exit", "train_runtime", "stopped: `max_", "final ", "max_", "max ",
    "success", "signaling", "succeeded",
)  # fmt: skip
_PATH = expression(r"(?:^|(?<=[\s'\"=:(]))/[\w.+/-]{2,200}")
"""A folder called "run" is none that is done when its save is."""
FINISH_LINES = 2_000
"""Lines from the end in which a run that ended as planned says so."""

_DEATH = expression(
    r"taking the (?:entire )?process down|terminate called|ChildFailedError|failed \(exitcode: -?\d+\)|core dumped"
)
_DEATH_WORDS = ("process down", "terminate called", "ChildFailedError", "exitcode", "core dumped")
_RAISED = "Traceback (most recent call last)"
RAISED_WITHIN = 3
"""Lines after the word that training is done in which the exception that ended it may stand."""

DEATH_LINES = 4_000
_PROMPT = expression(
    r"[\w.@:~/ \t\[\]()-]{0,69}[$#>] (?:[A-Z_]{1,40}=\S{1,200} ){0,20}(?:python[\d.]*|torchrun|deepspeed|accelerate|srun|sbatch|mpirun|"
    r"horovodrun|bash|sh|ray|llamafactory-cli|swift|\./\S+) "
)
"""A command typed at a prompt: what follows belongs to another run."""
PROMPT_LINES = 500
TIMED_STEPS = 400
_TRAINS = expression(
    r"(?i)loss|\bacc|epoch|\btrain|it/s|s/it|\bfps\b|im(?:a?g)?e?s?/s|samples?/s|tok\w*/s|\blr\b|psnr|reward|grad|perplexity|\bppl\b|\bmap\b|\biou\b|\bepe\b"
)
_STAMP = expression(
    r"\d{4}[-/]\d\d[-/]\d\d(?:[T ,_-]\d\d:\d\d:\d\d(?:[.,]\d+)?)?|\b\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?\b"
)
_FIGURE = expression(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
COUNTED_LINES, LEAST_COUNTED, LEAST_FIGURES = 20_000, 4, 4
SURVIVED_STEPS = 3
"""Steps that must be finished after an error before it counts as survived."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One line that shows work: its counter where it has one, and the bar's times in seconds."""

    number: int
    text: str
    counter: int | None
    total: int | None = None
    training: bool = False
    elapsed_s: int | None = None
    left_s: int | None = None

    @property
    def full(self) -> bool:
        """The counter has reached its total."""
        return self.counter is not None and self.counter == self.total


class ProgressReader:
    """Progress of one log, read only as far as a question needs it."""

    def __init__(self, digest: FileDigest) -> None:
        self._digest = digest
        self._known: dict[int, Progress | None] = {}
        self._survives: dict[int, bool] = {}
        self._finished: int | None = None
        self._death: int | None = None
        self._steps: tuple[array[int], array[int]] | None = None
        self._times: array[float] | None = None
        self._last: tuple[Progress | None] | None = None

    @property
    def digest(self) -> FileDigest:
        """The log that is read."""
        return self._digest

    def line(self, progress: Progress) -> Line:
        """The log line of a progress, with its speaker."""
        return make_line(self._digest.file, progress.number, progress.text, self._digest.year)

    def after(self, number: int) -> Iterator[Progress]:
        """Progress lines after line `number`, nearest first."""
        return self._walk(range(self._digest.position(number) + 1, len(self._digest.kept)))

    def before(self, number: int) -> Iterator[Progress]:
        """Progress lines up to line `number`, nearest first."""
        return self._walk(range(self._digest.position(number), -1, -1))

    def last_training(self) -> Progress | None:
        """The last line of a training step that carries a counter."""
        if self._last is None:
            self._last = (next((p for p in self.before(2**62) if p.training and p.counter), None),)
        return self._last[0]

    def full(self) -> bool:
        """The last step is the last of a total that was told."""
        last = self.last_training()
        bar = next((p for p in self.before(2**62) if p.training and p.total), None)
        return last is not None and bar is not None and bar.full and bar.counter == last.counter

    def step_times(self) -> Sequence[float]:
        """Times of the last steps, where their lines carry one, in order."""
        if self._times is None:
            steps = islice((p for p in self.before(2**62) if p.training), TIMED_STEPS)
            times = (self.line(p).time for p in steps)
            self._times = array("d", sorted(t for t in times if t is not None))
        return self._times

    def steps_after(self, time: float) -> int:
        """How many of those were written after `time`."""
        times = self.step_times()
        return len(times) - bisect_right(times, time)

    def finished_at(self) -> int | None:
        """Line that says the training ended as planned, where no step follows it; else None."""
        if self._finished is None:
            self._finished = self._find_finish()
        return self._finished or None

    def says_done(self) -> bool:
        """The trainer itself says that it is done, not only a launcher or wrapper that it ended with 0."""
        kept = self._digest.kept
        rows = kept[max(0, len(kept) - FINISH_LINES) :]
        lows = (text[:1000].lower() for _, text in rows)
        own = (
            _WRAPPED.sub(" ", _PATH.sub(" ", low))
            for low in lows
            if any(w in low for w in _FINISH_WORDS)
        )
        return any(
            _FINISHED.search(low) and not _UNDONE.search(_NO_FAILURE.sub("", low)) for low in own
        )

    def _find_finish(self) -> int:
        # a bar that is full is the end of the work it counts, not work that follows the end
        running = (p for p in self.before(2**62) if p.training and not p.full)
        last = next(running, None)
        floor = last.number if last is not None else 0
        kept = self._digest.kept
        for number, text in reversed(kept[max(0, len(kept) - FINISH_LINES) :]):
            if number <= floor:
                break
            low = text[:1000].lower()
            if not any(word in low for word in _FINISH_WORDS):
                continue
            if not _FINISHED.search(low := _PATH.sub(" ", low)):
                continue
            if _UNDONE.search(_NO_FAILURE.sub("", low)):
                continue
            if _is_source(make_line(self._digest.file, number, text, self._digest.year)):
                continue
            if last is not None and self._breaks_off(last, number):
                continue
            if _ACCOUNT.match(low) and self._accounts_several():
                continue
            return 0 if self._times_out_after(number) else number
        return 0

    def _accounts_several(self) -> bool:
        """A listing of several jobs: that one of them is completed says nothing of the run."""
        kept = self._digest.kept
        rows = (
            _ACCOUNT.match(text[:400].lower())
            for _, text in kept[max(0, len(kept) - FINISH_LINES) :]
        )
        return len({row["job"] for row in rows if row is not None}) > 1

    def _times_out_after(self, number: int) -> bool:
        """A collective timed out later: one rank was done, and others still worked or waited."""
        return any(
            later > number and "collective operation timeout" in text
            for later, text in self._digest.marked_lines(Mark.WORK)
        )

    def _breaks_off(self, last: Progress, number: int) -> bool:
        """Steps are left to do and an exception follows at once: the trainer only tidied up."""
        planned = _COUNT.search(last.text)
        if planned is None or int(planned["done"]) >= int(planned["total"]):
            return False
        after = self._digest.lines_after(number, RAISED_WITHIN)
        return any(_RAISED in text for _, text in after)

    def survives(self, number: int) -> bool:
        """Training went on for several steps after line `number`, or had ended as planned before it.

        Counts distinct counters above the last one before; lines without one count as one each.
        """
        if number not in self._survives:
            if self.dies_after(number):
                self._survives[number] = False
                return False
            finish = self.finished_at()
            over = finish is not None and number > finish and not self._began_again(finish, number)
            self._survives[number] = over or self._steps_go_on(number)
        return self._survives[number]

    def _began_again(self, finish: int, number: int) -> bool:
        """A shell prompt between the planned end and line `number` starts another command."""
        kept = self._digest.kept
        first, last = self._digest.position(finish) + 1, self._digest.position(number)
        rows = kept[max(first, last - PROMPT_LINES) : last]
        return any(_PROMPT.match(text[:300]) for _, text in rows)

    def dies_after(self, number: int) -> bool:
        """The process says after line `number` that it goes down, and no step follows that."""
        if self._death is None:
            self._death = self._find_death()
        return self._death > number

    def _find_death(self) -> int:
        """Last line near the end that tells of going down and that no step follows; 0 for none."""
        left = DEATH_LINES
        for run in reversed(self._digest.kept.runs):
            if run.holds(_DEATH_WORDS):
                texts = run.texts()
                for offset in range(len(texts) - 1, max(-1, len(texts) - 1 - left), -1):
                    if _DEATH.search(texts[offset]):
                        at = run.first + offset
                        return 0 if any(p.training for p in self.after(at)) else at
            left -= run.count
            if left <= 0:
                break
        return 0

    def _steps_go_on(self, number: int) -> bool:
        before = (p.counter for p in self.before(number) if p.training and p.counter is not None)
        highest = next(before, -1)
        counted: set[int] = set()
        uncounted = 0
        for progress in self.after(number):
            if not progress.training:
                continue
            if progress.counter is None:
                uncounted += 1
            elif progress.counter > highest:
                counted.add(progress.counter)
            if max(len(counted), uncounted) >= SURVIVED_STEPS:
                return True
        return self._recognised_steps_after(number) >= SURVIVED_STEPS

    def goes_on_after(self, number: int) -> bool:
        """Several steps follow line `number`."""
        return self._steps_go_on(number)

    def trains(self) -> bool:
        """Some step format that the metrics room knows is in this log, with steps that advance."""
        return self._recognised_steps_after(0) >= 2

    def trained(self) -> bool:
        """At least two steps of training were done, in whatever format."""
        return len(list(islice((p for p in self.after(0) if p.training), 2))) == 2 or self.trains()

    def _recognised_steps_after(self, number: int) -> int:
        """Distinct later steps by the metrics room's formats, for logs whose steps look unusual.

        Counted up to `SURVIVED_STEPS`.
        """
        if len(self._digest.kept) - self._digest.position(number) - 1 < 2:
            return 0  # nothing follows: no need to read the steps of thousands of dead ranks
        lines, steps = self.recognised_steps()
        first = bisect_right(lines, number)
        highest = max(steps[:first], default=-1)
        later: set[int] = set()
        for step in islice(steps, first, None):
            if step > highest:
                later.add(step)
                if len(later) >= SURVIVED_STEPS:
                    break
        return len(later)

    def recognised_steps(self) -> tuple[array[int], array[int]]:
        """Line numbers and counters of all step lines, by the metrics room's formats."""
        if self._steps is None:
            from firstfault_tools.metrics.sources.steps import parse_steps

            series = parse_steps(self._digest.kept)
            self._steps = series.line, series.step
            if len(set(series.step)) < 2:
                self._steps = count_on(self._digest.kept)
        return self._steps

    def _walk(self, positions: range) -> Iterator[Progress]:
        for position in positions:
            if position not in self._known:
                number, text = self._digest.kept[position]
                plausible = len(text) <= 4000 and _HINT.search(text) is not None
                self._known[position] = read_progress(number, text) if plausible else None
            found = self._known[position]
            if found is not None:
                yield found


def _is_source(line: Line) -> bool:
    """A line of code as a traceback shows it, which may well say that it prints `done`."""
    return line.message.startswith("    ") or line.text.startswith("    ")


def read_progress(number: int, text: str) -> Progress | None:
    """Progress that one line shows, or None."""
    if ("ProcessGroup" in text or "frame #" in text) and "%|" not in text:
        return None
    bar = _BAR.search(text)
    if bar is not None:
        return Progress(
            number, text, _number(bar["done"]), _number(bar["total"]), not counts_preparation(text),
            _clock(bar["elapsed"]), _clock(bar["left"]),
        )  # fmt: skip
    training = _METRIC.search(text) is not None
    step = _STEP.search(text)
    if step is not None and (training or "%" in text or "/" in text):
        return Progress(number, text, int(step["step"].replace(",", "")), None, training)
    if training and (step is not None or _is_metric_row(text)):
        return Progress(number, text, None, None, True)
    tick = _TICK.search(text)
    if tick is not None:
        return Progress(number, text, int(tick["tick"] or tick["row"] or tick["epoch"]), None, True)
    return _read_count(number, text)


def _is_metric_row(text: str) -> bool:
    """A row of numbers of training; Keras counts batches within the epoch, from the start again in each."""
    if _DICT.search(text) is not None or _KERAS.search(text) is not None:
        return True
    return "train_runtime" not in text and _EPOCH.search(text) is not None


def _read_count(number: int, text: str) -> Progress | None:
    """Done of total, with their unit or without."""
    units = _COUNT_OF_UNITS.search(text)
    count = units or _COUNT.search(text)
    if count is None:
        return None
    done, total = int(count["done"]), int(count["total"])
    trains = units is not None and not counts_preparation(text)
    return Progress(number, text, done, total, trains) if total > 0 and done <= total else None


def count_on(lines: Sequence[tuple[int, str]]) -> tuple[array[int], array[int]]:
    """Line numbers and counters of lines of one shape whose counter goes up evenly; empty where there are none.

    For step lines in a form of their own, such as `[train: 1, 50 / 468] FPS: 102.2 Loss/total: 9.8`.
    They must speak of training and carry other numbers that change, which a wait that counts its seconds
    does not.
    """
    shapes: dict[str, list[tuple[int, list[str]]]] = {}
    for number, text in islice(lines, COUNTED_LINES):
        if len(text) > 600 or not _TRAINS.search(text):
            continue
        bare = _STAMP.sub("", text)
        figures = _FIGURE.findall(bare)
        if len(figures) >= LEAST_FIGURES:
            shapes.setdefault(_FIGURE.sub("#", bare), []).append((number, figures))
    best: tuple[array[int], array[int]] = array("q"), array("q")
    for told in shapes.values():
        counters = _even_column([figures for _, figures in told])
        if counters is not None and len(told) > len(best[0]):
            best = array("q", (number for number, _ in told)), array("q", counters)
    return best


def _even_column(rows: Sequence[list[str]]) -> list[int] | None:
    """The first column of whole numbers that rises by even steps, where two others change from row to row."""
    if len(rows) < LEAST_COUNTED:
        return None
    columns = list(zip(*rows, strict=True))
    changing = [c for c in columns if len(set(c)) > len(c) // 2]
    if len(changing) < 3:
        return None
    for column in columns:
        if not all(value.isdecimal() and len(value) < 13 for value in column):
            continue
        counts = [int(value) for value in column]
        strides = [b - a for a, b in pairwise(counts)]
        usual = max(set(strides), key=strides.count)
        if min(strides) > 0 and strides.count(usual) * 3 >= 2 * len(strides):
            return counts
    return None


def _number(text: str) -> int | None:
    scale = {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[-1:], 1.0)
    try:
        return int(float(text.rstrip("kMG")) * scale)
    except ValueError:
        return None


def _clock(text: str) -> int | None:
    days = 0
    if " day" in text:
        head, _, text = text.partition(", ")
        days = int(head.split()[0].split(":")[0])
    parts = text.split(":")
    if not all(p.isdecimal() for p in parts) or len(parts) > 3:
        return None
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return seconds + days * 86400
