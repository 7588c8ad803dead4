"""Did GPU memory climb until a process ran out of it, rise at an event, or lie higher on one rank?

A step that does not fit fails in the first steps. Memory that climbs by about the same amount every
step and then runs out is kept from step to step: a loss, a metric or a state that still carries its
graph, outputs gathered in a list, a cache without a bound. Levels are facts, no faults: a card that is
fuller than its peers, a level that rose when a checkpoint was loaded or an average of the weights was
started. They explain an out-of-memory error of that rank, and answer who asks where the memory went.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from firstfault_tools.averages import median
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import join_lines, keep_marked, may_hold, quote_line
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.metrics.series import MISSING, NO_RANK, NO_STEP, StepSeries

HEAVIER, RISEN, KEPT = "memory.rank_heavier", "memory.level_risen", "memory.graph_kept"
MORE, ALIKE, JUMP = 1.2, 1.1, 0.08
"""Times the others' memory; spread of the others; share by which a level must rise at an event."""

LEAST_GIB = 1.0
MOST_LINES, MOST_ROWS = 20_000, 2_000
_CARD = expression(
    r"^\s*(?P<gpu>\d{1,2})\s*,\s*(?:[^,\n]{1,60},\s*)?(?P<mib>\d{3,6}) MiB(?:,|\s*$)"
)
_OWN = expression(
    r"(?i)\b(?:(?:reward|reference|ref|teacher|critic|eval\w*|ema|second|whole|full)\b.{0,40}\b(?:model|weights|cop(?:y|ies)|params?|state)|"
    r"only (?:on )?rank|gather\w*|(?:model|cache|index|dataset|embeddings?|checkpoint)\b.{0,60}\b(?:on|to|into) (?:cuda|gpu))"
)
_EVENT = expression(
    r"(?i)\bresum\w*|\brestor\w*|\bload(?:ed|ing)\b|\bEMA\b|\bevaluat\w*|\bvalidation\b|\bunfreez\w*|\bcurriculum\b|"
    r"\b(?:new|next) (?:stage|phase)\b|\bseq(?:uence)?[_ ]?len\w*|\bcompil\w+|\bresolution\b|\bbatch[_ ]size\b"
)
_NO_DIGITS = {ord(c): None for c in "0123456789. "}

LEAK = "memory.leak"
MIN_ROWS = 6
COLUMNS = ("mem_allocated_gib", "mem_peak_gib", "mem_reserved_gib")
FEW_ROWS = 4
LEAST_GROWTH, LARGE_GROWTH = 0.15, 0.35
"""Share of the last value that must have been gained after the first steps; where only a few rows tell."""

OUT_OF_MEMORY = expression(
    r"CUDA out of memory\. Tried|OutOfMemoryError|HIP out of memory|CUDA error: out of memory|cuda runtime error \(2\) : out of memory"
)


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> Iterable[Finding]:
    """A leak that ended in an out-of-memory message, and facts about levels of memory."""
    end = find_end(lines)
    leak = list(_find_leak(lines, file, end))
    kept = _find_kept_graph(lines, file) if end is not None and not leak else ()
    return [*leak, *kept, *find_levels(lines, file)]


def _find_leak(lines: Sequence[tuple[int, str]], file: str, end: int | None) -> Iterable[Finding]:
    """One finding where logged GPU memory climbs up to the first out-of-memory message."""
    if end is None or end < FEW_ROWS:
        return []
    from firstfault_tools.metrics.log_lines import read_steps

    series = read_steps(lines)
    for column in COLUMNS:
        found = _climb(series, column, lines, file, lines[end][0])
        if found is not None:
            return [found]
        stepped = _find_rise(series, column, lines[:end], file, ended=True)
        if stepped is not None:
            return [stepped]
    return []


