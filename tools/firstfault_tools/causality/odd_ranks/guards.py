"""Does pasted code let a part of the ranks into a collective, or out of one, by a test of the rank?

`if rank == 0:` over a call that all ranks must make, and a `return` or `break` under such a test before one,
are the two ways in which code parts the ranks. Read only where somebody waited and nothing else tells why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import (
    Category,
    Finding,
    Level,
    Strength,
    Together,
)
from firstfault_tools.log.digest import FileDigest
from firstfault_tools.log.scan import make_line

MOST_TESTS, LINES_BELOW = 64, 14
_WORDS = ("rank", "RANK", "is_main", "is_master", "global_zero", "process_zero", "process_index")
_ROW = expression(r"(?:[\w./-]{0,100}\.py[:-])?(?:\s{0,6}\d{1,6}(?:[:\t-]|(?=\s)))?(?P<code>.*)")
_TEST = expression(
    r"\s*(?:el)?if (?P<test>.*(?:\b[A-Za-z_.]*(?:rank|RANK)\b|get_rank\(\)|\bis_(?:main|master|global_zero|local_main|rank_zero|rank0|world_process_zero|world_zero)\w*|"
    r"global_zero|process_index).*):\s*(?:#.*)?$"
)
_FIRST = expression(r"(?:rank|RANK|get_rank\(\)|process_index) ?(?:== ?0\b|in [{\[(]-1, ?0[}\])]|< ?1\b)|is_|global_zero|not (?:[\w.]*\.)?(?:\w*rank|RANK)\b")  # fmt: skip
_OTHERS = expression(r"(?:rank|RANK|get_rank\(\)|process_index) ?(?:!= ?0|> ?0|>= ?1)|not (?:\w+\.)*(?:is_|get_rank|\w*zero)")  # fmt: skip
_CALL = expression(
    r"(?<!cuda\.)\b(?P<call>barrier|all_reduce|all_gather\w*|gather_for_metrics|gather_object|broadcast\w*|reduce_scatter\w*|"
    r"all_to_all\w*|wait_for_everyone|new_group|sync_global_devices|(?:full_|get_)?state_dict|save_state|save_checkpoint|"
    r"full_tensor|(?<=model\.)generate|(?<=module\.)generate)\("
)
_SHARDED = frozenset(
    {"state_dict", "get_state_dict", "full_state_dict", "save_state", "save_checkpoint", "generate"}
)
"""Calls that are collective only for a sharded model or a trainer that synchronises in them."""
_SYNCHRONISES = ("barrier", "ZeRO", "zero3", "stage 3", "FSDP", "fsdp", "eepSpeed", "deepspeed")
_NAMED = expression(r"\b([A-Za-z_]\w{2,60})\(")
_STACK = expression(r"^\s{2,}[\w.<>]+ \([^()\s]{1,200}:\d+\)\s*$")
STACK_ABOVE = 8
"""Frames above a function's own in which the call that waits stands."""
_LEAVES = expression(r"\s*(?P<how>return|break|continue|sys\.exit|exit\(|os\._exit)\b")


@dataclass(frozen=True, slots=True)
class _Row:
    number: int
    code: str

    @property
    def depth(self) -> int:
        return len(self.code) - len(self.code.lstrip())


def find_guarded(incident: LogIncident) -> Finding | None:
    """The collective that a test of the rank keeps from a part of the ranks, or None."""
    tests = (
        (digest, number, row)
        for digest, number, text in incident.lines_with(_WORDS)
        if "if " in text and (row := _read(number, text)) is not None and _TEST.match(row.code)
    )
    chosen = [(digest, row) for digest, _, row in islice(tests, MOST_TESTS)]
    # `if rank != 0: barrier()` before and `if rank == 0: barrier()` after a piece of work is a pair
    sides: dict[str, set[bool]] = {}
    for digest, row in chosen:
        for _, call in _calls(incident, list(_while_deeper(list(_below(digest, row)), row.depth))):
            sides.setdefault(call, set()).add(_OTHERS.search(row.code) is None)
    paired = {call for call, both in sides.items() if len(both) > 1}
    for digest, row in chosen:
        found = _judge(incident, digest, row, paired)
        if found is not None:
            return found
    return None


def _read(number: int, text: str) -> _Row | None:
    match = _ROW.match(text[:300])
    return _Row(number, match["code"]) if match is not None and match["code"].strip() else None


def _below(digest: FileDigest, row: _Row) -> Iterator[_Row]:
    for number, text in islice(digest.lines_after(row.number, LINES_BELOW), LINES_BELOW):
        if text.startswith(("$ ", ">>>", "[")):
            return
        read = _read(number, text)
        if read is not None:
            yield read


@dataclass(frozen=True, slots=True)
class _Guard:
    """A test of the rank: what it asks, and the code under it, under its else and below both."""

    row: _Row
    test: str
    body: list[_Row]
    branch: list[_Row]
    below: list[_Row]

    @property
    def passes_first(self) -> bool:
        """Rank 0 alone passes."""
        return not self.passes_others and _FIRST.search(self.test) is not None

    @property
    def passes_others(self) -> bool:
        """Every rank but 0 passes."""
        return _OTHERS.search(self.test) is not None

    @property
    def rank(self) -> int | None:
        """The one that passes."""
        return 0 if self.passes_first else None


