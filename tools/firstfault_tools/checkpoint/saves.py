"""Which checkpoints did a run save, load or refuse, by its own lines, and which is the newest that is whole?

Wordings: Megatron-LM (megatron/training/checkpointing.py), torchtitan (torchtitan/components/checkpoint.py),
transformers.Trainer, DeepSpeed, Lightning, and the plain forms of training scripts in the eval cases.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.prefix import read_prefix

LONGEST = 1_000
_NAMED = expression(r"(?i)check-?point|ckpt|\bstep[-_]\d|global_step|\bsnapshot\b")
_STEP = expression(
    r"(?i)(?:\b(?:iteration|iter|step)\b[s]?\s{0,6}[:=#]?\s{0,6}|(?:global_?step|iter|step)[-_=]?|checkpoint[-_ ]|ckpt[-_ ](?:step )?)(?P<step>\d{1,9})\b"
)
_PATH = expression(r"(?<!\d)(?P<path>(?:[a-z0-9]{2,5}:/)?/[\w.@%+=/-]{2,200})")
_REFUSED = expression(
    r"(?i)\bhas no \.?metadata\b|\bno such file or directory\b|"
    r"\b(?:is |looks )?(?:incomplete|corrupt(?:ed)?|truncated|unreadable)\b|"
    r"\bnot a (?:(?:valid|complete|distributed) )+checkpoint|\bmetadata(?:\.json)? (?:not found|is missing|missing)|\bskipping\b"
)
_FAILED = expression(
    r"(?i)\b(?:fail(?:ed|ure)?|cancelled|canceled|aborted|error)\b|\bcould not (?:be )?(?:save|written)"
)
_NOT_YET = expression(r"(?i)\bstag(?:ed|ing)\b|\basync|\bin (?:the )?background|\bqueued\b")
_PART = expression(
    r"(?i)[\w-]*_rank_\d|(?:model|optim)_states|\.distcp\b|\bconfig(?:uration)?\b|\btokeni[sz]er|\b(?:deleting|local copy)\b|"
    r"\b(?P<have>\d{1,6}) ?(?:of|/) ?(?P<all>\d{1,6}) (?:tensors|shards|files|parts|ranks|objects)\b"
)
_DONE = expression(
    r"(?i)\b(?:saved|wrote|written|uploaded)\b|\b(?:saving|upload(?:ing)?|save|writing)\b.{0,80}\b(?:complete[d]?|finished|done)\b|"
    r"\bfinished (?:saving|writing|uploading|(?:the )?(?:async(?:hronous)? )?(?:upload|save|write))\b|\bcheckpoint\b.{0,60}\bis (?:now )?ready(?: now)?\b|"
    r"\b(?:checkpoint|ckpt)\b[^:;]{0,40}(?<!not )(?<!never )\bcomplete[d]?\b"
)
_RECALLED = expression(
    r"(?i)\b(?:last|latest|newest) (?:known )?(?:good|complete|valid|usable) (?:checkpoint|ckpt)\b"
)
"""What a launcher or a person says of a checkpoint that was saved before: neither a save nor its failure."""
_OF_JOB = expression(r"(?i)\bjob\b(?: [\w.-]{1,40})? fail(?:ed|ure)\b")
"""The job failed, not the save that is named beside it."""
_WHOLE = expression(
    r"(?i)\.metadata (?:was )?written\b|\+ \.metadata\b|\b(?:checkpoint|ckpt)\b[^:;]{0,40}\bsaved\b"
)
"""Said beside "all of N parts", it tells that the whole checkpoint is there."""
_BEGUN = expression(
    r"(?i)\bsav(?:e|ing)\b|\babout to be saved\b|\bwriting\b|\bstag(?:ed|ing)\b|\bconsolidating\b|\boffloading\b"
)
_BARE = expression(
    r"(?i)\b(?:saving|saved|wrote|writing) (?:the |a )?(?:full |model |training )?(?:checkpoint|ckpt)\b"
)
"""A save told without step and path, as by torchtitan: it is of the step that was logged last."""
_LOADED = expression(
    r"(?i)\b(?:load(?:ed|ing)?|resum(?:e|ed|ing)|restor(?:ed|ing)|continuing)\b(?!.{0,20}\bshards:)"
)
_SOURCE = expression(r"^\s*(?:File \"|\^|raise |Traceback|\$ |\+ |--\w)|\b\w+\(|_checkpoint=")
"""Source lines, command lines and their options speak of checkpoints and tell of none."""


_KEPT = expression(
    r"(?i)\bkeep(?:ing|s)? (?:only )?(?:the )?(?:last|latest|newest)\b(?: \d{1,3})?(?: checkpoints?)?\s?[:=(]\s?\[?(?P<steps>\d{1,9}(?:, ?\d{1,9}){0,20})\b"
)
"""Which checkpoints a limit on their number leaves, as the line of a save lists them."""
_DELETED = expression(
    r"(?i)\b(?:delet|remov|prun|rotat)(?:ed|ing|es?)\b[^\n]{0,200}?(?:checkpoint|ckpt|global_?step|iter(?:ation)?|step)[-_= ]{0,2}(?P<step>\d{1,9})\b"
)
"""`Deleting older checkpoint [out/checkpoint-500] due to args.save_total_limit` (transformers.Trainer)."""


class SaveState(StrEnum):
    """What a line says of a checkpoint."""

    BEGUN = "begun"
    SAVED = "saved"
    FAILED = "failed"
    REFUSED = "refused"
    LOADED = "loaded"


@dataclass(frozen=True, slots=True)
class SaveEvent:
    """One line about one checkpoint. time: seconds since the epoch, where the line or one near it prints it."""

    state: SaveState
    step: int | None
    path: str
    file: str
    line: int
    text: str
    time: float | None = None
    in_background: bool = False
    """The save goes on while training does: a later step does not show that it is whole."""

    @property
    def name(self) -> str:
        """'step 4000', else its path."""
        return f"step {self.step}" if self.step is not None else self.path


def read_event(file: str, line: int, text: str, time: float | None = None) -> SaveEvent | None:
    """What one line tells of a checkpoint; None for nothing."""
    if len(text) > LONGEST or _NAMED.search(text) is None or _SOURCE.search(text):
        return None
    body = text[read_prefix(text)[1] :]
    step, path = _STEP.search(body), _PATH.search(body)
    if path is not None and path["path"].endswith(".py"):
        return None
    part = _PART.search(body)
    if step is None and path is None and not (part is not None and part["have"]) and not _BARE.search(body):  # fmt: skip
        return None
    state = _state_of(body)
    if state is None:
        return None
    number = int(step["step"]) if step is not None else None
    background = _NOT_YET.search(body) is not None
    return SaveEvent(state, number, path["path"].rstrip("./") if path else "", file, line, text, time, background)  # fmt: skip


def _state_of(body: str) -> SaveState | None:
    loads = _LOADED.search(body) is not None
    if _RECALLED.search(body) or _OF_JOB.search(body):
        return None
    if _REFUSED.search(body):
        return SaveState.REFUSED
    if _FAILED.search(body):
        return None if loads else SaveState.FAILED
    if loads:
        return SaveState.LOADED
    part = _PART.search(body)
    if _DONE.search(body) and (part is None or _has_all(part, body)) and not _is_staged(body):
        return SaveState.SAVED
    if _BEGUN.search(body) or (
        part is not None and (_DONE.search(body) or part["have"] != part["all"])
    ):
        return SaveState.BEGUN
    return None


def _has_all(part: re.Match[str], body: str) -> bool:
    """Every part of the checkpoint is written, and not only those of one file."""
    return bool(part["have"]) and part["have"] == part["all"] and _WHOLE.search(body) is not None


def _is_staged(body: str) -> bool:
    """Copied to memory or a queue, not to storage."""
    return expression(r"(?i)\bfinished staging\b|\brunning in (?:the )?background").search(body) is not None  # fmt: skip


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """What the lines tell of all checkpoints, in their order. steps: (file, line, step) of logged steps."""

    events: tuple[SaveEvent, ...]
    steps: Sequence[tuple[str, int, int]] = ()
    kept: tuple[int, ...] = ()
    """Steps of the checkpoints that are left, by the last line that lists them; empty where none does."""
    deleted: frozenset[int] = frozenset()
    """Steps of the checkpoints that were deleted by a line."""

    def usable(self, before_step: int | None = None) -> SaveEvent | None:
        """The newest checkpoint that is whole by these lines, at most at a step; None where none is."""
        return next(iter(self._whole(before_step)), None)

    def is_gone(self, event: SaveEvent) -> bool:
        """A line says that it was deleted, or lists those that are left without it."""
        if event.step is None:
            return False
        left = not self.kept or event.step in self.kept or event.step > max(self.kept)
        return event.step in self.deleted or not left

    def unusable(self) -> SaveEvent | None:
        """The newest checkpoint that was begun and never came whole, where none newer is whole."""
        best = self.usable()
        bad = [e for e in self.events if e.state is not SaveState.LOADED and not self.is_whole(e)]
        last = bad[-1] if bad else None
        if last is None or (best is not None and (best.step or 0) >= (last.step or 0)):
            return None
        return last

    def _whole(self, before_step: int | None) -> list[SaveEvent]:
        kept = [
            e
            for e in self.events
            if e.state in (SaveState.SAVED, SaveState.LOADED, SaveState.BEGUN)
            and self.is_whole(e)
            and not self.is_gone(e)
            and (before_step is None or (e.step is not None and e.step <= before_step))
        ]
        return sorted(kept, key=lambda e: (e.step if e.step is not None else -1, e.state is SaveState.SAVED), reverse=True)  # fmt: skip

    def is_whole(self, event: SaveEvent) -> bool:
        """Nothing says that it failed, and a line, or sync training that went on, says that it was finished."""
        same = [e for e in self.events if e.name == event.name]
        if any(e.state in (SaveState.FAILED, SaveState.REFUSED) for e in same):
            return False
        if any(e.state in (SaveState.SAVED, SaveState.LOADED) for e in same):
            return True
        went_on = any(f == event.file and n > event.line and event.step is not None and s > event.step for f, n, s in self.steps)  # fmt: skip
        return went_on and not any(e.in_background for e in same)


def read_checkpoints(
    lines: Iterable[tuple[str, int, str, float | None]], steps: Sequence[tuple[str, int, int]] = ()
) -> Checkpoints:
    """Every event about a checkpoint in some lines; a line without a time takes the last one of its file."""
    out: list[SaveEvent] = []
    last: dict[str, float] = {}
    kept: tuple[int, ...] = ()
    deleted: set[int] = set()
    for file, number, text, time in lines:
        kept = _read_kept(text) or kept
        if (gone := _DELETED.search(text[:LONGEST])) is not None and _SOURCE.search(text) is None:
            deleted.add(int(gone["step"]))
        if time is not None:
            last[file] = time
        event = read_event(file, number, text, time if time is not None else last.get(file))
        if event is None:
            continue
        if event.step is None and not event.path:  # how far the save that was begun last has come
            begun = _open_save(out)
            if begun is None or (event.state is SaveState.BEGUN and _BARE.search(text)):
                event = replace(event, step=_step_before(steps, file, number) if _BARE.search(text) else None)  # fmt: skip
            else:
                event = replace(event, step=begun.step, path=begun.path)
            if event.step is None:
                continue
        out.append(event)
    return Checkpoints(tuple(out), steps, kept, frozenset(deleted))


def _read_kept(text: str) -> tuple[int, ...]:
    """Steps that a line lists as left."""
    found = _KEPT.search(text[:LONGEST])
    named = found is not None and _NAMED.search(text) is not None
    return tuple(int(s) for s in found["steps"].split(",")) if found is not None and named else ()


def _open_save(events: Sequence[SaveEvent]) -> SaveEvent | None:
    """The save that was begun last, unless a line already says that it is whole."""
    begun = next((e for e in reversed(events) if e.state is SaveState.BEGUN and e.step is not None), None)  # fmt: skip
    done = begun is not None and any(e.name == begun.name and e.state is SaveState.SAVED for e in events)  # fmt: skip
    return None if done else begun


def _step_before(steps: Sequence[tuple[str, int, int]], file: str, line: int) -> int | None:
    """The step logged last before a line."""
    return next((step for name, at, step in reversed(steps) if name == file and at < line), None)