STEP_UP, LEVEL, MOST_RISES = 0.03, 0.01, 8
"""Share of the memory that a phase must have added; share within which it stood level before; rises tried."""
_PHASES = (
    ("the save of a checkpoint", expression(
        r"(?i)\b(?:sav(?:ed|ing)|consolidat\w+|gather\w*)\b.{0,60}\b(?:checkpoint|ckpt|state|weights|model|\S+\.(?:pt|pth|ckpt|safetensors))\b"
    ), "what the save gathered (a consolidated or full state, its copies) still sits on the GPU: free it, or save sharded and through the CPU"),
    ("an evaluation", expression(r"(?i)\b(?:evaluat\w+|validat\w+|eval_loss|val_loss|running evaluation)\b"),
     "outputs or a graph of the evaluation still sit on the GPU: run it under torch.no_grad, move outputs to the CPU and drop them"),
    ("the generation of samples", expression(r"(?i)\b(?:generat\w+|rollout|sampling)\b"),
     "the key-value cache or the outputs of the generation still sit on the GPU"),
)  # fmt: skip


def find_end(lines: Sequence[tuple[int, str]]) -> int | None:
    """Index of the first out-of-memory message of a GPU, or None."""
    if not may_hold(lines, ("emory",)):
        return None
    told = (i for i, (_, text) in enumerate(lines) if "emory" in text)
    return next((i for i in told if OUT_OF_MEMORY.search(lines[i][1]) is not None), None)


_KEEPS = expression(
    r"^\s*(?:\d+[ :]\s*|[>+-]+\s*)?(?P<kept>[A-Za-z_][\w.\[\]'\"]*)(?:\s*\+=\s*(?P<added>[A-Za-z_]\w*)|\.(?:append|update)\((?P<put>[A-Za-z_]\w*)\))\s*(?:#.*)?$"
)
_CARRIES_GRAPH = expression(
    r"(?i)loss|output|pred|logit|metric|score|embed|feat|error|hidden|likelihood|nll|elbo|reward|kl_|_kl"
)
_VALIDATES = expression(r"(?i)\b(?:val|valid\w*|eval\w*|test)\b")


def _find_keeper(lines: Sequence[tuple[int, str]]) -> tuple[int, str] | None:
    """The pasted line of code that adds a bare tensor to a total or a list from step to step."""
    for number, text in keep_marked(lines, ("+= ", ".append(", ".update("))[:256]:
        row = _KEEPS.match(text) if len(text) < 200 else None
        if row is not None and _CARRIES_GRAPH.search(row["added"] or row["put"]):
            return number, text
    return None


_EVAL_CALL = expression(r"^\s*(?:\d+\s+)?[\w, ]+=\s*(?:self\.)?(?:model|net|network)\(")
_NO_GRAPH = ("no_grad", "inference_mode", "set_grad_enabled", "detach()")


def _find_kept_graph(lines: Sequence[tuple[int, str]], file: str) -> Iterator[Finding]:
    """Pasted code that keeps graphs alive, beside an out-of-memory message."""
    keeper = _find_keeper(lines)
    if keeper is not None:
        words = f"`{keeper[1].strip()[:120]}` keeps the graph of every batch alive unless the tensor is detached (.item(), .detach())"
        yield _tell_kept(words, (keeper,), file)
        return
    evaluates = next((r for r in keep_marked(lines, (".eval()",)) if len(r[1]) < 120), None)
    if evaluates is None or may_hold(lines, _NO_GRAPH):
        return
    near = (r for r in lines if 0 < r[0] - evaluates[0] < 40 and len(r[1]) < 200)
    call = next((r for r in near if _EVAL_CALL.match(r[1])), None)
    if call is not None:
        words = "the code shown evaluates without torch.no_grad(), so each batch builds and keeps a graph"
        yield _tell_kept(words, (evaluates, call), file)


def _tell_kept(words: str, rows: Sequence[tuple[int, str]], file: str) -> Finding:
    return Finding(
        kind=KEPT,
        title=words,
        level=Level.CONTEXT,
        category=Category.OOM,
        evidence=tuple(quote_line(file, n, t) for n, t in rows),
        page="memory-growth",
        facts={"explains": {"memory": 1.0}},
    )


