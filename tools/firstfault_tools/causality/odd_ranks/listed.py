"""Which rank differs in a list that one line prints? `rank 0: 416, rank 1: 412`, `{0: 9, 1: 8}`, `[4, 4, 3]`.

Programs that gather a number from all ranks print it in one line, often right before they give up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.odd_ranks.minority import Minority, begin_sentence
from firstfault_tools.causality.odd_ranks.odd_rank import judge_topic
from firstfault_tools.causality.odd_ranks.speech import LEAST
from firstfault_tools.causality.odd_ranks.topics import topic_of
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Confidence, Finding, Level
from firstfault_tools.log.digest import Line
from firstfault_tools.log.scan import make_line

MOST_LINES, LONGEST = 256, 4_000
_VALUE = r"[\w.+:/-]{1,64}"
_NAMED = expression(
    rf"(?i)\b(?:global )?(?:rank|process)[ _:=#]{{0,2}}(\d{{1,6}})(?: has| is|:|=)? ?\(?({_VALUE})\)?"
)
_MAPPED = expression(rf"\{{\s*'?(?:rank)?(\d{{1,6}})'?: '?({_VALUE})'?((?:, '?(?:rank)?\d{{1,6}}'?: '?{_VALUE}'?){{2,4095}})\s*\}}")  # fmt: skip
_PAIR = expression(rf"'?(?:rank)?(\d{{1,6}})'?: '?({_VALUE})'?")
_LIST = expression(rf"\[\s*'?{_VALUE}'?(?:,\s*'?{_VALUE}'?){{2,4095}}\s*\]")
_OF_RANKS = expression(
    r"(?i)(?:per|across|by|each|all|over|from|between|of)[ _-]?(?:the |all )?(?:\w+ )?(?:ranks?|process(?:es)?|workers?|replicas?)\b|gathered|all_gather|rank-wise|\branks?\b"
)


@cache
def _gate() -> Any:
    import re2

    return re2.compile(
        rb"(?i)rank[ _:=#]{0,2}\d+(?: has| is|:|=)? ?\(?[\w.+:/-]+\)?[,;] ?(?:and )?(?:global )?rank[ _:=#]{0,2}\d"
        rb"|\{ ?'?(?:rank)?0'?: '?[\w.+:/-]+'?, '?(?:rank)?1'?:"
        rb"|rank[^\n]{0,80}\[ ?'?[\w.+:/-]+'?(?:, ?'?[\w.+:/-]+'?){2}"
    )


def find_in_incident(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """Lists by rank in which one value stands alone."""
    out: dict[str, Finding] = {}
    for line in _candidates(incident):
        values = read_list(line.text)
        if len(values) < LEAST:
            continue
        found = _judge(line, values, findings)
        if found is not None and found.kind not in out:
            out[found.kind] = found
    return list(out.values())


def _candidates(incident: LogIncident) -> Iterator[Line]:
    left = MOST_LINES
    for digest in incident.digests:
        runs = digest.kept.runs
        for run in runs if len(runs) <= 2 else (runs[0], runs[-1]):
            data = run.data if isinstance(run.data, bytes) else "\n".join(run.data).encode()
            at = index = 0
            last = -1
            for match in _gate().finditer(data):
                index += data.count(b"\n", at, match.start())
                at = match.start()
                if index == last or index >= run.count:
                    continue
                last = index
                text = run.texts()[index]
                if len(text) <= LONGEST:
                    left -= 1
                    yield make_line(digest.file, run.first + index, text, digest.year)
                if left <= 0:
                    return


def read_list(text: str) -> dict[int, str]:
    """Values by rank of one line; empty where it lists none."""
    named = {int(rank): value.strip(".:") for rank, value in _NAMED.findall(text)}
    if len(named) >= LEAST:
        return named
    mapped = _MAPPED.search(text)
    if mapped is not None and _OF_RANKS.search(text):
        return {int(rank): value for rank, value in _PAIR.findall(mapped[0])}
    listed = _LIST.search(text)
    if listed is not None and _OF_RANKS.search(text[: listed.start()]):
        values = [v.strip(" '\"") for v in listed[0].strip("[] ").split(",")]
        return dict(enumerate(values))
    return {}


def _judge(line: Line, values: dict[int, str], findings: Sequence[Finding]) -> Finding | None:
    votes = Counter(values.values())
    if len(votes) != 2:
        return None
    (usual, most), (value, few) = votes.most_common(2)
    if few != 1 or most < 2 or not re.search(r"\d", value + usual):
        return None
    rank = next(r for r, v in values.items() if v == value)
    words = re.split(r"(?i)\brank|\{|\[ ?['\w]", line.message, maxsplit=1)[0][-80:]
    topic = topic_of(words, line.message)
    if topic is None:
        return None
    level = judge_topic(topic, {rank}, findings)
    minority = Minority((rank,), rank, None)
    title = (
        f"{minority.called()} has {value}, the other {most} ranks {usual} "
        f"({' '.join(words.split())[:80].strip(' :-=')}): {topic.tell(value, usual)}"
    )
    evidence = replace(line.evidence(), rank=rank)
    return Finding(
        kind=f"ranks.odd_{topic.name}",
        title=begin_sentence(title),
        level=level,
        category=topic.category,
        confidence=Confidence.CONFIRMED if level is Level.CAUSE else Confidence.LIKELY,
        evidence=(evidence,),
        rank=rank,
        time=line.time,
        page=topic.page,
        facts={
            **topic.facts,
            "value": value,
            "usual": usual,
            "ranks": [rank],
            "others": most,
            "starts_at": 1 if level is Level.CAUSE else line.number,
            "survived": False,
        },
    )
