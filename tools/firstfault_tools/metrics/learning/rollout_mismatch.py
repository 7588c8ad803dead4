"""Do the rollout engine and the trainer still hold the same policy? Their difference, and what parts them.

Reinforcement learning samples with one engine and trains with another. Trainers print how far the probabilities of
the two are apart; a healthy difference stays where numerics put it. One that grows with every update says that the
engine does not get the new weights, one that is many times that of a good run says that the engine computes or samples
otherwise. What parts them is told by a report of a weight transfer of which little was taken, by a checksum that never
changes, or by a setting of the engine that is not that of the trainer or of the good run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from itertools import islice
from typing import NamedTuple, TypeVar

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import (
    Category,
    Evidence,
    Finding,
    Level,
    Strength,
    Together,
)
from firstfault_tools.hardware.excerpt import quote_line
from firstfault_tools.log.digest import FileDigest
from firstfault_tools.log.logs import Logs

BESIDE = ("diff", "mismatch", "rollout", "tensors", "weights")

KIND = "metrics.rollout_apart"
_SAME = "the rollout engine and the trainer no longer hold the same policy"
GREW, APART, FAR = 4.0, 4.0, 0.5
"""Times its first level, or that of a good run, from which on a difference is no numerical noise."""

NOTICED = 0.02
"""Mean difference of probabilities below which engines of different kernels lie (verl documents under 0.01)."""

ENDS, MOST_LINES, SAME_SUMS = 3, 20_000, 5
SMALL = 0.5
"""Share of the tensors sent that were taken, below which a transfer counts as not taken."""

_GAP = expression(
    r"(?i)(?:(?:prob|logp)\w{0,8}_?(?:diff|gap|mismatch|err)\w{0,8}|(?:rollout_corr|mismatch|rollout)[/_](?:is_)?k[l3]\w{0,4})"
)
_NOT_MEAN = expression(r"(?i)(?:max|min|std|var|pearson|p\d\d|valid)")
_PAIR = expression(
    r"(?P<name>[A-Za-z][\w/@.-]{1,80}(?:\([\w, ]{1,40}\))?)['\"]?(?:\s?[:=]\s?['\"]?|[ ](?=[-+\d]))"
    r"(?P<value>[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?)"
)
_NUMBER = expression(r"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?")
_REWARD = expression(r"(?i)(?:reward|score)s?(?:/mean|_mean|/avg)?$|rewards?/(?!.*std)[\w/]*mean$")
_SUMS = expression(r"(?i)fingerprint|checksum|hash|crc|digest")
_TRANSFER = expression(
    r"(?i)update_?weights?|load_?weights?|weight_?loader|sync_?weights?|weights? (?:sync|update|transfer)|refit|"
    r"broadcast\w* weights|sync\w* (?:the )?(?:policy|parameters)"
)
_COUNT = r"(?:[ :=]{1,3}|[ :=]{1,3}only )"
_SENT = expression(rf"(?i)\b(?:received|sent|total|expected|got){_COUNT}(?P<n>\d{{1,7}})\b")
_TAKEN = expression(rf"(?i)\b(?:matched|applied|loaded|updated|accepted|copied|assigned|written){_COUNT}(?P<n>\d{{1,7}})\b")  # fmt: skip
_LEFT = expression(rf"(?i)\b(?:skipped|ignored|unmatched|unknown|dropped|unexpected|missing){_COUNT}(?P<n>\d{{1,7}})\b")  # fmt: skip
_OF = expression(r"(?i)\b(?P<n>\d{1,7}) ?(?:/|of|out of) ?(?P<m>\d{1,7}) (?:tensors|weights|parameters|params|keys)\b")  # fmt: skip
_ADAPTER = expression(r"(?i)\b(?:lora|adapter)s?[ _](?:tensors?|weights?|params?)?[ :=]{1,3}0\b(?!\.)")  # fmt: skip
_SUM = expression(
    r"(?i)(?P<name>sum\|?\w?\|?|checksum|crc32?|sha\d*|md5|hash|digest|fingerprint|norm)\b[^=:]{0,80}[=:]\s?(?P<value>[0-9a-f][0-9a-f.]{5,40})"
)
_SETTING = expression(
    r"(?P<name>top_p|top_k|min_p|temperature|repetition_penalty|kv_cache_dtype|quantization|rollout_dtype|logprobs_mode|"
    r"attention_backend|disable_cascade_attn|enable_sleep_mode|vllm_enable_sleep_mode)['\"]?\s?[:=]\s?['\"]?(?P<value>[\w.-]+)"
)
_SLEEP = expression(
    r"(?i)sleep mode freed|\.sleep\(|engine (?:goes to sleep|sleeps)|putting .{0,20}to sleep"
)
_DROPS = expression(r"(?i)level ?[=:]? ?2\b")
_WAKE = expression(r"(?i)wake[_ -]?up|woke up")
_GENERATES = expression(r"(?i)\bgenerat(?:e|ing|ion)\b|rollout (?:starts|begins)")
_DIFFERS = expression(r"^(?P<sign>[+-])(?![+-])\s?(?P<rest>.*)")
_NEUTRAL = {
    "top_p": ("1.0", "1"), "top_k": ("0", "-1"), "min_p": ("0", "0.0", "None"), "repetition_penalty": ("1.0", "1"),
    "kv_cache_dtype": ("auto", "bfloat16", "None"), "quantization": ("None", "null", "none"),
}  # fmt: skip
"""Values at which the engine samples from the very distribution that the trainer computes."""


@dataclass(slots=True)
class _Gap:
    """One difference by step in one log, with the reward of the same rows."""

    name: str
    rows: list[tuple[int, str, float]] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)

    @property
    def few(self) -> bool:
        return len(self.rows) < 2 * ENDS

    @property
    def start(self) -> float:
        return median(v for _, _, v in self.rows[: 1 if self.few else ENDS])

    @property
    def end(self) -> float:
        return median(v for _, _, v in self.rows[-1 if self.few else -ENDS :])

    @property
    def wide(self) -> bool:
        """Above what engines of different kernels show; of few rows only what is beyond doubt."""
        return self.end >= (FAR if self.few else NOTICED)

    @property
    def learns(self) -> bool:
        """The reward rises nevertheless."""
        half = self.rewards[: len(self.rewards) // 2]
        return not self.few and bool(half) and max(self.rewards[-ENDS:]) > 1.1 * max(half)


@dataclass(frozen=True, slots=True)
class _Parted:
    """What parts the two. weights: the new weights do not arrive, which is a fault of the code by itself."""

    words: str
    places: tuple[Evidence, ...]
    weights: bool = True


def find_in_incident(incident: Logs, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The difference that grew or is too large, with what parts the two; a transfer that was not taken alone."""
    read = [(d, g) for d in incident.digests if (g := _read_gap(d.kept)) is not None]
    chosen = _tell_wide(read)
    parted = _find_not_taken(incident) or _find_same_sum(incident)
    told = next((f for f in findings if f.kind == KIND), None)
    if chosen is not None:
        digest, gap, words = chosen
        parted = parted or _find_unsent(incident) or _find_setting(incident, read, digest)
        return (_describe(words, parted, _show(gap, digest.file)),)
    if told is not None:
        parted = parted or _find_unsent(incident)
        return (_describe(told.title, parted, told.evidence),) if parted is not None else ()
    return (_describe(parted.words, parted, ()),) if parted is not None else ()


