"""Did a resumed run end in peace without a step, though steps were left to do?"""

from __future__ import annotations

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.excerpt import quote_line

NOT_TRAINING = expression(r"(?i)loading|shards|download|map|tokeniz|evaluat|generat|saving|example")
NOTHING_LINES = 2_000
"""Last lines of a log in which the resume and the end are looked for."""

_TAKEN_UP = expression(
    r"(?i)(?:setting global step to|resum(?:ed|ing)(?: training)? (?:from|at) (?:global[ _]?)?(?:step|iteration)|continuing training from global step|"
    r"\bglobal_step_)[ :=]{0,2}(?P<step>[1-9]\d{0,8})\b"
)
_WORK_BAR = expression(r"\|\s*(?P<step>\d{1,9})/(?P<total>\d{1,9}) \[")
_CLOSED = expression(
    r"(?i)wandb:? .*(?:synced|run summary|finish)|training (?:finished|completed|complete|done)|^\s*0\s*$|exit(?:ed)? (?:with )?(?:code|status) 0\b"
)
_ANY_STEP = expression(
    r"(?i)\bstep['\"]?\s?[:=]\s?(?P<step>\d{1,9})\b|['\"]loss['\"]?\s?[:=]|\bloss[:=] ?\d"
)


@dataclass(slots=True)
class _Resumption:
    """The last resume of a log: where it began, the bar that stands there, and the end in peace."""

    start: tuple[int, str, int] | None = None
    bar: tuple[int, str, int] | None = None
    end: tuple[int, str] | None = None

    def take(self, number: int, text: str) -> None:
        """The next line."""
        if "lobal" in text or "esum" in text or "ontinuing" in text:
            told = _TAKEN_UP.search(text)
            if told is not None and (self.start is None or int(told["step"]) != self.start[2]):
                self.start, self.bar, self.end = (number, text, int(told["step"])), None, None
        if self.start is None:
            return
        if "/" in text and (work := _WORK_BAR.search(text)) is not None:
            self._take_bar(number, text, int(work["step"]), int(work["total"]), self.start[2])
        elif (step := _ANY_STEP.search(text)) is not None:
            if step["step"] is None or int(step["step"]) > self.start[2]:
                self.start = None
        elif self.bar is not None and _CLOSED.search(text):
            self.end = self.end or (number, text)

    def _take_bar(self, number: int, text: str, step: int, total: int, start: int) -> None:
        if step > start and not NOT_TRAINING.search(text):
            self.start = None
        elif step == start < total:
            self.bar = (number, text, total)


def find_nothing_done(incident: LogIncident) -> tuple[Finding, ...]:
    """A resume that ends in peace without a single step, though steps were left to do."""
    for digest in incident.digests:
        if not any(run.holds(("/", "lobal")) and run.holds(("esum", "lobal_step", "lobal step")) for run in digest.kept.runs):  # fmt: skip
            continue
        last = _Resumption()
        for number, text in digest.kept[-NOTHING_LINES:]:
            if len(text) <= 2_000:
                last.take(number, text)
        start, bar, end = last.start, last.bar, last.end
        if start is None or bar is None or end is None or incident.tracebacks:
            continue
        return (
            Finding(
                kind="checkpoint.nothing_done",
                title=f"the run resumed at step {start[2]} of {bar[2]} and ended without a single further step, and without an error: the "
                "restored data loader is exhausted (a checkpoint saved at the end of an epoch restores a position at its end), so the "
                f"loop found no batches; the {bar[2] - start[2]} steps that were left have not been done",
                level=Level.CAUSE,
                category=Category.CHECKPOINT,
                evidence=tuple(
                    quote_line(digest.file, n, t)
                    for n, t in ((start[0], start[1]), (bar[0], bar[1]), end)
                ),
                facts={"survived": False, "starts_at": 1, "resumed_at": start[2]},
            ),
        )
    return ()