def _read_guard(digest: FileDigest, test: _Row) -> _Guard:
    match = _TEST.match(test.code)
    rows = list(_below(digest, test))
    body = list(_while_deeper(rows, test.depth))
    rest, branch = rows[len(body) :], []
    if rest and re.match(r"\s{0,99}(?:else|elif)\b", rest[0].code) is not None:
        branch = list(_while_deeper(rest[1:], test.depth))
        rest = rest[1 + len(branch) :]
    return _Guard(test, match["test"].strip() if match is not None else "", body, branch, rest)


def _judge(
    incident: LogIncident, digest: FileDigest, test: _Row, paired: set[str]
) -> Finding | None:
    guard = _read_guard(digest, test)
    calls = [
        (row, call)
        for row, call in _calls(incident, guard.body)
        if call not in paired and "group=" not in row.code
    ]
    if calls:
        return _judge_call(incident, digest, guard, *calls[0])
    return _judge_inner(incident, digest, guard) or _judge_leaving(incident, digest, guard)


def _judge_call(
    incident: LogIncident, digest: FileDigest, guard: _Guard, row: _Row, call: str
) -> Finding | None:
    """A collective under the test, unless the other branch calls it, too."""
    if call in {c for _, c in _calls(incident, guard.branch)} and call != "new_group":
        return None
    who = "rank 0" if guard.passes_first else "a part of the ranks"
    title = (
        f"{call} in the code shown is called under `if {guard.test}`, so only {who} comes to it, although every "
        f"rank must call it ({row.code.strip()[:90]}): the others are in another collective or gone, and both sides wait"
    )
    return _describe(incident, digest, (guard.row, row), title, guard.rank)


def _judge_inner(incident: LogIncident, digest: FileDigest, guard: _Guard) -> Finding | None:
    """A function that rank 0 alone calls and that waits in a collective, by its stack."""
    inner = _find_inner(incident, guard.body) if guard.passes_first else None
    if inner is None:
        return None
    row, name, call = inner
    title = (
        f"{name} in the code shown is called under `if {guard.test}` and comes to {call}, by the stack of that rank: only rank 0 "
        "comes to it, although every rank must call it: the others are in another collective, and both sides wait"
    )
    return _describe(incident, digest, (guard.row, row), title, 0)


def _judge_leaving(incident: LogIncident, digest: FileDigest, guard: _Guard) -> Finding | None:
    """A return or break under the test, before a collective below it."""
    leave = next((r for r in guard.body if _LEAVES.match(r.code)), None)
    after = _calls(incident, guard.below)
    if leave is None or not after:
        return None
    row, call = after[0]
    if guard.passes_others:
        title = (
            f"in the code shown every rank but 0 leaves early (`{leave.code.strip()[:40]}` under `if {guard.test}`), so rank 0 only reaches "
            f"{call} below it ({row.code.strip()[:90]}), which every rank must call: the others go on to the next step"
        )
        return _describe(incident, digest, (guard.row, leave, row), title, None, alone=0)
    who = "rank 0 leaves" if guard.passes_first else "a part of the ranks leaves"
    title = (
        f"in the code shown {who} early (`{leave.code.strip()[:40]}` under `if {guard.test}`) and never reaches {call} below it "
        f"({row.code.strip()[:90]}), in which the other ranks wait"
    )
    return _describe(incident, digest, (guard.row, leave, row), title, guard.rank)


def _while_deeper(rows: list[_Row], depth: int) -> Iterator[_Row]:
    for row in rows:
        if row.depth <= depth:
            return
        yield row


def _calls(incident: LogIncident, rows: list[_Row]) -> list[tuple[_Row, str]]:
    found = [(r, m["call"]) for r in rows if (m := _CALL.search(r.code.split("#")[0])) is not None]
    if any(c in _SHARDED for _, c in found) and not any(incident.lines_with(_SYNCHRONISES)):
        return [(r, c) for r, c in found if c not in _SHARDED]
    return found


def _find_inner(incident: LogIncident, body: list[_Row]) -> tuple[_Row, str, str] | None:
    """(row, function, collective) of a function in the body that a stack shows within a collective call."""
    for row in body:
        for name in dict.fromkeys(_NAMED.findall(row.code.split("#")[0])):
            for digest, number, text in islice(incident.lines_with((f"{name} (",)), MOST_TESTS):
                if not _STACK.match(text):
                    continue
                above = digest.kept[
                    max(0, digest.position(number) - STACK_ABOVE) : digest.position(number)
                ]
                call = next(
                    (
                        m["call"]
                        for _, t in above
                        if _STACK.match(t) and (m := _CALL.search(t.replace(" (", "("))) is not None
                    ),
                    None,
                )
                if call is not None:
                    return row, name, call
    return None


def _describe(
    incident: LogIncident,
    digest: FileDigest,
    rows: tuple[_Row, ...],
    title: str,
    rank: int | None,
    alone: int | None = None,
) -> Finding:
    texts = ((r.number, digest.text_of(r.number) or r.code) for r in rows)
    return Finding(
        kind="ranks.guarded_call",
        title=title,
        level=Level.CAUSE,
        category=Category.CODE_BUG,
        evidence=tuple(make_line(digest.file, n, t, digest.year).evidence() for n, t in texts),
        rank=rank,
        facts={"survived": False, "alone": rank if alone is None else alone},
        strength=Strength(Together.RANKS),
    )