def _steepest(
    series: StepSeries, values: Sequence[float], end: int
) -> tuple[int, list[int]] | None:
    """Rank and rows of the largest steady growth in front of line `end`."""
    by_rank: dict[int, list[int]] = defaultdict(list)
    before = itertools.takewhile(lambda row: series.line[row] < end, range(len(series)))
    for row in before:
        if values[row] != MISSING and values[row] > 0:
            by_rank[series.rank[row]].append(row)
    best: tuple[float, int, list[int]] | None = None
    for rank, rows in by_rank.items():
        if len(rows) < FEW_ROWS:
            continue
        few = len(rows) < MIN_ROWS
        start = 1 if len(rows) < 12 else 2
        tail = [values[r] for r in rows[start:]]
        gained, third = tail[-1] - tail[0], len(tail) // 3
        least = LARGE_GROWTH if few else LEAST_GROWTH
        if gained <= max(least * tail[-1], best[0] if best is not None else 0.0):
            continue
        falls = sum(max(0.0, a - b) for a, b in itertools.pairwise(tail))
        steady = tail[-1] - tail[-1 - third] > 0.2 * gained and falls < 0.1 * gained
        if few and not all(b > 1.05 * a for a, b in itertools.pairwise(tail)):
            continue
        if steady:
            best = gained, rank, rows
    return best[1:] if best is not None else None


def _climb(
    series: StepSeries, column: str, lines: Sequence[tuple[int, str]], file: str, end: int
) -> Finding | None:
    if column not in series.columns:
        return None
    values = series.columns[column]
    best = _steepest(series, values, end)
    if best is None:
        return None
    rank, rows = best
    # a level that lasts (training) is no part of the climb that follows it (the first validation)
    flat = [i for i, r in enumerate(rows) if values[r] <= (1 + LEVEL) * values[rows[0]]]
    rows = rows[flat[-1] :]
    first, last = rows[0], rows[-1]
    numbered = NO_STEP not in (series.step[first], series.step[last])
    numbered = numbered and series.step[first] < series.step[last]
    steps = max(1, series.step[last] - series.step[first] if numbered else len(rows) - 1)
    each = (values[last] - values[first]) / steps
    at = (f"step {series.step[first]}", f"step {series.step[last]}") if numbered else (
        f"line {series.line[first]}", f"line {series.line[last]}")  # fmt: skip
    title = (
        f"GPU memory kept growing before: it grew steadily from {values[first]:.4g} GiB at {at[0]} to {values[last]:.4g} GiB "
        f"at {at[1]} ({each:.3g} GiB a {'step' if numbered else 'printed row'}): "
    )
    if _VALIDATES.search((series.texts.get(last) or "")[:200]):
        title = title.replace("growing before", "growing during the validation before", 1)
    keeper = _find_keeper(lines)
    title += (
        "a leak, something keeps tensors from step to step (a loss, metric or state that still "
        "carries its graph and was not detached, or outputs gathered in a list)"
        if keeper is None
        else (
            f"`{keeper[1].strip()[:120]}` keeps the graph of every batch alive, because the tensor is neither "
            "detached nor turned into a number (.item(), .detach()), nor made under torch.no_grad()"
        )
    )
    evidence = tuple(
        Evidence(file, series.line[r], series.texts.get(r) or "", None if rank == NO_RANK else rank)
        for r in (first, last)
    )
    return Finding(
        kind=LEAK,
        title=title,
        level=Level.FAILURE,
        category=Category.OOM,
        evidence=(
            *(e for e in evidence if e.text),
            *((quote_line(file, *keeper),) if keeper is not None else ()),
        ),
        page="memory-growth",
        facts={"first_gib": values[first], "last_gib": values[last], "per_step_gib": each},
    )


