"""Which of many ranks' logs fell silent, and do the others go on?

A rank that prints no steps often writes at its start alone. So a silence counts against a log's own rhythm,
and a log without step lines is compared with its like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import StrEnum

from firstfault_tools.collectives.recorder_dump import rank_of_name
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.metrics.rhythm import Rhythm
from firstfault_tools.triage.last_lines import find_step

NEVER_BEGUN_S = 1800.0
"""Silence of a job that never found a rhythm: torch's default timeout of a store and of gloo
(https://docs.pytorch.org/docs/stable/distributed.html), so whoever waits at the start has given up by then."""
GOES_ON = 0.5
"""Share of its limit below which a log's silence says that it goes on; between it and the limit one waits."""
NAMED = 4
_LAUNCHER = expression(r"attempt_\d+/(\d+)/std(?:out|err)\.log$")


class State(StrEnum):
    """What a log does."""

    GOES_ON = "goes on"
    OPEN = "open"
    SILENT = "silent"


@dataclass
class RankLog:
    """One log that is followed. rank: by its name, None where it tells none."""

    name: str
    rows: Rhythm
    lines: Rhythm
    rank: int | None = None
    number: int = 0
    last_line: str = ""
    step: int | None = None

    @property
    def who(self) -> str:
        return self.name if self.rank is None else f"rank {self.rank}"

    @property
    def prints_steps(self) -> bool:
        return self.rows.count > 1 or (self.rows.fixed is not None and self.rows.count > 0)

    @property
    def rhythm(self) -> Rhythm:
        return self.rows if self.prints_steps else self.lines

    @property
    def is_known(self) -> bool:
        return self.prints_steps or self.lines.is_known

    def state(self, now: float) -> State:
        silent, limit = self.rhythm.silence(now), self.rhythm.limit
        if silent >= limit:
            return State.SILENT
        return State.GOES_ON if silent < GOES_ON * limit else State.OPEN

    def quote(self) -> Evidence:
        return Evidence(self.name, self.number, self.last_line[:600])


@dataclass
class Silence:
    """Watches the logs of one job. stall_after: seconds that count, instead of what was learned."""

    stall_after: float | None = None
    logs: dict[str, RankLog] = field(default_factory=dict)
    told: frozenset[str] = frozenset()

    def hear(self, name: str, lines: Sequence[str], rows: int, now: float) -> None:
        """Lines came, `rows` of them step lines."""
        log = self.logs.get(name)
        if log is None:
            log = self.logs[name] = RankLog(name, Rhythm(self.stall_after), Rhythm(self.stall_after), _rank_of(name))  # fmt: skip
        log.number += len(lines)
        log.lines.beat(now, len(lines))
        if rows:
            log.rows.beat(now, rows)
        log.last_line = next((x for x in reversed(lines) if x.strip()), log.last_line)
        step = find_step(lines)
        log.step = log.step if step is None else step

    def judge(self, now: float) -> Finding | None:
        """A silence that was not told yet. All logs, or some while others go on."""
        known = [log for log in self.logs.values() if log.is_known]
        if not known:
            return self._never_begun(now)
        states = {log.name: log.state(now) for log in known}
        silent = [log for log in known if states[log.name] is State.SILENT]
        if not silent:
            self.told = frozenset()
            return None
        if len(silent) == len(known):
            return self._tell(silent, _all_silent(silent, now))
        going = [log for log in known if states[log.name] is State.GOES_ON]
        if len(going) + len(silent) < len(known):
            return None  # some have not been silent for long enough to know
        alone = [log for log in silent if _differs(log, silent, known)]
        return self._tell(alone, _some_silent(alone, going, now)) if alone else None

    def _tell(self, logs: Sequence[RankLog], finding: Finding) -> Finding | None:
        names = frozenset(log.name for log in logs)
        if names <= self.told:
            return None
        self.told = self.told | names
        return finding

    def _never_begun(self, now: float) -> Finding | None:
        logs = list(self.logs.values())
        if not logs or min(log.lines.silence(now) for log in logs) < NEVER_BEGUN_S:
            return None
        return self._tell(logs, _all_silent(logs, now))


def _rank_of(name: str) -> int | None:
    launched = _LAUNCHER.search(name)
    return int(launched[1]) if launched else rank_of_name(name, named_only=True)


def _differs(log: RankLog, silent: Sequence[RankLog], known: Sequence[RankLog]) -> bool:
    """Whether most of its like, with or without step lines, go on."""
    like = [x for x in known if x.prints_steps == log.prints_steps]
    return 2 * sum(x.prints_steps == log.prints_steps for x in silent) < len(like)


def _finding(title: str, logs: Sequence[RankLog], rank: int | None, facts: dict[str, float]) -> Finding:  # fmt: skip
    return Finding(
        kind="metrics.stalled",
        title=title,
        level=Level.SYMPTOM,
        category=Category.COMMUNICATION,
        evidence=tuple(log.quote() for log in logs[:NAMED]),
        rank=rank,
        facts=facts,
    )


def _all_silent(logs: Sequence[RankLog], now: float) -> Finding:
    order = sorted(logs, key=lambda x: x.rhythm.last or 0.0)
    silent, usual = order[-1].rhythm.silence(now), order[-1].rhythm.usual
    facts = {"silent_s": silent, "usual_s": usual}
    what = "step line" if order[-1].prints_steps else "line"
    how_often = f" (usually every {usual:.1f} s)" if usual else ""
    head = f"No {what} for {silent:.0f} s{how_often}: the run stands still"
    if len(logs) < 2:
        return _finding(head, order, order[0].rank, facts)
    head = f"No {what} from any of {len(logs)} logs for {silent:.0f} s{how_often}: the run stands still"
    first, ahead = order[0], (order[1].rhythm.last or 0.0) - (order[0].rhythm.last or 0.0)
    if ahead <= 2 * max(usual, 1.0):
        return _finding(head, order, None, facts)
    behind = f", at step {first.step}" if first.step is not None else ""
    said = f"{head}; {first.who} fell silent first, {ahead:.0f} s before the next{behind}"
    return _finding(said, order, first.rank, facts)


def _some_silent(logs: Sequence[RankLog], going: Sequence[RankLog], now: float) -> Finding:
    order = sorted(logs, key=lambda x: x.rhythm.last or 0.0)
    first, rhythm = order[0], order[0].rhythm
    names = ", ".join(log.who for log in order[:NAMED]) + (f" and {len(order) - NAMED} more" if len(order) > NAMED else "")  # fmt: skip
    others = f"{len(going)} other{'s go' if len(going) > 1 else ' goes'} on"
    said = f"{names[:1].upper()}{names[1:]}: no line for {rhythm.silence(now):.0f} s (usually every {rhythm.usual:.1f} s) while {others}"
    ahead = [log.step for log in going if log.step is not None]
    if first.step is not None and ahead:
        said += f"; last step {first.step}, theirs {max(ahead)}"
    facts = {"silent_s": rhythm.silence(now), "usual_s": rhythm.usual}
    return _finding(said, order, first.rank if len(order) == 1 else None, facts)
