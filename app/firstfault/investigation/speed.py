"""What do the printed speeds and durations say to a question about speed? Any format: a rate, a time, an estimate.

The first steps of a run are slow and mean nothing; a speed that fell and stays down, or falls further and
further, is a finding even where no step line could be read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate, pairwise

from firstfault.investigation.complaint import asks_pace, read_complaint
from firstfault.investigation.examination import Examination, sample_lines
from firstfault_tools.averages import median
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Complaint, Evidence, Finding, Level

LEAST = 5

_ETA = expression(
    r"(?i)\b(?:remaining|eta|time left)\b[ :=\[(]{1,3}(?:(?P<days>\d{1,4}) days?,? *)?(?:(?P<hours>\d{1,4}):)?(?P<minutes>\d{1,2}):(?P<seconds>\d{2})\b"
)


_GROWS = expression(
    r"(?i)\b(?:each|every) (?:\w+ )?(?:epoch|step|iteration)s?\b[^.?!]{0,30}\b(?:longer|slower|more time)|\b(?:slower and slower|longer and longer|gets? slower|getting slower)\b|"
    r"\b(?:epochs?|steps?|iterations?)\b[^.?!]{0,30}\b(?:increas\w*|grow\w*)"
)
_SPENT = expression(
    r"(?i)\b(?P<name>time(?: this epoch| taken| per epoch| elapsed| cost)?|took|duration|elapsed|seconds|epoch #?\d+ at|epoch_time|train_time)\b['\"]?\s?[:=]{0,1}\s{0,3}"
    r"(?P<value>\d{1,7}(?:\.\d+)?) ?(?P<unit>s|sec\w*|ms|min\w*)?\b(?![:/\d])"
)
_AT_START = expression(
    r"(?i)\b(?:first|start\w*|begin\w*|initial\w*|warm\w*)\b[^?!]{0,100}(?:slow|speed|fast|long|half|third|fifth|quarter|tenth|"
    r"times|minutes?|seconds?|\bs\b|/s\b|through ?put|MFU|hang|stuck|problem)|"
    r"(?:slow|speed|long|took|takes?|through ?put|/s\b)[^?!]{0,80}\b(?:first|at (?:the )?(?:start|begin\w*)|initial\w*)\b"
)
_PACES = expression(
    r"(?i)(?P<rate>\d{1,15}(?:\.\d{1,15})?) ?(?:samples?|images?|imgs?|tokens?|tok|it|iters?|iterations?|steps?|examples?|seq\w*|words?|Hz|"
    r"frames?|clips?|batch(?:es)?)/s|(?P<hertz>\d{1,15}(?:\.\d{1,15})?) Hz\b|"
    r"\b(?:tokens|samples|images|steps|iterations|examples)[ _]per[ _]second['\"]?\s?[:=]\s?(?P<per>\d{1,15}(?:\.\d{1,15})?)|"
    r"(?P<each>\d{1,15}(?:\.\d{1,15})?) ?(?:s|sec|ms)/(?:it|iter|step|batch)\b|"
    r"\b(?:elapsed )?(?:step|iter\w*|batch)?[ _]?(?:time|duration|took|elapsed)(?: per iteration)?(?: \(m?s\))?['\"]?\s?[:=]?\s{0,3}"
    r"(?P<time>\d+(?:\.\d+)?) ?(?:m?s\b|sec\w*|[|,;)\]}]|\(|$)"
)
_ONCE = expression(
    r"(?i)find the best (?:convolution )?algorithm|autotun|cudnn[._]benchmark|\b(?:torch\.)?compil(?:e|ing|ation)\b|inductor|dynamo|"
    r"captur\w+ (?:cuda )?graph|cuda ?graphs?\b|\bJIT\b|\bXLA\b|triton|building extension|warm-?up (?:step|iter|batch)"
)
_QUEUE = expression(r"(?i)\bq(?:ueue)?(?:\w*/)?(?:[_ ]?size)?\W{1,3}(?P<size>\d+(?:\.\d+)?)\b")
_TIMES = ("each", "time")
LEAST_PACES, MOST_FIRST, LEAST_FALL = 6, 4, 3
FALLEN, SLOWER, STEADY = 1.5, 1.3, 0.1
"""How many times slower a fall and the first steps must be, and the share by which nine of ten later ones may differ."""
FAR = 10
"""Times as fast as the first step from which later ones may differ by more than STEADY."""


def find_speed(examination: Examination, question: str) -> Finding | None:
    """A benign finding that explains the speed asked about, a failure that shows it fell, or None."""
    if re.search(r"(?i)\bdays?\b|\bremaining\b|\beta\b|\bslow", question):
        estimate = _judge_estimate(examination)
        if estimate is not None:
            return estimate
    if _AT_START.search(question[:2000]) and (warm := _judge_start(examination)) is not None:
        return warm
    if _GROWS.search(question) and (times := _judge_times(examination)) is not None:
        return times
    if asks_pace(question) or read_complaint(question) is Complaint.SLOW:
        return _judge_fall(examination)
    return None


def _judge_times(examination: Examination) -> Finding | None:
    """Printed durations: a clock since the start, or times that really grow."""
    found: dict[tuple[str, str], list[tuple[float, int, str]]] = defaultdict(list)
    for file, number, text in sample_lines(examination):
        told = _SPENT.search(text)
        if told is not None:
            found[file, re.sub(r"\d+", "0", told["name"].lower())].append(
                (float(told["value"]), number, text)
            )
    if not found:
        return None
    (file, _), rows = max(found.items(), key=lambda item: len(item[1]))
    values = [r[0] for r in rows]
    if len(values) < LEAST or values[0] <= 0 or any(b < 0.97 * a for a, b in pairwise(values)):
        return None
    places = [Evidence(file, n, t.strip()[:600]) for _, n, t in (rows[0], rows[-1])]
    gains = [b - a for a, b in pairwise(values)]
    usual = median(gains)
    if usual > 0 and max(abs(g - usual) for g in gains) <= 0.1 * usual and abs(values[0] - usual) <= 0.25 * usual:  # fmt: skip
        words = (
            f"the printed time counts the total since the start ({values[0]:.4g}, then {values[-1]:.4g}): each one took about "
            f"{usual:.4g}, the same from first to last, so nothing gets slower and nothing leaks"
        )
        return Finding.of_question("total_time", words, Level.BENIGN, Category.PERFORMANCE, places)
    if values[-1] < 1.4 * values[0]:
        return None
    words = (
        f"the time grows longer and longer, from {values[0]:.4g} to {values[-1]:.4g} over {len(values)} readings: something accumulates from one "
        "to the next (operations added to the graph, kept outputs or histories, a list that is searched, caches), and each one does more work"
    )
    return Finding.of_question(
        "times_grow", words, Level.FAILURE, Category.PERFORMANCE, places, "throughput-drop"
    )


_Paces = dict[tuple[str, str, str], list[tuple[float, int, str]]]


def _read_paces(examination: Examination) -> tuple[_Paces, dict[str, tuple[int, str]]]:
    """Speeds by file, form and what they are of, and the first line of each file that names work done once."""
    found: _Paces = defaultdict(list)
    once: dict[str, tuple[int, str]] = {}
    for file, number, text in sample_lines(examination):
        if _ONCE.search(text):
            once.setdefault(file, (number, text))
        told = _PACES.search(text)
        if told is not None and (value := float(told[told.lastgroup or 0])) > 0:
            kind = told.lastgroup or ""
            found[file, kind, _name_pace(kind, text, told)].append(
                (1 / value if kind in _TIMES else value, number, text)
            )
    return found, once


def _name_pace(kind: str, text: str, told: re.Match[str]) -> str:
    """What a duration is the duration of: compiling an index is no step. Rates need no name."""
    if kind != "time":
        return ""
    before = text[max(0, told.start() - 24) : told.start(kind)].lower()
    return " ".join(re.findall("[a-z]{3,}", before)[-3:])


def _judge_start(examination: Examination) -> Finding | None:
    """The first steps alone are slow, and all later ones equally fast: start-up work."""
    found, once = _read_paces(examination)
    if not found:
        return None
    (file, kind, _), rows = max(found.items(), key=lambda item: len(item[1]))
    if len(rows) < LEAST_PACES:
        return None
    for first in range(1, min(MOST_FIRST, len(rows) // 3) + 1):
        later = sorted(r[0] for r in rows[first:])
        usual, off = later[len(later) // 2], len(later) // 10
        kept = later[off : len(later) - off]
        if kept[-1] - kept[0] <= 2 * STEADY * usual or kept[0] >= FAR * rows[0][0]:
            break
    else:
        return None
    slow, fast = _show(rows[0][0], kind), _show(usual, kind)
    if first == 1 and rows[0][0] > 1.15 * usual:
        words = (
            f"only the first of {len(rows)} readings is faster ({slow} against {fast}), which is normal: it counts batches that were prefetched "
            f"and work that was queued but not done yet; from then on the speed is constant at about {fast}, so nothing slowed down"
        )
        places = [Evidence(file, n, t.strip()[:600]) for _, n, t in (rows[0], rows[1], rows[-1])]
        return Finding.of_question(
            "first_reading", words, Level.BENIGN, Category.PERFORMANCE, places
        )
    if rows[0][0] * SLOWER > usual:
        return None
    reason = once.get(file)
    if reason is not None and reason[0] > rows[first][1]:
        reason = None
    said = " ".join(reason[1].split())[:160] if reason is not None else ""
    words = (
        f"only the first {first} of {len(rows)} readings are slow ({slow} against {fast}), which is normal warm-up: "
        + (f"work that is done once («{said}»)" if said else "work that is done once (algorithms are tried, kernels compiled, workers started, caches filled)")
        + f"; from then on the speed is constant at about {fast}, so nothing goes on holding it up: leave the first steps out when measuring"
    )  # fmt: skip
    quoted = dict.fromkeys([*([reason] if reason is not None else []), *((n, t) for _, n, t in (rows[0], rows[first], rows[-1]))])  # fmt: skip
    places = [Evidence(file, n, t.strip()[:600]) for n, t in quoted]
    return Finding.of_question("warm_up", words, Level.BENIGN, Category.PERFORMANCE, places)


def _judge_fall(examination: Examination) -> Finding | None:
    """A printed speed that fell once and stays down, or falls further from reading to reading."""
    found, _ = _read_paces(examination)
    for (file, kind, _), rows in found.items():
        speeds = [r[0] for r in rows]
        if len(rows) < LEAST_FALL:
            continue
        first, last = (_show(v, kind) for v in (speeds[0], speeds[-1]))
        places: Sequence[tuple[float, int, str]] = (rows[0], rows[len(rows) // 2], rows[-1])
        least = list(accumulate(speeds, min))
        most_left = list(accumulate(reversed(speeds), max))[::-1]
        falls = [before / after for before, after in zip(least, most_left[1:], strict=False)]
        at = falls.index(max(falls)) + 1
        times = falls[at - 1]
        most = FALLEN if at >= 3 and len(speeds) - at >= 3 else 2.0
        if times >= max(most, 0.7 * speeds[0] / speeds[-1]) and len(speeds) - at >= 2:
            before, after = (_show(median(part), kind) for part in (speeds[:at], speeds[at:]))
            how = f"the speed fell from {before} to {after} at line {rows[at][1]} and stays there ({len(speeds) - at} readings)"
            places = (rows[at - 1], rows[at], rows[-1])
        elif (
            len(rows) >= LEAST
            and all(b <= 1.03 * a for a, b in pairwise(speeds))
            and speeds[0] >= FALLEN * speeds[-1]
        ):
            how = (
                f"the run gets slower and slower, from {first} to {last} over {len(rows)} readings: something grows or fills up from one to the "
                "next (kept outputs, a list or cache that is searched, a graph that is extended, memory or a disk of the host)"
            )
        else:
            continue
        queue = _find_empty_queue(examination, file)
        if queue is not None:
            how += f"; the queue of prepared batches is empty since («{queue[1].strip()[-60:]}»): the data loader does not keep up, storage or preprocessing is too slow"
        quoted = dict.fromkeys([*((n, t) for _, n, t in places), *([queue] if queue else [])])
        page = "dataloader-stall" if queue is not None else "throughput-drop"
        return Finding.of_question(
            "speed_fell",
            how,
            Level.FAILURE,
            Category.PERFORMANCE,
            [Evidence(file, n, t.strip()[:600]) for n, t in quoted],
            page,
        )
    return None


def _find_empty_queue(examination: Examination, file: str) -> tuple[int, str] | None:
    """The first line from which on a queue of batches that was filled before stays empty."""
    told = [
        (float(m["size"]), n, t)
        for f, n, t in sample_lines(examination)
        if f == file and (m := _QUEUE.search(t))
    ]
    if len(told) < 2 or max(size for size, _, _ in told) < 2:
        return None
    low = next((i for i, (size, _, _) in enumerate(told) if size < 1), None)
    if low is None or low == 0 or any(size >= 1 for size, _, _ in told[low:]):
        return None
    return told[low][1:]


def _judge_estimate(examination: Examination) -> Finding | None:
    """A first estimate of the time left that counts the start-up as if every step took as long."""
    read: list[tuple[float, Evidence]] = []
    for file, number, text in sample_lines(examination):
        if "emaining" not in text and "eta" not in text.lower():
            continue
        if eta := _ETA.search(text):
            days, hours = int(eta["days"] or 0), int(eta["hours"] or 0)
            left = (days * 24 + hours) * 3600 + int(eta["minutes"]) * 60 + int(eta["seconds"])
            read.append((float(left), Evidence(file, number, text.strip()[:600])))
    if len(read) < 4 or read[0][0] < 4 * max(left for left, _ in read[1:]):
        return None
    if not all(b[0] <= a[0] for a, b in pairwise(read[1:])):
        return None
    words = (
        "the first estimate of the time left is made from the first step alone, which loads, compiles and warms up; the later ones are "
        f"far lower ({read[1][0] / 3600:.1f} h, then {read[-1][0] / 3600:.1f} h) and fall as they should"
    )
    return Finding.of_question("first_estimate", words, Level.BENIGN, Category.PERFORMANCE, (read[0][1], read[-1][1]))  # fmt: skip


def _show(speed: float, kind: str) -> str:
    return f"{1 / speed if kind in _TIMES else speed:.4g}"
