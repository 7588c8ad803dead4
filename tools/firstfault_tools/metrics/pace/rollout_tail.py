"""Does a reinforcement-learning step wait for a few long answers?

A rollout ends with its longest answer. Where the mean is short and the longest runs to the limit, most
engines are idle for most of the generation: nothing fails, and utilisation looks like a hang. Names as
printed by verl, TRL, OpenRLHF and NeMo-RL; the requests that an engine still runs as printed by vLLM
and SGLang.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding
from firstfault_tools.hardware.excerpt import keep_marked, quote_line

GATE = ("response_length", "completion_length", "completions/mean_length", "timing_s/gen", "#running-req", "Running: ")  # fmt: skip
MAX_LINE, MAX_ROWS, LAST, LAST_STEPS = 8_000, 50_000, 2_000, 40
_PAIR = expression(
    r"['\"]?(?<![\w/])(?P<name>[A-Za-z][\w/]*)['\"]?\s?[:=]\s?['\"]?(?P<value>\d[\d.]*(?:[eE][-+]?\d+)?)"
)
_NAMES = {
    "mean": r"response_length(?:_non_aborted)?/mean|completions/mean_length|(?:train/)?completion_length|response_length|mean_gen_tokens_per_sample",
    "max": r"response_length(?:_non_aborted)?/max|completions/max_length|max_gen_tokens_per_sample",
    "cut": r"response_length(?:_non_aborted)?/clip_ratio|completions/clipped_ratio",
    "gen": r"timing_s/gen(?:erate_sequences)?|timing/generate|time/generation|timing/train/generation|generate_time|generation_time",
    "step": r"timing_s/step|timing/total|step_time|time/step|timing/train/total_step_time|total_time",
}
_WANTED = {n: expression(rf"(?:{p})\Z") for n, p in _NAMES.items()}
_RUNNING = expression(
    r"Running: (?P<vllm>\d{1,6}) reqs?, (?:Swapped: \d+ reqs, )?(?:Waiting|Pending): (?P<waiting>\d{1,6}) reqs|"
    r"#running-req: (?P<sglang>\d{1,6}), .{0,200}?#queue-req: (?P<queue>\d{1,6})"
)
LONG, MOST = 4.0, 0.5
"""Longest answer in means; share of the step that the generation takes."""

DRAIN, FEW = 4, 0.1
"""Lines of the engine in a row, with at most this share of the requests left."""


@dataclass(slots=True)
class Rollouts:
    """Values of the step lines, and the requests the engines still run."""

    rows: list[dict[str, float]] = field(default_factory=list)
    places: list[tuple[int, str]] = field(default_factory=list)
    running: list[tuple[int, str, int]] = field(default_factory=list)


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """A fact that explains a slow step; no fault by itself."""
    kept = keep_marked(lines, GATE)[:MAX_ROWS]
    if not kept:
        return ()
    read = Rollouts()
    names: dict[str, str | None] = {}
    running = [(n, t) for n, t in kept if "Running: " in t or "#running-req" in t][-LAST:]
    for number, text in running:
        if (found := _RUNNING.search(text[:1000])) and not int(
            found["waiting"] or found["queue"] or 0
        ):
            count = int(found["vllm"] or found["sglang"] or 0)
            read.running.append((number, text, count))
    steps = [(n, t) for n, t in kept if "ength" in t and len(t) <= MAX_LINE]
    # how it began, and how it is now
    for number, text in steps if len(steps) <= LAST_STEPS else (*steps[:4], *steps[-LAST_STEPS:]):
        values = _read_values(text, names)
        if "mean" in values and "max" in values:
            read.rows.append(values)
            read.places.append((number, text))
    found_tail = judge_tail(read, file)
    return (found_tail,) if found_tail is not None else ()


def _read_values(text: str, names: dict[str, str | None]) -> dict[str, float]:
    values: dict[str, float] = {}
    for name, value in _PAIR.findall(text):
        if name not in names and len(names) < 4_096:
            names[name] = next((n for n, p in _WANTED.items() if p.match(name)), None)
        meaning = names.get(name)
        if meaning is not None and meaning not in values:
            try:
                values[meaning] = float(value)
            except ValueError:
                continue
    return values


def _drain(running: Sequence[tuple[int, str, int]]) -> tuple[int, list[tuple[int, str]]] | None:
    """(most requests, the lines where few were left) of the engines' last decline."""
    most = max((count for *_, count in running), default=0)
    few = [(n, t) for n, t, count in running if 0 < count <= max(1.0, FEW * most)]
    return (most, few) if most >= 10 and len(few) >= DRAIN else None


def judge_tail(read: Rollouts, file: str) -> Finding | None:
    """The rollout that a few long answers hold, by the lengths or by the engines' requests."""
    drained = _drain(read.running)
    late = read.rows[-20:]
    tail = [r for r in late if r["mean"] > 0 and r["max"] >= LONG * r["mean"]]
    share = _share_of_generation(late)
    by_length = len(late) >= 2 and len(tail) * 2 > len(late) and (share or 0.0) >= MOST
    if not by_length and drained is None:
        return None
    words = "a few long answers hold the whole rollout"
    places: list[tuple[int, str]] = []
    if by_length and share is not None:
        words += _say_lengths(read.rows, tail, share)
        places += [read.places[0], read.places[-1]]
    if drained is not None:
        most, few = drained
        words += f"; the engine ran {most} requests and for most of the time only the last few, none waiting"
        places += [few[0], few[-1]]
    return Finding.of_slowness(
        kind="metrics.rollout_tail",
        title=f"{words}: the other GPUs are idle until the last one ends, no hang and no slow link",
        evidence=tuple(quote_line(file, n, t) for n, t in dict.fromkeys(places)),
        weight=round(share or 0.7, 3),
    )


def _share_of_generation(rows: Sequence[dict[str, float]]) -> float | None:
    """Usual share of the step that generation takes; None where the rows do not print both."""
    shares = [r["gen"] / r["step"] for r in rows if r.get("gen") and r.get("step")]
    return median(shares) if shares else None


def _say_lengths(
    rows: Sequence[dict[str, float]], tail: Sequence[dict[str, float]], share: float
) -> str:
    """Words for rows whose longest answer is far longer than the mean."""
    mean, longest = median(r["mean"] for r in tail), max(r["max"] for r in tail)
    # the last line of all may have been cut before it
    times = [r["gen"] for r in rows if r.get("gen")]
    before = f", {times[0]:.0f} s at first" if times[0] * 1.5 < times[-1] else ""
    return (
        f": the longest response has {longest:.0f} tokens, the mean {mean:.0f}; generation takes "
        f"{share:.0%} of the step ({times[-1]:.0f} s{before})"
    )