def judge_table(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The same of one table that was exported: its columns of differences, and a copy of the weights that never changes."""
    gap = _read_gap(lines)
    alone = _tell_wide([(file, gap)]) if gap is not None else None
    stale = _find_unchanged(lines, file)
    if gap is None or alone is None:
        return (_describe(stale.words, stale, ()),) if stale is not None else ()
    return (_describe(alone[2], stale, _show(gap, file)),)


def _show(gap: _Gap, file: str) -> tuple[Evidence, ...]:
    at = next((r for r in gap.rows if r[2] >= GREW * gap.start), gap.rows[len(gap.rows) // 2])
    chosen = dict.fromkeys((gap.rows[0], at, gap.rows[-1]))
    # the first row is there to compare with, unless the difference is as large from the start
    return tuple(replace(quote_line(file, n, t), usual=value < at[2] / 2) for n, t, value in chosen)


def _describe(words: str, parted: _Parted | None, shown: tuple[Evidence, ...]) -> Finding:
    code = parted is not None and parted.weights
    return Finding(
        kind=KIND,
        title=words if parted is None or not shown else f"{parted.words}; {words}",
        level=Level.CAUSE,
        category=Category.CODE_BUG if code else Category.NUMERICAL,
        evidence=(*(parted.places if parted is not None else ()), *shown),
        facts={
            "explains": {"unlearned": 0.9, "diverged": 0.9, "setback": 0.7},
            "survived": False,
        },
        strength=Strength(Together.SERIES),
    )


def _read_gap(lines: Sequence[tuple[int, str]]) -> _Gap | None:
    """The difference with the most rows: of `name:value` pairs, or a column of a table."""
    gaps: dict[str, _Gap] = {}
    columns: tuple[str, ...] = ()
    for number, text in islice(lines, MOST_LINES):
        if (
            not columns
            and "," in text
            and _GAP.search(text)
            and ":" not in text
            and "=" not in text
        ):
            columns = tuple(c.strip() for c in text.split(","))
            continue
        values = dict(_values(text, columns))
        rewards = [v for n, v in values.items() if _REWARD.search(n)]
        for name in filter(_is_gap, values):
            gap = gaps.setdefault(name, _Gap(name))
            gap.rows.append((number, text, abs(values[name])))
            gap.rewards += rewards[:1]
    enough = [g for g in gaps.values() if len(g.rows) >= 2]
    return max(enough, key=lambda g: (len(g.rows), "prob" in g.name), default=None)


def _values(text: str, columns: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    cells = text.split(",") if columns else []
    if columns and len(cells) == len(columns):
        for name, cell in zip(columns, cells, strict=True):
            if _NUMBER.fullmatch(cell.strip()):
                yield name, float(cell)
    elif len(text) < 20_000 and _GAP.search(text):
        for match in _PAIR.finditer(text):
            yield match["name"], float(match["value"])


def _is_gap(name: str) -> bool:
    return _GAP.search(name) is not None and _NOT_MEAN.search(name) is None


T = TypeVar("T")


def _tell_wide(read: Sequence[tuple[T, _Gap]]) -> tuple[T, _Gap, str] | None:
    """The difference that left the level of numerics: against another run, else against its own begin."""
    for log, gap in read:
        usual = [g for other, g in read if other is not log and g.name == gap.name]
        best = min(usual, key=lambda g: g.end, default=None)
        if best is not None and gap.wide and gap.start >= APART * best.start:
            return (
                log,
                gap,
                f"{_SAME}: {gap.name} is {gap.start:.3g} from the first step on, {best.start:.3g} in the other log, so the samples are off-policy",
            )
    for log, gap in read:
        if not gap.wide or gap.learns or gap.end < GREW * max(gap.start, 1e-9):
            continue
        at = next(i for i, r in enumerate(gap.rows) if r[2] >= min(GREW * gap.start, gap.end))
        sudden = at > 0 and gap.rows[at][2] >= GREW * max(gap.rows[at - 1][2], 1e-9)
        how = (
            "in one step: that update of the engine's weights went wrong (sleep and wake-up that drops them, a bucket or "
            "quantised layer that was not reloaded)"
            if sudden
            else "step by step: the engine still answers with old weights, or computes otherwise than the trainer"
        )
        return (
            log,
            gap,
            f"{_SAME}: {gap.name} grew from {gap.start:.3g} to {gap.end:.3g}, {how}; possible: the weight sync or a setting of the engine, not the learning rate",
        )
    return None


def _find_unchanged(lines: Sequence[tuple[int, str]], file: str) -> _Parted | None:
    """A checksum of the engine's weights that stays while that of the trainer changes."""
    rows = [(n, t, tuple(c.strip() for c in t.split(","))) for n, t in islice(lines, MOST_LINES)]
    names = rows[0][2] if rows else ()
    rows = [r for r in rows[1:] if len(r[2]) == len(names)]
    sums = [i for i, name in enumerate(names) if _SUMS.search(name)]
    if len(rows) < SAME_SUMS or len(sums) < 2:
        return None
    kinds = {i: len({r[2][i] for r in rows}) for i in sums}
    stays = [i for i in sums if kinds[i] == 1]
    moves = [i for i in sums if kinds[i] > len(rows) // 2]
    if not stays or not moves:
        return None
    words = (
        f"{names[stays[0]]} stays {rows[0][2][stays[0]]} in all {len(rows)} rows while {names[moves[0]]} changes: the weight sync never "
        "takes effect, the rollout engine goes on with its first, stale weights"
    )
    return _Parted(words, tuple(quote_line(file, n, t) for n, t, _ in (rows[0], rows[-1])))


def _find_not_taken(incident: Logs) -> _Parted | None:
    """A report of a transfer of which the engine took less than half, or an adapter of which nothing was sent."""
    for digest in incident.digests:
        for number, text in islice(digest.kept, MOST_LINES):
            if len(text) > 2_000 or not _TRANSFER.search(text):
                continue
            words = _tell_transfer(text)
            if words is not None:
                return _Parted(words, (quote_line(digest.file, number, text),))
    return None


def _tell_transfer(text: str) -> str | None:
    sent, taken, left, of = (p.search(text) for p in (_SENT, _TAKEN, _LEFT, _OF))
    why = re.search(r"\((?P<why>[^()]{6,200})\)\s*$", text)
    reason = f" ({why['why'].strip()})" if why is not None else ""
    if sent is not None and taken is not None and int(taken["n"]) < SMALL * int(sent["n"]):
        beside = f", {left[0]}" if left is not None else ""
        return f"the weights sent to the rollout engine are not taken over: {sent[0]}, {taken[0]}{beside}{reason}: it goes on with stale weights"
    if of is not None and int(of["n"]) < SMALL * int(of["m"]):
        return f"the weights sent to the rollout engine are not taken over: {of[0]}{reason}: it goes on with stale weights"
    if _ADAPTER.search(text):
        return f"the weight sync delivers no adapter (LoRA) tensors to the rollout engine ({_ADAPTER.findall(text)[0]}): it samples from the base model"
    return None


def _find_same_sum(incident: Logs) -> _Parted | None:
    """A checksum of the transferred weights that is the same update after update."""
    for digest in incident.digests:
        sums: dict[str, list[tuple[int, str, str]]] = {}
        for number, text in islice(digest.kept, MOST_LINES):
            if len(text) < 2_000 and _TRANSFER.search(text) and (m := _SUM.search(text)):
                sums.setdefault(m["name"], []).append((number, text, m["value"]))
        for name, rows in sums.items():
            if len(rows) >= SAME_SUMS and len({v for _, _, v in rows}) == 1:
                words = (
                    f"the {name} of the weights sent to the rollout engine is {rows[0][2]} in each of {len(rows)} updates: "
                    "the same, stale weights are sent again and again"
                )
                return _Parted(
                    words, tuple(quote_line(digest.file, n, t) for n, t, _ in (rows[0], rows[-1]))
                )
    return None


def _find_unsent(incident: Logs) -> _Parted | None:
    """An engine that drops its weights when it sleeps, and to which none are sent after it wakes up."""
    for digest in incident.digests:
        events = [
            (kind, n, t)
            for n, t in islice(digest.kept, MOST_LINES)
            for kind, pattern in (
                ("sleep", _SLEEP),
                ("wake", _WAKE),
                ("sent", _TRANSFER),
                ("generates", _GENERATES),
            )
            if len(t) < 2_000 and pattern.search(t)
        ]
        ways = [i for i, e in enumerate(events[:-1]) if e[0] == "wake"]
        bare = [i for i in ways if events[i + 1][0] == "generates"]
        slept = next((e for e in events if e[0] == "sleep" and _DROPS.search(e[2])), None)
        if slept is not None and len(bare) >= ENDS and 2 * len(bare) > len(ways):
            words = (
                "the rollout engine sleeps at level 2, which discards its weights, and no weights are sent to it after it wakes up: they "
                "are sent before it sleeps, and are lost"
            )
            return _Parted(
                words,
                tuple(
                    quote_line(digest.file, n, t)
                    for _, n, t in (slept, events[bare[0]], events[bare[0] + 1])
                ),
            )
    return None


def _find_setting(
    incident: Logs, read: Sequence[tuple[FileDigest, _Gap]], own: FileDigest
) -> _Parted | None:
    """A setting of the engine that differs between the runs, or by which it does not sample what the trainer computes."""
    changed, set_to = _read_settings(incident, [d for d, _ in read], own)
    told = [
        (f"{name} {sides['-'].value} -> {sides['+'].value}", sides["+"])
        for name, sides in changed.items()
        if len(sides) == 2 and sides["-"].value != sides["+"].value
    ]
    if told:
        words = f"the rollout engine samples otherwise than the good run ({', '.join(w for w, _ in told)}): its log-probs are not those of the trainer"
        return _part_with(words, [row for _, row in told])
    odd = {n: row for n, row in set_to.items() if n in _NEUTRAL and row.value not in _NEUTRAL[n]}
    if odd:
        words = f"the rollout engine samples with {', '.join(f'{n} {row.value}' for n, row in odd.items())}, which the trainer's log-probs do not know"
        return _part_with(words, list(odd.values()))
    return None


class _Setting(NamedTuple):
    """One value that a line gives to a setting of the engine."""

    digest: FileDigest
    number: int
    text: str
    value: str


def _read_settings(
    incident: Logs, with_gap: Sequence[FileDigest], own: FileDigest
) -> tuple[dict[str, dict[str, _Setting]], dict[str, _Setting]]:
    """By name: the first value on each side ("+" the run with the gap, "-" the good one), and the last value of the run."""
    changed: dict[str, dict[str, _Setting]] = {}
    set_to: dict[str, _Setting] = {}
    for digest in incident.digests:
        compared = digest is not own and digest in with_gap
        where = "+" if digest is own else "-" if compared else ""
        for number, text in islice(digest.kept, MOST_LINES):
            sign = _DIFFERS.match(text)
            side = where if sign is None else sign["sign"]
            for match in _SETTING.finditer(text[:4_000]):
                row = _Setting(digest, number, text, match["value"])
                if side:
                    changed.setdefault(match["name"], {}).setdefault(side, row)
                if not compared:
                    set_to[match["name"]] = row
    return changed, set_to


def _part_with(words: str, rows: Sequence[_Setting]) -> _Parted:
    return _Parted(
        words, tuple(quote_line(r.digest.file, r.number, r.text) for r in rows[:2]), False
    )
