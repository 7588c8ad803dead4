"""Who wrote a line? Rank, local rank, host and process, from the prefixes launchers put in front.

Prefixes are peeled off one after the other (torchrun, srun --label, mpirun --tag-output, Ray,
kubectl, docker compose, DeepSpeed, timestamps); what remains is the body. A rank that only occurs
inside the body counts where the format is known (ProcessGroupNCCL, Megatron, DeepSpeed).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from firstfault_tools.expressions import expression


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who wrote a line, as far as its prefixes tell. `task` is a launcher's label that may be a rank.

    key identifies the stream a line belongs to when several are interleaved.
    """

    rank: int | None = None
    local_rank: int | None = None
    task: int | None = None
    host: str | None = None
    pid: int | None = None
    stream: str = ""

    @property
    def key(self) -> str:
        return f"{self.host}|{self.rank}|{self.local_rank}|{self.task}|{self.pid}|{self.stream}"


_HOST = r"[A-Za-z][A-Za-z0-9]*(?:[-.][A-Za-z0-9]+)*\d[A-Za-z0-9.-]*|\d{1,3}(?:\.\d{1,3}){3}"
_LETTERED = r"(?:node|host|machine|server|worker)[-_]?[A-Za-z]"
_PEELERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "bar",
        expression(
            r"\s*(?:[\w ./()-]{0,60}:\s*)?\d{1,3}%\s?\|[^|]{0,200}\|[^\[\]]{0,80}(?:\[[^\]]{0,80}\])?"
        ),
    ),
    (
        "time",
        expression(
            r"\s*\[?(?:20\d\d[-/]\d\d[-/]\d\d[T ,]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?|\d\d:\d\d:\d\d(?:[.,]\d{1,6})?)\]?(?: UTC)?[ :,|-]*"
        ),
    ),
    (
        "rank",
        expression(
            r"\s*\[(?:default|rank|Rank |RANK |RANK_|Rank|GPU|R)(?P<rank>\d{1,6})\](?:<std(?:out|err)>)?:? ?"
        ),
    ),
    ("rank", expression(r"\s*\[(?:global[ _])?rank[=: ]{1,2}(?P<rank>\d{1,6})\]:? ?", re.I)),
    (
        "rank",
        expression(
            r"\s*(?:global[ _])?rank[ :=#]?(?P<rank>\d{1,6})(?:\s*[\]|:>)]\s*|\s+(?-i:(?=[A-Z\[])))",
            re.I,
        ),
    ),
    ("rank", expression(r"\s*\((?:global )?rank[ :=]?(?P<rank>\d{1,6})\):? ?", re.I)),
    ("rank", expression(r"\s*\[Rank (?P<rank>\d{1,6})\] ")),
    ("mpi", expression(r"\s*\[(?P<job>\d+),(?P<rank>\d+)\]<std(?:out|err|diag)>: ?")),
    (
        "ray",
        expression(
            r"\s*\((?P<stream>[A-Za-z_][\w.:-]*)(?: rank=(?P<rank>\d+))?[ ,]+(?:rank=(?P<rank2>\d+)[ ,]+)?pid=(?P<pid>\d+)(?:, ip=(?P<host>[\w.:-]+))?\) ?"
        ),
    ),
    ("ray", expression(r"\s*\((?P<stream>[A-Za-z_]\w*), ip=(?P<host>[\w.:-]+)\) ?")),
    ("pod", expression(r"\s*\[pod/(?P<host>[\w.-]+)/(?P<stream>[\w.-]+)\] ?")),
    (
        "bracket_host",
        expression(
            rf"\s*\[(?P<host>{_HOST}|{_LETTERED}):(?P<lr>\d{{1,3}})\](?:<std(?:out|err)>)?:? "
        ),
    ),
    ("task", expression(r"\s*(?:task|process)[ #]{1,5}(?P<task>\d{1,5}) ?\| ")),
    ("task", expression(r"\s*(?P<task>\d{1,5}): (?!\d)")),
    ("task", expression(r"\s*\[(?P<task>\d{1,4})\]:? (?=\S)")),
    (
        "task",
        expression(
            r"\s*\[(?:task|process)[ :=#]?(?P<task>\d{1,5})(?:[ ,@/]+(?P<host>[a-z][\w.-]{0,62}\d[\w.-]*))?\]:? ?(?=\S)"
        ),
    ),
    ("compose", expression(r"\s*(?P<host>[A-Za-z][\w.-]{0,62}?)\s*\|\s(?=\S)")),
    ("host", expression(rf"\s*(?P<host>{_HOST}): (?=\S)")),
    (
        "hostrank",
        expression(
            rf"\s*\[(?P<host>{_HOST})[ /|,]+(?:rank|r|gpu)[ :=]?(?P<rank>\d{{1,5}})\]:? ?", re.I
        ),
    ),
    (
        "ncclhost",
        expression(
            r"\s*(?P<host>[A-Za-z][\w.-]*):(?P<pid>\d+):\d+ \[\d+\] (?=.*NCCL|\S+:\d+ NCCL)"
        ),
    ),
)
_BODY_RANK = expression(
    r"\[(?:PG [^\]]{0,120}?)?[Rr]ank:? ?(?P<rank>\d{1,6})[\]:]|\[(?:PG ID [^\]]{1,120}?) Rank (?P<pg>\d{1,6})\]|\bGlobal rank:? (?P<global>\d+)|"
    r"\(PID:\d+, Device:\d+, RankID:(?P<ascend>\d+)\)"
)
_SAYS_RANK = expression(
    r"^\s*(?:[A-Za-z]{1,40}(?:Error|Exception): )?(?:on )?(?:global )?[Rr]ank ?[:=]?\s?(?P<rank>\d{1,6})\b\s*[:,]"
)
_LOGGER_RANK = expression(
    r"\[(?:INFO|WARNING|ERROR|DEBUG|CRITICAL)\][^\n]{0,80}?\[Rank (?P<rank>\d{1,6})\]|\|\s*rank[ =:]?(?P<rank2>\d{1,6})\s*\||"
    r"\[[\w.:/ -]{1,80},\s?rank[ =:](?P<rank3>\d{1,6})\]|(?:, |- |\()rank: (?P<rank4>\d{1,6})(?:[,)]|\s*$)|"
    r"\.py:\d{1,5}\] \((?P<rank5>\d{1,4})/\d{1,4}\) [A-Z]",
    re.I,
)
_NOT_HOST = {
    "warning",
    "error",
    "info",
    "debug",
    "critical",
    "note",
    "traceback",
    "epoch",
    "train",
    "step",
    "valid",
}