def find_levels(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """Facts about levels of GPU memory in one log."""
    found = list(_compare_cards(lines, file))
    text = join_lines(lines)
    if b"mem" not in text and b"Mem" not in text and b"MEM" not in text:
        return tuple(found)
    from firstfault_tools.metrics.log_lines import read_steps

    series = read_steps(lines)
    column = next((c for c in COLUMNS if c in series.columns), None)
    if column is None:
        return tuple(found)
    found += _compare_ranks(series, column, lines, file)
    if (rise := _find_rise(series, column, lines[: 10 * MOST_LINES], file)) is not None:
        found.append(rise)
    return tuple(found)


def _compare_cards(lines: Sequence[tuple[int, str]], file: str) -> Iterator[Finding]:
    """One GPU in a listing that holds more than all others."""
    used: dict[int, tuple[int, tuple[int, str]]] = {}
    for number, text in keep_marked(lines, (" MiB",))[:256]:
        if (row := _CARD.match(text)) is not None:
            used[int(row["gpu"])] = (int(row["mib"]), (number, text))
    yield from _odd_holder({g: (m / 1024, p) for g, (m, p) in used.items()}, "GPU", (), file)


def _compare_ranks(
    series: StepSeries, column: str, lines: Sequence[tuple[int, str]], file: str
) -> Iterator[Finding]:
    """One rank that prints a larger figure than all others in the last row of each."""
    values = series.columns[column]
    rows: dict[int, int] = {}
    for row in range(max(0, len(series) - MOST_ROWS), len(series)):
        if series.rank[row] != NO_RANK and values[row] != MISSING and values[row] > 0:
            rows[series.rank[row]] = row
    if len(rows) < 3:
        return
    held = {
        rank: (values[row], (series.line[row], series.texts.get(row) or ""))
        for rank, row in rows.items()
    }
    yield from _odd_holder(held, "rank", lines[:MOST_LINES], file)


def _odd_holder(
    held: dict[int, tuple[float, tuple[int, str]]],
    what: str,
    lines: Sequence[tuple[int, str]],
    file: str,
) -> Iterator[Finding]:
    if len(held) < 3:
        return
    most = max(held, key=lambda one: held[one][0])
    others = [v for one, (v, _) in held.items() if one != most]
    value, place = held[most]
    if value < MORE * median(others) or max(others) > ALIKE * median(others) or min(others) <= 0:
        return
    if value - median(others) < LEAST_GIB:
        return
    own = _find_own(most, lines) if what == "rank" else None
    why = f": only it says «{own[1].strip()[:160]}»" if own is not None else ""
    yield Finding(
        kind=HEAVIER,
        title=f"{what} {most} holds {value:.1f} GiB of GPU memory, the others {median(others):.1f} GiB{why or '; something only it keeps'}",
        level=Level.CONTEXT,
        category=Category.OOM,
        evidence=tuple(
            quote_line(file, n, t) for n, t in (place, *((own,) if own is not None else ()))
        ),
        rank=most if what == "rank" else None,
        gpu=f"GPU {most}" if what == "GPU" else None,
        page="memory-growth",
        facts={
            "explains": {"memory": 1.0},
            "holder": most,
            "extra_gib": round(value - median(others), 2),
        },
    )


def _find_own(rank: int, lines: Sequence[tuple[int, str]]) -> tuple[int, str] | None:
    """A line about a model or a cache that only this rank prints."""
    shapes: dict[str, set[int]] = defaultdict(set)
    first: dict[str, tuple[int, str]] = {}
    for number, text in lines:
        if len(text) > 400 or not _OWN.search(text):
            continue
        speaker, body = read_prefix(text)
        if speaker.rank is not None:
            shape = text[body:].translate(_NO_DIGITS)
            shapes[shape].add(speaker.rank)
            first.setdefault(shape, (number, text))
    return next((first[s] for s, ranks in shapes.items() if ranks == {rank}), None)


def _find_rise(
    series: StepSeries,
    column: str,
    lines: Sequence[tuple[int, str]],
    file: str,
    ended: bool = False,
) -> Finding | None:
    """A level that rose between two rows of one rank, with an event between them, and stayed.

    A large rise is a fact; where the memory ran out afterwards (`ended`) a small one across a save, an
    evaluation or a generation, out of a level, is what was missing in the end.
    """
    if column not in series.columns or not lines:
        return None
    values = series.columns[column]
    for rows in _rows_by_rank(series, values, lines[-1][0]):
        if len(rows) < (3 if ended else FEW_ROWS):
            continue
        for at in _largest_rises(values, rows):
            large = _is_large(values, rows, at)
            if not large and not (ended and _leaves_level(values, rows, at)):
                continue
            if not _stays_up(values, rows, at, large):
                continue
            last, row = rows[at], rows[at + 1]
            between = [(n, t) for n, t in lines if series.line[last] < n < series.line[row]]
            event = _name_event(between, large and not ended)
            if event is not None:
                return _describe_rise(series, values, (last, row), event, file, ended)
    return None


def _rows_by_rank(series: StepSeries, values: Sequence[float], end: int) -> Iterable[list[int]]:
    """Rows with a value up to a line, rank by rank; of very many some, spread evenly."""
    by_rank: dict[int, list[int]] = defaultdict(list)
    for row in range(0, len(series), 1 + len(series) // MOST_ROWS):
        if values[row] != MISSING and values[row] > 0 and series.line[row] <= end:
            by_rank[series.rank[row]].append(row)
    return by_rank.values()


def _largest_rises(values: Sequence[float], rows: Sequence[int]) -> list[int]:
    """Places whose next row lies highest above them; the very first row is no level yet."""
    sizes = [(values[rows[at + 1]] - values[rows[at]], at) for at in range(1, len(rows) - 1)]
    return [at for _, at in sorted(sizes, reverse=True)[:MOST_RISES]]


def _is_large(values: Sequence[float], rows: Sequence[int], at: int) -> bool:
    """Much of the level before, and most of what memory grew by in all."""
    before = values[rows[at]]
    size = values[rows[at + 1]] - before
    whole = values[rows[-1]] - values[rows[1]]
    return size >= max(JUMP * before, LEAST_GIB) and size >= 0.7 * whole


def _leaves_level(values: Sequence[float], rows: Sequence[int], at: int) -> bool:
    """The rows before are level, and this rise is more than their spread."""
    before, past = values[rows[at]], [values[r] for r in rows[max(0, at - 3) : at + 1]]
    level = max(past) - min(past) <= LEVEL * before
    return level and values[rows[at + 1]] - before >= STEP_UP * before


def _stays_up(values: Sequence[float], rows: Sequence[int], at: int, large: bool) -> bool:
    """No later row falls back."""
    before, risen = values[rows[at]], values[rows[at + 1]]
    least = 0.95 * risen if large else (1 + STEP_UP / 2) * before
    return not any(values[r] < least for r in rows[at + 2 :])


def _describe_rise(
    series: StepSeries,
    values: Sequence[float],
    rows: tuple[int, int],
    event: tuple[tuple[int, str], str, str],
    file: str,
    ended: bool,
) -> Finding:
    last, row = rows
    line, phase, meaning = event
    who = None if series.rank[row] == NO_RANK else series.rank[row]
    places = (
        (series.line[last], series.texts.get(last) or ""),
        line,
        (series.line[row], series.texts.get(row) or ""),
    )
    page = "oom-evaluation" if ended else "memory-growth"
    return Finding(
        kind=LEAK if ended else RISEN,
        title=f"GPU memory rose from {values[last]:.4g} to {values[row]:.4g} GiB {phase} and stayed there: {meaning}",
        level=Level.FAILURE if ended else Level.CONTEXT,
        category=Category.OOM,
        evidence=tuple(Evidence(file, n, t.strip(), who) for n, t in places if t),
        rank=who if ended else None,
        page="oom-at-checkpoint" if "checkpoint" in phase else page,
        facts={"explains": {"memory": 1.0}, "from_gib": values[last], "to_gib": values[row]},
    )


def _name_event(
    between: Sequence[tuple[int, str]], any_event: bool
) -> tuple[tuple[int, str], str, str] | None:
    """(line, when, what it means) of the last phase between two rows, or of any event told there."""
    for row in reversed(between):
        text = row[1][:400]
        found = next((p for p in _PHASES if p[1].search(text)), None)
        if found is not None:
            return row, f"across {found[0]}", found[2]
        if _EVENT.search(text):
            meaning = "what was made or loaded then is still held on the GPU"
            return (row, f"at «{text.strip()[:160]}»", meaning) if any_event else None
    return None


def join_levels(finding: Finding, levels: Sequence[Finding]) -> Finding:
    """An out-of-memory finding with the level that explains it in its title."""
    for level in levels:
        if level.kind == HEAVIER and level.whole(Fact.HOLDER) != finding.rank:
            continue
        return replace(
            finding,
            title=f"{finding.title}; {level.title}",
            evidence=(*finding.evidence[:3], *level.evidence[:3]),
        )
    return finding