ERROR_CODE = expression(r"E[A-Z]\d{4}(?=:|$)|ERR\d{4,5}(?=:|$)")
"""Codes of CANN and of the Ascend extension that begin a message where others put a host."""


def read_speaker(text: str) -> tuple[Speaker, int]:
    """Speaker of a normalised line, and the offset at which its body begins."""
    speaker = Speaker()
    offset = 0
    head = text[:400]
    for _ in range(8):
        step = _peel(head, offset, speaker)
        if step is None:
            break
        speaker, offset = step
    if speaker.rank is None:
        speaker = _rank_from_body(head, offset, speaker)
    return speaker, offset


def _peel(head: str, offset: int, speaker: Speaker) -> tuple[Speaker, int] | None:
    for kind, pattern in _PEELERS:
        match = pattern.match(head, offset)
        if match is None or match.end() == offset:
            continue
        groups = match.groupdict()
        if kind in ("host", "compose") and (
            speaker.host is not None
            or str(groups["host"]).lower() in _NOT_HOST
            or ERROR_CODE.fullmatch(str(groups["host"]))
        ):
            continue
        if kind == "task" and (speaker.task is not None or speaker.rank is not None):
            continue
        if kind == "bar" and match.end() >= len(head.rstrip()):
            continue
        return _merge(speaker, kind, groups), match.end()
    return None


def _merge(speaker: Speaker, kind: str, groups: dict[str, str | None]) -> Speaker:
    rank = groups.get("rank") or groups.get("rank2")
    host = groups.get("host")
    pid = groups.get("pid")
    return replace(
        speaker,
        rank=int(rank) if rank is not None and speaker.rank is None else speaker.rank,
        local_rank=int(str(groups["lr"])) if groups.get("lr") else speaker.local_rank,
        task=int(str(groups["task"])) if groups.get("task") else speaker.task,
        host=host.removeprefix("slurmstepd-") if host and speaker.host is None else speaker.host,
        pid=int(pid) if pid else speaker.pid,
        stream=groups.get("stream") or speaker.stream,
    )


def _rank_from_body(head: str, offset: int, speaker: Speaker) -> Speaker:
    for pattern in (_BODY_RANK, _LOGGER_RANK, _SAYS_RANK):
        match = pattern.search(head, offset)
        if match is not None:
            value = next(v for v in match.groupdict().values() if v is not None)
            return replace(speaker, rank=int(value))
    return speaker
